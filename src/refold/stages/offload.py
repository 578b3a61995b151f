"""offload: the oldest large tool results move to files; the message keeps the path, the size and a preview.

Only the edit is made here. ``files_of`` says which files the edits name, and the manager writes them. A path
is a function of folder, message and part, so the same result has the same file in every run. A tool's own text that
looks like a path line is text: only edits of this stage name files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Message, mark, message_handle
from refold.conversation.reason import Language, count_things
from refold.conversation.view import Edit, View
from refold.errors import ConfigError, LawBroken
from refold.stages.gist import Observation, count_lines, describe_size, find_observations
from refold.stages.stage import Goal, When, check_options, replace_part, take_until_met

_LINE = re.compile(r"Tool result is at: (\S+)")
_FOLDER = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class OffloadFile:
    """A file that an edit names, relative to the workspace, and its content."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Offload:
    """Offload results of ``chars_min`` or more, of those the oldest ``share``, into ``folder``."""

    name: ClassVar[str] = "offload"
    when: ClassVar[When] = "batch"

    chars_min: int = 50
    share: float = 0.5
    folder: str = "offloaded"
    preview_lines: int = 5
    preview_chars: int = 300

    def __post_init__(self) -> None:
        check_options(self)
        if not _FOLDER.fullmatch(self.folder):
            raise ConfigError(
                "{setting} is {value!r}; it must be a relative folder of letters, digits, '_', "
                "'-' and '.', such as 'offloaded/session-1'",
                setting="offload.folder",
                value=self.folder,
            )

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return replacements, oldest first, until the target would be met."""
        large = [seen for seen in find_observations(view) if len(seen.result.text) >= self.chars_min]
        # Results offloaded earlier count, too: otherwise "the oldest half" would reach the newest ones call by call.
        oldest = large[: math.ceil(self.share * len(large))]
        return take_until_met(view, goal, (self._offload(view, seen, goal.language) for seen in oldest))

    def _offload(self, view: View, seen: Observation, language: Language) -> Edit | None:
        # A text file cannot hold the pictures of a result.
        if seen.result.inside or not seen.may_replace(view, self.name, self.chars_min):
            return None
        for lines_max in (self.preview_lines, 0):
            text = self._describe(seen, lines_max, language)
            found = replace_part(seen.item, seen.part, text, view=view, stage=self.name, reason=because.OLD_LARGE())
            if found is not None:
                return found
        return None

    def _describe(self, seen: Observation, lines_max: int, language: Language) -> str:
        message, text = seen.item.message, seen.result.text
        handle = mark(message_handle(message, seen.part))
        path = offload_path(self.folder, message, seen.part)
        head = f"Tool result is at: {path} ({describe_size(text, language)}) {handle}"
        preview = text[: self.preview_chars].split("\n")[:lines_max]
        shown = len("\n".join(preview))
        if not shown:
            return head
        lines, chars = count_lines(text[shown:].removeprefix("\n")), len(text) - shown
        if language == "zh":
            rest = f"[… 其余 {lines:,} 行，{chars:,} 字符 {handle}]"
        else:
            rest = f"[… {count_things(lines, 'more line')}, {chars:,} more characters {handle}]"
        return "\n".join((head, *preview, rest))


def offload_path(folder: str, message: Message, part: int) -> str:
    """Return where a part of a message goes, relative to the workspace."""
    return f"{folder}/{message.digest[:_DIGITS]}{'' if len(message.parts) == 1 else f'-{part}'}.txt"


def offloaded_path(edit: Edit) -> str | None:
    """Return the path that an edit of this stage names; None for any other edit, whatever its text says."""
    if edit.stage != Offload.name or edit.kind != "replace":
        return None
    return read_path(edit.text) or None


def read_path(text: str) -> str:
    """Return the path that a text names as the place of a result, or an empty one. Anyone may have written the text."""
    found = _LINE.match(text)
    return found[1] if found else ""


def files_of(edits: Iterable[Edit], messages: Sequence[Message]) -> list[OffloadFile]:
    """Return the files that these edits name, each once, with the full text of the results they replace."""
    by_id = {message.id: message for message in messages}
    files: dict[str, OffloadFile] = {}
    for edit in edits:
        path = offloaded_path(edit)
        message = by_id.get(edit.covers[0])
        if path is None or message is None or edit.part is None:
            continue
        folder = path.rpartition("/")[0]
        if path != offload_path(folder, message, edit.part) or not _FOLDER.fullmatch(folder):
            raise LawBroken("L5", f"an offload edit names {json.dumps(path)}, which is not the file of its message")
        files.setdefault(path, OffloadFile(path, message.parts[edit.part].text))
    return list(files.values())
