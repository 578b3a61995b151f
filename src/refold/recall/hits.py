"""Hits: the places of a session that answer a query, best first. Deterministic and bounded.

A place scores what it says itself (BM25) and, fading with distance, what was said around it: in a conversation the
value is often named a few turns after its subject. Words that are said nearby count once, at their strongest. Only
blocks of places that hold most of the sought words are scored. Word scores come first; similarity of meaning reorders
near ties and adds places that share no word.

Messages that the index does not hold yet are read from the ledger and searched as if it did: places continue where the
index ends, so the result is the same whether the background work is done or not.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import apsw

from refold.ledger.records import SessionRow, format_of
from refold.ledger.sql.ledger import Ledger
from refold.recall import index_file
from refold.recall.index import NUMBER, QUESTION, RecallIndex, split_original
from refold.recall.index_file import PLACES_MAX, IndexedMessage, Mark, PassageRow
from refold.recall.originals import Original, read_original
from refold.recall.vectors import Scorer
from refold.recall.words import WordSieve, find_relative_days, piece_words, query_words

# Tuned on one half of the recorded questions, reported on the other: benchmarks/bench_recall.py.
SATURATION = 1.2
LENGTH_SHARE = 0.3
# Without this limit, a passage of tool output would score nothing among very short messages.
LENGTH_MAX = 4.0
AFTER_FIRST = 0.75
AFTER_FADE = 0.9
AFTER_MAX = 15
BEFORE = (0.3, 0.15)
QUESTION_SHARE = 0.85
NUMBER_BONUS = 1.15

BLOCK = 8
BLOCKS_MAX = 64

# A query that asks for a number, a date, an amount.
WANTS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|old|often|far|tall|big|large)\b|\bwhen\b|\bwhat (?:time|date|number|id)\b|"
    r"\b(?:which|what) (?:port|version|year|month|day)\b|\b(?:phone|price|cost|fee|total|amount|code)\b|"
    r"电话|号码|评分|票价|门票|价格|费用|时间|多少|几|时长|片长|年份|哪年|生日|日期|身高|体重|人均|端口|版本|编号",
    re.I,
)


@dataclass(frozen=True, slots=True)
class QueryWord:
    """One word of a query: its weight, and its places in order."""

    weight: float
    places: Sequence[int]


def choose_blocks(sought: Iterable[QueryWord], blocks_max: int = BLOCKS_MAX) -> list[int]:
    """Return the blocks of places that hold, or follow, most of the sought words, in order of place."""
    scores: defaultdict[int, float] = defaultdict(float)
    for word in sought:
        blocks = {place // BLOCK for place in word.places}
        for block in blocks:
            scores[block] += word.weight
            if block + 1 not in blocks:
                scores[block + 1] += word.weight * AFTER_FIRST
    best = sorted(scores, key=lambda block: (-scores[block], -block))[:blocks_max]
    return sorted(best)


def join_ranges(blocks: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges of places to read for these blocks, with the places that lend them words."""
    ranges: list[tuple[int, int]] = []
    for block in blocks:
        low, high = max(0, block * BLOCK - AFTER_MAX), (block + 1) * BLOCK + len(BEFORE)
        if ranges and low <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], high
        else:
            ranges.append((low, high))
    return ranges


def score_places(
    sought: Iterable[QueryWord], rows: Mapping[int, PassageRow], weight_mean: float, *, asks_number: bool = False
) -> dict[int, float]:
    """Return the score of every place in ``rows``, 0 to about 1: the share of the sought words that it covers."""
    order = sorted(rows)
    own = [_saturate(rows[place].weight, weight_mean) for place in order]
    totals = [0.0] * len(order)
    most = 0.0
    for word in sought:
        most += word.weight
        held = rows.keys() & set(word.places)
        if held:
            shares = [share if place in held else 0.0 for place, share in zip(order, own, strict=True)]
            for at, share in enumerate(spread_word(order, shares)):
                if share:
                    totals[at] += word.weight * share
    scores: dict[int, float] = {}
    for place, total in zip(order, totals, strict=True):
        if total > 0:
            flags = rows[place].flags
            share = total / most * (QUESTION_SHARE if flags & QUESTION else 1.0)
            scores[place] = share * NUMBER_BONUS if asks_number and flags & NUMBER else share
    return scores


def spread_word(order: Sequence[int], shares: Sequence[float]) -> list[float]:
    """Return what each place has of a word: its own share, or what reaches it from places around it."""
    spread = list(shares)
    held = [at for at, share in enumerate(shares) if share]
    for at in held:
        for back, share in enumerate(BEFORE, 1):
            before = at - back
            if before >= 0 and order[at] - order[before] == back and shares[at] * share > spread[before]:
                spread[before] = shares[at] * share
    at, carried, age = (held[0] if held else len(order)) + 1, 0.0, 0
    while at < len(order):
        step = order[at] - order[at - 1]
        if step > 1:
            carried *= AFTER_FADE ** (step - 1)
            age += step - 1
        fresh = shares[at - 1] * AFTER_FIRST if step == 1 else 0.0
        carried *= AFTER_FADE
        age += 1
        if fresh >= carried or age > AFTER_MAX:
            carried, age = fresh, 1
        if carried > spread[at]:
            spread[at] = carried
        elif not carried and not shares[at]:
            following = bisect_left(held, at)
            at = held[following] if following < len(held) else len(order)
        at += 1
    return spread


def _saturate(weight: int, weight_mean: float) -> float:
    length = 1 - LENGTH_SHARE + LENGTH_SHARE * min(LENGTH_MAX, weight / max(1.0, weight_mean))
    return (1 + SATURATION) / (1 + SATURATION * length) / ((1 + SATURATION) / (1 + SATURATION * (1 - LENGTH_SHARE)))


PENDING_MAX = 600
_CHARS_MAX = 2_000_000


@dataclass(slots=True)
class Pending:
    """The passages of a session that are not indexed yet, for the words of one query."""

    passages: dict[int, PassageRow] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    sources: dict[int, IndexedMessage] = field(default_factory=dict)
    originals: dict[str, Original] = field(default_factory=dict)
    weight: int = 0
    rare: frozenset[str] = frozenset()  # Words of the query that only a few passages have, indexed ones included.

    def read_passages(self, low: int, high: int) -> Iterable[PassageRow]:
        """Yield the passages at places ``low`` to ``high``, without the latter."""
        return (self.passages[place] for place in range(low, high) if place in self.passages)


def read_pending(
    ledger: Ledger, row: SessionRow, mark: Mark | None, *, hidden: Sequence[str], words: Iterable[str]
) -> Pending:
    """Read the messages behind the watermark; if there are too many, the newest of those that are ``hidden``."""
    pending = Pending()
    messages = ledger.list_messages(row.id, after=mark.seq if mark else 0, limit=PENDING_MAX + 1)
    if not messages:
        return pending
    if len(messages) > PENDING_MAX:
        newest = (one for one in ledger.read_messages(row.id, hidden[-PENDING_MAX:]) if one.seq >= messages[0].seq)
        messages = sorted(newest, key=lambda one: one.seq)
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


SPARE = 3
# A word that more passages have tells hardly which of them is asked about.
RARE_MAX = 5
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
    row: PassageRow
    is_early: bool = False


def find_hits(
    index: RecallIndex,
    session_id: str,
    query: str,
    *,
    now: float = 0.0,
    vectors: Scorer | None = None,
    words_share: float = 1.0,
    read_pending: Callable[[Mark | None, Iterable[str]], Pending] | None = None,
) -> tuple[list[Hit], Pending]:
    """Return the places of a session that answer a query, best first, and the messages that ``read_pending`` read."""
    if not query.strip():
        return [], Pending()
    words = query_words(query)
    words.update((day, 1.0) for day in find_relative_days(query, now))
    with index.file.read() as db:
        stored = index_file.find_mark(db, session_id)
        pending = read_pending(stored, words) if read_pending else Pending()
        mark = stored or Mark(0)
        mark = replace(mark, passages=mark.passages + len(pending.passages), weight=mark.weight + pending.weight)
        if not mark.passages:
            return [], pending
        indexed = {word: index_file.find_places(db, mark, word) for word in words}
        places = {word: [*found, *pending.places.get(word, ())] for word, found in indexed.items()}
        pending.rare = frozenset(word for word, found in places.items() if 0 < len(found) <= RARE_MAX)
        sought = _weigh(db, mark, words, places)
        early = _find_early(places, piece_words(query))
        near = sorted({*choose_blocks(sought), *(place // BLOCK for place in early)})
        lenders = [place for low, high in join_ranges(near) for place in range(low, high)]
        by_meaning = vectors(db, mark, lenders) if vectors else {}
        near = sorted({*near, *(place // BLOCK for place in by_meaning)})
        rows = {
            one.place: one
            for low, high in join_ranges(near)
            for one in (*index_file.read_passages(db, mark, low, high), *pending.read_passages(low, high))
        }
        asks_number, mean = WANTS_NUMBER.search(query) is not None, mark.weight / mark.passages
        scores = score_places(sought, rows, mean, asks_number=asks_number) if words_share else {}
        early = _spread_messages(early, rows)
        hits = [
            Hit(place, score, rows[place], is_early=place in early)
            for place, score in fuse(scores, by_meaning, words_share).items()
            if place in rows
        ]
    return sorted(hits, key=lambda hit: (-round(hit.score, SCORE_DIGITS), -hit.place)), pending


def holds_any(
    index: RecallIndex,
    session_id: str,
    words: Sequence[str],
    hidden: frozenset[str],
    *,
    read_pending: Callable[[Mark | None, Iterable[str]], Pending],
) -> bool:
    """Return whether the index, or a hidden message that it does not hold yet, has one of these words."""
    with index.file.read() as db:
        mark = index_file.find_mark(db, session_id)
        if mark is not None and any(index_file.count_places(db, mark, word) for word in words):
            return True
    pending = read_pending(mark, words)
    places = {place for found in pending.places.values() for place in found}
    return any(pending.sources[pending.passages[place].seq].id in hidden for place in places)


def _weigh(
    db: apsw.Connection, mark: Mark, words: Mapping[str, float], places: Mapping[str, Sequence[int]]
) -> list[QueryWord]:
    """Return the words with their weights; words that are in most places only if there are no better ones."""
    sought: list[QueryWord] = []
    dull: list[QueryWord] = []
    for word, found in places.items():
        count = len(found) if len(found) < PLACES_MAX else index_file.count_places(db, mark, word)
        rarity = math.log(1 + (max(mark.passages, count) - count + 0.5) / (count + 0.5))
        weighed = QueryWord(words[word] * rarity, found)
        (dull if count >= _DULL_MIN and 2 * count > mark.passages else sought).append(weighed)
    return sought if any(one.places for one in sought) else dull


def _find_early(places: Mapping[str, Sequence[int]], pieces: Sequence[str]) -> frozenset[int]:
    """Return the first places that hold all of these words, and the last ones."""
    known = [set(places[word]) for word in pieces if word in places]
    if not known:
        return frozenset()
    shared = known[0].intersection(*known)
    held = sorted(shared)
    return frozenset((*held[:_FIRST_MAX], *held[_FIRST_MAX:][-_LAST_MAX:]))


def _spread_messages(places: frozenset[int], found: Mapping[int, PassageRow]) -> frozenset[int]:
    """Return a few places of each message, from the first and the last messages."""
    by_message: dict[int, list[int]] = {}
    for place in sorted(places):
        if place in found:
            by_message.setdefault(found[place].seq, []).append(place)
    groups = [group[:_PASSAGES_EACH_MAX] for group in by_message.values()]
    last = groups[max(_FIRST_MESSAGES_MAX, len(groups) - _LAST_MAX) :]
    return frozenset(place for group in (*groups[:_FIRST_MESSAGES_MAX], *last) for place in group)


def fuse(by_words: Mapping[int, float], by_meaning: Mapping[int, float], words_share: float = 1.0) -> dict[int, float]:
    """Combine two scores of places. Words lead; meaning reorders near ties and adds places that share no word."""
    if not by_meaning:
        return dict(by_words)
    if not by_words and words_share:
        # No word of the query was ever said: a place that is not clearly near answers another question.
        by_meaning = {place: near for place, near in by_meaning.items() if near >= NEAR_MIN}
    top = max(by_words.values(), default=0.0) or 1.0
    # Where words cover nearly all of the query, meaning must not reverse the order.
    places = {*by_words, *by_meaning}
    return {
        place: words_share * by_words.get(place, 0.0) + VECTOR_SHARE * top * by_meaning.get(place, 0.0)
        for place in places
    }
