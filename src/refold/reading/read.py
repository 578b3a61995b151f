"""One call that reads a message into events, and remembers what it read.

``read`` is pure: its result depends on the message, on the calls that wait for a result, and on whether the caller
takes the message for a tool's result. It is cached by content in one bounded memo, so that whoever needs the events of
a message asks for them again instead of passing them on. ``read_all`` follows a conversation in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from types import MappingProxyType

from refold.conversation.author import find_author
from refold.conversation.message import Message, Part, is_observation, is_record
from refold.memo import Memo
from refold.reading.calls import read_call, read_fenced_call
from refold.reading.events import Action, ReadEvent
from refold.reading.outcomes import read_result
from refold.reading.values import read_values
from refold.reading.words import Voice, close_once, read_words

# What was read of messages may take so much memory in a process.
READ_BYTES_MAX = 32_000_000
_EVENT_BYTES = 240
# S3.7: a summary of another program is hearsay, whoever sends it.
SUMMARY_OPENS = (
    "[Context Summary]",
    "[Truncated Summary]",
    "[COMPACTED_CONTEXT]",
    "[Compressed History]",
    "[历史对话摘要]",
)
_NO_CALLS: Mapping[str, Action] = MappingProxyType({})


def _measure(events: tuple[ReadEvent, ...]) -> int:
    """Return about how many bytes events take."""
    size = 0
    for event in events:
        size += _EVENT_BYTES
        for field in fields(event):
            value = getattr(event, field.name)
            size += len(value) if isinstance(value, str) else 60 * len(value) if isinstance(value, tuple) else 0
    return size


_READ: Memo[tuple[ReadEvent, ...]] = Memo(READ_BYTES_MAX, _measure)


def read(
    message: Message,
    *,
    pending: Mapping[str, Action] = _NO_CALLS,
    as_result: bool = False,
    as_call: bool = False,
) -> tuple[ReadEvent, ...]:
    """Return what a message says and does, part by part.

    ``pending`` has the calls that wait for a result, by their ids. Where a framework has no messages for tools,
    ``as_call`` says that the assistant's words make a call, ``as_result`` that a user's words are a tool's result.
    """
    actions = tuple(pending.get(part.call_id) if part.kind == "result" or as_result else None for part in message.parts)
    # A message whose content was removed keeps its digest.
    sizes = tuple(len(part.text) for part in message.parts)
    return _READ.recall(
        lambda: _read_parts(message, actions, as_result=as_result, as_call=as_call),
        message.digest,
        message.role,
        sizes,
        actions,
        as_result,
        as_call,
    )


def read_all(
    messages: Iterable[Message], is_result: Callable[[Message], bool] = is_observation
) -> Iterator[tuple[ReadEvent, ...]]:
    """Yield the events of each message of a conversation, results together with their calls.

    ``is_result`` recognises results that are sent as a user's text. The assistant's words make calls only in a
    conversation that has such results: elsewhere a block of commands is something to read.
    """
    pending: dict[str, Action] = {}
    has_results = False
    for message, after in pairwise((*messages, None)):
        assert message is not None
        as_result = message.role == "user" and is_result(message)
        has_results = has_results or as_result or (after is not None and after.role == "user" and is_result(after))
        as_call = has_results and message.role == "assistant"
        events = read(message, pending=pending, as_result=as_result, as_call=as_call)
        yield events
        for part in message.parts:
            if part.kind == "result" or as_result:
                pending.pop(part.call_id, None)
        pending.update((event.call_id, event) for event in events if isinstance(event, Action))


def read_ahead(messages: Iterable[Message], is_result: Callable[[Message], bool] = is_observation) -> None:
    """Read messages when they arrive, so that a later fold finds their events in the memo."""
    for _ in read_all(messages, is_result):
        pass


def _read_parts(
    message: Message, actions: Sequence[Action | None], *, as_result: bool, as_call: bool
) -> tuple[ReadEvent, ...]:
    if message.role == "system" or is_record(message.parts):
        return ()
    has_calls = any(part.kind == "call" for part in message.parts)
    events: list[ReadEvent] = []
    for index, (part, action) in enumerate(zip(message.parts, actions, strict=True)):
        if part.kind == "call":
            events += (*read_call(part, index), *read_values(part, index, "call"))
        elif part.kind == "result" or (part.kind == "text" and (as_result or message.role == "tool")):
            events += (*read_result(part, index, action), *read_values(part, index, "result"))
        elif part.kind == "text":
            voice = _find_voice(message, part)
            events += read_words(part, index, voice)
            # What a harness says is nobody's value.
            events += read_values(part, index, voice) if voice != "harness" else ()
            if as_call and not has_calls:
                events += read_fenced_call(part.text, index)
    return close_once(events)


def _find_voice(message: Message, part: Part) -> Voice:
    if part.text.startswith(SUMMARY_OPENS):
        return "harness"
    author = find_author(message.role, part)
    return "assistant" if author == "assistant" else "person" if author == "user" else "harness"
