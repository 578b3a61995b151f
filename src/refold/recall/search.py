"""Search: from a question in plain text to the few originals that answer it, bounded, exact, each with its handle.

The query is text, never a pattern. The order is the same every time. Texts are read from the ledger, not from the
index. A result is a unit of meaning: a call comes with its result, an answer with its question, and each unit comes
once. Results that do not fit are shortened to the exact part around what was sought, which begins at a line or a
sentence if one with the sought words fits, and never inside a word. Code comes back as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import apsw

from refold.conversation.author import IsObserved
from refold.conversation.message import is_observation
from refold.ledger.records import SessionRow, format_of
from refold.ledger.sql.ledger import Ledger
from refold.recall.facts import put_newer_first
from refold.recall.hits import SCORE_DIGITS, SPARE, Hit, Pending, find_hits, holds_any, read_pending
from refold.recall.index import RecallIndex
from refold.recall.index_file import IndexedMessage, Mark, find_mark, read_source
from refold.recall.originals import Original, find_starts, is_inside_word, is_question, read_original, skip_word
from refold.recall.vectors import Scorer
from refold.recall.words import WordSieve, clip_query, is_value, query_words

LITERAL_BONUS = 0.5
# A value comes from where it was said first: such messages of people and tools rank before later uses, in order,
# together with the newest message that holds it.
FIRST_BONUS = 1.0
_BROUGHT_BY = ("user", "tool")
_BROUGHT_MAX = 8
_LITERAL_CHARS_MAX = 400
# How many results of one turn lie at most between a result and its call.
_CALLS_APART_MAX = 8
_SPEAKERS = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class UnitPart:
    """Exact words of one message: those that belong to a result, such as the question that it answers."""

    text: str
    handle: str
    role: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """One search result.

    ``text`` is the exact original, or of a long one the passage ``start`` to ``stop`` (``is_whole`` tells); ``handle``
    leads to the rest. ``role`` is whose words these are ("document" for an attachment). ``before`` is the question that
    it answers, or the call that it came from; ``after`` is its answer, or what the call gave.
    """

    text: str
    handle: str
    role: str
    score: float
    session_id: str = ""
    start: int = 0
    stop: int = 0
    is_whole: bool = True
    created_at: float = 0.0
    before: UnitPart | None = None
    after: UnitPart | None = None

    @property
    def said(self) -> list[UnitPart]:
        """The words of the result in the order of the conversation, with those that belong to it."""
        own = UnitPart(self.text, self.handle, self.role)
        return [one for one in (self.before, own, self.after) if one is not None]

    @property
    def unit(self) -> str:
        """All words of the result."""
        return "\n".join(one.text for one in self.said)


class SessionSearch:
    """Searches one session; with ``hidden``, ids in order, only these messages, indexed or not."""

    def __init__(
        self,
        index: RecallIndex,
        ledger: Ledger,
        row: SessionRow,
        *,
        hidden: Sequence[str] | None = None,
        is_observed: IsObserved = is_observation,
    ) -> None:
        self._index = index
        self._ledger = ledger
        self._row = row
        self._hidden = hidden
        self._is_observed = is_observed
        self._allowed = None if hidden is None else frozenset(hidden)
        # The words of the last query that only a few passages have.
        self.rare: frozenset[str] = frozenset()

    def find(
        self,
        query: str,
        *,
        limit: int,
        tokens_max: int,
        count_text: Callable[[str], int],
        now: float,
        vectors: Scorer | None = None,
        words_share: float = 1.0,
    ) -> list[Recalled]:
        """Return the best originals within ``tokens_max``; ``vectors`` scores meaning, ``words_share`` weighs words."""
        clipped = clip_query(query)
        rest = None if self._hidden is None else self._read_pending
        hits, pending = find_hits(
            self._index, self._row.id, clipped, now=now, vectors=vectors, words_share=words_share, read_pending=rest
        )
        self.rare = pending.rare
        found = self._read_hits(hits, pending, clipped, limit * SPARE)
        words = list(query_words(clipped))
        chosen = self._join_units(_cut_tail(found, clipped), pending, words, limit)
        return fit_texts(chosen, tokens_max, count_text, words)

    def may_find(self, words: Sequence[str]) -> bool:
        """Return whether a search can find one of these words: a few lookups instead of a ranking."""
        allowed = self._allowed or frozenset()
        return holds_any(self._index, self._row.id, words, allowed, read_pending=self._read_pending)

    def _read_pending(self, mark: Mark | None, words: Iterable[str]) -> Pending:
        return read_pending(self._ledger, self._row, mark, hidden=self._hidden or (), words=words)

    def _read_hits(self, hits: Sequence[Hit], pending: Pending, query: str, count: int) -> list[_FoundPassage]:
        """Read the texts of the best hits, each content once; texts that contain the query verbatim come first."""
        originals, sources = dict(pending.originals), dict(pending.sources)
        best = self._pick_hits(hits, sources, count + sum(hit.is_early for hit in hits))
        self._read_missing(originals, (sources[hit.row.seq].id for hit in best.values()))
        literal = query.strip().casefold()
        quoting = [hit for hit in best.values() if _quotes(hit, originals, sources, literal)]
        bonuses = _rank_quotes(quoting, sources)
        found: list[_FoundPassage] = []
        for hit in best.values():
            original = originals.get(sources[hit.row.seq].id)
            if original is not None and original.text:
                score = hit.score + bonuses.get(hit.place, 0.0)
                shown = self._show(original, hit.row.start, hit.row.stop, score)
                found.append(_FoundPassage(hit.place, original, shown))
        ranked: dict[str, _FoundPassage] = {}
        for one in sorted(found, key=lambda one: -round(one.shown.score, SCORE_DIGITS)):
            ranked.setdefault(one.shown.handle, one)
        ordered = list(ranked.values())
        by_result = {id(one.shown): one for one in ordered}
        newer = put_newer_first([(one.place, one.shown) for one in ordered], query)
        return [by_result.get(id(shown)) or replace(ranked[shown.handle], shown=shown) for shown in newer]

    def _read_missing(self, originals: dict[str, Original], ids: Iterable[str]) -> None:
        form = format_of(self._row)
        missing = [one for one in ids if one not in originals]
        originals |= {one.id: read_original(one, form) for one in self._ledger.read_messages(self._row.id, missing)}

    def _show(self, original: Original, start: int, stop: int, score: float) -> Recalled:
        stop = min(stop, len(original.text))
        return Recalled(
            original.read(start, stop),
            original.handle,
            original.find_author(start, stop, self._is_observed),
            score,
            self._row.id,
            start,
            stop,
            start == 0 and stop == len(original.text),
            original.created_at,
        )

    def _join_units(
        self, found: Sequence[_FoundPassage], pending: Pending, words: Sequence[str], limit: int
    ) -> list[Recalled]:
        """Return the first results, each text once, with the words that belong to them: a unit is one result."""
        with self._index.file.read() as db:
            neighbours = _Neighbours(db, find_mark(db, self._row.id), pending.sources)
            partners = {id(one): neighbours.find_partner(one) for one in found}
        originals = {one.original.id: one.original for one in found}
        self._read_missing(originals, (one.id for one in partners.values() if one))
        sieve = WordSieve(words)
        chosen: dict[str, Recalled] = {}
        taken: set[str] = set()
        for one in found:
            partner = partners[id(one)]
            if len(chosen) == limit:
                break
            if one.original.id in taken or one.shown.text in chosen:
                continue
            shown = replace(one.shown, score=round(one.shown.score, SCORE_DIGITS))
            other = originals.get(partner.id) if partner else None
            if partner and other is not None and partner.id not in taken and self._belongs(one.original, other, sieve):
                # If it was found itself, what was found in it says most.
                own = next((each.shown for each in found if each.original.id == partner.id), None)
                said = UnitPart(own.text, own.handle, own.role) if own else _say(one.original, other, self._is_observed)
                is_before = partner.seq < one.original.seq
                shown = replace(shown, before=said) if is_before else replace(shown, after=said)
                taken.add(partner.id)
            taken.add(one.original.id)
            chosen[one.shown.text] = shown
        return list(chosen.values())

    def _belongs(self, one: Original, other: Original, sieve: WordSieve) -> bool:
        """Return whether two neighbours are one unit, and the other may be shown."""
        if not other.text or (self._allowed is not None and other.id not in self._allowed):
            return False
        asks = is_question(one.text if one.seq < other.seq else other.text)
        return asks or one.has_result or other.has_result or bool(sieve.find(other.text))

    def _pick_hits(self, hits: Sequence[Hit], sources: dict[int, IndexedMessage], count: int) -> dict[str, Hit]:
        """Return the best hits, one for each content, and put the messages they are in into ``sources``."""
        best: dict[str, Hit] = {}
        allowed = self._allowed
        with self._index.file.read() as db:
            mark = find_mark(db, self._row.id)
            for hit in (*(hit for hit in hits if hit.is_early), *hits):
                if len(best) >= count:
                    break
                source = sources.get(hit.row.seq) or (read_source(db, mark, hit.row.seq) if mark else None)
                if source is None or (allowed is not None and source.id not in allowed):
                    continue
                sources[hit.row.seq] = source
                # Every early passage counts in a message that may be the origin of a value.
                best.setdefault(f"place {hit.place}" if hit.is_early else source.digest, hit)
        return best


def _rank_quotes(quoting: Sequence[Hit], sources: Mapping[int, IndexedMessage]) -> dict[int, float]:
    """Return the bonus of each place that quotes the query: first place, people and tools, newest, the others."""
    ordered = sorted(quoting, key=lambda hit: hit.place)
    firsts: dict[int, int] = {}
    for hit in ordered:
        if not firsts or sources[hit.row.seq].role in _BROUGHT_BY:
            firsts.setdefault(hit.row.seq, hit.place)
    leading = [*firsts.values()][:_BROUGHT_MAX]
    leading += [hit.place for hit in ordered[-1:] if hit.place not in leading]
    bonuses = {hit.place: LITERAL_BONUS for hit in ordered}
    most = max((hit.score for hit in ordered), default=0.0)
    for at, place in enumerate(leading):
        own = next(hit.score for hit in ordered if hit.place == place)
        # They keep the order of the conversation, whatever each one scores.
        bonuses[place] = LITERAL_BONUS + FIRST_BONUS * (1 - at / (2 * len(leading))) + most - own
    return bonuses


def _quotes(hit: Hit, originals: Mapping[str, Original], sources: Mapping[int, IndexedMessage], literal: str) -> bool:
    """Return whether a passage contains the query verbatim."""
    if not literal or len(literal) > _LITERAL_CHARS_MAX:
        return False
    original = originals.get(sources[hit.row.seq].id)
    return original is not None and literal in original.read(hit.row.start, hit.row.stop).casefold()


@dataclass(frozen=True, slots=True)
class _FoundPassage:
    """A passage that was found, and its message."""

    place: int
    original: Original
    shown: Recalled


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """Finds the message that belongs to another one: the call of a result, the question of an answer."""

    db: apsw.Connection
    mark: Mark | None
    pending: Mapping[int, IndexedMessage]

    def find_partner(self, one: _FoundPassage) -> IndexedMessage | None:
        """Return the message that a passage makes sense with, if there is one."""
        original, shown = one.original, one.shown
        if original.has_result:
            return self._find(original.seq, -1, ("assistant",), _CALLS_APART_MAX)
        if original.role not in _SPEAKERS:
            return None
        others = tuple(role for role in _SPEAKERS if role != original.role)
        if original.has_call_in(shown.start, shown.stop):
            return self._find(original.seq, 1, ("tool", "user"), 1)
        if is_question(original.text):
            return self._find(original.seq, 1, others, 1)
        return self._find(original.seq, -1, others, 1) if original.role == "assistant" or shown.is_whole else None

    def _find(self, seq: int, step: int, roles: Sequence[str], most: int) -> IndexedMessage | None:
        """Return the nearest message with one of these roles; results of other calls may lie between."""
        for at in range(seq + step, seq + step * (most + 1), step):
            source = self.pending.get(at) or (read_source(self.db, self.mark, at) if self.mark else None)
            if source is None or source.role in roles:
                return source
            if source.role != "tool":
                return None
        return None


def _say(one: Original, other: Original, is_observed: IsObserved) -> UnitPart:
    """Return what another message says about one: the call of its result, or all of it."""
    start, stop = other.find_span(one)
    return UnitPart(other.read(start, stop), other.handle, other.find_author(start, stop, is_observed))


def _cut_tail(found: Sequence[_FoundPassage], query: str) -> Sequence[_FoundPassage]:
    """Drop results that are only near a match if the query is one exact value and some results hold it."""
    if not is_value(query):
        return found
    literal = query.strip().casefold()
    return [one for one in found if literal in one.shown.text.casefold()] or found


# The tokens of the line above each result when results are written out.
HEAD_TOKENS = 14
_TOKENS_MIN = 8
_STEP = 24


def fit_texts(
    found: Sequence[Recalled], tokens_max: int, count_text: Callable[[str], int], words: Sequence[str]
) -> list[Recalled]:
    """Return results with at most ``tokens_max`` tokens together; the last ones are dropped if there is no room."""
    fitted: list[Recalled] = []
    left = tokens_max
    for at, one in enumerate(found):
        share = left // (len(found) - at) - HEAD_TOKENS
        if share < _TOKENS_MIN:
            # A few whole results say more than many fragments.
            share = min(left - HEAD_TOKENS, _TOKENS_MIN * 4)
            if share < _TOKENS_MIN:
                break
        fitting, tokens = _fit(one, share, count_text, words)
        left -= tokens + HEAD_TOKENS
        fitted.append(fitting)
    return fitted


def _fit(one: Recalled, share: int, count_text: Callable[[str], int], words: Sequence[str]) -> tuple[Recalled, int]:
    """Shorten a result to its share; what belongs to it gets what is left, at least a third of it."""
    beside = one.before or one.after
    least = min(count_text(beside.text), share // 3) if beside else 0
    text, start, tokens = _cut_text(one.text, share - least, count_text, words)
    if len(text) < len(one.text):
        # Where escapes were written out, the places in the original are those of the whole passage.
        is_exact = one.stop - one.start == len(one.text)
        begin = one.start + start if is_exact else one.start
        one = replace(one, text=text, start=begin, stop=begin + len(text) if is_exact else one.stop, is_whole=False)
    if beside is None:
        return one, tokens
    said, _, more = _cut_text(beside.text, share - tokens, count_text, words)
    shown = replace(beside, text=said) if more >= _TOKENS_MIN or said == beside.text else None
    one = replace(one, before=shown) if one.before else replace(one, after=shown)
    return one, tokens + (more if shown else 0)


def _cut_text(text: str, share: int, count_text: Callable[[str], int], words: Sequence[str]) -> tuple[str, int, int]:
    """Return the part of a text with most of the words that has at most ``share`` tokens, its place, its tokens."""
    tokens = count_text(text)
    start, piece, width = 0, text, max(1, len(text) * max(1, share) // max(1, tokens))
    while tokens > share and width > 1:
        start, stop = _find_window(text, width, words)
        piece = text[start:stop]
        tokens = count_text(piece)
        width = max(1, min(width - 1, width * max(1, share) // max(1, tokens)))
    return piece, start, tokens


def _find_window(text: str, width: int, words: Sequence[str]) -> tuple[int, int]:
    """Return the part of about this width with most of the words; it begins at a line, sentence or word."""
    sieve = WordSieve(words)
    spoken = find_starts(text)
    inner = [
        skip_word(text, at, len(text))
        for start, stop in pairwise([*spoken, len(text)])
        if stop - start > width
        for at in range(start + _STEP, stop - width + _STEP, _STEP)
    ]
    best, most = 0, -1
    for starts in (spoken, inner):
        held = [len(sieve.find(text[start : start + width])) for start in starts]
        if starts and max(held) > most:
            most = max(held)
            first = held.index(most)
            last = next((at for at in range(first, len(held)) if held[at] < most), len(held)) - 1
            best = starts[(first + last) // 2]
    return best, _trim_end(text, best, min(len(text), best + width))


def _trim_end(text: str, start: int, stop: int) -> int:
    """Return the last place up to ``stop`` that is not inside a word; ``stop`` itself if that would leave nothing."""
    end = stop
    while end > start and is_inside_word(text, end):
        end -= 1
    return end if end > start else stop
