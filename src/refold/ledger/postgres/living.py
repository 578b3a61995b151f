"""Whether a connection that lay idle still lives, and may be used again. Nothing here waits."""

from __future__ import annotations

import contextlib
import os
import selectors

import psycopg

from refold.ledger.postgres.sql import Db


def take_living(idle: list[Db]) -> Db | None:
    """Return the last of these connections that lives; those that do not are closed."""
    while True:
        try:
            db = idle.pop()
        except IndexError:
            return None
        if _is_living(db):
            return db
        db.close()


def _is_living(db: Db) -> bool:
    """Tell whether the server has hung up: then something can be read, though nothing was asked."""
    if db.closed:
        return False
    with selectors.DefaultSelector() as selector, contextlib.suppress(psycopg.Error):
        selector.register(db.fileno(), selectors.EVENT_READ)
        if not selector.select(0):
            return True
        # What is there to be read may be a notice, such as that of changed settings.
        db.pgconn.consume_input()
        return not selector.select(0) and not db.closed
    return False


def is_clean(db: Db) -> bool:
    """Tell whether a connection is open, and nothing is under way on it."""
    return not db.closed and db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def close_all(idle: list[Db], pid: int) -> None:
    """Close connections, if it was this process that opened them."""
    if pid == os.getpid():
        while idle:
            idle.pop().close()
