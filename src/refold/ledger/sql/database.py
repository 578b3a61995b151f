"""The connection that shared statements run on, inside a transaction: SQLite's or PostgreSQL's.

Statements are written once, in SQLite's spelling. A store supplies the connection, the encoding of text columns and the
few statements that differ: bulk inserts, locks, and where the content of a message is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

from refold.ledger.records import StoredEdit, StoredFact, StoredMessage
from refold.ledger.runs import Span

SqlRow = tuple[Any, ...]


class SqlAnswer(Protocol):
    """The rows of a statement. Reading them waits for the server if it has not answered yet."""

    def fetchone(self) -> SqlRow | None: ...

    def fetchall(self) -> list[SqlRow]: ...


class Rows:
    """Rows that were read already."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[SqlRow]) -> None:
        self._rows = rows

    def fetchone(self) -> SqlRow | None:
        """Return the first row, or None."""
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[SqlRow]:
        """Return all rows."""
        return self._rows


class Database(ABC):
    """One connection inside a transaction, and what differs between the stores."""

    __slots__ = ()

    # Ends the SELECT of a session that is about to change.
    lock: ClassVar[str]
    # The column of ``message`` that is NULL once the message is forgotten.
    content: ClassVar[str]
    # Joins ``message`` to the table that has the column ``body``.
    join_body: ClassVar[str]

    @abstractmethod
    def run(self, sql: str, values: Sequence[Any] = ()) -> SqlAnswer:
        """Run a statement. PostgreSQL sends it later, together with the next one whose answer is read."""

    @abstractmethod
    def run_each(self, sql: str, values: Sequence[Any], keys: Iterable[Any]) -> SqlAnswer:
        """Run a statement that ends with ``= ANY(?)`` for all these keys."""

    @abstractmethod
    def encode(self, text: str) -> str | bytes:
        """Return any Python string in the form that a text column can hold."""

    @abstractmethod
    def decode(self, stored: Any) -> str:
        """Return the string that ``encode`` was given."""

    @abstractmethod
    def insert_messages(self, session: int, numbered: Sequence[tuple[int, StoredMessage]]) -> None:
        """Insert messages with their numbers."""

    @abstractmethod
    def insert_edit(self, session: int, stored: StoredEdit, *, batch: int | None, spans: Sequence[Span]) -> None:
        """Insert an edit and the runs of messages that it covers."""

    @abstractmethod
    def insert_fact(self, session: int, fact: StoredFact, *, batch: int) -> None:
        """Insert a fact unless the session has it already."""

    @abstractmethod
    def delete_content(self, session: int, seqs: Sequence[int] | None = None) -> None:
        """Delete content that is kept outside of ``message``: of these messages, or of the whole session."""

    @abstractmethod
    def lock_events(self) -> None:
        """Make sure that events become visible in the order of their ids."""

    def fetch_all(self, sql: str, values: Sequence[Any] = ()) -> list[SqlRow]:
        """Run a statement and return all its rows."""
        return self.run(sql, values).fetchall()

    def fetch_one(self, sql: str, values: Sequence[Any] = ()) -> SqlRow | None:
        """Run a statement and return its first row, or None."""
        return self.run(sql, values).fetchone()

    def fetch_value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement and return the first value of its first row, or None."""
        row = self.fetch_one(sql, values)
        return None if row is None else row[0]
