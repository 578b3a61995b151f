"""The schemas of both stores, step by step: ``steps/sqlite_1.sql`` is the first step of a file, and so on.

A released step is never changed; a later change is another step. A session's messages are numbered in the order of
arrival (``seq``). A path, and what an edit covers, are runs of these numbers. Hashes are bytes, not hex. In SQLite the
raw bytes have a table of their own, so that reading a path does not touch them; PostgreSQL itself moves large values
out of the row. There, text is stored as ``encode_column`` writes it, and JSON as bytes, because neither ``text`` nor
``jsonb`` holds every JSON value; collation "C" compares text by bytes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from refold.errors import LedgerError

_STEPS = 2


@cache
def read_steps(store: Literal["sqlite", "postgres"]) -> tuple[str, ...]:
    """Return the steps of a store's schema, oldest first."""
    folder = files("refold.ledger.sql").joinpath("steps")
    return tuple(folder.joinpath(f"{store}_{step}.sql").read_text(encoding="utf-8") for step in range(1, _STEPS + 1))


def check_version(version: int, newest: int, where: str) -> int:
    """Return the version of a ledger; LedgerError if it is newer than this code."""
    if version > newest:
        raise LedgerError(
            "{where} has schema {version}, this refold knows up to {newest}; install a newer refold",
            where=where,
            version=version,
            newest=newest,
        )
    return version
