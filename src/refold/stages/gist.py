"""Gists: a tool call or its result in a few of its own words, for placeholders.

Each result's call is found by position within its unit, never by id alone: real traces use an id twice. A quote is
verbatim and bounded; no word about a call is invented, and nothing outside the unit is read.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass
from typing import NoReturn

from refold.conversation.message import Part
from refold.conversation.reason import Language, count_things
from refold.conversation.view import Item, View
from refold.stages.landmarks import find_landmarks
from refold.stages.stage import seen_part

GIST_CHARS = 100
_VALUE_CHARS = 80
_PARSE_CHARS = 200_000
_STATUS_CHARS = 200
# The most telling arguments first; other short values follow in their own order.
_TELLING = ("command", "cmd", "file_path", "path", "filename", "file", "url", "query", "pattern", "code", "name", "id")
# The outcome is reported at the beginning of an output or towards its end; only these parts are searched.
_HEAD_CHARS, _TAIL_CHARS = 2_000, 8_000
_WENT_WELL = re.compile(
    r"<?(?:returncode|return code|exit code|exit status|exit_code|status code)>?[ :=>]*0\b"
    r"|\[?(?:(?:command|process) )?(?:finished|exited|completed) with (?:exit )?(?:code|status)[ :=]*0\b",
    re.I,
)
_CHANGED_FILE = ("diff --git ", "Index: ", "+++ ", "rename ", "copy ", "Binary files ")


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One result in a view: its position, and the call it answers, if that is there."""

    at: int
    part: int
    item: Item
    result: Part
    call: Part | None

    @property
    def tool(self) -> str:
        """The tool's name, as the call or the result has it; empty if neither does."""
        return (self.call.name if self.call else "") or self.result.name

    def may_replace(self, view: View, stage: str, chars_min: int) -> bool:
        """Return whether a stage may replace the result: unprotected, long enough, and not replaced by it before."""
        shown, edit = seen_part(self.item, self.part), self.item.edited_parts().get(self.part)
        if self.at in view.protected or shown is None or len(shown.text) < chars_min:
            return False
        return edit is None or edit.stage != stage


def find_observations(view: View) -> list[Observation]:
    """Return every result in the view with its call, oldest first, as the originals have them."""
    found: list[Observation] = []
    for unit in view.units:
        waiting: dict[str, deque[Part]] = {}
        for at in range(unit.start, unit.stop):
            item = view.items[at]
            if item.is_fold:
                continue
            for index, part in enumerate(item.message.parts):
                if part.kind == "call":
                    waiting.setdefault(part.call_id, deque()).append(part)
                elif part.kind == "result":
                    calls = waiting.get(part.call_id)
                    found.append(Observation(at, index, item, part, calls.popleft() if calls else None))
    return found


def describe_call(tool: str, arguments: str) -> str:
    """Return a tool's name and its telling arguments on one line, cut with ``…`` where they are long."""
    words: list[str] = []
    room = GIST_CHARS
    for key, value in _telling_values(arguments):
        if room < 8:
            break
        shown = first_line(value, min(room, _VALUE_CHARS))
        words.append(shown if key in ("", *_TELLING[:8]) and not words else f"{key}={shown}")
        room -= len(words[-1]) + 1
    name = first_line(tool, _VALUE_CHARS) or "tool"
    return disarm_marks(f"{name} {' '.join(words)}" if words else name)


def _telling_values(arguments: str) -> list[tuple[str, str]]:
    # Numbers are kept as text, because quotes must be verbatim.
    parsed = read_json(arguments, keep_numbers=True) if len(arguments) <= _PARSE_CHARS else None
    if not isinstance(parsed, dict):
        return [("", arguments)] if arguments.strip() not in ("", "{}", "null") else []
    values = [(key, value) for key, value in parsed.items() if isinstance(value, str) and value.strip()]
    rank = {key: at for at, key in enumerate(_TELLING)}
    return sorted(values, key=lambda pair: rank.get(pair[0], len(rank)))


def read_json(text: str, *, keep_numbers: bool = False) -> object | None:
    """Return the value that a text is as JSON, numbers as text if asked; None if it is not JSON, or too deep."""
    number = str if keep_numbers else None
    try:
        parsed: object = json.loads(text, parse_constant=refuse_constant, parse_float=number, parse_int=number)
    except (ValueError, RecursionError):
        return None
    return parsed


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities, which Python's parser accepts."""
    raise ValueError(f"{name} is not JSON")


def first_line(text: str, chars_max: int) -> str:
    """Return the first line that says something, ending in ``…`` if anything of the text is left out."""
    stripped = text.strip()
    line = stripped.split("\n", 1)[0].rstrip()
    # A placeholder is one line, so other line separators are removed, too.
    line = line.splitlines()[0] if line else ""
    if len(line) > chars_max:
        return line[: chars_max - 1] + "…"
    return line if len(line) == len(stripped) else line[: chars_max - 1] + "…"


def disarm_marks(text: str) -> str:
    """Return a quoted text in which nothing reads as a handle: a placeholder names its own handles only."""
    return text.replace("⟨", "<").replace("⟩", ">")


def count_lines(text: str) -> int:
    """Return how many lines a text has; a newline at its end starts no further one."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def describe_size(text: str, language: Language) -> str:
    """Return the exact lines and characters of a text, in words."""
    lines, chars = count_lines(text), len(text)
    if language == "zh":
        return f"{lines:,} 行，{chars:,} 字符"
    return f"{count_things(lines, 'line')}, {count_things(chars, 'character')}"


def find_status(text: str) -> list[str]:
    """Return the lines that say how it ended, if not simply well: the last total or exit status, the last error."""
    spans = [(0, len(text))]
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        # Only whole lines, so that what is quoted is a line of the original.
        head, tail = text.rfind("\n", 0, _HEAD_CHARS), text.find("\n", len(text) - _TAIL_CHARS)
        spans = [(0, max(0, head)), (tail + 1 if tail >= 0 else len(text), len(text))]
    last: dict[bool, str] = {}
    found = (spot for start, stop in spans for spot in find_landmarks(text, start, stop, is_log=False))
    for spot in sorted(found):
        line = text[spot.start : spot.stop]
        if len(line) <= _STATUS_CHARS and not _WENT_WELL.match(line) and not line.startswith(_CHANGED_FILE):
            last[spot.rank == 0] = line
    return [last[is_total] for is_total in (True, False) if is_total in last]
