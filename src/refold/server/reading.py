"""Reads a request's body into what compression and identity need; the bytes themselves stay as they came.

A body that cannot be read is no error here: it passes through, and the upstream says what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from refold.conversation import because
from refold.conversation.reason import Reason
from refold.errors import FormatError
from refold.formats import digest_message
from refold.server.body_values import has_too_many_values
from refold.server.wires import Wire

# orjson reads integers over 64 bits as floats; a body with so many digits in a row is read by the slower reader. All
# digits become one, so that a plain search finds them: a pattern takes twenty times as long.
_SAME_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
_SYSTEM_ROLES = frozenset(("system", "developer"))


class Unreadable(Exception):
    """The body cannot be compressed; ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request with its messages found. ``digests`` and ``replies`` leave leading system messages out.

    ``known`` messages at its beginning were not read: they are those of the request before, ``messages`` follow them.
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

    def follow(self, before: ReadRequest, seen: int) -> ReadRequest:
        """Return this tail of a request as what follows the request before; ``seen`` of its messages are in that."""
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
    def count(self) -> int:
        """How many messages the request has, all in all."""
        return self.lead + len(self.digests)

    @property
    def system(self) -> Any:
        """The system prompt that stands apart from the messages."""
        return self.body.get(self.wire.system) if self.wire.system else None

    @property
    def tools(self) -> Any:
        """The tools of the request."""
        return self.body.get("tools")

    @property
    def is_text(self) -> bool:
        """True if the messages are one bare string (Responses)."""
        return isinstance(self.body.get(self.wire.key), str)

    @property
    def output_tokens_max(self) -> int:
        """The length of the answer that the client asks for; 0 if it does not say."""
        for name in self.wire.limits:
            value = self.body.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return 0


def parse_json(body: bytes) -> Any:
    """Return the JSON of a body, nothing in it changed; Unreadable if it is none."""
    if _LONG_NUMBER not in body.translate(_SAME_DIGIT):
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(body, parse_constant=_refuse_number, parse_float=_read_float)
    except (ValueError, RecursionError):
        raise Unreadable(because.NOT_JSON()) from None


def _read_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)


def _refuse_number(text: str) -> float:
    """Refuse NaN and numbers such as 1e999: written again they would be null."""
    raise ValueError(text)


def dump_json(value: object) -> bytes:
    """Return JSON bytes; what orjson refuses (lone surrogates, long integers) is written by the standard library."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def read_request(wire: Wire, body: bytes, *, is_tail: bool = False) -> ReadRequest:
    """Read a body that may be compressed; raise Unreadable with the reason if it must pass through.

    ``is_tail``: its first messages were left out, so that it may have none, and none of them leads.
    """
    if has_too_many_values(body):
        raise Unreadable(because.TOO_MANY_VALUES())
    parsed = parse_json(body)
    if not isinstance(parsed, dict):
        raise Unreadable(because.NOT_AN_OBJECT())
    reason = wire.find_pass_reason(parsed)
    if reason:
        raise Unreadable(reason)
    found = parsed[wire.key]
    messages = [{"role": "user", "content": found}] if isinstance(found, str) else found
    if not messages and not is_tail:
        raise Unreadable(because.NO_MESSAGES())
    try:
        lead = 0 if is_tail else _count_lead(messages)
        digests = [digest_message(message, None, "message") for message in messages]
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
        system_digest=_digest_system(parsed.get(wire.system) if wire.system else None, digests[:lead]),
        model=model if isinstance(model, str) else "",
    )


def write_request(request: ReadRequest, messages: list[Any]) -> bytes | None:
    """Return the body with other messages in it; None if they are the very ones that came."""
    if len(messages) == len(request.messages) and all(map(_is_same, messages, request.messages)):
        return None
    return dump_json({**request.body, request.wire.key: messages})


def _is_same(one: object, other: object) -> bool:
    return one is other


def _count_lead(messages: list[Any]) -> int:
    """Return how many system messages lead. At least one message is left: a request needs something to be known by."""
    lead = 0
    for message in messages[:-1]:
        if not isinstance(message, Mapping) or message.get("role") not in _SYSTEM_ROLES:
            break
        lead += 1
    return lead


def _is_reply(message: Mapping[str, Any]) -> bool:
    """Tell whether a message came from the model: what makes two conversations the same one, not merely alike."""
    role = message.get("role")
    if role is not None:
        return bool(role == "assistant")
    return not str(message.get("type", "")).endswith(("_output", "_response"))


def _digest_system(system: object, lead: Sequence[str]) -> str:
    if isinstance(system, list):
        # Marks of the prompt cache move about; they are no part of what is said.
        system = [
            {key: value for key, value in block.items() if key != "cache_control"} if isinstance(block, dict) else block
            for block in system
        ]
    stated = dump_json([system, list(lead)])
    return hashlib.blake2b(stated, digest_size=16).hexdigest()
