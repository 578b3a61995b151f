"""Asking SQLite: all rows, one row, one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]


def fetch_all(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """Return all rows."""
    return db.execute(sql, values).fetchall()


def fetch_one(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Row | None:
    """Return the first row, None if there is none."""
    return db.execute(sql, values).fetchone()


def fetch_value(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """Return the first value of the first row, None if there is none."""
    row = db.execute(sql, values).fetchone()
    return None if row is None else row[0]
