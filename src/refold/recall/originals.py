"""Originals: a stored message as text, cut into passages that can be found and shown, and read page by page.

A passage begins at a line or a sentence; where a sentence is too long for one passage, at a clause or a word; inside a
word only if the word alone is larger than two passages. Passages follow each other without a gap and without overlap,
so that joining them gives the text back. Pure and linear.

``expand_handle`` pages through the original behind a handle. A message's handle gives its whole text, that of a part
the part, that of a fold every message it replaces. The answer to an unknown handle ends the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from refold.conversation.author import Author, IsObserved, find_author, find_common_author
from refold.conversation.message import (
    DIGITS,
    Format,
    Message,
    Part,
    explain_unknown,
    join_part,
    join_parts,
    mark,
    need_handle,
    read_behind,
)
from refold.errors import FormatError, HandleUnknown
from refold.ledger.codec import load_json
from refold.ledger.records import SessionRow, StoredMessage, format_of
from refold.ledger.sql.ledger import Ledger
from refold.patterns import lazy_regex
from refold.reading.sentences import find_ends


@dataclass(frozen=True, slots=True)
class Original:
    """The text of one message."""

    id: str
    digest: str
    role: str
    text: str
    name: str = ""
    seq: int = 0
    created_at: float = 0.0
    message: Message | None = field(default=None, repr=False)

    def find_author(self, start: int, stop: int, is_observed: IsObserved) -> Author:
        """Return whose words a passage of the text has; of several authors one who is no person."""
        assert self.message is not None, "an original is read from a message"
        is_result = self.role == "user" and is_observed(self.message)
        at, found = 0, []
        for part in self.message.parts:
            end = at + len(join_part(part))
            if at < stop and end > start:
                found.append(find_author(self.role, part, is_observed=is_result))
            at = end + 1
        return find_common_author(found)

    @property
    def handle(self) -> str:
        """The short name that placeholders carry."""
        return f"m:{self.digest[:DIGITS]}"


def read_original(stored: StoredMessage, form: Format) -> Original:
    """Return a stored message as text; a forgotten one has none."""
    message = read_stored(stored, form)
    results = (part.name for part in message.parts if part.kind == "result")
    text = "" if stored.is_forgotten else join_parts(message)
    name = " ".join(filter(None, dict.fromkeys((message.name, *results))))
    return Original(stored.id, stored.digest, stored.role, text, name, stored.seq, stored.created_at, message)


def read_stored(stored: StoredMessage, form: Format) -> Message:
    """Return a stored message for reading. One that is forgotten or cannot be parsed is a single text."""
    raw, name = None, None
    if stored.is_forgotten:
        parts: tuple[Part, ...] = (Part("text", "[forgotten]"),)
    else:
        try:
            # Read the parts alone: hashing the content again, as ``parse`` does, costs as much as all the rest.
            raw = load_json(stored.raw)
            parts = form.parse_parts(raw)
            name = raw.get("name")
        except (FormatError, ValueError, RecursionError):
            parts = (Part("text", stored.raw.decode("utf-8", "replace")),)
    return Message(raw, stored.role, parts, stored.digest, stored.id, name if isinstance(name, str) else "")


# About 200 tokens. A Chinese character weighs about three Latin ones.
PASSAGE_WEIGHT_MAX = 900
_WIDE_WEIGHT = 3
_WIDE = lazy_regex(r"[\u0e00-\u0e7f\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
_LINE = lazy_regex(r"\n+")
_CLAUSE = lazy_regex(r"[\s,，、：|]+|[)}\]]+")
_JOINT = lazy_regex(r"\W")
_WORD_SIGN = lazy_regex(r"\w")
_QUESTION = lazy_regex(r"[?？]\W{0,4}(?:\[[^\]]{0,300}\]\W?)?$|[吗呢么][。.!！]?$")
_DIGIT = lazy_regex(r"\d|[一二两三四五六七八九十百千万]{1,6}[年月日号点分元块个岁]")


def split_passages(text: str, weight_max: int = PASSAGE_WEIGHT_MAX) -> Iterator[slice]:
    """Cut a text into slices of about the same weight, none above twice that weight; a short text stays whole."""
    start, length = 0, len(text)
    while start < length:
        room = _measure_room(text, start, weight_max)
        if start + room >= length:
            yield slice(start, length)
            return
        stop = _find_stop(text, start, room)
        yield slice(start, stop)
        start = stop


def find_starts(text: str) -> list[int]:
    """Return the offsets at which the lines and sentences of a text begin, in order, from 0."""
    found = {0, *(one.end() for one in _LINE.finditer(text)), *find_ends(text, 0, len(text))}
    return sorted(found - {len(text)}) or [0]


def is_inside_word(text: str, at: int) -> bool:
    """Return whether a cut before ``text[at]`` goes through a word. Scripts without spaces can be cut anywhere."""
    if not 0 < at < len(text):
        return False
    return all(_WORD_SIGN.match(sign) and not _WIDE.match(sign) for sign in text[at - 1 : at + 1])


def skip_word(text: str, at: int, stop: int) -> int:
    """Return the first place from ``at`` on that is not inside a word; ``at`` if there is none before ``stop``."""
    place = at
    while place < stop and is_inside_word(text, place):
        place += 1
    return place if place < stop else at


def measure_weight(text: str) -> int:
    """Return the weight of a text: about its number of characters, wide ones counted three times."""
    return len(text) if text.isascii() else len(text) + (_WIDE_WEIGHT - 1) * len(_WIDE.findall(text))


def _measure_room(text: str, start: int, weight_max: int) -> int:
    """Return how many characters from ``start`` one passage may hold by weight."""
    window = text[start : start + weight_max]
    wide = len(_WIDE.findall(window))
    if not wide:
        return weight_max
    # Assume that the whole passage has the window's share of wide characters.
    share = wide / len(window)
    return max(1, int(weight_max / (1 + (_WIDE_WEIGHT - 1) * share)))


def _find_stop(text: str, start: int, room: int) -> int:
    """Return where a passage that begins at ``start`` ends: the best border at about ``room`` characters."""
    low, high = start + room // 3, start + room
    if last := _find_last(_LINE, text, low, high) or max(find_ends(text, low, high), default=None):
        return last
    later = _LINE.search(text, high - 1, high + room // 2)
    ends = (later.end() if later else None, next(find_ends(text, high - 1, high + room // 2), None))
    if nearest := min((end for end in ends if end), default=None):
        return nearest
    for pattern in (_CLAUSE, _JOINT):
        if last := _find_last(pattern, text, low, high):
            return last
    later = _CLAUSE.search(text, high, high + room // 2)
    return later.end() if later else skip_word(text, high, min(len(text), start + 2 * room))


def _find_last(pattern: re.Pattern[str], text: str, low: int, high: int) -> int | None:
    last = None
    for match in pattern.finditer(text, low, high):
        last = match.end()
    return last


def is_question(text: str) -> bool:
    """Return whether a text ends as a question: it asks for the answer instead of giving it."""
    return _QUESTION.search(text[-320:].rstrip()) is not None


def has_number(text: str) -> bool:
    """Return whether a text names a number, a date or an amount."""
    return _DIGIT.search(text) is not None


@dataclass(frozen=True, slots=True)
class OriginalPage:
    """Characters ``offset`` to ``offset + len(text)`` of an original that has ``total`` of them."""

    text: str
    handle: str
    offset: int
    total: int

    @property
    def next_offset(self) -> int | None:
        """The offset of the next page; None after the last one."""
        stop = self.offset + len(self.text)
        return stop if self.text and stop < self.total else None


def expand_handle(
    ledger: Ledger, row: SessionRow, handle: str, offset: int = 0, *, limit: int | None = None
) -> OriginalPage:
    """Return a page of the original behind a handle."""
    name, form = need_handle(handle), format_of(row)
    stored = find_handle(ledger, row, name)
    if not name.startswith("f:"):
        stored = list({one.digest: one for one in stored if not one.is_forgotten}.values())
        if not stored:
            raise HandleUnknown("{handle} was forgotten on request and cannot be read any more", handle=mark(name))
    text = read_behind(name, [read_stored(one, form) for one in stored])
    start = max(0, offset)
    piece = text[start:] if limit is None else text[start : start + max(0, limit)]
    return OriginalPage(piece, name, min(start, len(text)), len(text))


def find_handle(ledger: Ledger, row: SessionRow, handle: str) -> list[StoredMessage]:
    """Return the stored messages behind a handle: all with that content, or all that a fold covers."""
    name = need_handle(handle)
    if name.startswith("f:"):
        # Switched off or not: its handle may be in an older context.
        folds = {
            stored.edit.fold.handle: stored.edit.covers
            for stored in ledger.read_edits(row.id, active_only=False)
            if stored.edit.fold is not None and stored.edit.fold.handle.startswith(name)
        }
        found = ledger.read_messages(row.id, next(iter(folds.values()))) if len(folds) == 1 else []
    else:
        found = ledger.find_messages(row.id, name.removeprefix("m:").partition(".")[0])
    if not found:
        raise explain_unknown(name)
    return found
