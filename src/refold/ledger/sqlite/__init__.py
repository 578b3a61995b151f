"""The ledger in one SQLite file, through apsw."""

from refold.ledger.sqlite.store import SqliteLedger

__all__ = ["SqliteLedger"]
