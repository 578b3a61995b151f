"""The guard around a plugin's stage: whatever the plugin does, preparing a context succeeds.

Exceptions, results that are not edits, and edits that break a law are left out, and the report says so. The guard does
not help against a plugin that never returns or that mutates messages: a stage must be a pure function.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from inspect import isgenerator
from typing import Any, cast

from refold.conversation.message import Message
from refold.conversation.view import Edit, View
from refold.errors import FormatError
from refold.ladder.run import take_edits
from refold.ledger.codec import find_invalid
from refold.stages.stage import Ask, Goal, Proposal, Proposed, Reply, When

ASKS_MAX = 8
_WHY_CHARS_MAX = 200


@dataclass(frozen=True)
class GuardedStage:
    """A plugin's stage under its name in the settings; ``failure`` says why it could not be loaded."""

    name: str
    when: When = "batch"
    inner: Any = None
    failure: str = ""

    def propose(self, view: View, goal: Goal) -> Proposal:
        """Return the plugin's valid proposals."""
        if self.inner is None:
            return Proposed([], self.failure)
        try:
            proposed = self.inner.propose(view, goal)
            answered = (yield from _limit_asks(cast("Proposal", proposed))) if isgenerator(proposed) else proposed
            proposal = answered if isinstance(answered, Proposed) else Proposed(list(answered or ()))
            # Try the edits here: later, an invalid edit would fail without a hint at the plugin.
            signed = [self._sign(edit) for edit in proposal.edits]
            _check_covers(view, signed)
            _, report = take_edits(view, signed, self.name)
            note = str(proposal.note)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
            return Proposed([], self.describe(error))
        refused = f"plugin {self.name}: {report.note}" if report.note else ""
        return Proposed(list(report.edits), "; ".join(filter(None, (note, refused))), bool(proposal.is_failed))

    def arrive(self, message: Message) -> list[Edit]:
        """Return the plugin's rendering of one message: only shorter texts of tool results are allowed."""
        if self.inner is None:
            return []
        try:
            return [self._sign(edit) for edit in self.inner.arrive(message) if _is_shorter(edit, message)]
        except (Exception, SystemExit):  # noqa: BLE001 - the message stays as it is
            return []

    def describe(self, error: BaseException) -> str:
        """Return the note about a failure."""
        why = " ".join(f"{type(error).__name__}: {error}".split())[:_WHY_CHARS_MAX]
        return f"plugin {self.name} failed ({why}); nothing of it was used"

    def _sign(self, edit: object) -> Edit:
        """Set the plugin's name as the stage of an edit, so that no plugin can pass for clamp."""
        if not isinstance(edit, Edit):
            raise TypeError(f"{type(edit).__name__} is not an Edit")
        wrong = next(find_invalid(edit), "")
        if wrong:
            raise FormatError(f"its edit has an invalid {wrong}")
        return replace(edit, stage=self.name, id="")


def _check_covers(view: View, edits: Sequence[Edit]) -> None:
    """Refuse a fold that no view would show: it needs all covered messages, in their order."""
    place = {message.id: at for at, message in enumerate(view.messages)}
    for edit in edits:
        places = [place.get(message_id, -1) for message_id in edit.covers]
        if -1 in places:
            raise FormatError("its edit covers a message that is not in the view")
        if edit.kind == "fold" and places != sorted(places):
            raise FormatError("its fold covers messages out of order")


def _limit_asks(asking: Generator[Ask, Reply, Any]) -> Generator[Ask, Reply, Any]:
    reply = cast("Reply", None)
    try:
        for _ in range(ASKS_MAX + 1):
            ask = asking.send(reply)
            if not isinstance(ask, Ask):
                raise TypeError(f"it yielded a {type(ask).__name__}, not an Ask")
            reply = yield ask
    except StopIteration as done:
        return done.value
    finally:
        asking.close()
    raise RuntimeError(f"it asked more than {ASKS_MAX} times")


def _is_shorter(edit: Edit, message: Message) -> bool:
    at = edit.part
    if edit.kind != "replace" or edit.covers != (message.id,) or at is None or not 0 <= at < len(message.parts):
        return False
    part = message.parts[at]
    return part.kind == "result" and not part.inside and len(edit.text) < len(part.text)
