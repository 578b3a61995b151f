"""densify: the stage. Lossless: JSON of like records becomes tables, repetitive logs tell their beginnings once.

A pure function of message and options. It never applies where reading back would not give exactly what was there, nor
where little is saved; the original stays behind the block's handle as with every edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refold.conversation.edit import Edit
from refold.conversation.handle import message_handle
from refold.conversation.message import Message
from refold.conversation.part import Part
from refold.conversation.view import View
from refold.errors import ConfigError
from refold.stages.densify.text import densify_text
from refold.stages.stage import Goal, When, replace_part


@dataclass(frozen=True)
class Densify:
    """Options of the stage. ``chars_max`` bounds the work on one output; larger ones are left to truncate."""

    name: ClassVar[str] = "densify"
    when: ClassVar[When] = "arrival"

    chars_min: int = 300
    chars_max: int = 20_000_000
    saving_min: float = 0.1
    texts: bool = False

    def __post_init__(self) -> None:
        if self.chars_min < 1:
            raise ConfigError(f"densify.chars_min is {self.chars_min}; give 1 or more")
        if self.chars_max < self.chars_min:
            raise ConfigError(f"densify.chars_max is {self.chars_max}, below chars_min {self.chars_min}; raise it")
        if not 0 <= self.saving_min < 1:
            raise ConfigError(f"densify.saving_min is {self.saving_min}; give a share from 0 up to 1")

    def propose(self, view: View, goal: Goal) -> list[Edit]:  # noqa: ARG002
        """Make dense every output of the view that no edit has touched and nothing protects."""
        edits: list[Edit] = []
        for at, item in enumerate(view.items):
            if item.is_fold or at in view.protected or item.message.is_sealed:
                continue
            taken = item.edited_parts()
            for number, part in enumerate(item.message.parts):
                text = None if number in taken else self._render(item.message, number, part)
                if text is None:
                    continue
                edit = replace_part(item, number, text, view=view, stage=self.name, reason=_say(part, text))
                if edit is not None:
                    edits.append(edit)
        return edits

    def arrive(self, message: Message) -> list[Edit]:
        """Return the edits that make the outputs of one message dense."""
        edits: list[Edit] = []
        if message.is_sealed:
            return edits
        for number, part in enumerate(message.parts):
            text = self._render(message, number, part)
            if text is not None:
                edits.append(Edit("replace", self.name, (message.id,), number, text, reason=_say(part, text)))
        return edits

    def _render(self, message: Message, number: int, part: Part) -> str | None:
        # A result that holds media would lose it: its text is replaced as a whole.
        if part.inside or not (part.kind == "result" or (self.texts and part.kind == "text")):
            return None
        if len(part.text) > self.chars_max:
            return None
        handle = message_handle(message, number)
        return densify_text(part.text, handle, chars_min=self.chars_min, saving_min=self.saving_min)


def _say(part: Part, text: str) -> str:
    return f"{len(part.text):,} characters said in {len(text):,}, nothing lost"
