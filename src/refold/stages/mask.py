"""mask: old observations become one line that says what they were, how large, and how to get them back.

Old large arguments of tool calls lose their long values and stay valid JSON; old pictures become a phrase. Every line
it writes is a line of the original or carries a handle. It never touches the newest units, and never a fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation.edit import Edit
from refold.conversation.handle import mark, message_handle
from refold.conversation.language import Language
from refold.conversation.part import Part
from refold.conversation.turn import Unit
from refold.conversation.view import Item, View
from refold.stages.arguments import shorten_arguments
from refold.stages.gist import describe_call, describe_size, find_observations, find_status
from refold.stages.media import describe_media
from refold.stages.stage import Goal, When, count_part, replace_part, seen_part

_REASON = "old observation"


@dataclass(frozen=True, slots=True)
class Mask:
    """Keep the newest ``keep`` units that hold calls, results or media; mask what is older and large enough."""

    name: ClassVar[str] = "mask"
    when: ClassVar[When] = "batch"

    keep: int = 3
    tokens_min: int = 80
    arguments_tokens_min: int = 150
    value_chars_min: int = 160
    media: bool = True

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return replacements, oldest first, until the target would be met."""
        edits: list[Edit] = []
        border = self._find_border(view)
        calls = {(seen.at, seen.part): seen.call for seen in find_observations(view)}
        left = view.tokens - goal.target
        for at in range(border):
            item = view.items[at]
            if item.is_fold or at in view.protected:
                continue
            for index in range(len(item.message.parts)):
                if left <= 0 and not goal.force:
                    return edits
                edit = self._mask_part(view, item, index, calls.get((at, index)), goal.language)
                if edit is not None:
                    edits.append(edit)
                    left -= edit.tokens_freed
        return edits

    def _find_border(self, view: View) -> int:
        """Return the index from which on nothing is masked."""
        kept = 0
        for unit in reversed(view.units):
            if not _holds_observation(view.items, unit):
                continue
            if kept == self.keep:
                return unit.stop
            kept += 1
        return 0

    def _mask_part(self, view: View, item: Item, index: int, call: Part | None, language: Language) -> Edit | None:
        part = item.message.parts[index]
        seen = seen_part(item, index)
        edit = item.edited_parts().get(index)
        if seen is None or (edit is not None and edit.stage == self.name):
            return None
        handle = mark(message_handle(item.message, index))
        text: str | None = None
        if part.kind == "result":
            text = self._mask_result(view, seen, part, call, handle, language)
        elif part.kind == "call" and view.lens.count_text(seen.text) >= self.arguments_tokens_min:
            text = shorten_arguments(part.text, handle, language, self.value_chars_min)
        elif seen.kind == "media" and self.media:
            text = f"[{describe_media(part, language)} {handle}]"
        if text is None:
            return None
        return replace_part(item, index, text, view=view, stage=self.name, reason=_REASON)

    def _mask_result(
        self, view: View, seen: Part, part: Part, call: Part | None, handle: str, language: Language
    ) -> str | None:
        if view.lens.count_text(seen.text) >= self.tokens_min:
            return mask_line(part, call, handle, language)
        if seen.inside and self.media and count_part(view, seen) >= self.tokens_min:
            # The words of the result stay: only its pictures are large.
            pictures = [f"[{describe_media(media, language)} {handle}]" for media in seen.inside]
            return "\n".join((part.text, *pictures) if part.text else pictures)
        return None


def mask_line(result: Part, call: Part | None, handle: str, language: Language) -> str:
    """Return the line that stands for a result, and after it, verbatim, how the tool ended if it ended badly."""
    tool = (call.name if call else "") or result.name
    facts = [describe_size(result.text, language), *(describe_media(media, language) for media in result.inside)]
    if result.is_error:
        facts.insert(0, "出错" if language == "zh" else "error")
    line = f"[{describe_call(tool, call.text if call else '')} → {', '.join(facts)} {handle}]"
    return "\n".join((line, *find_status(result.text)))


def _holds_observation(items: Sequence[Item], unit: Unit) -> bool:
    return any(
        part.kind in ("call", "result", "media") for item in items[unit.start : unit.stop] for part in item.parts
    )
