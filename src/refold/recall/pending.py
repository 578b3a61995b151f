"""Messages that the index does not hold yet, searched as if it did.

The index follows the ledger in the background, so a request may come before it has caught up. The messages behind the
watermark are then read from the ledger, and only the words of the query are looked for in them. Places continue where
the index ends: the result is the same whether the background work is done or not. Reads only, and no more than
``PENDING_MAX`` messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow, StoredMessage, format_of
from refold.recall.index import split_original
from refold.recall.originals import Original, read_original
from refold.recall.rows import Mark, PassageRow, Source
from refold.recall.words import WordSieve

PENDING_MAX = 600
_CHARS_MAX = 2_000_000


@dataclass(slots=True)
class Pending:
    """What follows the indexed passages of a session, for the words of one query."""

    passages: dict[int, PassageRow] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    sources: dict[int, Source] = field(default_factory=dict)
    originals: dict[str, Original] = field(default_factory=dict)
    weight: int = 0

    def read_passages(self, low: int, high: int) -> Iterable[PassageRow]:
        """Yield the passages at places ``low`` to ``high``, without the latter."""
        return (self.passages[place] for place in range(low, high) if place in self.passages)


def read_pending(
    ledger: Ledger, row: SessionRow, mark: Mark | None, hidden: Sequence[str], words: Iterable[str]
) -> Pending:
    """Read the messages behind the watermark; if there are too many, the newest of those that are ``hidden``."""
    pending = Pending()
    messages = ledger.list_messages(row.id, after=mark.seq if mark else 0, limit=PENDING_MAX + 1)
    if not messages:
        return pending
    if len(messages) > PENDING_MAX:
        messages = _read_newest(ledger, row, messages[0].seq, hidden)
    form = format_of(row)
    sieve = WordSieve(words)
    place = mark.passages if mark else 0
    room = _CHARS_MAX
    for stored in messages:
        original = read_original(stored, form)
        room -= len(original.text)
        if room < 0:
            break
        pending.originals[original.id] = original
        pending.sources[original.seq] = Source(original.seq, original.id, original.digest, original.role)
        for piece in split_original(original):
            passage = PassageRow(place, original.seq, piece.start, piece.stop, piece.weight, piece.flags)
            pending.passages[place] = passage
            pending.weight += piece.weight
            for word in sieve.find(piece.text).union(sieve.wanted.intersection(piece.beside)):
                pending.places.setdefault(word, []).append(place)
            place += 1
    return pending


def _read_newest(ledger: Ledger, row: SessionRow, from_seq: int, hidden: Sequence[str]) -> list[StoredMessage]:
    newest = ledger.read_messages(row.id, hidden[-PENDING_MAX:])
    return sorted((one for one in newest if one.seq >= from_seq), key=lambda one: one.seq)
