"""Originals: a stored message as text, cut into passages that can be found and shown, and read page by page.

A passage begins at a line or a sentence; where a sentence is too long for one passage, at a clause or a word; inside a
word only if the word alone is larger than two passages. Passages follow each other without a gap and without overlap,
so that joining them gives the text back. Pure and linear.

``expand_handle`` pages through the original behind a handle. A message's handle gives its whole text, that of a part
the part, that of a fold every message it replaces. The answer to an unknown handle ends the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
from refold.reading.sentences import find_ends, split_sentences


@dataclass(frozen=True)
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
        return find_common_author(
            find_author(self.role, part, is_observed=is_result)
            for part, at, end in self.list_spans()
            if at < stop and end > start
        )

    @cached_property
    def has_result(self) -> bool:
        """True if the message brings the result of a call."""
        return self.role == "tool" or any(part.kind == "result" for part in self._parts)

    @property
    def _parts(self) -> tuple[Part, ...]:
        return self.message.parts if self.message is not None else ()

    def list_spans(self) -> Iterator[tuple[Part, int, int]]:
        """Yield each part with its place in the text."""
        at = 0
        for part in self._parts:
            end = at + len(join_part(part))
            yield part, at, end
            at = end + 1

    def has_call_in(self, start: int, stop: int) -> bool:
        """Return whether a passage holds a call, or a piece of one."""
        return any(part.kind == "call" and at < stop and end > start for part, at, end in self.list_spans())

    def find_span(self, other: Original) -> tuple[int, int]:
        """Return where this message has the call of another one's result; all of it if it has none."""
        ids = {part.call_id for part in other._parts if part.kind == "result"}
        calls = [(at, end) for part, at, end in self.list_spans() if part.kind == "call" and part.call_id in ids]
        return calls[0] if calls else (0, len(self.text))

    def read(self, start: int, stop: int) -> str:
        """Return a passage as it was written: what JSON escapes inside calls and records stands as itself."""
        pieces = []
        last = start
        for part, at, end in self.list_spans():
            if at < stop and end > start and is_escaped(part):
                low, high = max(start, at), min(stop, end)
                pieces += [self.text[last:low], write_out(self.text[low:high])]
                last = high
        return "".join((*pieces, self.text[last:stop]))

    def lay_out(self) -> str:
        """Return the text with the line breaks that JSON escapes as line breaks, each character at its place."""
        pieces = (
            _ESCAPE.sub(lambda found: " \n" if found[1] == "n" else found[0], self.text[at:end])
            if is_escaped(part)
            else self.text[at:end]
            for part, at, end in self.list_spans()
        )
        return "\n".join(pieces) if self._parts else self.text

    @property
    def handle(self) -> str:
        """The short name that placeholders carry."""
        return f"m:{self.digest[:DIGITS]}"


_ESCAPE = lazy_regex(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_SIGNS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def is_escaped(part: Part) -> bool:
    """Return whether a part is JSON, in which the lines and quotes of a text are escaped."""
    return part.kind == "call" or (part.kind == "result" and part.text.lstrip()[:1] in ("{", "["))


def write_out(text: str) -> str:
    """Return a piece of JSON with the escapes inside its strings written out."""
    if "\\" not in text:
        return text
    written = _ESCAPE.sub(lambda found: chr(int(found[2], 16)) if found[2] else _SIGNS.get(found[1], found[1]), text)
    # JSON writes a character beyond the basic plane as two halves.
    return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if "\\ud" in text.lower() else written


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


def split_passages(text: str, weight_max: int = PASSAGE_WEIGHT_MAX, *, units: Sequence[slice] = ()) -> Iterator[slice]:
    """Cut a text into slices of about the same weight, none above twice that weight; a short text stays whole.

    A cut inside one of the ``units``, in order, moves to its end, or before it, if that leaves no slice too large.
    """
    start, length = 0, len(text)
    waiting = iter(units)
    unit = next(waiting, None)
    while start < length:
        room = _measure_room(text, start, weight_max)
        if start + room >= length:
            yield slice(start, length)
            return
        stop = _find_stop(text, start, room)
        while unit is not None and unit.stop <= stop:
            unit = next(waiting, None)
        if unit is not None and unit.start < stop:
            if unit.stop <= start + room + room // 2:
                stop = unit.stop
            elif unit.start > start + room // 3:
                stop = unit.start
        yield slice(start, stop)
        start = stop


def find_units(original: Original) -> list[slice]:
    """Return what must not be cut: each sentence together with the list, table or code that it introduces."""
    if measure_weight(original.text) <= PASSAGE_WEIGHT_MAX:
        return []
    found: list[slice] = []
    for part, at, end in original.list_spans():
        if part.kind == "text" and not original.has_result:
            for sentence in split_sentences(original.text, at, end):
                stop = original.text.find(sentence.block, sentence.stop, end) if sentence.block else -1
                if stop >= 0:
                    after = _LINE.match(original.text, stop + len(sentence.block))
                    found.append(slice(sentence.start, after.end() if after else stop + len(sentence.block)))
    return found


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
    for found in ((one.end() for one in _LINE.finditer(text, low, high)), find_ends(text, low, high)):
        if last := max(found, default=None):
            return last
    later = _LINE.search(text, high - 1, high + room // 2)
    ends = (later.end() if later else None, next(find_ends(text, high - 1, high + room // 2), None))
    if nearest := min((end for end in ends if end), default=None):
        return nearest
    for pattern in (_CLAUSE, _JOINT):
        if last := max((one.end() for one in pattern.finditer(text, low, high)), default=None):
            return last
    later = _CLAUSE.search(text, high, high + room // 2)
    return later.end() if later else skip_word(text, high, min(len(text), start + 2 * room))


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
