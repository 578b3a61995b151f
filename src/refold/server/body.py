"""A request's JSON body: reading its messages, hashing them, and finding where they are in the bytes.

The gateway sends untouched messages upstream byte for byte, so it needs offsets as well as values. A JSON scanner finds
them in the bytes decoded as Latin-1: one character is one byte, and JSON's own syntax is ASCII. A body that cannot be
read passes through unchanged, and the upstream reports what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import orjson

from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import Reason
from refold.errors import FormatError
from refold.formats import digest_message
from refold.server.wires import Wire

# orjson reads integers over 64 bits as floats, so a body with that many digits in a row goes to the slower parser. All
# digits are mapped to one, so that a plain search finds them: a pattern takes twenty times as long.
_SAME_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
_SYSTEM_ROLES = frozenset(("system", "developer"))
# A 32 MB body of an agent has about half as many values. Hashing, counting and storing a message costs as much as this
# many values.
VALUES_MAX, _MESSAGE_VALUES = 400_000, 8
# A longer name is no model's. It is stored with every answer, beside the messages that a tenant's limit counts.
MODEL_CHARS_MAX = 200
_BLOCK = 65_536
_PROBE = 512
_GAP = re.compile(r"[ \t\n\r]*")
_BYTES_GAP = re.compile(rb"[ \t\n\r]*")
_scan = json.JSONDecoder(strict=False).raw_decode


class Unreadable(Exception):
    """The body cannot be compressed; ``reason`` says why."""

    @property
    def reason(self) -> Reason:
        made: Reason = self.args[0]
        return made


@frozen
class ReadRequest:
    """A parsed request. ``digests`` and ``replies`` leave out leading system messages.

    The first ``known`` messages are those of the previous request and were not parsed; ``messages`` follow them.
    """

    wire: Wire
    body: dict[str, Any] = field(repr=False)
    messages: list[Any] = field(repr=False)
    digests: tuple[str, ...] = field(repr=False)
    replies: tuple[bool, ...] = field(repr=False)
    lead: int
    lead_digests: tuple[str, ...]
    system_digest: str
    model: str
    known: int = 0
    own_tools: tuple[Any, ...] = ()

    def follow(self, before: ReadRequest, seen: int) -> ReadRequest:
        """Return this tail joined to the previous request, which contains the first ``seen`` of its messages."""
        return ReadRequest(
            self.wire,
            self.body,
            self.messages[seen:],
            before.digests + self.digests[seen:],
            before.replies + self.replies[seen:],
            before.lead,
            before.lead_digests,
            _digest_system(self.system, before.lead_digests),
            self.model,
            before.lead + len(before.digests),
        )

    @property
    def all_digests(self) -> tuple[str, ...]:
        """The digests of all messages, leading system messages included."""
        return self.lead_digests + self.digests

    @property
    def count(self) -> int:
        """The number of messages in the request."""
        return self.lead + len(self.digests)

    @property
    def system(self) -> Any:
        """The system prompt outside the messages."""
        return self.body.get(self.wire.system) if self.wire.system else None

    @property
    def tools(self) -> Any:
        """The tools of the request, with those that the gateway adds."""
        given = self.body.get("tools")
        return [*given, *self.own_tools] if self.own_tools and isinstance(given, list) else given

    @property
    def is_text(self) -> bool:
        """True if the messages are one bare string (Responses)."""
        return isinstance(self.body.get(self.wire.key), str)

    @property
    def output_tokens_max(self) -> int:
        """The ``max_tokens`` of the request; 0 if it has none."""
        for name in self.wire.limits:
            value = self.body.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return 0


def parse_json(body: bytes) -> Any:
    """Return the JSON value of a body without loss; raise Unreadable if it is not JSON."""
    if _LONG_NUMBER not in body.translate(_SAME_DIGIT):
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(body, parse_constant=_read_finite, parse_float=_read_finite)
    except (ValueError, RecursionError):
        raise Unreadable(because.NOT_JSON()) from None


def _read_finite(text: str) -> float:
    """Return a number; refuse NaN and numbers such as 1e999, which would be written as null."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def dump_json(value: object) -> bytes:
    """Return JSON bytes; what orjson refuses (lone surrogates, long integers) is written by the standard library."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


class TooManyValues(Exception):
    """A body has so many JSON values that hashing, counting and storing each would take minutes."""


def check_values(parsed: object, messages: object) -> None:
    """Raise TooManyValues if a parsed body has more values than are worth reading."""
    left = VALUES_MAX - (_MESSAGE_VALUES * len(messages) if isinstance(messages, list) else 0)
    waiting = [parsed]
    while waiting and left >= 0:
        inside = waiting.pop()
        values = inside.values() if isinstance(inside, dict) else inside
        left -= len(values)  # type: ignore[arg-type]
        waiting += [value for value in values if isinstance(value, dict | list)]  # type: ignore[attr-defined]
    if left < 0:
        raise TooManyValues("too many values")


def read_request(wire: Wire, body: bytes, *, is_tail: bool = False, is_held: bool = False) -> ReadRequest:
    """Parse a body; raise Unreadable with the reason if it must pass through, TooManyValues if it must be cut.

    ``is_tail``: its first messages were left out, so there may be no message and no leading system message.
    ``is_held``: it is read only to be stored, although the provider holds part of it.
    """
    parsed = parse_json(body)
    if not isinstance(parsed, dict):
        raise Unreadable(because.NOT_AN_OBJECT())
    reason = wire.find_pass_reason(parsed)
    if reason and not is_held:
        raise Unreadable(reason)
    found = parsed.get(wire.key)
    if not isinstance(found, str | list):
        raise Unreadable(because.NO_MESSAGES())
    if len(body) > VALUES_MAX:  # A smaller one has no more values than that.
        check_values(parsed, found)
    messages = [{"role": "user", "content": found}] if isinstance(found, str) else found
    if not messages and not is_tail:
        raise Unreadable(because.NO_MESSAGES())
    try:
        lead = 0 if is_tail else _count_lead(messages)
        digests = [digest_message(message) for message in messages]
        replies = tuple([_is_reply(message) for message in messages[lead:]])
    except (FormatError, AttributeError, TypeError):
        raise Unreadable(because.UNREADABLE_MESSAGE()) from None
    model = parsed.get("model")
    return ReadRequest(
        wire=wire,
        body=parsed,
        messages=messages,
        digests=tuple(digests[lead:]),
        replies=replies,
        lead=lead,
        lead_digests=tuple(digests[:lead]),
        # Of a tail, ``follow`` computes it.
        system_digest=""
        if is_tail
        else _digest_system(parsed.get(wire.system) if wire.system else None, digests[:lead]),
        model=model[:MODEL_CHARS_MAX] if isinstance(model, str) else "",
    )


def write_request(request: ReadRequest, messages: list[Any]) -> bytes | None:
    """Return the body with other messages; None if they are the same objects."""
    if len(messages) == len(request.messages) and all(map(operator.is_, messages, request.messages)):
        return None
    return dump_json({**request.body, request.wire.key: messages})


def _count_lead(messages: list[Any]) -> int:
    """Count leading system messages; the last message never counts, because a session is identified by the rest."""
    lead = 0
    for message in messages[:-1]:
        if not isinstance(message, Mapping) or message.get("role") not in _SYSTEM_ROLES:
            break
        lead += 1
    return lead


def _is_reply(message: Mapping[str, Any]) -> bool:
    """Return whether the model wrote a message. Replies distinguish the same conversation from a similar one."""
    role = message.get("role")
    if role is not None:
        return bool(role == "assistant")
    return not str(message.get("type", "")).endswith(("_output", "_response"))


def _digest_system(system: object, lead: Sequence[str]) -> str:
    if isinstance(system, list):
        # Cache marks move between requests and are not content.
        system = [
            {key: value for key, value in block.items() if key != "cache_control"} if isinstance(block, dict) else block
            for block in system
        ]
    stated = dump_json([system, list(lead)])
    return hashlib.blake2b(stated, digest_size=16).hexdigest()


@frozen
class Places:
    """Offsets of a body's messages: ``start`` of the array's content, ``spans`` of each message."""

    body: bytes = field(repr=False)
    start: int
    spans: tuple[tuple[int, int], ...] = field(repr=False)

    @property
    def end(self) -> int:
        """The offset at which the last message ends."""
        return self.spans[-1][1] if self.spans else self.start

    def is_in(self, body: bytes) -> bool:
        """Return whether another body begins with all of these messages."""
        return body.startswith(memoryview(self.body)[: self.spans[-1][1]])  # A memoryview copies nothing.

    def count_shared(self, body: bytes) -> int:
        """Return how many of these messages another body shares at its beginning, byte for byte."""
        spans = self.spans
        if not spans:
            return 0
        if self.is_in(body):
            return len(spans)
        first = spans[0][1]
        probe = slice(max(0, first - _PROBE), first)
        if self.body[probe] != body[probe]:
            return 0  # Most other conversations differ in their first message.
        shared = count_shared_bytes(self.body, body, self.end)
        return bisect_right(spans, shared, key=lambda span: span[1])

    def leave_out(self, body: bytes, known: int) -> bytes:
        """Return a body without its first ``known`` messages, as valid JSON."""
        rest = self.spans[known - 1][1]
        comma = _BYTES_GAP.match(body, rest).end()  # type: ignore[union-attr]
        if body[comma : comma + 1] == b",":
            rest = comma + 1
        return body[: self.start] + body[rest:]

    def write(self, pieces: Sequence[int | object]) -> bytes:
        """Return the body with these messages; a number is the index of an original message."""
        texts = [
            self.body[slice(*self.spans[piece])] if isinstance(piece, int) else dump_json(piece) for piece in pieces
        ]
        return b"".join((self.body[: self.start], b",".join(texts), self.body[self.end :]))


def find_places(body: bytes, key: str, known: Places | None = None, kept: int = 0) -> Places | None:
    """Return the offsets of the messages under a key of the outermost object; None if they are ambiguous.

    ``known`` are the places of a body with the same first ``kept`` messages: only the others are scanned.
    """
    # Decoded as Latin-1, one character is one byte: offsets in the text are offsets in the bytes.
    skipped = known.spans[kept - 1][1] if known is not None and kept else 0
    text = body[skipped:].decode("latin-1") if skipped else body.decode("latin-1")
    spans: list[tuple[int, int]] = []
    try:
        if known is not None and skipped:
            start = known.start
            at = _GAP.match(text).end()  # type: ignore[union-attr]
            at += text[at] == ","
        else:
            at = start = _find_array(text, key)
        at = _find_spans(text, at, spans, skipped) + skipped
    except (ValueError, IndexError, RecursionError):
        return None
    # A second occurrence of the key would override the first.
    if body.find(f'"{key}"'.encode(), at) >= 0:
        return None
    return Places(body, start, (known.spans[:kept] if known is not None and skipped else ()) + tuple(spans))


def add_to_array(body: bytes, key: str, value: bytes) -> bytes | None:
    """Return a body with one more value at the end of an array of the outermost object; None if that is empty."""
    text = body.decode("latin-1")
    spans: list[tuple[int, int]] = []
    try:
        _find_spans(text, _find_array(text, key), spans, 0)
    except (ValueError, IndexError, RecursionError):
        return None
    if not spans:
        return None
    end = spans[-1][1]
    return b"".join((body[:end], b",", value, body[end:]))


def _find_array(text: str, key: str) -> int:
    at = _skip(text, 0, "{")
    while True:
        name, at = _scan(text, _GAP.match(text, at).end())  # type: ignore[union-attr]
        at = _skip(text, at, ":")
        at = _GAP.match(text, at).end()  # type: ignore[union-attr]
        if name == key:
            return _skip(text, at, "[")
        _, at = _scan(text, at)
        at = _skip(text, at, ",")


def _find_spans(text: str, at: int, spans: list[tuple[int, int]], skipped: int) -> int:
    """Append the span of each message; the text starts after ``skipped`` bytes of the body."""
    at = _GAP.match(text, at).end()  # type: ignore[union-attr]
    while text[at] != "]":
        _, end = _scan(text, at)
        spans.append((at + skipped, end + skipped))
        at = _GAP.match(text, end).end()  # type: ignore[union-attr]
        if text[at] == ",":
            at = _GAP.match(text, at + 1).end()  # type: ignore[union-attr]
        elif text[at] != "]":
            raise ValueError(at)
    return at


def _skip(text: str, at: int, sign: str) -> int:
    at = _GAP.match(text, at).end()  # type: ignore[union-attr]
    if text[at] != sign:
        raise ValueError(at)
    return at + 1


def count_shared_bytes(left: bytes, right: bytes, limit: int) -> int:
    """Return the length of the common prefix of two bodies, at most ``limit``."""
    low, high = 0, min(limit, len(left), len(right))
    view = memoryview(left)
    # By blocks, then by bisection; comparing with a memoryview makes no copy.
    while low < high and right.startswith(view[low : min(low + _BLOCK, high)], low):
        low = min(low + _BLOCK, high)
    high = min(low + _BLOCK, high)
    while low < high:
        middle = (low + high + 1) // 2
        if right.startswith(view[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
