"""The ledger in SQL: the statements and the calls that SQLite and PostgreSQL share."""
