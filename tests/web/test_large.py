"""Sessions of ten thousand messages, and messages of a megabyte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.web import Browser, need_browser, serve, wait_for_rows
from tests.web.stories import leave_no_sample, open_manager, write_large, write_long

need_browser()
pytestmark = pytest.mark.slow  # test_payloads.py opens the pages in the quick suite.


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    leave_no_sample(folder)
    write_long(folder)
    write_large(folder)
    return folder


@pytest.fixture(scope="module")
def url(workspace: Path) -> Iterator[str]:
    with serve(workspace) as address:
        yield f"{address}/ui/"


def test_ten_thousand_messages_open_at_the_newest_and_scroll_to_the_oldest(browser: Browser, url: str) -> None:
    page = browser.open(url)  # The framework is loaded, as it is on any visit but the first.
    page.locator(".session-link").first.wait_for()
    page.goto(f"{url}session?name=long")
    page.locator(".turn").get_by_text("Answer 9999").wait_for()
    assert page.locator("[data-at]").count() < 80
    for share, number in ((0.5, None), (0.0, 0)):
        page.evaluate(
            "share => { const b = document.querySelector('.talk-scroll'); b.scrollTop = b.scrollHeight * share }", share
        )
        page.wait_for_function(
            "() => { const box = document.querySelector('.talk-scroll').getBoundingClientRect();"
            " return [...document.querySelectorAll('[data-key]')].some(e => { const r = e.getBoundingClientRect();"
            " return r.bottom > box.top + 60 && r.top < box.bottom - 60 }) }"
        )
        if number is not None:
            page.locator(".turn").get_by_text(f"Question {number}:").wait_for()
    assert page.locator("[data-at]").count() < 80
    page.get_by_role("button", name="To the newest").click()
    page.locator(".turn").get_by_text("Answer 9999").wait_for()


def test_a_reader_further_up_is_not_moved_by_what_is_said_meanwhile(
    browser: Browser, url: str, workspace: Path
) -> None:
    page = browser.open(f"{url}session?name=long")
    page.locator(".turn").get_by_text("Answer 9999").wait_for()
    meter = page.get_by_role("meter")
    counted = meter.get_attribute("aria-valuenow")
    page.evaluate("document.querySelector('.talk-scroll').scrollTop -= 4000")
    page.wait_for_timeout(500)
    wait_for_rows(page)
    place = (
        "() => { const top = document.querySelector('.talk-scroll').getBoundingClientRect().top;"
        " const row = [...document.querySelectorAll('[data-key]')].find(e => e.getBoundingClientRect().top > top);"
        " return [row.dataset.key, Math.round(row.getBoundingClientRect().top)] }"
    )
    before = page.evaluate(place)
    with open_manager(workspace) as manager:
        manager.append("long", [{"role": "user", "content": "Meanwhile, far below."}])
    # The gauge follows the conversation, so both know of the new message.
    page.wait_for_function(
        "counted => document.querySelector('[role=meter]').getAttribute('aria-valuenow') !== counted", arg=counted
    )
    wait_for_rows(page)
    key, top = page.evaluate(place)
    assert key == before[0]
    assert abs(top - before[1]) <= 2


def test_a_megabyte_shows_its_head_and_the_rest_page_by_page(browser: Browser, url: str) -> None:
    page = browser.open(f"{url}session?name=large")
    page.locator(".turn").get_by_text("And a small one last.").wait_for()
    assert len(page.locator(".talk").inner_text()) < 20_000
    more = page.get_by_role("button", name="Show more")
    shown = 0
    for _ in range(3):
        more.click()
        page.wait_for_function("shown => document.querySelector('.talk').innerText.length > shown + 30000", arg=shown)
        shown = len(page.locator(".talk").inner_text())
    assert "1,000,0" in more.inner_text()
