"""Schema versions: each step brings the tables from one version to the next, all of them in one transaction.

A record that is newer than this code is refused, never touched. A schema of another program is refused as well. Two
processes that come at once wait for each other; the second finds it done.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.errors import LedgerError
from refold.ledger.postgres.address import quote_name
from refold.ledger.postgres.migrations import v1
from refold.ledger.postgres.sql import Db, fetch_one, fetch_value

STEPS: tuple[str, ...] = (v1.SQL,)
LOCK = 0x7266_6C64  # "rfld": one number for all schemas of a database; migrations are rare and short.


def read_version(db: Db, where: str, schema: str, newest: int = len(STEPS)) -> int:
    """Return the version of the tables, 0 if there are none; LedgerError if it is newer, or not a ledger."""
    found = fetch_one(
        db,
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = %s AND relkind IN ('r', 'v') ORDER BY (relname = 'ledger_version') DESC LIMIT 1",
        (schema,),
    )
    if found is None:
        return 0
    if found[0] != "ledger_version":
        raise LedgerError(f"{where}: the schema {schema!r} belongs to another program; name another schema or database")
    version = int(fetch_value(db, "SELECT version FROM ledger_version") or 0)
    if version > newest:
        raise LedgerError(f"{where} has schema {version}, this refold knows up to {newest}; install a newer refold")
    return version


def migrate(db: Db, where: str, schema: str, steps: Sequence[str] = STEPS) -> None:
    """Bring the tables to the newest schema, whole or not at all."""
    if read_version(db, where, schema, len(steps)) == len(steps):
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        # Another process may have done it while this one waited for the lock.
        version = read_version(db, where, schema, len(steps))
        if version == len(steps):
            return
        if version == 0:
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema)}")
            db.execute("CREATE TABLE ledger_version (version integer NOT NULL)")
            db.execute("INSERT INTO ledger_version VALUES (0)")
        for step in steps[version:]:
            db.execute(step)
        db.execute("UPDATE ledger_version SET version = %s", (len(steps),))
