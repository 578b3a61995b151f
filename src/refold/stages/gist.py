"""Gists: a tool call or its result in a few of its own words, for placeholders.

Each result's call is found by position within its unit, never by id alone: real traces use an id twice. A quote is
verbatim and bounded; no word about a call is invented, and nothing outside the unit is read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from refold.conversation.message import Part
from refold.conversation.reason import Language, count_things
from refold.conversation.view import Item, View
from refold.reading.calls import read_call, read_result
from refold.reading.events import Action, CallOutcome
from refold.reading.fields import read_json
from refold.reading.outputs import find_lines
from refold.stages.stage import seen_part

GIST_CHARS = 100
_VALUE_CHARS = 80
_PARSE_CHARS = 200_000
_STATUS_CHARS = 200
# An exit status is at the beginning or at the end of a result.
_EXIT_CHARS = 600
# The most telling arguments first; other short values follow in their own order.
_TELLING = ("command", "cmd", "file_path", "path", "filename", "file", "url", "query", "pattern", "code", "name", "id")


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


def tell_outcome(result: Part, call: Part | None) -> list[str]:
    """Return the lines of a result that say how it ended, if not simply well: totals of tests, errors."""
    events = read_call(call, 0) if call is not None else ()
    action = next((event for event in events if isinstance(event, Action)), None)
    outcome = next(event for event in read_result(result, 0, action) if isinstance(event, CallOutcome))
    is_counted = any(name in ("passed", "failed", "errors") for name, _ in outcome.fields)
    if outcome.status != "failed" and not is_counted:
        return []
    lines = dict.fromkeys((*_find_exit(result.text, outcome), outcome.text, outcome.error))
    return [line for line in lines if line and len(line) <= _STATUS_CHARS and line in result.text]


def _find_exit(text: str, outcome: CallOutcome) -> list[str]:
    """Return the line with the exit status of a command that failed."""
    if dict(outcome.fields).get("exit_code", "0") == "0":
        return []
    head, tail = min(len(text), _EXIT_CHARS), max(0, len(text) - _EXIT_CHARS)
    marks = [*find_lines(text, 0, head), *find_lines(text, max(head, tail), len(text))]
    return [text[mark.start : mark.stop] for mark in marks if mark.kind == "exit"][:1]
