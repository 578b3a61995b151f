"""densify: the stage. Lossless: JSON of like records becomes tables, repetitive logs tell their beginnings once.

A pure function of message and options. It never applies where reading back would not give exactly what was there, nor
where little is saved; the original stays behind the block's handle as with every edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Part
from refold.conversation.reason import Reason
from refold.conversation.view import Item
from refold.errors import ConfigError
from refold.stages.densify.text import densify_text
from refold.stages.output import OutputStage
from refold.stages.stage import When


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
            raise ConfigError(f"densify.chars_min is {self.chars_min}; give 1 or more")
        if self.chars_max < self.chars_min:
            raise ConfigError(f"densify.chars_max is {self.chars_max}, below chars_min {self.chars_min}; raise it")
        if not 0 <= self.saving_min < 1:
            raise ConfigError(f"densify.saving_min is {self.saving_min}; give a share from 0 up to 1")

    def rewrite(self, text: str, handle: str, tool: str) -> str | None:  # noqa: ARG002
        """Return the text made dense; None if that saves too little or could not be read back."""
        if len(text) > self.chars_max:
            return None
        return densify_text(text, handle, chars_min=self.chars_min, saving_min=self.saving_min)

    def write_reason(self, chars_before: int, chars_after: int) -> Reason:
        """Return how much shorter it became."""
        return because.DENSER(chars_before=chars_before, chars_after=chars_after)

    def _find_part(self, item: Item, number: int) -> Part | None:
        # What another edit has shortened is no longer whole: making that dense would not be lossless.
        return None if number in item.edited_parts() else item.message.parts[number]
