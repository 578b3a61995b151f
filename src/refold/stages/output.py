"""What densify and truncate share: a tool's output is written another way, once on arrival, else with a batch.

Each output is looked at for itself: never at budget, position or query. A result that holds media stays as it is,
because its text is replaced as a whole and the media would be lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from refold.conversation.message import Message, Part, message_handle
from refold.conversation.reason import Language, Reason
from refold.conversation.view import Edit, Item, View
from refold.stages.stage import Goal, replace_part, seen_part


class OutputStage(ABC):
    """A stage over tool outputs; with ``texts`` over plain text, too."""

    name: ClassVar[str]
    texts: bool

    @abstractmethod
    def rewrite(self, text: str, handle: str, tool: str) -> str | None:
        """Return the replacement of an output; None if it stays."""

    @abstractmethod
    def write_reason(self, chars_before: int, chars_after: int) -> Reason:
        """Return the reason of an edit."""

    def speak(self, language: Language) -> OutputStage:  # noqa: ARG002 - most outputs need no words of ours
        """Return the stage with its own words in the language of a conversation."""
        return self

    def arrive(self, message: Message) -> list[Edit]:
        """Return the edits of one message's outputs."""
        edits: list[Edit] = []
        for number, part in enumerate(() if message.is_sealed else message.parts):
            text = self._rewrite(message, number, part)
            if text is not None:
                reason = self.write_reason(len(part.text), len(text))
                edits.append(Edit("replace", self.name, (message.id,), number, text, reason=reason))
        return edits

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return the edits of every output in view that nothing protects."""
        return self.speak(goal.language)._propose(view)

    def _propose(self, view: View) -> list[Edit]:
        edits: list[Edit] = []
        for at, item in enumerate(view.items):
            if item.is_fold or at in view.protected:
                continue
            for number in range(len(item.message.parts)):
                part = self._find_part(item, number)
                text = None if part is None else self._rewrite(item.message, number, part)
                if part is None or text is None:
                    continue
                reason = self.write_reason(len(part.text), len(text))
                edit = replace_part(item, number, text, view=view, stage=self.name, reason=reason)
                edits += [edit] if edit else []
        return edits

    def _find_part(self, item: Item, number: int) -> Part | None:
        """Return the part to work on, as it is seen now; None if it is not to be touched."""
        return seen_part(item, number)

    def _rewrite(self, message: Message, number: int, part: Part) -> str | None:
        if part.inside or not (part.kind == "result" or (self.texts and part.kind == "text")):
            return None
        return self.rewrite(part.text, message_handle(message, number), part.name)
