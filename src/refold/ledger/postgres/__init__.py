"""The ledger on a PostgreSQL server, for many processes and machines, through psycopg."""

from refold.ledger.postgres.store import PostgresLedger

__all__ = ["PostgresLedger"]
