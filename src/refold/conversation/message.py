"""Messages in their original form; their parts, their handles, and the port to a wire format.

A message holds the provider's object untouched (``raw``), its parts for reading, the digest of its content and an id
that chains it to its parent. An unchanged message is never rebuilt from its parts.

A handle is a short prefix of a content hash, never a position: ``⟨m:4f2a91c3⟩`` is a message, ``⟨m:4f2a91c3.2⟩`` its
third part, ``⟨f:09c1b2aa⟩`` the span behind a fold. Text may look like a handle; only a lookup decides.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar, dataclass_transform

import orjson

from refold.conversation.speaker import is_notice_only
from refold.errors import HandleUnknown

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Return the class as a dataclass for values that are made on every request, frozen for the type checker only.

    ``dataclass(frozen=True)`` sets each field through ``object.__setattr__``, which takes six times as long, and a
    request creates fifty such values. Parts, messages and edits, which plugins see, are frozen at run time, too.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


Kind = Literal["text", "thinking", "call", "result", "media", "opaque"]


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message.

    ``text`` is the readable content: words, thinking, the arguments of a call as JSON text, or the text of a result.
    ``payload`` is the provider's own block, ``inside`` the media within a result. ``loads`` are the names of deferred
    tools that the model can use only while this part is in view.
    """

    kind: Kind
    text: str = ""
    name: str = ""
    call_id: str = ""
    payload: object = None
    inside: tuple[Part, ...] = ()
    is_error: bool = False
    loads: tuple[str, ...] = ()


Role = Literal["system", "user", "assistant", "tool"]

ROOT = ""
RECORD_OPENS = "⟦"
OPENING_CHARS = 400
# How frameworks without tool messages begin a result: ReAct, smolagents, OpenHands, mini-swe-agent, special tags.
_OBSERVATION = re.compile(
    r"\s*+(?:Call id: [^\n]{0,200}\n)?+(?:"
    r"Observations?|(?:Tool|Function)(?: call)? (?:result|output|response)s?|Execution (?:log|result)s?"
    r"|观察(?:结果)?|工具(?:结果|输出|返回)|执行结果)(?: (?:of|from|for) [^\n:]{0,80}| \d{1,4})?\s*+[:：]"
    r"|\s*+<(?:tool_response|tool_result|function_results?|observation|execution_result|returncode)\b"
    r"|\s*+\[[^\]\n]{1,200}\] Result:",
    re.IGNORECASE,
)
_RECORD = re.compile(r"⟦[^⟦⟧]{0,600}⟨f:[0-9a-f]{4,}")
_ID_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One provider message. ``is_sealed`` marks one that no edit may touch (a provider's own compaction)."""

    raw: object
    role: Role
    parts: tuple[Part, ...]
    digest: str
    id: str
    name: str = ""
    is_sealed: bool = False

    @property
    def starts_turn(self) -> bool:
        """True for a message that a person wrote; tool results and notices start no turn."""
        return is_user_turn(self.role, self.parts)


def is_user_turn(role: str, parts: Iterable[Part]) -> bool:
    """Return whether a person wrote a message with this role and these parts: no result, record or notice."""
    if role != "user":
        return False
    parts = tuple(parts)
    return not any(part.kind == "result" for part in parts) and not is_record(parts) and not is_notice(role, parts)


def is_notice(role: str, parts: Iterable[Part]) -> bool:
    """Return whether the program around the model wrote a message that has the role of the user."""
    parts = tuple(parts)
    is_text = role == "user" and all(part.kind == "text" for part in parts)
    return is_text and is_notice_only(part.text for part in parts)


def is_record(parts: Iterable[Part]) -> bool:
    """Return whether a message is a record that replaces folded messages, of this session or another."""
    first = next(iter(parts), None)
    return first is not None and first.text.startswith(RECORD_OPENS) and bool(_RECORD.match(first.text))


def join_words(parts: Iterable[Part]) -> str:
    """Return parts as one short text for a list of messages: calls as ``name(arguments)``, long texts truncated."""
    return " ".join(f"{part.name}({part.text[:200]})" if part.kind == "call" else part.text[:400] for part in parts)


def is_observation(message: Message) -> bool:
    """Return whether a user message begins as frameworks begin the tool results that they send as text."""
    return bool(_OBSERVATION.match(_read_opening(message)))


def choose_observations(
    pattern: str | None = None, predicate: Callable[[Any], bool] | None = None
) -> Callable[[Message], bool]:
    """Return the function that recognises tool results sent as user text.

    ``predicate`` gets the provider's message and decides alone. ``pattern`` is a regular expression for the beginning
    of a message, tried besides the built-in ones.
    """
    if predicate is not None:
        # A message that is known only by its id has no content that could be judged.
        return lambda message: message.raw is not None and bool(predicate(message.raw))
    if not pattern:
        return is_observation
    own = re.compile(pattern)
    return lambda message: is_observation(message) or bool(own.match(_read_opening(message)))


def read_as_result(message: Message) -> Message:
    """Return a copy whose text counts as a tool's result, for reading only; it must never be rendered."""
    parts = tuple(replace(part, kind="result") if part.kind == "text" else part for part in message.parts)
    return replace(message, role="tool", parts=parts)


def read_words(parts: Iterable[Part]) -> str:
    """Return the text parts of a message, one below the other."""
    return "\n".join(part.text for part in parts if part.kind == "text")


def _read_opening(message: Message) -> str:
    return next((part.text for part in message.parts if part.kind == "text"), "")[:OPENING_CHARS]


def is_trajectory(parts: Iterable[Part]) -> bool:
    """Return whether a message carries a whole run of tool calls as text, as DSPy writes it."""
    return any("[[ ## observation_" in part.text for part in parts if part.kind == "text")


def join_parts(message: Message) -> str:
    """Return the exact text of a message's parts, one below the other, calls with their names."""
    return "\n".join(map(join_part, message.parts))


def join_part(part: Part) -> str:
    """Return the exact text of a part, a call with its name."""
    return f"{part.name}({part.text})" if part.kind == "call" else part.text


def digest_of(canonical: bytes) -> str:
    """Return the content hash of a message's canonical form, in hex."""
    # Current processors accelerate SHA-256: on large tool results it is three times as fast as BLAKE2.
    return hashlib.sha256(canonical).hexdigest()[: 2 * _ID_BYTES]


def chain_id(parent: str, digest: str) -> str:
    """Return the id of a message with this content after this parent."""
    return hashlib.blake2b(f"{parent}/{digest}".encode(), digest_size=_ID_BYTES).hexdigest()


class Spoken(Protocol):
    """Anything with a role and parts: a message, or an item of a view."""

    @property
    def role(self) -> Role: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...


class Format(Protocol):
    """One provider's wire format. Implementations live in ``refold.formats`` and are pure.

    ``parse`` followed by ``render`` without changes returns the identical input object. An input object is never
    changed in place.
    """

    @property
    def name(self) -> str: ...

    def parse(self, raw: object, parent: str = "", where: str = "message", *, digest: str = "") -> Message:
        """Read one provider message; ``digest`` is its content hash if known. A FormatError names ``where``."""

    def parse_parts(self, raw: object) -> tuple[Part, ...]:
        """Read the parts of a provider object that ``render`` or ``write_summary`` made."""

    def render(self, message: Message, changes: Mapping[int, str | None]) -> object | None:
        """Return the provider object with parts replaced (str) or left out (None); None if nothing is left.

        A changed call keeps its id and name and valid JSON arguments; a changed result keeps its call id.
        """

    def write_summary(self, text: str, role: Role) -> object:
        """Return a provider object that carries a summary."""

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:
        """Return the role a summary may have between these neighbours, ``wanted`` if it is legal."""

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        """Return what the provider would reject in this sequence, one short stable line each; [] if valid."""

    def read_system(self, system: object) -> str:
        """Return the text of a system prompt that is passed separately from the messages (str, blocks or None)."""


DIGITS = 8
_HANDLE = re.compile(r"[mf]:[0-9a-f]{4,32}(?:\.\d{1,5})?")
_MARK = re.compile(f"⟨({_HANDLE.pattern})⟩")


def message_handle(message: Message, part: int | None = None) -> str:
    """Return the handle of a message, or of one of its parts when it has several."""
    handle = f"m:{message.digest[:DIGITS]}"
    return handle if part is None or len(message.parts) == 1 else f"{handle}.{part}"


def fold_handle(messages: Iterable[Message]) -> str:
    """Return the handle of the span that these messages form."""
    hasher = hashlib.blake2b(digest_size=16)
    for message in messages:
        hasher.update(message.digest.encode())
    return f"f:{hasher.hexdigest()[:DIGITS]}"


def mark(handle: str) -> str:
    """Return a handle as placeholders show it."""
    return f"⟨{handle}⟩"


def find_marks(text: str) -> list[str]:
    """Return every handle that is marked in a text, in order."""
    return _MARK.findall(text)


def read_handle(text: str) -> str | None:
    """Return the handle that a person or a model typed, with or without brackets; None if the text is not a handle."""
    stripped = text.strip().strip("⟨⟩<>[]() ").lower()
    return stripped if _HANDLE.fullmatch(stripped) else None


def need_handle(given: object) -> str:
    """Return the handle in what a person or a model passed; raise HandleUnknown if it is not one."""
    name = read_handle(str(given))
    if name is None:
        raise HandleUnknown(
            "{handle!r} is not a handle; handles look like {sample}", handle=str(given)[:80], sample=mark("m:4f2a91c3")
        )
    return name


def read_behind(name: str, messages: Sequence[Message]) -> str:
    """Return the exact text behind a handle, whose messages these are; raise HandleUnknown if there are none."""
    if not messages:
        raise explain_unknown(name)
    if name.startswith("f:"):
        return "\n\n".join(f"{mark(message_handle(one))} {one.role}\n{join_parts(one)}" for one in messages)
    _, dot, part = name.partition(".")
    # Two contents may share a prefix, if rarely: show both, each whole.
    return "\n\n".join(_read_part(message, name, int(part)) if dot else join_parts(message) for message in messages)


def explain_unknown(name: str) -> HandleUnknown:
    """Return the error for a handle with nothing behind it."""
    return HandleUnknown(
        "nothing in this conversation has the handle {handle}; asking again will not help", handle=mark(name)
    )


def _read_part(message: Message, name: str, part: int) -> str:
    if part >= len(message.parts):
        raise HandleUnknown(
            "{mark}: that message has {count} parts, counted from 0; all of it is {mark2}",
            mark=mark(name),
            count=len(message.parts),
            mark2=mark(message_handle(message)),
        )
    return message.parts[part].text


def write_json(value: object) -> str:
    """Return any value as JSON text; never raises: a value that cannot be written becomes the name of its type."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(type(value))


def read_text(value: object) -> str:
    """Return a string as it is, an empty string for None, and JSON for everything else."""
    if isinstance(value, str):
        return value
    return "" if value is None else write_json(value)
