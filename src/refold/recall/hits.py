"""Hits: the places of a session that answer a query, best first.

Words lead; meaning reorders what is close together and adds what shares no word. Messages that the index does not hold
yet are read from the ledger and searched as if it did: places continue where the index ends, so the result is the same
whether the background work is done or not. Deterministic, and bounded by blocks of places that hold most of what is
sought.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import apsw

from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow, StoredMessage, format_of
from refold.recall import index_file
from refold.recall.index import NUMBER, QUESTION, RecallIndex, split_original
from refold.recall.index_file import NOTES_FROM, PLACES_MAX, IndexedMessage, Mark, PassageRow
from refold.recall.passages import Original, read_original
from refold.recall.rank import BLOCK, Said, Sought, choose_blocks, join_ranges, score_places, wants_number, weigh_word
from refold.recall.vectors import Scorer
from refold.recall.words import WordSieve, find_relative_days, piece_words, query_words

PENDING_MAX = 600
_CHARS_MAX = 2_000_000


@dataclass(slots=True)
class Pending:
    """What follows the indexed passages of a session, for the words of one query."""

    passages: dict[int, PassageRow] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    sources: dict[int, IndexedMessage] = field(default_factory=dict)
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
        pending.sources[original.seq] = IndexedMessage(original.seq, original.id, original.digest, original.role)
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


# Summaries and facts describe originals, so they rank below originals that say the same and never crowd them out.
NOTE_SHARE = 0.8
NOTES_MAX = 2
SPARE = 3
SCORE_DIGITS = 6
_FIRST_MAX = 64
_FIRST_MESSAGES_MAX = 24
_PASSAGES_EACH_MAX = 3
_LAST_MAX = 4
_DULL_MIN = 1_000
VECTOR_SHARE = 0.6
NEAR_MIN = 0.3


@dataclass(frozen=True, slots=True)
class Hit:
    """A place that was found, before its text is read."""

    place: int
    score: float
    row: PassageRow | None = None
    note: index_file.Note | None = None
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class HitList:
    """The hits of a query, and the messages among them that the index does not hold yet."""

    hits: Sequence[Hit] = ()
    pending: Pending = field(default_factory=Pending)


def find_hits(
    index: RecallIndex,
    session_id: str,
    query: str,
    *,
    now: float = 0.0,
    vectors: Scorer | None = None,
    words_share: float = 1.0,
    read_pending: Callable[[Mark | None, Iterable[str]], Pending] | None = None,
) -> HitList:
    """Return the places of a session that answer a query, best first; those of ``read_pending`` among them."""
    if not query.strip():
        return HitList()
    words = query_words(query)
    words.update((day, 1.0) for day in find_relative_days(query, now))
    with index.file.read() as db:
        stored = index_file.find_mark(db, session_id)
        pending = read_pending(stored, words) if read_pending else Pending()
        mark = stored or Mark(0)
        mark = replace(mark, passages=mark.passages + len(pending.passages), weight=mark.weight + pending.weight)
        if not mark.passages:
            return HitList()
        indexed = {word: index_file.find_places(db, mark, word) for word in words}
        # Notes come last in the order of places.
        places = {word: _insert(found, pending.places.get(word, ())) for word, found in indexed.items()}
        sought = _weigh(db, mark, words, places)
        early = _find_early(places, piece_words(query))
        near = sorted({*choose_blocks(_without_notes(sought)), *(place // BLOCK for place in early)})
        lenders = [place for low, high in join_ranges(near) for place in range(low, high)]
        by_meaning = vectors(db, mark, lenders) if vectors else {}
        near = sorted({*near, *(place // BLOCK for place in by_meaning)})
        found_rows = {
            one.place: one
            for low, high in join_ranges(near)
            for one in (*index_file.read_passages(db, mark, low, high), *pending.read_passages(low, high))
        }
        said = {
            place: Said(one.weight, bool(one.flags & QUESTION), bool(one.flags & NUMBER))
            for place, one in found_rows.items()
        }
        mean = mark.weight / mark.passages
        scores = score_places(sought, said, mean, asks_number=wants_number(query)) if words_share else {}
        fused = fuse(scores, by_meaning, words_share)
        hits = [
            Hit(place, score, row=found_rows[place], is_early=place in early)
            for place, score in fused.items()
            if place in found_rows
        ]
        early = _spread_messages(early, found_rows)
        hits = [replace(hit, is_early=hit.place in early) if hit.is_early else hit for hit in hits]
        hits += _find_notes(db, mark, sought)
    return HitList(sorted(hits, key=lambda hit: (-round(hit.score, SCORE_DIGITS), -hit.place)), pending)


def _insert(indexed: list[int], pending: Sequence[int]) -> list[int]:
    """Return the places of a word in order."""
    if not pending:
        return indexed
    at = bisect_left(indexed, NOTES_FROM)
    return [*indexed[:at], *pending, *indexed[at:]]


def _weigh(
    db: apsw.Connection, mark: Mark, words: Mapping[str, float], places: Mapping[str, Sequence[int]]
) -> list[Sought]:
    """Return the words with their weights; a word that is in most places only if there is no better one."""
    sought: list[Sought] = []
    dull: list[Sought] = []
    for word, found in places.items():
        count = len(found) if len(found) < PLACES_MAX else index_file.count_places(db, mark, word)
        weighed = Sought(words[word] * weigh_word(count, mark.passages), found)
        (dull if count >= _DULL_MIN and 2 * count > mark.passages else sought).append(weighed)
    return sought if any(one.places for one in sought) else dull


def _find_early(places: Mapping[str, Sequence[int]], pieces: Sequence[str]) -> frozenset[int]:
    """Return the first places that hold all of these words, and the last ones."""
    known = [set(places[word]) for word in pieces if word in places]
    if not known:
        return frozenset()
    shared = known[0].intersection(*known)
    held = sorted(place for place in shared if place < NOTES_FROM)
    return frozenset((*held[:_FIRST_MAX], *held[_FIRST_MAX:][-_LAST_MAX:]))


def _spread_messages(places: frozenset[int], found: Mapping[int, PassageRow]) -> frozenset[int]:
    """Return these places without those that only repeat a message: few of each, the first and last messages."""
    by_message: dict[int, list[int]] = {}
    for place in sorted(places):
        if place in found:
            by_message.setdefault(found[place].seq, []).append(place)
    groups = [group[:_PASSAGES_EACH_MAX] for group in by_message.values()]
    last = groups[max(_FIRST_MESSAGES_MAX, len(groups) - _LAST_MAX) :]
    return frozenset(place for group in (*groups[:_FIRST_MESSAGES_MAX], *last) for place in group)


def fuse(by_words: Mapping[int, float], by_meaning: Mapping[int, float], words_share: float = 1.0) -> dict[int, float]:
    """Join two scores of places. Words lead; meaning moves what is close together and adds what shares no word."""
    if not by_meaning:
        return dict(by_words)
    if not by_words and words_share:
        # No word of it was ever said: what is not clearly near is an answer to another question.
        by_meaning = {place: near for place, near in by_meaning.items() if near >= NEAR_MIN}
    top = max(by_words.values(), default=0.0) or 1.0
    # Where the words already tell nearly all, meaning must not turn the order around.
    places = {*by_words, *by_meaning}
    return {
        place: words_share * by_words.get(place, 0.0) + VECTOR_SHARE * top * by_meaning.get(place, 0.0)
        for place in places
    }


def _without_notes(sought: Iterable[Sought]) -> list[Sought]:
    return [
        word if not word.places or word.places[-1] < NOTES_FROM
        else Sought(word.weight, [place for place in word.places if place < NOTES_FROM])
        for word in sought
    ]  # fmt: skip


def _find_notes(db: apsw.Connection, mark: Mark, sought: Sequence[Sought]) -> list[Hit]:
    scores: dict[int, float] = {}
    most = sum(word.weight for word in sought)
    for word in sought:
        for place in word.places:
            if place >= NOTES_FROM:
                scores[place] = scores.get(place, 0.0) + NOTE_SHARE * word.weight / most
    best = sorted(scores, key=lambda place: (-scores[place], -place))[: NOTES_MAX * SPARE]
    notes = ((place, index_file.read_note(db, mark, place)) for place in best)
    return [Hit(place, scores[place], note=note) for place, note in notes if note is not None]
