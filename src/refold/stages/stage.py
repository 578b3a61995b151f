"""A stage: its options, and one pure method that looks at a view and a goal and proposes edits.

A stage that needs a model asks by yielding: ``reply = yield Ask(prompt, tokens_max=800)``; a driver answers.
A stage never reaches out, never changes a message, and never proposes to touch what is protected.

``OutputStage`` is the base of the stages that rewrite a tool's output, on arrival or in a batch. ``render_arrival``
applies all arrival stages to one message: each sees what the one before it made. An edit made from an earlier edit of
the same part has a higher level, so undoing the earlier one undoes both.

The functions at the end find the units that a stage may fold and the messages behind them. Units before the newest user
message and units after it are separate runs: a summary must never describe later events before the question they
answer. System, pinned and sealed messages inside a run stay where they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Protocol

from refold.conversation.message import Message, Part, message_handle
from refold.conversation.reason import NO_REASON, Language, Reason, ReasonKind, as_reason
from refold.conversation.turn import Unit
from refold.conversation.view import Edit, Item, View
from refold.errors import ConfigError

When = Literal["arrival", "batch", "hard"]
FOLD = "fold"


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a model. The driver of the stage answers it, or says why it cannot.

    Where something other than a prompt may write the summary, ``archived`` are the provider messages that it replaces,
    and ``kept`` those that stay in view after it. ``follow`` asks the same of a model that has the conversation in its
    cache, up to the message with the id ``last``.
    """

    prompt: str
    tokens_max: int
    system: str = ""
    archived: tuple[object, ...] = ()
    kept: tuple[object, ...] = ()
    follow: str = ""
    last: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to an Ask. ``error`` says why there is no answer; ``finish_reason`` as the provider named it.

    ``declined``: there is no model, and none was expected. The extract is wanted; nothing failed. What an answer cost
    (``usage``) is no part of what it says: two replies with the same words are equal.
    """

    text: str = ""
    finish_reason: str = "stop"
    error: Reason | str = ""
    declined: bool = False
    usage: Mapping[str, Any] = field(default_factory=dict, compare=False)


class OutOfTime(Exception):
    """A compression has used the processor time that it may use; the ladder continues with its cheapest stages."""


def check_nothing() -> None:
    """Work without a time limit."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The aim of a batch: ``target`` tokens for the whole view; ``hard`` is the most it may ever have.

    ``soft`` is where compression begins. ``force`` is set by a person or by a count: the fold then acts even
    if the tokens do not require it. ``tokens_freed`` is the number of tokens that earlier stages removed. ``restored``
    has the content of offloaded results by their placeholder, for placeholders that a client sent back. ``secrets`` are
    keys and passwords in the conversation: an index of exact values would take them out of their context. Long work
    calls ``check`` between its passes, which raises OutOfTime when the work has taken too long; after that ``is_late``
    asks for the quickest way that fits.
    """

    target: int
    hard: int
    reason: Reason = NO_REASON
    language: Language = "en"
    instructions: str = ""
    force: bool = False
    tokens_freed: int = 0
    restored: Mapping[str, str] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    soft: int = 0
    check: Callable[[], None] = field(default=check_nothing, repr=False, compare=False)
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Proposed:
    """Edits with a note for the report. ``is_failed``: the stage could not do what it was configured to do."""

    edits: list[Edit]
    note: Reason | str = ""
    is_failed: bool = False


Proposal = Generator[Ask, Reply, list[Edit] | Proposed]


class Stage(Protocol):
    """A rung of the ladder. ``when``: on arrival of a message, with a batch, or only when over *hard*."""

    name: ClassVar[str]
    when: ClassVar[When]

    def propose(self, view: View, goal: Goal) -> list[Edit] | Proposal:
        """Return the edits that bring the view towards the goal, oldest first, and no more than needed."""


def acts_on_arrival(stage: Stage) -> bool:
    """Return whether a stage renders messages when they come; ``truncate`` does only where a limit was set."""
    return stage.when == "arrival" and bool(getattr(stage, "acts_on_arrival", True))


class ArrivalStage(Stage, Protocol):
    """A stage that renders a message once, when it first appears: a pure function of message and options."""

    def arrive(self, message: Message) -> list[Edit]:
        """Return the edits of one message, never looking at budget, position or query."""


def replace_part(item: Item, part: int, text: str, *, view: View, stage: str, reason: Reason | str) -> Edit | None:
    """Return the edit that puts ``text`` in the place of one part of an item; None if that is not smaller."""
    seen = seen_part(item, part)
    if seen is None:
        return None
    before = count_part(view, seen)
    after = view.lens.count_text(text)
    if after >= before:
        return None
    return Edit(
        kind="replace",
        stage=stage,
        covers=(item.message.id,),
        part=part,
        text=text,
        reason=as_reason(reason),
        level=next_level(item, part),
        tokens_before=before,
        tokens_after=after,
    )


def drop_part(item: Item, part: int, *, view: View, stage: str, reason: Reason | str) -> Edit | None:
    """Return the edit that leaves one part of an item out; None if it is out already."""
    seen = seen_part(item, part)
    if seen is None:
        return None
    return Edit(
        kind="drop",
        stage=stage,
        covers=(item.message.id,),
        part=part,
        reason=as_reason(reason),
        level=next_level(item, part),
        tokens_before=count_part(view, seen),
    )


def take_until_met(view: View, goal: Goal, edits: Iterable[Edit | None]) -> list[Edit]:
    """Return the edits in order up to the one that meets the target; with ``force`` all of them."""
    taken: list[Edit] = []
    left = view.tokens - goal.target
    for edit in edits if left > 0 or goal.force else ():
        if edit is None:
            continue
        taken.append(edit)
        left -= edit.tokens_freed
        if left <= 0 and not goal.force:
            break
    return taken


def seen_part(item: Item, part: int) -> Part | None:
    """Return a part of the original as the model sees it now: None if an edit dropped it."""
    edit = item.edited_parts().get(part)
    if edit is None:
        return item.message.parts[part]
    if edit.kind == "drop":
        return None
    original = item.message.parts[part]
    kind = "text" if original.kind == "media" else original.kind
    return Part(kind, edit.text, original.name, original.call_id, None, (), original.is_error)


def next_level(item: Item, part: int) -> int:
    """Return the level an edit needs to override the edits that are active on this part."""
    edit = item.edited_parts().get(part)
    return 0 if edit is None else edit.level + 1


def count_part(view: View, part: Part) -> int:
    """Return about how many tokens a part has in the view, its message's framing left out."""
    if part.kind == "media" or part.inside:
        return view.lens.count_bare(part)
    return view.lens.count_text(part.text)


def check_options(stage: Any) -> None:
    """Raise ConfigError for a count below zero or a share that is not between 0 and 1.

    Every refusal of an option has the value ``setting``, so that the config can say where it was set.
    """
    for option in fields(stage):
        setting, value = f"{stage.name}.{option.name}", getattr(stage, option.name)
        if isinstance(value, bool | str):
            continue
        if isinstance(value, int) and value < 0:
            raise ConfigError("{setting} is {value}; give 0 or more", setting=setting, value=value)
        if isinstance(value, float) and not 0 <= value <= 1:
            raise ConfigError("{setting} is {value}; give a share between 0 and 1", setting=setting, value=value)


def render_arrival(stages: Iterable[ArrivalStage], message: Message) -> list[Edit]:
    """Return what all arrival stages together make of one message, in their order."""
    edits: list[Edit] = []
    newest: dict[int, Edit] = {}
    seen = message
    for stage in stages:
        if newest:
            shown = [
                replace(one, text=newest[at].text) if at in newest else one for at, one in enumerate(message.parts)
            ]
            seen = replace(message, parts=tuple(shown))
        for found in stage.arrive(seen):
            assert found.part is not None
            before = newest.get(found.part)
            edit = found
            if before is not None:
                edit = replace(found, level=before.level + 1, made_from=(before.id,), id="")
            newest[found.part] = edit
            edits.append(edit)
    return edits


class OutputStage(ABC):
    """A stage over tool outputs; with ``texts`` over plain text, too."""

    name: ClassVar[str]
    # The reason of its edits, with the values chars_before and chars_after.
    reason: ClassVar[ReasonKind]
    texts: bool

    @abstractmethod
    def rewrite(self, text: str, handle: str, tool: str) -> str | None:
        """Return the replacement of an output; None if it stays."""

    def speak(self, language: Language) -> OutputStage:  # noqa: ARG002 - most outputs need no words of ours
        """Return the stage with its own words in the language of a conversation."""
        return self

    def arrive(self, message: Message) -> list[Edit]:
        """Return the edits of one message's outputs."""
        edits: list[Edit] = []
        for number, part in enumerate(() if message.is_sealed else message.parts):
            text = self._rewrite(message, number, part)
            if text is not None:
                reason = self.reason(chars_before=len(part.text), chars_after=len(text))
                edits.append(Edit("replace", self.name, (message.id,), number, text, reason=reason))
        return edits

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return the edits of every output in view that nothing protects."""
        stage = self.speak(goal.language)
        edits: list[Edit | None] = []
        for at, item in enumerate(view.items):
            if item.is_fold or at in view.protected:
                continue
            for number in range(len(item.message.parts)):
                part = self._find_part(item, number)
                text = None if part is None else stage._rewrite(item.message, number, part)
                if part is not None and text is not None:
                    reason = self.reason(chars_before=len(part.text), chars_after=len(text))
                    edits.append(replace_part(item, number, text, view=view, stage=self.name, reason=reason))
        return [edit for edit in edits if edit is not None]

    def _find_part(self, item: Item, number: int) -> Part | None:
        """Return the part to work on, as it is seen now; None if it is not to be touched."""
        return seen_part(item, number)

    def _rewrite(self, message: Message, number: int, part: Part) -> str | None:
        if part.inside or not (part.kind == "result" or (self.texts and part.kind == "text")):
            return None
        return self.rewrite(part.text, message_handle(message, number), part.name)


# Marks folds that only say that messages are gone, without a record of their content.
BARE = "window"


def is_record(item: Item) -> bool:
    """Return whether an item is a fold with a record of what happened, not only a note that messages are gone."""
    return item.is_fold and (fold := item.edits[0].fold) is not None and fold.by != BARE


def free_runs(view: View) -> list[list[Unit]]:
    """Return the units that may be folded, oldest first, split at the task and the newest user message."""
    return split_at_asks(view, view.free_units())


def split_at_asks(view: View, units: Iterable[Unit]) -> list[list[Unit]]:
    """Return the units before, between and after the task and the newest user message, as far as there are any."""
    borders = [at for at in (view.task_at, view.newest_user) if at is not None]
    runs: dict[int, list[Unit]] = {}
    for unit in units:
        runs.setdefault(sum(unit.start > at for at in borders), []).append(unit)
    return list(runs.values())


def items_of(view: View, units: Iterable[Unit]) -> list[Item]:
    """Return the items of these units, in order."""
    return [view.items[at] for unit in units for at in range(unit.start, unit.stop)]


def covered_messages(view: View, items: Iterable[Item]) -> tuple[Message, ...]:
    """Return every message behind these items, in the order of the conversation."""
    wanted = {message.id for item in items for message in item.messages}
    return tuple(message for message in view.messages if message.id in wanted)


def earlier_folds(items: Sequence[Item]) -> list[Edit]:
    """Return the folds among these items, oldest first."""
    return [item.edits[0] for item in items if item.is_fold]


def name_place(item: Item) -> str:
    """Return the id of the message before which a fold is placed that replaces this item."""
    return (item.edits[0].before if item.is_fold else "") or item.message.id
