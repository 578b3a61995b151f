"""Schema versions: each step brings a file from one version to the next, all of them in one transaction.

A file that is newer than this code is refused, never touched. A file of another program is refused as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from refold.errors import LedgerError
from refold.ledger.sqlite.migrations import v1
from refold.ledger.sqlite.sql import fetch_one

APPLICATION_ID = 0x7266_6C64  # "rfld", so that no other program's file is taken for a ledger.
STEPS: tuple[str, ...] = (v1.SQL,)


def read_version(connection: apsw.Connection, where: str, newest: int = len(STEPS)) -> int:
    """Return the schema version of a file, 0 for an empty one; LedgerError if it is newer, or not a ledger."""
    # One statement sees one moment: another process may be making the file just now.
    row = fetch_one(
        connection,
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) "
        "FROM pragma_user_version, pragma_application_id",
    )
    version, application, tables = map(int, row or (0, 0, 0))
    is_empty = application == version == tables == 0
    if application != APPLICATION_ID and not is_empty:
        raise LedgerError(f"{where} is a database of another program, not a ledger; name another file")
    if version > newest:
        raise LedgerError(f"{where} has schema {version}, this refold knows up to {newest}; install a newer refold")
    return version


def migrate(connection: apsw.Connection, where: str, steps: Sequence[str] = STEPS) -> None:
    """Bring a file to the newest schema, whole or not at all."""
    if read_version(connection, where, len(steps)) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited for the lock.
        for step in steps[read_version(connection, where, len(steps)) :]:
            connection.execute(step)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(steps))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
