"""The source of one fold: its items, its originals, the earlier folds it takes in, and what stays around it.

The record is written from what the whole conversation says and does, read once for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary

from refold.conversation.author import read_said
from refold.conversation.message import Message, Role, is_notice, is_user_turn, message_handle, read_as_result
from refold.conversation.reason import Language, Reason
from refold.conversation.turn import Unit
from refold.conversation.view import Edit, FoldRecord, Item, View
from refold.reading.advance import advance, advance_known
from refold.reading.facts import find_facts, merge_facts
from refold.reading.read import read_all
from refold.reading.state import State
from refold.reading.weights import Evidence
from refold.stages.record.record import ReadSpan, RecordOptions, WrittenRecord, write_record
from refold.stages.record.story import ReadMessage
from refold.stages.stage import Goal, covered_messages, earlier_folds, items_of, name_place


@dataclass(frozen=True, slots=True)
class Source:
    """The messages that one fold replaces, and those around them."""

    items: tuple[Item, ...]
    kept: tuple[Item, ...]
    messages: tuple[Message, ...]
    fresh: tuple[Message, ...]
    previous: tuple[FoldRecord, ...]
    seen: str
    role_before: Role | None
    role_after: Role | None
    # The message before which the fold is placed.
    before: str
    # Earlier requests of people and what stays in view: a summary needs to know what the work is about.
    asked: str = ""
    # Ids of tool results that are sent as user text, and of notices.
    observed: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        view: View,
        span: Sequence[Unit],
        spans: Sequence[Sequence[Unit]],
        edits: Sequence[Edit],
        place: int,
    ) -> Self:
        """Collect the originals of a span, the folds it takes in, and the text that stays in view.

        ``place`` is the item that its fold replaces, or before which it is placed.
        """
        taken = {at for one in spans for unit in one for at in range(unit.start, unit.stop)}
        kept = [at for at in range(len(view.items)) if at not in taken]
        items = items_of(view, span)
        first = span[0].start
        before = next((view.items[at].role for at in reversed(kept) if at < place), None)
        after = next((view.items[at].role for at in kept if at >= place), None)
        messages = covered_messages(view, items)
        # A fold without facts, artifacts and a model's words (the window's) knows nothing that could be carried on.
        known = [item for item in items if item.is_fold and says_more(item)]
        behind = {message.id for item in known for message in item.messages}
        seen = "\n".join(part.text for at in kept for part in view.items[at].parts)
        return cls(
            items=tuple(items),
            kept=tuple(view.items[at] for at in kept),
            messages=messages,
            fresh=tuple(message for message in messages if message.id not in behind),
            previous=tuple(fold for item in known if (fold := item.edits[0].fold) is not None),
            seen="\n".join((seen, *(edit.text for edit in edits))),
            role_before=before,
            role_after=after,
            before=name_place(view.items[place]),
            asked="\n".join(_read_ask(view, at) for at in kept if at < first).strip(),
            # What nobody said: tool results sent as user text, and notices.
            observed=find_results(view, messages) | {one.id for one in messages if is_notice(one.role, one.parts)},
        )

    @property
    def spoken(self) -> tuple[Message, ...]:
        """The originals as a summary reads them: a tool result sent as user text is a result, nobody's words."""
        return self._read(self.messages)

    @property
    def spoken_fresh(self) -> tuple[Message, ...]:
        """The same of the originals that no earlier fold tells of."""
        return self._read(self.fresh)

    def _read(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(read_as_result(message) if message.id in self.observed else message for message in messages)

    def count_untold(self, view: View) -> int:
        """Return the tokens behind this fold that no model has summed up yet."""
        behind = {message.id for message in self.messages}
        by_model = [edit for edit in view.edits if edit.fold is not None and edit.fold.by == "llm"]
        summed = {one for edit in by_model if behind.issuperset(edit.covers) for one in edit.covers}
        return sum(view.lens.plain(message).tokens for message in self.messages if message.id not in summed)

    def write(self, view: View, options: RecordOptions, goal: Goal, words: str | None = None) -> WrittenRecord:
        """Return the record, written from what is true now in the whole conversation; ``words`` are a model's."""
        conversation = _READ.get(view) or read_conversation(view.messages, find_results(view, view.messages))
        _READ[view] = conversation
        wanted = {message.id for message in self.messages}
        shown = {message.id for item in self.kept if not item.is_fold for message in item.messages}
        span = ReadSpan(
            read=[message for message in conversation.messages if message.message.id in wanted],
            state=conversation.state,
            evidence=conversation.evidence,
            language=goal.language,
            seen=self.seen,
            seen_positions=frozenset(message.at for message in conversation.messages if message.message.id in shown),
            secrets=goal.secrets,
        )
        fresh = {message.id for message in self.fresh}
        span = _with_facts(span, self.previous, [one for one in span.read if one.message.id in fresh])
        return write_record(span, replace(options, instructions=goal.instructions), view.lens.count_text, words)

    def fold(self, view: View, record: WrittenRecord, *, stage: str, role: Role, reason: Reason) -> Edit:
        """Return the edit that puts a record in the place of the items, with its exact size."""
        earlier = earlier_folds(self.items)
        edit = Edit(
            kind="fold",
            stage=stage,
            covers=tuple(message.id for message in self.messages),
            text=record.text,
            role=view.lens.format.allow_role(role, self.role_before, self.role_after),
            reason=reason,
            level=1 + max((fold.level for fold in earlier), default=-1),
            made_from=tuple(fold.id for fold in earlier),
            tokens_before=sum(item.tokens for item in self.items),
            fold=record.fold,
            before="" if self.before == self.messages[0].id else self.before,
        )
        return replace(edit, tokens_after=view.lens.fold(edit, self.messages).tokens)


def write_messages(
    messages: Sequence[Message], options: RecordOptions, count: Callable[[str], int], language: Language
) -> WrittenRecord:
    """Return the record of messages that are part of no view."""
    conversation = read_conversation(messages, frozenset())
    span = ReadSpan(conversation.messages, conversation.state, conversation.evidence, language)
    return write_record(_with_facts(span, (), span.read), options, count)


def _with_facts(span: ReadSpan, previous: Sequence[FoldRecord], fresh: Sequence[ReadMessage]) -> ReadSpan:
    found = [fact for one in fresh for fact in find_facts(one.events, message_handle(one.message))]
    return replace(span, facts=tuple(merge_facts((fact for fold in previous for fact in fold.facts), found)))


@dataclass(frozen=True, slots=True)
class ReadConversation:
    """All messages of a view with their events, the state after the last one, and the evidence of values."""

    messages: tuple[ReadMessage, ...]
    state: State
    evidence: Evidence


_READ: WeakKeyDictionary[View, ReadConversation] = WeakKeyDictionary()  # A fold writes several records of a view.


def read_conversation(messages: Sequence[Message], results: frozenset[str]) -> ReadConversation:
    """Read messages in one pass; what was read before is found in memory. ``results`` are results sent as user text."""
    is_result = {message.id: message.id in results for message in messages}
    events = list(read_all(messages, lambda message: is_result[message.id]))
    state = advance_known(messages, events) if messages else State()
    if state is None:
        rest = iter(events)
        state = advance(State(), messages, lambda _message, _waiting: next(rest))
    found = (ReadMessage(at, message, own) for at, (message, own) in enumerate(zip(messages, events, strict=True)))
    return ReadConversation(tuple(found), state, Evidence(events))


def find_results(view: View, messages: Sequence[Message]) -> frozenset[str]:
    """Return the ids of the tool results among these originals that are sent as user text."""
    first = next((one.id for one in view.messages if one.role != "system"), "")
    found: set[str] = set()
    # A span that begins with a result has its answer right before it: only the first message must be a person's.
    before: Role = "assistant"
    for message in messages:
        is_after = before == "assistant" and message.id != first
        if message.role == "user" and is_after and view.lens.is_observation(message):
            found.add(message.id)
            continue
        before = message.role
    return frozenset(found)


def _read_ask(view: View, at: int) -> str:
    item = view.items[at]
    if item.is_fold or not is_user_turn(item.role, item.parts) or view.is_observed(at):
        return ""
    return read_said(item, "user")


def says_more(item: Item) -> bool:
    """Return whether a fold knows more than that something is gone, as the line of a later rung does."""
    fold = item.edits[0].fold
    return fold is not None and bool(fold.facts or fold.artifacts or fold.by == "llm")


def find_turn_range(view: View, items: Sequence[Item]) -> tuple[int, int]:
    """Return the first and the last turn of a span, counted over the whole conversation from 1."""
    wanted = {message.id for item in items for message in item.messages}
    turn, met = 0, []
    for message in view.messages:
        turn += message.starts_turn and not (turn and view.lens.is_observation(message))
        if message.id in wanted:
            met.append(max(1, turn))
    return met[0], met[-1]
