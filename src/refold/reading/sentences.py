"""Sentences of a text with their places, and the one way to shorten a text.

A text is first split into lines, lists, headings, tables, quotes and fenced code, then lines of prose into sentences.
A sentence keeps the list, code or table that it introduces (``block``) and the heading or sentence that introduces it
(``lead``). English and Chinese; every piece is a verbatim slice. The work is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from refold.patterns import lazy_regex
from refold.reading.rules import find_words

Shape = Literal["prose", "item", "heading", "quote", "code", "table", "tag"]

# A line at least this long may be wrapped: the next one continues its sentence if it begins like a continuation.
WRAPPED_CHARS_MIN = 60
# How far back the word before a full stop is looked for.
_WORD_CHARS = 20

_FENCE = lazy_regex(r"[ \t]{0,12}(`{3,9}|~{3,9})[ \t]*+([^`\n]{0,80})")
_HEADING = lazy_regex(r"[ \t]{0,3}#{1,6}[ \t]+(?=\S)|[ \t]{0,3}(?=\*\*[^*\n]{1,90}\*\*:?：?[ \t]*+$)")
_ITEM = lazy_regex(
    r"[ \t]{0,24}(?:[-*•+–·][ \t]{1,8}|\d{1,3}[.)][ \t]{1,8}|[（(]\d{1,3}[)）][ \t]{0,8}|\d{1,3}、|"
    r"[一二三四五六七八九十]{1,3}、|[①-⑳])(?=\S)"
)
_QUOTE = lazy_regex(r"[ \t]{0,3}>[ \t]{0,3}(?=\S)")
_TAG = lazy_regex(r"[ \t]{0,12}</?[A-Za-z][\w:.-]{0,60}(?:\s[^<>\n]{0,300})?/?>[ \t]*+$")
_ROW = lazy_regex(r"[ \t]{0,12}\|[^|\n]{0,2000}\|")
_INDENTED = lazy_regex(r"(?: {4}|\t)[ \t]{0,40}\S")
# Inline code has no borders: it comes first, so that nothing inside it is found. A run of marks is tried at its first
# mark alone: from each of the others it would be read to its end again.
_END = lazy_regex(
    r"`[^`\n]{1,120}`|(?<![.!?])[.!?]++[\"'”’)\]*_]{0,4}(?=\s|\Z)|(?<![!?])[!?]++(?=[\u3400-\u9fff])"
    r"|[。！？；]++[”’」』）)\"'*_]{0,4}"
)
_INTRODUCES = lazy_regex(
    r"[:：][*_ \t]{0,4}\Z|\b(?:as follows|the following|below|these (?:are|steps))\b[^.!?]{0,60}\Z|"
    r"(?:如下|以下|下面)[^。！？]{0,12}\Z"
)
_CONTINUES = lazy_regex(r"[ \t]{0,8}[a-z(`]")
_LINE_SHAPES: tuple[tuple[Shape, re.Pattern[str]], ...] = (
    ("tag", _TAG),
    ("heading", _HEADING),
    ("item", _ITEM),
    ("quote", _QUOTE),
)
_BLANK = lazy_regex(r"\s*+")
_ALPHANUMERIC = lazy_regex(r"[^\W_]")


@dataclass(frozen=True, slots=True)
class PlacedSentence:
    """A sentence and its place: ``text`` is ``source[start:stop]``, ``lead`` and ``block`` are verbatim, too.

    A piece of code or a table that no sentence introduces is a sentence by itself, with that ``shape``.
    """

    start: int
    stop: int
    text: str
    shape: Shape = "prose"
    lead: str = ""
    block: str = ""


class _LineRun(NamedTuple):
    """Lines of one shape. ``start`` is where the first line begins, ``inner`` where its content does."""

    shape: Shape
    start: int
    inner: int
    stop: int


def split_sentences(text: str, start: int = 0, stop: int | None = None) -> list[PlacedSentence]:
    """Return the sentences of a text, or of ``text[start:stop]``, in order."""
    pieces = list(_join_wrapped(text, _split_pieces(text, start, len(text) if stop is None else stop)))
    found: list[PlacedSentence] = []
    headings = _Headings()
    run_stop, run_lead = -1, ""
    for at, piece in enumerate(pieces):
        before = found[-1] if found and not found[-1].block else None
        headings.pass_piece(piece, text)
        if piece.shape in ("code", "table"):
            block = text[piece.start : piece.stop]
            if before is not None and before.shape != "tag":
                found[-1] = replace(before, block=block)
            else:
                found.append(PlacedSentence(piece.start, piece.stop, block, piece.shape, headings.text))
            continue
        if piece.shape in ("item", "quote") and piece.start >= run_stop:
            run_stop, run_lead = _find_run_stop(pieces, at), headings.text
            if before is not None and _introduces(before, text, piece.start):
                found[-1] = replace(before, block=text[piece.start : run_stop].rstrip())
                run_lead = before.text
        lead = run_lead if piece.shape in ("item", "quote") else "" if piece.shape == "heading" else headings.text
        if piece.shape == "prose" and before is not None and before.text.endswith((":", "：")):
            lead = before.text
        for begin, end in _find_sentences(text, piece.inner, piece.stop):
            found.append(PlacedSentence(begin, end, text[begin:end], piece.shape, lead))
            lead = lead if lead in (run_lead, headings.text) else headings.text
    return found


class _Headings:
    """The heading that the next sentence belongs to. A bold line is one only up to the prose after its list."""

    def __init__(self) -> None:
        self.text = ""
        self._lasting = ""
        self._is_used = False

    def pass_piece(self, piece: _LineRun, text: str) -> None:
        if piece.shape == "heading":
            self.text = text[piece.inner : piece.stop].strip()
            self._is_used = False
            if text[piece.start : piece.inner].strip():
                self._lasting = self.text
        elif piece.shape == "prose" and self._is_used:
            self.text = self._lasting
        elif piece.shape != "prose":
            self._is_used = True


def _introduces(before: PlacedSentence, text: str, start: int) -> bool:
    """Return whether a sentence introduces the list that begins at ``start``."""
    if before.shape == "heading":
        return not text[before.stop : start].strip(" \t\n*_:：#")
    return before.shape in ("prose", "item", "quote") and _INTRODUCES.search(before.text[-120:]) is not None


def _find_run_stop(pieces: list[_LineRun], at: int) -> int:
    """Return where the list or the quote that begins with this piece ends; code between two items belongs to it."""
    shape, stop = pieces[at].shape, pieces[at].stop
    for piece in pieces[at:]:
        if piece.shape == shape:
            stop = piece.stop
        elif piece.shape != "code":
            break
    return stop


def _split_pieces(text: str, start: int, stop: int) -> Iterator[_LineRun]:
    """Yield the lines of a text by shape, blank ones left out; a fence or a table is one piece."""
    fence, opened = "", 0
    is_after_blank, is_after_item, table = True, False, None
    at = start
    while at < stop:
        end = text.find("\n", at, stop)
        end = stop if end < 0 else end
        line = text[at:end]
        marks = _FENCE.match(line)
        if fence:
            # A fence with a language opens another block: the one before it was never closed.
            if marks is not None and marks[1][0] == fence[0] and (len(marks[1]) >= len(fence) or marks[2].strip()):
                if marks[2].strip():
                    yield _LineRun("code", opened, opened, max(opened, at - 1))
                    fence, opened = marks[1], at
                else:
                    yield _LineRun("code", opened, opened, end)
                    fence = ""
            at = end + 1
            continue
        if table is not None and not _ROW.match(line):
            yield _LineRun("table", table, table, at - 1)
            table = None
        if marks is not None:
            fence, opened = marks[1], at
        elif not line.strip():
            is_after_blank = True
        elif _ROW.match(line):
            table = at if table is None else table
            is_after_blank = is_after_item = False
        else:
            shape, inner = _find_shape(line, may_be_code=is_after_blank and not is_after_item)
            yield _LineRun(shape, at, at + inner, end)
            is_after_blank = False
            is_after_item = shape == "item" or (is_after_item and line[:1] in " \t")
        if marks is not None:
            is_after_blank = is_after_item = False
        at = end + 1
    if fence:
        yield _LineRun("code", opened, opened, stop)
    elif table is not None:
        yield _LineRun("table", table, table, stop)


def _find_shape(line: str, *, may_be_code: bool) -> tuple[Shape, int]:
    """Return the shape of a line and where its content begins."""
    for shape, pattern in _LINE_SHAPES:
        found = pattern.match(line)
        if found is not None:
            return shape, 0 if shape == "tag" else found.end()
    if may_be_code and _INDENTED.match(line):
        return "code", 0
    return "prose", 0


def _join_wrapped(text: str, pieces: Iterable[_LineRun]) -> Iterator[_LineRun]:
    """Yield the pieces with wrapped lines of one paragraph or one item joined, and lines of indented code."""
    last: _LineRun | None = None
    for piece in pieces:
        if last is not None and _continues(text, last, piece):
            last = last._replace(stop=piece.stop)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _continues(text: str, last: _LineRun, piece: _LineRun) -> bool:
    if text[last.stop : piece.start] != "\n":
        return False
    if last.shape == "code" and text[last.start] in " \t":
        return piece.shape in ("code", "prose") and text[piece.start] in " \t"
    if piece.shape != "prose" or last.shape not in ("prose", "item", "quote"):
        return False
    before = text[max(last.inner, text.rfind("\n", last.inner, last.stop)) : last.stop].strip()
    if last.shape == "item" and text[piece.start] in " \t" and before[-1:] not in ".!?。！？":
        return True
    is_open = before[-1:] not in ".!?:;。！？：；" and len(before) >= WRAPPED_CHARS_MIN
    return is_open and _CONTINUES.match(text, piece.start, piece.stop) is not None


def _find_sentences(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield where the sentences of a line of prose begin and end, blanks around them left out."""
    begin = start
    for match in _END.finditer(text, start, stop):
        if match[0][0] == "`" or (match[0][0] == "." and not _is_full_stop(text, begin, match.start(), match.end())):
            continue
        yield from _trim(text, begin, match.end())
        begin = match.end()
    yield from _trim(text, begin, stop)


def _trim(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    piece = text[start:stop]
    if _ALPHANUMERIC.search(piece) is not None:
        begin = start + len(piece) - len(piece.lstrip())
        yield begin, begin + len(piece.strip())


def _is_full_stop(text: str, start: int, at: int, end: int) -> bool:
    """Return whether the dot at ``at`` ends a sentence that began at ``start``."""
    if at == start or text[at - 1].isspace():
        return False
    after = text[end : end + 40].lstrip()[:1]
    if text[at : at + 2] == "..":
        return not after.islower()
    words = text[max(start, at - _WORD_CHARS) : at].split()
    word = words[-1].lstrip("([{\"'“‘*_").lower() if words else ""
    if word in find_words("words", "full_stop", "abbreviations"):
        return False
    if word in find_words("words", "full_stop", "maybe_last"):
        return not after or after.isupper()
    if len(word) == 1 and text[at - 1].isupper() and after.isupper():
        # "J. Smith" goes on, "plan B. Next" does not.
        return len(words) > 1 and words[-2].lower() in find_words("words", "full_stop", "lettered")
    return not (word.isdigit() and at - start <= 3)


def find_ends(text: str, start: int, stop: int) -> Iterator[int]:
    """Yield where sentences end between two places of a text, whatever its lines are, blanks after them included."""
    for match in _END.finditer(text, start, stop):
        if match[0][0] != "`" and (match[0][0] != "." or _is_full_stop(text, start, match.start(), match.end())):
            blank = _BLANK.match(text, match.end(), stop)
            yield blank.end() if blank else match.end()


@dataclass(frozen=True, slots=True)
class ShortText:
    """A text without its middle, or without its end. ``chars`` and ``lines`` count exactly what was left out."""

    head: str
    tail: str = ""
    chars: int = 0
    lines: int = 0


def shorten_text(text: str, chars_max: int, *, tail_share: float = 0.3) -> ShortText:
    """Shorten a text to at most ``chars_max`` characters, at borders of lines, sentences or words where one is near.

    ``tail_share`` of the room is for the end of the text; with 0 only its beginning is kept. What was left out is
    counted; whoever writes the text must show the count.
    """
    if len(text) <= chars_max:
        return ShortText(text)
    room = max(0, chars_max)
    tail_room = int(room * tail_share)
    head_stop = _border_before(text, room - tail_room)
    tail_start = _border_after(text, len(text) - tail_room) if tail_room else len(text)
    head, tail = text[:head_stop].rstrip(), text[tail_start:].lstrip()
    left_out = text[len(head) : len(text) - len(tail)]
    return ShortText(head, tail, len(left_out), left_out.count("\n"))


def _border_before(text: str, at: int) -> int:
    """Return the last border in the second half of ``text[:at]``; a space if there is none, else ``at``."""
    low = at // 2
    line = text.rfind("\n", low, at)
    ends = [
        match.end()
        for match in _END.finditer(text, max(low, line + 1), at)
        if match[0][0] != "`" and (match[0][0] != "." or _is_full_stop(text, low, match.start(), match.end()))
        # At ``at`` itself the text goes on: a dot there may be inside a number or a name.
        if match.end() < at or text[at : at + 1].isspace()
    ]
    border = ends[-1] if ends else line
    if border > low:
        return border
    space = text.rfind(" ", low, at)
    return space if space > low else at


def _border_after(text: str, at: int) -> int:
    """Return the first border in the first half of ``text[at:]``; a space if there is none, else ``at``."""
    high = at + (len(text) - at) // 2
    line = text.find("\n", at, high)
    for match in _END.finditer(text, at, line if line >= 0 else high):
        if match[0][0] != "`" and (match[0][0] != "." or _is_full_stop(text, at, match.start(), match.end())):
            return match.end()
    if line >= 0:
        return line + 1
    space = text.find(" ", at, high)
    return space + 1 if space >= 0 else at
