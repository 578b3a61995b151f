"""One call that reads a message into events, and remembers what it read.

``read`` is pure: its result depends on the message, on the calls that wait for a result, and on whether the caller
takes the message for a tool's result. It is cached by content in one bounded memo, so that whoever needs the events of
a message asks for them again instead of passing them on. ``read_all`` follows a conversation in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from zlib import crc32

from refold.conversation.author import find_author
from refold.conversation.message import Message, Part, is_observation, is_record
from refold.memo import Memo
from refold.reading.calls import read_call, read_fenced_call
from refold.reading.events import Action, ReadEvent, Value
from refold.reading.outcomes import read_result
from refold.reading.values import read_values
from refold.reading.words import Voice, close_once, read_words

READ_BYTES_MAX = 32_000_000
_EVENT_BYTES = 500
# A name is meant in so many messages after the one that gave it.
TOPIC_MESSAGES = 4
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
    return sum(_EVENT_BYTES + 2 * len(event.text) for event in events)


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
    # Results that a framework sends as a user's text are the same, whoever recognised them.
    as_result = as_result or (message.role == "tool" and not any(part.kind == "call" for part in message.parts))
    as_call = as_call and not any(part.kind == "call" for part in message.parts)
    actions = tuple(pending.get(part.call_id) if part.kind == "result" or as_result else None for part in message.parts)
    # A message whose content was removed keeps its digest.
    texts = tuple(crc32(part.text.encode("utf-8", "surrogatepass")) for part in message.parts)
    role = "tool" if as_result else message.role
    return _READ.recall(
        lambda: _read_parts(message, actions, as_result=as_result, as_call=as_call),
        message.digest,
        role,
        texts,
        actions,
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
    topic = _Topic()
    for message, after in pairwise((*messages, None)):
        assert message is not None
        as_result = is_typed_result(message, is_result)
        has_results = has_results or as_result or (after is not None and is_typed_result(after, is_result))
        as_call = has_results and message.role == "assistant"
        events = read(message, pending=pending, as_result=as_result, as_call=as_call)
        yield topic.resolve(events)
        for part in message.parts:
            if part.kind == "result" or as_result:
                pending.pop(part.call_id, None)
        pending.update((event.call_id, event) for event in events if isinstance(event, Action))


def is_typed_result(message: Message, is_result: Callable[[Message], bool]) -> bool:
    """Return whether a message is a result that has no call's id: sent as a user's text, or read so by the caller."""
    if message.role == "user":
        return is_result(message)
    return message.role == "tool" and not any(part.call_id for part in message.parts)


class _Topic:
    """The name that was given last: whose field a later message means that names only the field ("电话是…")."""

    def __init__(self) -> None:
        self.name = ""
        self.age = 0

    def resolve(self, events: tuple[ReadEvent, ...]) -> tuple[ReadEvent, ...]:
        """Return events with the owners of fields; a field of nobody known is no value."""
        found = [event for event in events if isinstance(event, Value) and event.source in ("person", "assistant")]
        resolved = events
        if any(event.owner.startswith("›") for event in found):
            known = self.name if self.age < TOPIC_MESSAGES else ""
            pairs = ((event, isinstance(event, Value) and event.owner.startswith("›")) for event in events)
            resolved = tuple(
                replace(event, owner=f"{known} {event.owner}") if is_field and isinstance(event, Value) else event
                for event, is_field in pairs
                if known or not is_field
            )
        names = [event for event in found if event.sort == "name" and not event.text.isascii()]
        self.age += 1
        if names:
            self.name, self.age = max(names, key=lambda event: event.start).text, 0
        return resolved


def _read_parts(
    message: Message, actions: Sequence[Action | None], *, as_result: bool, as_call: bool
) -> tuple[ReadEvent, ...]:
    if message.role == "system" or is_record(message.parts):
        return ()
    events: list[ReadEvent] = []
    for index, (part, action) in enumerate(zip(message.parts, actions, strict=True)):
        if part.kind == "call":
            called = read_call(part, index)
            events += (*called, *read_values(part, index, "call", called[0] if isinstance(called[0], Action) else None))
        elif part.kind == "result" or (part.kind == "text" and (as_result or message.role == "tool")):
            events += (*read_result(part, index, action), *read_values(part, index, "result", action))
        elif part.kind == "text":
            voice = _find_voice(message, part)
            events += read_words(part, index, voice)
            # What a harness says is nobody's value.
            events += read_values(part, index, voice) if voice != "harness" else ()
            if as_call:
                events += read_fenced_call(part.text, index)
    return close_once(events)


def _find_voice(message: Message, part: Part) -> Voice:
    if part.text.startswith(SUMMARY_OPENS):
        return "harness"
    author = find_author(message.role, part)
    return "assistant" if author == "assistant" else "person" if author == "user" else "harness"
