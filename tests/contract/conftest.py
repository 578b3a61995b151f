"""Every store keeps one contract: a test that takes ``ledger`` runs once for each of them.

To add a store, add it to STORES, with a function that opens it in an empty folder, and to the fixture's params.
Opening it twice in one folder gives two handles on one record, as two processes have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.postgres import ON_POSTGRES, schema_of, server_url

OpenLedger = Callable[[], Ledger]
STORES: dict[str, Callable[[Path], Ledger]] = {
    "sqlite": lambda folder: SqliteLedger(folder / "ledger.db"),
    "postgres": lambda folder: open_postgres(folder),
}


def open_postgres(folder: Path) -> Ledger:
    url = server_url()
    from refold.ledger.postgres import PostgresLedger

    return PostgresLedger(url, schema=schema_of(folder))


@pytest.fixture(params=[ON_POSTGRES, "sqlite"])
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenLedger]:
    """Opens another handle on the same record."""
    opened: list[Ledger] = []

    def open_another() -> Ledger:
        opened.append(STORES[request.param](tmp_path))
        return opened[-1]

    yield open_another
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: OpenLedger) -> Ledger:
    return open_ledger()
