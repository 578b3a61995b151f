"""The source of a record from the state: a conversation as events, and the state after its last message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from refold.conversation.message import Message, Role, message_handle
from refold.conversation.view import View
from refold.reading.advance import advance
from refold.reading.facts import find_facts, merge_facts
from refold.reading.read import read_all
from refold.reading.state import State
from refold.stages.extract.source import Source
from refold.stages.extract.summary import Extract, ExtractOptions
from refold.stages.record.record import ReadSpan, write_record
from refold.stages.record.story import ReadMessage
from refold.stages.stage import Goal


def write_source(source: Source, view: View, options: ExtractOptions, goal: Goal) -> Extract:
    """Return the record of a source, written from what is true now in the whole conversation."""
    conversation = read_conversation(view.messages, find_results(view, view.messages))
    wanted = {message.id for message in source.messages}
    shown = {message.id for item in source.kept if not item.is_fold for message in item.messages}
    fresh = {message.id for message in source.fresh}
    read = [one for one in conversation.messages if one.message.id in wanted]
    new = [one for one in read if one.message.id in fresh]
    found = [fact for one in new for fact in find_facts(one.events, message_handle(one.message))]
    span = ReadSpan(
        read=read,
        state=conversation.state,
        language=goal.language,
        seen=source.seen,
        seen_positions=frozenset(one.at for one in conversation.messages if one.message.id in shown),
        secrets=goal.secrets,
        facts=tuple(merge_facts((fact for fold in source.previous for fact in fold.facts), found)),
        whole=conversation.messages,
    )
    return write_record(span, replace(options, instructions=goal.instructions), view.lens.count_text)


# States of conversations as they were at their last fold: the next one continues from there.
STATES_MAX = 64
_STATES: dict[str, State] = {}


@dataclass(frozen=True, slots=True)
class ReadConversation:
    """All messages of a view with their events, and the state after the last one."""

    messages: tuple[ReadMessage, ...]
    state: State


def read_conversation(messages: Sequence[Message], results: frozenset[str]) -> ReadConversation:
    """Read messages in one pass; what was read before is found in memory. ``results`` are results sent as user text."""
    is_result = {message.id: message.id in results for message in messages}
    events = list(read_all(messages, lambda message: is_result[message.id]))
    # Ids are chained: a message that is known stands for everything before it.
    known = next((at for at in range(len(messages), 0, -1) if messages[at - 1].id in _STATES), 0)
    state = _STATES[messages[known - 1].id] if known else State()
    if known < len(messages):
        rest = iter(events[known:])
        state = advance(state, messages[known:], lambda _message, _waiting: next(rest))
        _remember(messages[-1].id, state)
    found = (ReadMessage(at, message, own) for at, (message, own) in enumerate(zip(messages, events, strict=True)))
    return ReadConversation(tuple(found), state)


def _remember(message_id: str, state: State) -> None:
    while len(_STATES) >= STATES_MAX:
        _STATES.pop(next(iter(_STATES)), None)
    _STATES[message_id] = state


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
