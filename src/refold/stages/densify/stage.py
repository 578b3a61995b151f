"""densify: JSON of similar records becomes tables, and repetitive logs state their common beginnings once. Lossless.

JSON is recognised where its borders are clear: it starts and ends a line, fenced or not, or is the whole text. A block
opens with the line ``⟨handle⟩ JSON ...`` or ``⟨handle⟩ log ...`` and closes with the line ``⟨/handle⟩``. The rest
stays byte for byte. Every block is read back before it is used; if the result differs or little is saved, the text
stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Part
from refold.conversation.reason import Reason
from refold.conversation.view import Item
from refold.errors import ConfigError
from refold.stages.densify.cells import Value, dump, parse_at
from refold.stages.densify.document import read_block, write_document, write_lines
from refold.stages.densify.logs import read_log, write_log
from refold.stages.densify.table import ROWS_MIN, is_record
from refold.stages.stage import OutputStage, When

# Characters that may follow an opening bracket in JSON: ``[12:00:00]`` and ``[INFO]`` are ruled out at once.
_JSON_START = re.compile(
    r"""^(?=\{\s*(?:\}|"[^"\\\n]*(?:\\.[^"\\\n]*)*"\s*:)
         |\[\s*(?:[\[{\]]|"[^"\\\n]*(?:\\.[^"\\\n]*)*"\s*[,\]]|(?:-?\d[\d.eE+-]*|true|false|null)\s*[,\]]))""",
    re.M | re.X,
)
_BLOCK_START = re.compile(r"^⟨([mf]:[0-9a-f]{4,32}(?:\.\d{1,5})?)⟩ (?=JSON |log )", re.M)
# Errors that reading a changed block may raise; our own blocks never do.
_FAULTS = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)
# A failed attempt may cost a pass over all the text before it.
_FAILURES_MAX = 100
# Codes in a log are harder to read than cells in a table, so a log must save more.
_LOG_SAVING_MIN = 0.15


@dataclass(frozen=True, slots=True)
class Block:
    """A block in a text: the whole of it, and its lines without the marks."""

    start: int
    stop: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class JsonSpan:
    """A piece of a text that is JSON: one value, or values on a line each (``is_lines``)."""

    start: int
    stop: int
    values: list[Value]
    is_lines: bool = False

    @property
    def canonical(self) -> str:
        """The same values in the one form that reading back gives."""
        return "\n".join([dump(value) for value in self.values])


def densify_text(text: str, handle: str, *, chars_min: int = 300, saving_min: float = 0.1) -> str | None:
    """Return the text with its JSON, or its repetitive lines, in blocks; None if that saves too little or is not exact.

    ``chars_min`` is the least a piece must have, ``saving_min`` the least share of it that a block must save.
    """
    if len(text) < chars_min or _BLOCK_START.search(text):
        return None
    pieces: list[str] = []
    expected: list[str] = []
    at = 0
    for span in find_spans(text, chars_min):
        block = _write_block(span, handle, saving_min)
        if block is not None:
            pieces += [text[at : span.start], block]
            expected += [text[at : span.start], span.canonical]
            at = span.stop
    if not pieces:
        return _densify_log(text, handle, saving_min)
    made = "".join([*pieces, text[at:]])
    return made if _reads_back(made, "".join([*expected, text[at:]])) else None


def expand_text(text: str) -> str:
    """Return a text with every block read back: JSON in canonical form, logs byte for byte, other text as it is.

    A block that was changed since raises ValueError.
    """
    pieces: list[str] = []
    at = 0
    for block in find_blocks(text):
        pieces += [text[at : block.start], _read(block.lines)]
        at = block.stop
    return "".join([*pieces, text[at:]])


def find_blocks(text: str) -> Iterator[Block]:
    """Find the blocks of a text in order; checks use this to tell them from verbatim lines."""
    at = close = 0
    while match := _BLOCK_START.search(text, at):
        at = match.end()
        # One search for the next closing mark serves all openings before it, so the work is linear.
        close = text.find("\n⟨/", at) if close < at else close
        if close < 0:
            return
        closing = f"\n⟨/{match[1]}⟩"
        stop = close + len(closing)
        if text.startswith(closing, close) and _ends_line(text, stop):
            yield Block(match.start(), stop, text[at:close].split("\n"))
            at = stop


def find_spans(text: str, chars_min: int) -> Iterator[JsonSpan]:
    """Find the JSON in a text, in order. Linear: text that failed to parse is not tried again from a later start."""
    at = failures = 0
    while failures < _FAILURES_MAX and (match := _JSON_START.search(text, at)):
        start = match.start()
        try:
            value, stop = parse_at(text, start)
        except ValueError as error:
            # JSON that cannot be restored, such as one with a duplicate key, does not show where it ends.
            at, failures = max(start + 1, getattr(error, "pos", 0)), failures + 1
            continue
        except RecursionError:
            return
        at = stop
        if not _ends_line(text, stop):
            continue
        span = _extend_lines(text, JsonSpan(start, stop, [value]))
        if span.stop - span.start >= chars_min:
            yield span
        at = span.stop


def frame(handle: str, lines: list[str]) -> str:
    """Return a block: its first line says what it is and how to read it, its last line closes it."""
    return "\n".join([f"⟨{handle}⟩ {lines[0]}", *lines[1:], f"⟨/{handle}⟩"])


def _extend_lines(text: str, first: JsonSpan) -> JsonSpan:
    """Take the following lines in as long as each is one record."""
    if not is_record(first.values[0]) or text.find("\n", first.start, first.stop) >= 0:
        return first
    values, end = list(first.values), first.stop
    while text.startswith("\n{", end):
        try:
            value, after = parse_at(text, end + 1)
        except (ValueError, RecursionError):
            break
        if not is_record(value) or not _ends_line(text, after) or text.find("\n", end + 1, after) >= 0:
            break
        values.append(value)
        end = after
    return JsonSpan(first.start, end, values, True) if len(values) >= ROWS_MIN else first


def _ends_line(text: str, at: int) -> bool:
    return at == len(text) or text.startswith(("\n", "\r\n"), at)


def _write_block(span: JsonSpan, handle: str, saving_min: float) -> str | None:
    try:
        lines = write_lines(span.values) if span.is_lines else write_document(span.values[0])
    except RecursionError:
        return None
    block = frame(handle, lines)
    return block if len(block) <= (span.stop - span.start) * (1 - saving_min) else None


def _densify_log(text: str, handle: str, saving_min: float) -> str | None:
    lines = write_log(text)
    if lines is None:
        return None
    made = frame(handle, lines)
    return made if len(made) <= len(text) * (1 - max(saving_min, _LOG_SAVING_MIN)) and _reads_back(made, text) else None


def _read(lines: list[str]) -> str:
    try:
        return read_log(lines) if lines[0].startswith("log ") else read_block(lines)
    except _FAULTS as error:
        raise ValueError(f"a block does not read back ({error}); ask for its handle to get the original") from error


def _reads_back(made: str, expected: str) -> bool:
    try:
        return expand_text(made) == expected
    except ValueError:
        return False


@dataclass(frozen=True)
class Densify(OutputStage):
    """Options of the stage. ``chars_max`` bounds the work on one output; larger ones are left to truncate."""

    name: ClassVar[str] = "densify"
    when: ClassVar[When] = "arrival"

    chars_min: int = 300
    chars_max: int = 20_000_000
    saving_min: float = 0.1
    texts: bool = False

    def __post_init__(self) -> None:
        if self.chars_min < 1:
            setting = "densify.chars_min"
            raise ConfigError("{setting} is {value}; give 1 or more", setting=setting, value=self.chars_min)
        if self.chars_max < self.chars_min:
            raise ConfigError(
                "{setting} is {value}, below chars_min {chars_min}; raise it",
                setting="densify.chars_max",
                value=self.chars_max,
                chars_min=self.chars_min,
            )
        if not 0 <= self.saving_min < 1:
            raise ConfigError(
                "{setting} is {value}; give a share from 0 up to 1", setting="densify.saving_min", value=self.saving_min
            )

    def rewrite(self, text: str, handle: str, tool: str) -> str | None:  # noqa: ARG002
        """Return the text made dense; None if that saves too little or could not be read back."""
        if len(text) > self.chars_max:
            return None
        return densify_text(text, handle, chars_min=self.chars_min, saving_min=self.saving_min)

    def write_reason(self, chars_before: int, chars_after: int) -> Reason:
        """Return how much shorter it became."""
        return because.DENSER(chars_before=chars_before, chars_after=chars_after)

    def _find_part(self, item: Item, number: int) -> Part | None:
        # Text that another edit has shortened is incomplete: a block made of it would not be lossless.
        return None if number in item.edited_parts() else item.message.parts[number]
