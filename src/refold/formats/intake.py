"""What a caller hands in as messages, and how the result goes back to it in the same kind of object.

``read_intake`` takes a list or any other iterable of dicts or SDK objects, a whole request body, or messages of a
framework with a ``Codec`` that converts them. ``Intake.give_back`` returns the prepared messages in the caller's terms:
a message that nobody changed comes back as the very object.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from refold.errors import FormatError
from refold.formats.detect import RESPONSES
from refold.formats.sdk import is_plain, read_message, to_plain

SourceKind = Literal["whole", "shortened", "extended", "fold", "restored"]


@dataclass(frozen=True, slots=True)
class MessageSource:
    """What an outgoing message stands for: positions among the messages handed in, and what became of them.

    ``whole`` is untouched, ``shortened`` has parts replaced, ``extended`` has recalled text added below it, ``fold`` is
    a record in the place of all these positions, ``restored`` an original in the place of a record that was handed in.
    ``messages`` are the caller's own objects at the positions; empty if
    the history came from the ledger.
    """

    positions: tuple[int, ...]
    kind: SourceKind
    messages: tuple[Any, ...] = ()


class Codec(Protocol):
    """Converts messages of a framework into a provider's messages and back.

    One message may become several raw ones, or none. ``from_raw`` is called for each outgoing raw message that is not
    the whole of an untouched one; ``source`` has the originals, so that ids and metadata can be kept.
    """

    def to_raw(self, message: Any) -> list[dict[str, Any]]: ...

    def from_raw(self, raw: dict[str, Any], source: MessageSource) -> Any: ...


@dataclass(frozen=True, slots=True)
class Intake:
    """Messages as handed in and as a provider takes them. ``owners`` is the position in ``given`` of each raw message.

    ``given`` and ``raws`` are None if nothing was handed in: the history is in the ledger. ``owners`` is None if each
    raw message is the one at its position. ``body`` is the request they came in, if they came in one.
    """

    given: Sequence[Any] | None = None
    raws: Sequence[object] | None = None
    owners: Sequence[int] | None = None
    codec: Codec | None = None
    body: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def is_identity(self) -> bool:
        """True if what comes out needs no conversion."""
        return self.codec is None and self.raws is self.given

    @property
    def key(self) -> str:
        """The field of the body that holds the messages."""
        return "input" if self.body is not None and "messages" not in self.body else "messages"

    @property
    def system(self) -> object:
        """The system prompt of the body."""
        return None if self.body is None else self.body.get("system" if self.key == "messages" else "instructions")

    def give_back(
        self, messages: Sequence[object], sources: Sequence[MessageSource]
    ) -> tuple[list[Any], list[MessageSource]]:
        """Return prepared messages and their sources in the caller's terms."""
        given = self.given or ()
        first, count = _count_owned(self.owners, len(given))
        out: list[Any] = []
        traced: list[MessageSource] = []

        def emit(message: Any, source: MessageSource) -> None:
            out.append(message)
            traced.append(source)

        at = 0
        while at < len(messages):
            source = sources[at]
            owned = self._own(source, given)
            spot = owned.positions[0] if owned.positions and given else -1
            size = count[spot] if spot >= 0 else 0
            if size and _is_whole(sources[at : at + size], first[spot], size):
                for silent in _list_silent(count, spot):
                    emit(given[silent], MessageSource((silent,), "whole", (given[silent],)))
                emit(given[spot], owned)
                at += size
                continue
            raw = messages[at]
            emit(raw if self.codec is None else self.codec.from_raw(cast("dict[str, Any]", raw), owned), owned)
            at += 1
        for silent in _list_silent(count, len(given)):
            emit(given[silent], MessageSource((silent,), "whole", (given[silent],)))
        return out, traced

    def _own(self, source: MessageSource, given: Sequence[Any]) -> MessageSource:
        """Return a source in positions of the caller's messages."""
        if self.owners is None:
            positions = source.positions
        else:
            positions = tuple(dict.fromkeys(self.owners[at] for at in source.positions if at < len(self.owners)))
        return MessageSource(positions, source.kind, tuple(given[at] for at in positions if at < len(given)))


def read_intake(messages: object, codec: Codec | None = None) -> Intake:
    """Read what a caller hands in; raise FormatError that says what to do about anything else."""
    if messages is None:
        return Intake(codec=codec)
    body: Mapping[str, Any] | None = None
    if isinstance(messages, Mapping):
        body, messages = messages, _open_body(messages)
    given = _list_given(messages)
    if codec is not None:
        raws: list[object] = []
        owners: list[int] = []
        for at, message in enumerate(given):
            made = codec.to_raw(message)
            raws += [read_message(raw, f"messages[{at}] by {type(codec).__name__}") for raw in made]
            owners += [at] * len(made)
        return Intake(given, raws, owners, codec, body)
    if all(type(message) is dict and is_plain(message) for message in given):
        return Intake(given, given, body=body)
    return Intake(given, [read_message(one, f"messages[{at}]") for at, one in enumerate(given)], body=body)


@dataclass(frozen=True, slots=True)
class Beside:
    """What belongs to a request beside its messages: what the caller says, else what the body does."""

    system: Any = None
    tools: Any = None
    model: str | None = None
    format: str | None = None

    def complete(self, intake: Intake) -> Beside:
        """Return it with what the body says, and with SDK objects as plain JSON."""
        body = intake.body
        if body is None:
            return Beside(_read_plain(self.system), _read_plain(self.tools), self.model, self.format)
        tools = self.tools if self.tools is not None else body.get("tools")
        model = self.model or (body["model"] if isinstance(body.get("model"), str) else None)
        form = self.format or (RESPONSES if intake.key == "input" else None)
        return Beside(_read_plain(self.system or intake.system), _read_plain(tools), model, form)


def _read_plain(value: object) -> object:
    if value is None or isinstance(value, str) or type(value) is dict:
        return value
    if isinstance(value, list | tuple) and all(type(one) is dict for one in value):
        return value
    return to_plain(value)


def _open_body(body: Mapping[str, Any]) -> object:
    for key in ("messages", "input"):
        if key in body and "role" not in body:
            inner = body[key]
            return [{"role": "user", "content": inner}] if key == "input" and isinstance(inner, str) else inner
    if "role" in body or "type" in body:
        raise FormatError("messages is one message; put it into a list")
    keys = ", ".join(list(map(str, body))[:8]) or "no fields"
    raise FormatError(f"no messages in this object (it has {keys}); give a list of messages or a request body")


def _list_given(messages: object) -> Sequence[Any]:
    if isinstance(messages, list | tuple):
        return messages
    if isinstance(messages, AsyncIterable):
        raise FormatError("messages is an async iterable; collect it first: [message async for message in messages]")
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        hint = '; write [{"role": "user", "content": text}]' if isinstance(messages, str) else ""
        raise FormatError(f"messages must be a list of messages, not {type(messages).__name__}{hint}")
    return list(messages)


def _count_owned(owners: Sequence[int] | None, length: int) -> tuple[list[int], list[int]]:
    """Return, for each message handed in, the position of its first raw message and how many it has."""
    if owners is None:
        return list(range(length)), [1] * length
    first, count = [0] * length, [0] * length
    for at, owner in enumerate(owners):
        if not count[owner]:
            first[owner] = at
        count[owner] += 1
    return first, count


def _is_whole(sources: Sequence[MessageSource], first: int, size: int) -> bool:
    if len(sources) < size:
        return False
    return all(one.kind == "whole" and one.positions == (first + at,) for at, one in enumerate(sources))


def _list_silent(count: Sequence[int], before: int) -> list[int]:
    """Return the positions right before this one whose messages have no raw form; they follow their neighbour."""
    at = before
    while at and not count[at - 1]:
        at -= 1
    return list(range(at, before))


__all__ = ["Beside", "Codec", "Intake", "MessageSource", "SourceKind", "read_intake"]
