"""One browser for all pages of a worker. A page that had a problem fails its test (``Browser.close_pages``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs.web import Browser, browse


@pytest.fixture(scope="module")
def one_browser() -> Iterator[Browser]:
    with browse() as made:
        yield made


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    yield one_browser
    one_browser.close_pages()
