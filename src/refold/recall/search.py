"""Search: a question in plain text to the few originals that answer it, bounded, exact, each with its handle.

The query is text, never a pattern. The order is the same every time. What is shown is read from the ledger, not from
the index. A session that is named is the only one that is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import apsw

from refold.ledger.ledger import Ledger, SessionRow
from refold.recall import rows
from refold.recall.dates import find_relative_days
from refold.recall.index import NUMBER, QUESTION, RecallIndex
from refold.recall.originals import Original, format_of, read_original
from refold.recall.rank import BLOCK, Said, Sought, choose_blocks, join_ranges, score_places, wants_number, weigh_word
from refold.recall.rows import NOTES_FROM, PLACES_MAX, Mark, PassageRow
from refold.recall.snippets import fit_texts
from refold.recall.vectors import Scorer
from refold.recall.words import clip_query, is_value, piece_words, query_words

# Summaries and facts are about originals, so they stand behind them when both tell the same, and never crowd them out.
NOTE_SHARE = 0.8
NOTES_MAX = 2
NOTE_ROLES = ("summary", "fact")
LITERAL_BONUS = 0.5
# Where a value was said first is where it came from: what people and tools brought stands before its uses, in order,
# and with it the newest that holds it.
FIRST_BONUS = 1.0
_BROUGHT_BY = ("user", "tool")
_BROUGHT_MAX = 8
_FIRST_MAX = 64
_FIRST_MESSAGES_MAX = 24
_PASSAGES_EACH_MAX = 3
_LAST_MAX = 4
_DULL_MIN = 1_000
VECTOR_SHARE = 0.6
NEAR_MIN = 0.3
_LITERAL_CHARS_MAX = 400
_SPARE = 3
_SCORE_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Recalled:
    """One thing that was found.

    ``text`` is the exact original, or of a long one the passage ``start`` to ``stop`` (``is_whole`` tells); ``handle``
    leads to the rest. ``role`` is who said it, or "summary" or "fact".
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


@dataclass(frozen=True, slots=True)
class _Hit:
    """A place that was found, before its text is read."""

    place: int
    score: float
    row: PassageRow | None = None
    note: rows.Note | None = None
    is_early: bool = False


def search_session(
    index: RecallIndex,
    ledger: Ledger,
    row: SessionRow,
    query: str,
    *,
    limit: int,
    tokens_max: int,
    count_text: Callable[[str], int],
    now: float = 0.0,
    vectors: Scorer | None = None,
    words_share: float = 1.0,
    allowed: frozenset[str] | None = None,
) -> list[Recalled]:
    """Return the best originals of a session for a query, best first, together within ``tokens_max``.

    ``vectors`` scores places by meaning; ``words_share`` 0 leaves the words out. ``allowed`` limits to messages by id.
    """
    clipped = clip_query(query)
    hits = find_hits(index, row.id, clipped, now=now, vectors=vectors, words_share=words_share)
    found = _read_hits(index, ledger, row, hits, clipped, limit * _SPARE, allowed)
    chosen = _choose(_cut_tail(found, clipped), limit)
    return fit_texts(chosen, tokens_max, count_text, list(query_words(clipped)))


def find_hits(
    index: RecallIndex,
    session_id: str,
    query: str,
    *,
    now: float = 0.0,
    vectors: Scorer | None = None,
    words_share: float = 1.0,
) -> list[_Hit]:
    """Return the places of a session that answer a query, best first."""
    if not query.strip() or not index.path.exists():
        return []
    with index.file.read() as db:
        mark = rows.find_mark(db, session_id)
        if mark is None or not mark.passages:
            return []
        words = query_words(query)
        words.update((day, 1.0) for day in find_relative_days(query, now))
        places = {word: rows.find_places(db, mark, word) for word in words}
        sought = _weigh(db, mark, words, places)
        early = _find_early(places, piece_words(query))
        near = sorted({*choose_blocks(_without_notes(sought)), *(place // BLOCK for place in early)})
        lenders = [place for low, high in join_ranges(near) for place in range(low, high)]
        by_meaning = vectors(db, mark, lenders) if vectors else {}
        near = sorted({*near, *(place // BLOCK for place in by_meaning)})
        found_rows = {
            one.place: one for low, high in join_ranges(near) for one in rows.read_passages(db, mark, low, high)
        }
        said = {
            place: Said(one.words, bool(one.flags & QUESTION), bool(one.flags & NUMBER))
            for place, one in found_rows.items()
        }
        mean = mark.words / mark.passages
        scores = score_places(sought, said, mean, asks_number=wants_number(query)) if words_share else {}
        fused = fuse(scores, by_meaning, words_share)
        hits = [
            _Hit(place, score, row=found_rows[place], is_early=place in early)
            for place, score in fused.items()
            if place in found_rows
        ]
        early = _spread_messages(early, found_rows)
        hits = [replace(hit, is_early=hit.place in early) if hit.is_early else hit for hit in hits]
        hits += _find_notes(db, mark, sought)
    return sorted(hits, key=lambda hit: (-round(hit.score, _SCORE_DIGITS), -hit.place))


def _weigh(
    db: apsw.Connection, mark: Mark, words: Mapping[str, float], places: Mapping[str, Sequence[int]]
) -> list[Sought]:
    """Return the words with what each tells; one that stands in most places only if there is no better one."""
    sought: list[Sought] = []
    dull: list[Sought] = []
    for word, found in places.items():
        count = len(found) if len(found) < PLACES_MAX else rows.count_places(db, mark, word)
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


def _find_notes(db: apsw.Connection, mark: Mark, sought: Sequence[Sought]) -> list[_Hit]:
    scores: dict[int, float] = {}
    most = sum(word.weight for word in sought)
    for word in sought:
        for place in word.places:
            if place >= NOTES_FROM:
                scores[place] = scores.get(place, 0.0) + NOTE_SHARE * word.weight / most
    best = sorted(scores, key=lambda place: (-scores[place], -place))[: NOTES_MAX * _SPARE]
    notes = ((place, rows.read_note(db, mark, place)) for place in best)
    return [_Hit(place, scores[place], note=note) for place, note in notes if note is not None]


def _read_hits(
    index: RecallIndex,
    ledger: Ledger,
    row: SessionRow,
    hits: Sequence[_Hit],
    query: str,
    count: int,
    allowed: frozenset[str] | None,
) -> list[Recalled]:
    """Read the texts of the best hits, each content once, and put first what holds the query letter by letter."""
    form = format_of(row)
    sources: dict[int, rows.Source] = {}
    best = _pick_hits(index, row.id, hits, sources, count + sum(hit.is_early for hit in hits), allowed)
    ids = [sources[hit.row.seq].id for hit in best.values() if hit.row]
    originals = {stored.id: read_original(stored, form) for stored in ledger.read_messages(row.id, ids)}
    literal = query.strip().casefold()
    quoting = [hit for hit in best.values() if _quotes(hit, originals, sources, literal)]
    bonuses = _rank_quotes(quoting, sources)
    found: list[Recalled] = []
    for hit in best.values():
        if hit.note is not None:
            text = hit.note.text
            found.append(Recalled(text, hit.note.handle, hit.note.kind, hit.score, row.id, 0, len(text)))
            continue
        assert hit.row is not None
        original = originals.get(sources[hit.row.seq].id)
        if original is None or not original.text:
            continue
        found.append(_show(original, hit.row, hit.score + bonuses.get(hit.place, 0.0), row.id))
    ranked: dict[str, Recalled] = {}
    for one in sorted(found, key=lambda one: -round(one.score, _SCORE_DIGITS)):
        ranked.setdefault(one.handle if one.role not in NOTE_ROLES else f"{one.role} {one.text}", one)
    return list(ranked.values())


def _rank_quotes(quoting: Sequence[_Hit], sources: Mapping[int, rows.Source]) -> dict[int, float]:
    """Return what it adds to a place that it holds the query letter by letter.

    The first place leads, then the messages of people and tools in order, then the newest; the others by their score.
    """
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
        # Their order is that of the conversation, whatever each scores by itself.
        bonuses[place] = LITERAL_BONUS + FIRST_BONUS * (1 - at / (2 * len(leading))) + most - own
    return bonuses


def _pick_hits(
    index: RecallIndex,
    session_id: str,
    hits: Sequence[_Hit],
    sources: dict[int, rows.Source],
    count: int,
    allowed: frozenset[str] | None,
) -> dict[str, _Hit]:
    """Return the best hits, one for each content, and put the messages they are in into ``sources``."""
    best: dict[str, _Hit] = {}
    with index.file.read() as db:
        mark = rows.find_mark(db, session_id)
        for hit in (*(hit for hit in hits if hit.is_early), *hits):
            if mark is None or len(best) >= count:
                break
            if hit.row is None:
                if allowed is None:
                    best.setdefault(f"note {hit.place}", hit)
                continue
            source = sources.get(hit.row.seq) or rows.read_source(db, mark, hit.row.seq)
            if source is None or (allowed is not None and source.id not in allowed):
                continue
            sources[hit.row.seq] = source
            # Of a message that may be where a value came from, every early passage is looked at.
            best.setdefault(f"place {hit.place}" if hit.is_early else source.digest, hit)
    return best


def _quotes(hit: _Hit, originals: Mapping[str, Original], sources: Mapping[int, rows.Source], literal: str) -> bool:
    """Tell whether a passage holds the query letter by letter."""
    if hit.row is None or not literal or len(literal) > _LITERAL_CHARS_MAX:
        return False
    original = originals.get(sources[hit.row.seq].id)
    return original is not None and literal in original.text[hit.row.start : hit.row.stop].casefold()


def _show(original: Original, row: PassageRow, score: float, session_id: str) -> Recalled:
    start, stop = row.start, min(row.stop, len(original.text))
    is_whole = start == 0 and stop == len(original.text)
    return Recalled(
        original.text[start:stop],
        original.handle,
        original.role,
        score,
        session_id,
        start,
        stop,
        is_whole,
        original.created_at,
    )


def _cut_tail(found: Sequence[Recalled], query: str) -> Sequence[Recalled]:
    """Leave out what only stands near, where the query is one exact value and some results hold it."""
    if not is_value(query):
        return found
    literal = query.strip().casefold()
    return [one for one in found if literal in one.text.casefold()] or found


def _choose(found: Sequence[Recalled], limit: int) -> list[Recalled]:
    """Return the first results, notes among them only so far as they do not crowd out originals."""
    chosen: list[Recalled] = []
    notes = 0
    for one in found:
        is_note = one.role in NOTE_ROLES
        if is_note and notes >= NOTES_MAX:
            continue
        notes += is_note
        chosen.append(replace(one, score=round(one.score, _SCORE_DIGITS)))
        if len(chosen) == limit:
            break
    return chosen
