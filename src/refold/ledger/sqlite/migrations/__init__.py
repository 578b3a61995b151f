"""Schema versions: each step brings a file from one version to the next, all of them in one transaction.

A file that is newer than this code is refused, never touched. A file of another program is refused as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from refold.errors import LedgerError
from refold.ledger.sqlite.migrations import v1
from refold.ledger.sqlite.sql import fetch_value

APPLICATION_ID = 0x7266_6C64  # "rfld", so that no other program's file is taken for a ledger.
STEPS: tuple[str, ...] = (v1.SQL,)


def read_version(connection: apsw.Connection, where: str) -> int:
    """Return the schema version of a file, 0 for an empty one; LedgerError if the file is not a ledger."""
    version = int(connection.pragma("user_version"))
    application = int(connection.pragma("application_id"))
    if application == APPLICATION_ID:
        return version
    is_empty = fetch_value(connection, "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)")
    if application == 0 and version == 0 and is_empty:
        return 0
    raise LedgerError(f"{where} is a database of another program, not a ledger; name another file")


def migrate(connection: apsw.Connection, where: str, steps: Sequence[str] = STEPS) -> None:
    """Bring a file to the newest schema, whole or not at all; LedgerError if it is newer than this code."""
    version = read_version(connection, where)
    if version == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited for the lock.
        version = read_version(connection, where)
        if version > len(steps):
            raise LedgerError(
                f"{where} has schema {version}, this refold knows up to {len(steps)}; install a newer refold"
            )
        for step in steps[version:]:
            connection.execute(step)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(steps))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
