"""Asking PostgreSQL: all rows, one row, one value; rows in PostgreSQL's own binary form, so that bytes stay bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

Row = tuple[Any, ...]
Db = psycopg.Connection[Row]


def run(db: Db, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Row]:
    """Run a statement. Inside a transaction it may be sent later, with the next one whose result is read."""
    # Every statement is a constant of ours; what comes from outside is always a value.
    return db.execute(sql, values or None, binary=True)


def fetch_all(db: Db, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """Return all rows."""
    return run(db, sql, values).fetchall()


def fetch_one(db: Db, sql: str, values: Sequence[Any] = ()) -> Row | None:
    """Return the first row, None if there is none."""
    return run(db, sql, values).fetchone()


def fetch_value(db: Db, sql: str, values: Sequence[Any] = ()) -> Any:
    """Return the first value of the first row, None if there is none."""
    row = fetch_one(db, sql, values)
    return None if row is None else row[0]
