"""The guard around a plugin's stage: whatever it does, a prepared context comes out.

What it raises, what it returns that is no edit, and what breaks a law is left out, and the report says so. It cannot
guard against a plugin that never returns or that changes messages behind our back: a stage is a pure function.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from inspect import isgenerator
from typing import Any, cast

from refold.conversation.edit import Edit
from refold.conversation.message import Message
from refold.conversation.view import View
from refold.errors import FormatError
from refold.ladder.run import take_edits
from refold.ledger.codec import find_odd
from refold.stages.stage import Ask, Goal, Proposal, Proposed, Reply, When

ASKS_MAX = 8
_WHY_CHARS_MAX = 200


@dataclass(frozen=True)
class GuardedStage:
    """A plugin's stage under its name in the settings; ``failure`` says why there is none behind it."""

    name: str
    when: When = "batch"
    inner: Any = None
    failure: str = ""

    def propose(self, view: View, goal: Goal) -> Proposal:
        """Return what the plugin proposes, less what would not hold."""
        if self.inner is None:
            return Proposed([], self.failure)
        try:
            proposed = self.inner.propose(view, goal)
            answered = (yield from _limit_asks(cast("Proposal", proposed))) if isgenerator(proposed) else proposed
            told = answered if isinstance(answered, Proposed) else Proposed(list(answered or ()))
            # Tried out first: an edit of nonsense would else fail where nobody knows whose it is.
            signed = [self._sign(edit) for edit in told.edits]
            _check_covers(view, signed)
            _, report = take_edits(view, signed, self.name)
            note = str(told.note)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
            return Proposed([], self.describe(error))
        refused = f"plugin {self.name}: {report.note}" if report.note else ""
        return Proposed(list(report.edits), "; ".join(filter(None, (note, refused))), bool(told.is_failed))

    def arrive(self, message: Message) -> list[Edit]:
        """Return the plugin's rendering of one message: texts of tool results, made shorter; nothing else."""
        if self.inner is None:
            return []
        try:
            return [self._sign(edit) for edit in self.inner.arrive(message) if _is_shorter(edit, message)]
        except (Exception, SystemExit):  # noqa: BLE001 - what cannot be rendered stays as it came
            return []

    def describe(self, error: BaseException) -> str:
        """Return a failure for the report."""
        why = " ".join(f"{type(error).__name__}: {error}".split())[:_WHY_CHARS_MAX]
        return f"plugin {self.name} failed ({why}); nothing of it was used"

    def _sign(self, edit: object) -> Edit:
        """Put the plugin's own name under an edit: no plugin acts as clamp."""
        if not isinstance(edit, Edit):
            raise TypeError(f"{type(edit).__name__} is no Edit")
        wrong = next(find_odd(edit), "")
        if wrong:
            raise FormatError(f"its edit has an odd {wrong}")
        return replace(edit, stage=self.name, id="")


def _check_covers(view: View, edits: Sequence[Edit]) -> None:
    """Refuse a fold that would hold nowhere: a view shows it only where all it covers stands, in that order."""
    place = {message.id: at for at, message in enumerate(view.messages)}
    for edit in edits:
        places = [place.get(message_id, -1) for message_id in edit.covers]
        if -1 in places:
            raise FormatError("its edit covers a message that is not there")
        if edit.kind == "fold" and places != sorted(places):
            raise FormatError("its fold covers messages out of their order")


def _limit_asks(asking: Generator[Ask, Reply, Any]) -> Generator[Ask, Reply, Any]:
    reply = cast("Reply", None)
    try:
        for _ in range(ASKS_MAX + 1):
            ask = asking.send(reply)
            if not isinstance(ask, Ask):
                raise TypeError(f"it asked with a {type(ask).__name__}, not with an Ask")
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
