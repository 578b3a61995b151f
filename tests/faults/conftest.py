"""Where the record is that processes work on while everything goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.postgres import ON_POSTGRES, empty_database, own_server, server_url


@pytest.fixture
def url() -> Iterator[str]:
    """A database of its own."""
    with empty_database(server_url()) as address:
        yield address


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the record is: a file, or a database of its own."""
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.db")
        return
    with empty_database(server_url()) as url:
        yield url


@pytest.fixture
def own_url() -> Iterator[str]:
    """A database of a server that may be stopped."""
    with empty_database(own_server().url()) as url:
        yield url
