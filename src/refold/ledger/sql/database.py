"""The connection that shared statements run on, and runs: how rows store sequences of message numbers.

Statements are written once, in SQLite's spelling. A store supplies the connection, the encoding of text columns and the
few statements that differ. The ledger numbers a session's messages in the order of arrival, and stores a sequence of
numbers as the first and last of each consecutive run: a path of ten thousand messages is usually one run, and so is
what a fold covers. Only rows that differ are written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

from refold.conversation.turn import count_common
from refold.ledger.records import StoredEdit, StoredFact, StoredMessage

Span = tuple[int, int]  # First and last, both included.
NewEdit = tuple[StoredEdit, int | None, list[Span]]  # With its batch and the runs that it covers.
RankedRow = tuple[int, int, int]  # Rank, first, last.


def find_runs(numbers: Iterable[int]) -> list[Span]:
    """Return the numbers as runs, in the given order."""
    return join_runs((number, number) for number in numbers)


def count_runs(runs: Iterable[Span]) -> int:
    """Return how many numbers the runs contain."""
    return sum(last - first + 1 for first, last in runs)


def join_runs(runs: Iterable[Span]) -> list[Span]:
    """Return the same numbers in the same order, with adjacent runs joined."""
    joined: list[Span] = []
    for first, last in runs:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def cut_runs(runs: Iterable[Span], start: int, stop: int) -> Iterator[Span]:
    """Yield the runs of the numbers at places ``start`` to ``stop``."""
    place = 0
    for first, last in runs:
        length = last - first + 1
        low, high = max(start - place, 0), min(stop - place, length)
        if low < high:
            yield first + low, first + high - 1
        place += length
        if place >= stop:
            return


def splice_runs(runs: Sequence[Span], changes: Iterable[tuple[int, int, Sequence[Span]]]) -> list[Span]:
    """Return the runs with the numbers at each (start, stop) replaced. Changes are in order; places are old ones."""
    length = count_runs(runs)
    spliced: list[Span] = []
    at = 0
    for start, stop, new in changes:
        if not at <= start <= stop <= length:
            raise ValueError(f"splice {start}:{stop} is outside of a path of {length}, or overlaps the previous one")
        spliced.extend(cut_runs(runs, at, start))
        spliced.extend(new)
        at = stop
    spliced.extend(cut_runs(runs, at, length))
    return join_runs(spliced)


def has_overlap(runs: Iterable[Span]) -> bool:
    """Return whether any number occurs twice."""
    last_end = -1
    for first, last in sorted(runs):
        if first <= last_end:
            return True
        last_end = last
    return False


def plan_rows(rows: Sequence[RankedRow], new: Sequence[Span]) -> tuple[list[int], list[tuple[int, Span]]]:
    """Return the ranks to remove and the rows to put, so that the last rows of a path, ``rows``, hold ``new``."""
    old = [(first, last) for _, first, last in rows]
    head = count_common(old, new)
    # More rows than before may find no rank in front of those at the end: these are ranked again, too.
    tail = count_common(old[head:][::-1], new[head:][::-1]) if len(new) <= len(old) else 0
    wanted = new[head : len(new) - tail]
    ranks = [rank for rank, _, _ in rows[head : len(rows) - tail]]
    after = rows[-1][0] + 1 if rows else 0
    ranks += range(after, after + len(wanted) - len(ranks))
    return ranks[len(wanted) :], list(zip(ranks, wanted, strict=False))


def meets(runs: Sequence[Span], first: int, last: int) -> bool:
    """Return whether any number from first to last is in these runs, which are sorted and disjoint."""
    at = bisect_left(runs, first, key=lambda run: run[1])
    return at < len(runs) and runs[at][0] <= last


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return runs, which are sorted by their first number, as disjoint runs."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def is_within(seq: int, spans: Sequence[Span]) -> bool:
    """Return whether a number is in these runs, which are sorted and disjoint."""
    at = bisect_right(spans, (seq, float("inf"))) - 1
    return at >= 0 and seq <= spans[at][1]


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
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[SqlRow]:
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
    # Whether the settings of a session contain some bytes.
    has_setting: ClassVar[str]

    @abstractmethod
    def run(self, sql: str, values: Sequence[Any] = ()) -> SqlAnswer:
        """Run a statement. PostgreSQL sends it later, together with the next one whose answer is read."""

    @abstractmethod
    def run_each(self, sql: str, values: Sequence[Any], keys: Iterable[Any]) -> SqlAnswer:
        """Run a statement that ends with ``= ANY(?)`` for all these keys."""

    @staticmethod
    @abstractmethod
    def encode(text: str, /) -> str | bytes:
        """Return any Python string in the form that a text column can hold."""

    @staticmethod
    @abstractmethod
    def decode(stored: Any, /) -> str:
        """Return the string that ``encode`` was given."""

    @abstractmethod
    def insert_messages(self, session: int, numbered: Sequence[tuple[int, StoredMessage]]) -> None:
        """Insert messages with their numbers."""

    @abstractmethod
    def insert_edits(self, session: int, edits: Sequence[NewEdit]) -> None:
        """Insert edits and the runs of messages that they cover, in this order."""

    @abstractmethod
    def insert_fact(self, session: int, fact: StoredFact, *, batch: int) -> None:
        """Insert a fact unless the session has it already."""

    def delete_content(self, session: int, seqs: Sequence[int] | None = None) -> None:  # noqa: B027
        """Delete content that is kept outside of ``message``: of these messages, or of the whole session."""

    def lock_events(self) -> None:  # noqa: B027
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
