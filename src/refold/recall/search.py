"""Search: from a question in plain text to the few originals that answer it, bounded, exact, each with its handle.

The query is text, never a pattern. The order is the same every time. Texts are read from the ledger, not from the
index. If a session is named, no other is searched. Results that do not fit are shortened to the exact part around what
was sought, which begins at a line or a sentence if one with the sought words fits, and never inside a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from refold.conversation.author import IsObserved
from refold.conversation.message import is_observation
from refold.ledger.records import SessionRow, format_of
from refold.ledger.sql.ledger import Ledger
from refold.recall.facts import put_newer_first
from refold.recall.hits import NOTES_MAX, SCORE_DIGITS, SPARE, Hit, Pending, find_hits, holds_any, read_pending
from refold.recall.index import RecallIndex
from refold.recall.index_file import IndexedMessage, Mark, PassageRow, find_mark, read_source
from refold.recall.originals import Original, find_starts, is_inside_word, read_original, skip_word
from refold.recall.vectors import Scorer
from refold.recall.words import WordSieve, clip_query, is_value, query_words

NOTE_ROLES = ("summary", "fact")
LITERAL_BONUS = 0.5
# A value comes from where it was said first: such messages of people and tools rank before later uses, in order,
# together with the newest message that holds it.
FIRST_BONUS = 1.0
_BROUGHT_BY = ("user", "tool")
_BROUGHT_MAX = 8
_LITERAL_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class Recalled:
    """One search result.

    ``text`` is the exact original, or of a long one the passage ``start`` to ``stop`` (``is_whole`` tells); ``handle``
    leads to the rest. ``role`` is whose words these are ("document" for an attachment), or "summary" or "fact".
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
        found = self._read_hits(hits, pending, clipped, limit * SPARE)
        chosen = _choose(_cut_tail(found, clipped), limit)
        return fit_texts(chosen, tokens_max, count_text, list(query_words(clipped)))

    def may_find(self, words: Sequence[str]) -> bool:
        """Return whether a search can find one of these words: a few lookups instead of a ranking."""
        allowed = self._allowed or frozenset()
        return holds_any(self._index, self._row.id, words, allowed, read_pending=self._read_pending)

    def _read_pending(self, mark: Mark | None, words: Iterable[str]) -> Pending:
        return read_pending(self._ledger, self._row, mark, hidden=self._hidden or (), words=words)

    def _read_hits(self, hits: Sequence[Hit], pending: Pending, query: str, count: int) -> list[Recalled]:
        """Read the texts of the best hits, each content once; texts that contain the query verbatim come first."""
        row, form = self._row, format_of(self._row)
        originals, sources = dict(pending.originals), dict(pending.sources)
        best = self._pick_hits(hits, sources, count + sum(hit.is_early for hit in hits))
        ids = [sources[hit.row.seq].id for hit in best.values() if hit.row]
        missing = [one for one in ids if one not in originals]
        originals |= {stored.id: read_original(stored, form) for stored in self._ledger.read_messages(row.id, missing)}
        literal = query.strip().casefold()
        quoting = [hit for hit in best.values() if _quotes(hit, originals, sources, literal)]
        bonuses = _rank_quotes(quoting, sources)
        found: list[tuple[int, Recalled]] = []
        for hit in best.values():
            if hit.note is not None:
                text = hit.note.text
                note = Recalled(text, hit.note.handle, hit.note.kind, hit.score, row.id, 0, len(text))
                found.append((hit.place, note))
                continue
            assert hit.row is not None
            original = originals.get(sources[hit.row.seq].id)
            if original is None or not original.text:
                continue
            score = hit.score + bonuses.get(hit.place, 0.0)
            found.append((hit.place, _show(original, hit.row, score, row.id, is_observed=self._is_observed)))
        ranked: dict[str, tuple[int, Recalled]] = {}
        for place, one in sorted(found, key=lambda pair: -round(pair[1].score, SCORE_DIGITS)):
            ranked.setdefault(one.handle if one.role not in NOTE_ROLES else f"{one.role} {one.text}", (place, one))
        return put_newer_first(list(ranked.values()), query)

    def _pick_hits(self, hits: Sequence[Hit], sources: dict[int, IndexedMessage], count: int) -> dict[str, Hit]:
        """Return the best hits, one for each content, and put the messages they are in into ``sources``."""
        best: dict[str, Hit] = {}
        allowed = self._allowed
        with self._index.file.read() as db:
            mark = find_mark(db, self._row.id)
            for hit in (*(hit for hit in hits if hit.is_early), *hits):
                if len(best) >= count:
                    break
                if hit.row is None:
                    if allowed is None:
                        best.setdefault(f"note {hit.place}", hit)
                    continue
                source = sources.get(hit.row.seq) or (read_source(db, mark, hit.row.seq) if mark else None)
                if source is None or (allowed is not None and source.id not in allowed):
                    continue
                sources[hit.row.seq] = source
                # Every early passage counts in a message that may be the origin of a value.
                best.setdefault(f"place {hit.place}" if hit.is_early else source.digest, hit)
        return best


def _rank_quotes(quoting: Sequence[Hit], sources: Mapping[int, IndexedMessage]) -> dict[int, float]:
    """Return the bonus of each place that quotes the query: first place, people and tools, newest, the others."""
    ordered = sorted((hit for hit in quoting if hit.row), key=lambda hit: hit.place)
    firsts: dict[int, int] = {}
    for hit in ordered:
        if hit.row and (not firsts or sources[hit.row.seq].role in _BROUGHT_BY):
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
    if hit.row is None or not literal or len(literal) > _LITERAL_CHARS_MAX:
        return False
    original = originals.get(sources[hit.row.seq].id)
    return original is not None and literal in original.text[hit.row.start : hit.row.stop].casefold()


def _show(original: Original, row: PassageRow, score: float, session_id: str, *, is_observed: IsObserved) -> Recalled:
    start, stop = row.start, min(row.stop, len(original.text))
    is_whole = start == 0 and stop == len(original.text)
    return Recalled(
        original.text[start:stop],
        original.handle,
        original.find_author(start, stop, is_observed),
        score,
        session_id,
        start,
        stop,
        is_whole,
        original.created_at,
    )


def _cut_tail(found: Sequence[Recalled], query: str) -> Sequence[Recalled]:
    """Drop results that are only near a match if the query is one exact value and some results hold it."""
    if not is_value(query):
        return found
    literal = query.strip().casefold()
    return [one for one in found if literal in one.text.casefold()] or found


def _choose(found: Sequence[Recalled], limit: int) -> list[Recalled]:
    """Return the first results, each text once, with only a few notes among them."""
    chosen: list[Recalled] = []
    texts: set[str] = set()
    notes = 0
    for one in found:
        is_note = one.role in NOTE_ROLES
        if one.text in texts or (is_note and notes >= NOTES_MAX):
            continue
        texts.add(one.text)
        notes += is_note
        chosen.append(replace(one, score=round(one.score, SCORE_DIGITS)))
        if len(chosen) == limit:
            break
    return chosen


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
    tokens = count_text(one.text)
    if tokens <= share:
        return one, tokens
    width = max(1, len(one.text) * share // tokens)
    while True:
        start, stop = _find_window(one.text, width, words)
        text = one.text[start:stop]
        tokens = count_text(text)
        if tokens <= share or width == 1:
            begin = one.start + start
            return replace(one, text=text, start=begin, stop=begin + len(text), is_whole=False), tokens
        width = max(1, min(width - 1, width * share // tokens))


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
