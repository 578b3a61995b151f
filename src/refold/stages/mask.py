"""mask: replace old observations by one line each that says what they were, how large, and how to get them back.

Old large arguments of tool calls lose their long values and stay valid JSON; old pictures become a phrase. Every line
it writes is a line of the original or carries a handle. It never touches the newest units, and never a fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Part, mark, message_handle
from refold.conversation.reason import Language
from refold.conversation.turn import Unit
from refold.conversation.view import Edit, Item, View
from refold.stages.extract.values import find_values
from refold.stages.gist import (
    describe_call,
    describe_media,
    describe_size,
    find_observations,
    find_status,
    shorten_arguments,
)
from refold.stages.stage import Goal, When, check_options, count_part, replace_part, seen_part

# Kinds of values that a later step is most likely to use again. Measured: see docs/reference/stages/mask.md.
_WEIGHTS = {"id": 1.4, "file": 1.3, "email": 1.3, "date": 1.2, "identifier": 1.0, "url": 0.9, "money": 1.0, "name": 0.8}
_WEIGHT = 0.6
_VALUES_MAX = 80
_VALUE_CHARS = 80
_CALL_CHARS = 600


@dataclass(frozen=True, slots=True)
class Mask:
    """Keep the newest ``keep`` units that hold calls, results or media; mask what is older and large enough.

    The line of a masked result names up to ``values`` of its exact values that the view shows nowhere else, or
    ``values_share`` of them where they are many.
    """

    name: ClassVar[str] = "mask"
    when: ClassVar[When] = "batch"

    keep: int = 3
    tokens_min: int = 80
    arguments_tokens_min: int = 150
    value_chars_min: int = 160
    media: bool = True
    values: int = 16
    values_share: float = 0.4

    def __post_init__(self) -> None:
        check_options(self)

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return replacements, oldest first, until the target would be met."""
        edits: list[Edit] = []
        writer = _Writer(self, view, goal.language)
        left = view.tokens - goal.target
        for at in range(self._find_border(view)):
            item = view.items[at]
            if item.is_fold or at in view.protected:
                continue
            for index in range(len(item.message.parts)):
                if left <= 0 and not goal.force:
                    return edits
                text = writer.write(at, index)
                edit = text and replace_part(
                    item, index, text, view=view, stage=self.name, reason=because.OLD_OBSERVATION()
                )
                if edit:
                    edits.append(edit)
                    left -= edit.tokens_freed
        return edits

    def _find_border(self, view: View) -> int:
        """Return the first index that is not masked."""
        kept = 0
        for unit in reversed(view.units):
            if not _holds_observation(view.items, unit):
                continue
            if kept == self.keep:
                return unit.stop
            kept += 1
        return 0


class _Writer:
    """Writes the placeholders of one view, and remembers which values they show."""

    def __init__(self, options: Mask, view: View, language: Language) -> None:
        self._options = options
        self._view = view
        self._language = language
        self._calls = {(seen.at, seen.part): seen.call for seen in find_observations(view)}
        self._shown = _find_shown(view) if options.values else set()

    def write(self, at: int, index: int) -> str | None:
        """Return the placeholder for one part of an item; None if the part does not change."""
        item, options = self._view.items[at], self._options
        part, seen = item.message.parts[index], seen_part(item, index)
        edit = item.edited_parts().get(index)
        if seen is None or (edit is not None and edit.stage == Mask.name):
            return None
        handle = mark(message_handle(item.message, index))
        if part.kind == "result":
            return self._write_result(seen, part, self._calls.get((at, index)), handle)
        if part.kind == "call" and self._view.lens.count_text(seen.text) >= options.arguments_tokens_min:
            return shorten_arguments(part.text, handle, self._language, options.value_chars_min)
        if seen.kind == "media" and options.media:
            return f"[{describe_media(part, self._language)} {handle}]"
        return None

    def _write_result(self, seen: Part, part: Part, call: Part | None, handle: str) -> str | None:
        options = self._options
        if self._view.lens.count_text(seen.text) >= options.tokens_min:
            values = self._choose_values(part.text) if options.values else []
            return mask_line(part, call, handle, self._language, values=values)
        if seen.inside and options.media and count_part(self._view, seen) >= options.tokens_min:
            # The result's text stays: only its pictures are large.
            pictures = [f"[{describe_media(media, self._language)} {handle}]" for media in seen.inside]
            return "\n".join((part.text, *pictures) if part.text else pictures)
        return None

    def _choose_values(self, text: str) -> list[str]:
        """Return the exact values of a text that are worth a place in its line, and count them as shown."""
        found = find_values(text)
        ranked = sorted(found.items(), key=lambda pair: -_WEIGHTS.get(pair[0][0], _WEIGHT) * min(pair[1], 4))
        most = max(self._options.values, min(_VALUES_MAX, int(self._options.values_share * len(found))))
        new = [value for (_, value), _ in ranked if len(value) <= _VALUE_CHARS and value not in self._shown]
        chosen = list(dict.fromkeys(new))[:most]
        self._shown.update(chosen)
        return chosen


def mask_line(result: Part, call: Part | None, handle: str, language: Language, *, values: Sequence[str]) -> str:
    """Return the line that replaces a result, followed by the lines that say how the tool failed, if it did."""
    tool = (call.name if call else "") or result.name
    facts = [describe_size(result.text, language), *(describe_media(media, language) for media in result.inside)]
    if result.is_error:
        facts.insert(0, "出错" if language == "zh" else "error")
    line = f"[{describe_call(tool, call.text if call else '')} → {', '.join(facts)}"
    if values:
        line += f"{'；其中：' if language == 'zh' else '; in it: '}{' '.join(values)}"
    return "\n".join((f"{line} {handle}]", *find_status(result.text)))


def _find_shown(view: View) -> set[str]:
    """Return the exact values that the view shows outside of results, where masking cannot remove them."""
    texts = (
        part.text
        for item in view.items
        for part in item.parts
        if part.kind == "text" or (part.kind == "call" and len(part.text) <= _CALL_CHARS)
    )
    return {value for text in texts for _, value in find_values(text)}


def _holds_observation(items: Sequence[Item], unit: Unit) -> bool:
    return any(
        part.kind in ("call", "result", "media") for item in items[unit.start : unit.stop] for part in item.parts
    )
