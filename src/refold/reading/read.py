"""One call that reads a message into events, and remembers what it read.

``read`` is pure: its result depends on the message, on the calls that wait for a result, and on whether the caller
takes the message for a tool's result. It is cached by content in one bounded memo, so that whoever needs the events of
a message asks for them again instead of passing them on. ``read_all`` follows a conversation in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType

from refold.conversation.message import Message, is_observation, is_record
from refold.memo import Memo
from refold.reading.events import Action, ReadEvent
from refold.reading.words import Voice, close_once, read_words

# What was read of messages may take so much memory in a process.
READ_BYTES_MAX = 32_000_000
_EVENT_BYTES = 240
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
    message: Message, *, pending: Mapping[str, Action] = _NO_CALLS, as_result: bool = False
) -> tuple[ReadEvent, ...]:
    """Return what a message says and does, part by part.

    ``pending`` has the calls that wait for a result, by their ids. ``as_result``: its words are a tool's result, which
    some frameworks send as a user's text.
    """
    answered = tuple(
        pending[part.call_id] for part in message.parts if part.kind == "result" and part.call_id in pending
    )
    # A message whose content was removed keeps its digest.
    sizes = tuple(len(part.text) for part in message.parts)
    return _READ.recall(
        lambda: _read_parts(message, as_result=as_result),
        message.digest,
        message.role,
        sizes,
        answered,
        as_result,
    )


def read_all(
    messages: Iterable[Message], is_result: Callable[[Message], bool] = is_observation
) -> Iterator[tuple[ReadEvent, ...]]:
    """Yield the events of each message of a conversation, results together with their calls.

    ``is_result`` recognises results that are sent as a user's text.
    """
    pending: dict[str, Action] = {}
    for message in messages:
        as_result = message.role == "user" and is_result(message)
        events = read(message, pending=pending, as_result=as_result)
        yield events
        for part in message.parts:
            if part.kind == "result":
                pending.pop(part.call_id, None)
        pending.update((event.call_id, event) for event in events if isinstance(event, Action))


def read_ahead(messages: Iterable[Message], is_result: Callable[[Message], bool] = is_observation) -> None:
    """Read messages when they arrive, so that a later fold finds their events in the memo."""
    for _ in read_all(messages, is_result):
        pass


def _read_parts(message: Message, *, as_result: bool) -> tuple[ReadEvent, ...]:
    if message.role == "system" or is_record(message.parts):
        return ()
    voice = _find_voice(message)
    events: list[ReadEvent] = []
    for index, part in enumerate(message.parts):
        if part.kind == "text" and not as_result and message.role != "tool":
            events += read_words(part, index, voice)
    return close_once(events)


def _find_voice(message: Message) -> Voice:
    return "assistant" if message.role == "assistant" else "person"
