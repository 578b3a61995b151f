"""Messages in whatever form a caller passes them, and the result in the same form.

``read_intake`` takes a list or any other iterable of dicts or SDK objects, a whole request body, or messages of a
framework with a ``Codec`` that converts them. A provider's SDK returns objects (pydantic models, dataclasses), and its
users append these to their history as they are; ``read_message`` returns the JSON object that the SDK itself would
send. An object that is not a message gets an error that names the remedy. ``Intake.give_back`` returns the prepared
messages in the caller's terms: an unchanged message comes back as the identical object.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from dataclasses import fields as list_fields
from enum import Enum
from typing import Any, Literal, Protocol, cast

from refold.errors import FormatError
from refold.formats.detect import RESPONSES

SourceKind = Literal["whole", "shortened", "extended", "fold", "restored"]


@dataclass(frozen=True, slots=True)
class MessageSource:
    """The origin of an outgoing message: positions among the caller's messages, and what happened to them.

    ``whole`` is untouched, ``shortened`` has parts replaced, ``extended`` has recalled text added below it, ``fold`` is
    a record that replaces all these positions, ``restored`` an original that replaces a record the caller passed.
    ``messages`` are the caller's own objects at the positions; empty if the history came from the ledger.
    """

    positions: tuple[int, ...]
    kind: SourceKind
    messages: tuple[Any, ...] = ()


class Codec(Protocol):
    """Converts messages of a framework into a provider's messages and back.

    One message may become several raw ones, or none. ``from_raw`` is called for each outgoing raw message that is not
    the whole of an untouched one; ``source`` has the originals, so that ids and metadata can be kept. A codec may also
    have ``gather(messages, sources)``, which returns both lists with messages joined that had been one.
    """

    def to_raw(self, message: Any) -> list[dict[str, Any]]: ...

    def from_raw(self, raw: dict[str, Any], source: MessageSource) -> Any: ...


@dataclass(frozen=True, slots=True)
class Intake:
    """Messages as the caller passed them (``given``) and as a provider takes them (``raws``).

    ``owners`` is the position in ``given`` of each raw message, None if the positions are the same. ``given`` and
    ``raws`` are None if no messages were passed: the history is in the ledger. ``body`` is the request around them.
    """

    given: Sequence[Any] | None = None
    raws: Sequence[object] | None = None
    owners: Sequence[int] | None = None
    codec: Codec | None = None
    body: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def is_identity(self) -> bool:
        """True if the result needs no conversion."""
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
        gather = getattr(self.codec, "gather", None)
        return (out, traced) if gather is None else gather(out, traced)

    def _own(self, source: MessageSource, given: Sequence[Any]) -> MessageSource:
        """Return a source in positions of the caller's messages."""
        if self.owners is None:
            positions = source.positions
        else:
            positions = tuple(dict.fromkeys(self.owners[at] for at in source.positions if at < len(self.owners)))
        return MessageSource(positions, source.kind, tuple(given[at] for at in positions if at < len(given)))


# The SDKs' values for an argument that was not given.
_ABSENT = ("Omit", "NotGiven")
_OUTPUT_FIELDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


def read_output_limit(body: object) -> int | None:
    """Return how many tokens a request body asks for its answer at most; None if it does not say."""
    if not isinstance(body, Mapping):
        return None
    given = (body.get(name) for name in _OUTPUT_FIELDS)
    # Local servers take -1 for "without a limit".
    return next((one for one in given if isinstance(one, int) and not isinstance(one, bool) and one > 0), None)


def read_intake(messages: object, codec: Codec | None = None) -> Intake:
    """Read a caller's messages; raise a FormatError that names the remedy for any other value."""
    if messages is None or isinstance(messages, Intake):
        return messages or Intake(codec=codec)
    body: Mapping[str, Any] | None = None
    if isinstance(messages, Mapping):
        body = {name: value for name, value in messages.items() if type(value).__name__ not in _ABSENT}
        messages = _open_body(body)
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
    """The parts of a request besides its messages: the caller's arguments, else the fields of the body."""

    system: Any = None
    tools: Any = None
    model: str | None = None
    format: str | None = None

    def complete(self, intake: Intake) -> Beside:
        """Fill in what the body has, and turn SDK objects into plain JSON."""
        body = intake.body
        if body is None:
            return Beside(read_system(self.system), read_tools(self.tools), self.model, self.format)
        tools = self.tools if self.tools is not None else body.get("tools")
        model = self.model or (body["model"] if isinstance(body.get("model"), str) else None)
        form = self.format or (RESPONSES if intake.key == "input" else None)
        return Beside(read_system(self.system or intake.system), read_tools(tools), model, form)


def _read_plain(value: object) -> object:
    if value is None or isinstance(value, str) or type(value) is dict:
        return value
    if isinstance(value, list | tuple) and all(type(one) is dict for one in value):
        return value
    return to_plain(value)


def read_system(system: object) -> Any:
    """Return a system prompt as plain JSON; a list of texts without a type, in an object or not, becomes one text."""
    plain = _read_plain(system)
    parts = plain["parts"] if isinstance(plain, dict) and isinstance(plain.get("parts"), list) else plain
    if isinstance(parts, list) and parts and all(isinstance(part, dict) and "type" not in part for part in parts):
        return "\n".join(str(part.get("text") or part.get("content") or "") for part in parts)
    return plain


# Where the SDKs and frameworks keep the schema of a tool's arguments.
_TOOL_SCHEMAS = ("parameters", "parameters_json_schema", "params_json_schema", "input_schema", "schema")


def read_tools(tools: object) -> Any:
    """Return a request's tools as plain JSON; objects of a framework become functions of chat completions."""
    if not isinstance(tools, Iterable) or isinstance(tools, str | Mapping):
        return _read_plain(tools)
    if isinstance(tools, list | tuple) and all(type(tool) is dict for tool in tools):
        return tools
    return [read for tool in tools for read in _read_tool(tool)]


def _read_tool(tool: Any) -> list[Any]:
    name = getattr(tool, "name", None)
    if isinstance(tool, Mapping) or not isinstance(name, str):
        # A set of tools is a list of them, too.
        is_set = isinstance(tool, Iterable) and not isinstance(tool, str | Mapping) and not hasattr(tool, "model_dump")
        if callable(tool):
            return []  # Its description is not known here.
        return read_tools(list(tool)) if is_set else [to_plain(tool)]
    schema = _find_schema(tool)
    known = {"name": name, "description": getattr(tool, "description", None) or "", "parameters": schema}
    # Some schemas are the whole function.
    return [{"type": "function", "function": schema if {"name", "parameters"} <= schema.keys() else known}]


def _find_schema(tool: Any) -> dict[str, Any]:
    for name in _TOOL_SCHEMAS:
        value = getattr(tool, name, None)
        schema = to_plain(value() if name == "parameters" and callable(value) else value)
        if isinstance(schema, dict):
            return schema
    return {}


def _open_body(body: Mapping[str, Any]) -> object:
    for key in ("messages", "input"):
        if key in body and "role" not in body:
            inner = body[key]
            return [{"role": "user", "content": inner}] if key == "input" and isinstance(inner, str) else inner
    if "role" in body or "type" in body:
        raise FormatError("messages is one message; put it into a list")
    keys = ", ".join(list(map(str, body))[:8]) or "no fields"
    raise FormatError(
        "no messages in this object (it has {keys}); give a list of messages or a request body", keys=keys
    )


def _list_given(messages: object) -> Sequence[Any]:
    if isinstance(messages, list | tuple):
        return messages
    if isinstance(messages, AsyncIterable):
        raise FormatError("messages is an async iterable; collect it first: [message async for message in messages]")
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        hint = '; write [{"role": "user", "content": text}]' if isinstance(messages, str) else ""
        raise FormatError(
            "messages must be a list of messages, not {kind}{hint}", kind=type(messages).__name__, hint=hint
        )
    return list(messages)


def _count_owned(owners: Sequence[int] | None, length: int) -> tuple[list[int], list[int]]:
    """Return, for each of the caller's messages, the position of its first raw message and how many it has."""
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
    """Return the positions right before this one whose messages have no raw form; they stay beside this one."""
    at = before
    while at and not count[at - 1]:
        at -= 1
    return list(range(at, before))


DEPTH_MAX = 50
# Frameworks with messages of their own: their fields look like a provider's and mean something else.
_FRAMEWORKS = (
    *("agno", "autogen_core", "autogen_agentchat", "agent_framework", "crewai", "dspy", "google", "haystack"),
    *("langchain", "langchain_core", "llama_index", "pydantic_ai", "smolagents", "strands"),
)


def read_message(value: object, where: str = "message") -> dict[str, Any]:
    """Return a message as the JSON object that is sent for it; raise FormatError that names the remedy."""
    if type(value) is dict and is_plain(value):
        return value
    _refuse_others(value, where)
    raw = to_plain(value)
    if not isinstance(raw, dict):
        raise FormatError(f"{where} is a {type(value).__name__}, expected a message; {_find_remedy(value)}")
    if "role" not in raw and "type" not in raw:
        named = ", ".join(map(str, list(raw)[:6])) or "no fields"
        raise FormatError(f"{where} has neither role nor type (it has {named}); {_find_remedy(value)}")
    return raw


def is_plain(message: Mapping[str, Any]) -> bool:
    """Return whether a message is plain JSON as far as messages nest: no object of an SDK inside."""
    for value in message.values():
        kind = type(value)
        if kind in _ATOMS:
            continue
        if kind is list:
            for block in value:
                if type(block) is dict:
                    inner = block.get("content")
                    if type(inner) is list and not all(type(one) is dict for one in inner):
                        return False
                elif type(block) not in _ATOMS:
                    return False
        elif kind is not dict:
            return False
    return True


_ATOMS = frozenset((str, int, float, bool, type(None)))


def to_plain(value: object, depth: int = 0) -> Any:
    """Return a value with every SDK object in it as plain JSON; other values stay as they are."""
    kind = type(value)
    if kind in _ATOMS or depth > DEPTH_MAX:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(one, depth + 1) for one in value]
    dumped = _dump(value)
    return value if dumped is None else to_plain(dumped, depth + 1)


def _dump(value: object) -> Mapping[str, Any] | None:
    """Return the fields of an object that knows how to write itself; None if it does not."""
    if isinstance(value, type):
        return None
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        if hasattr(value, "to_dict"):
            # The providers' SDKs send the fields that were set or received, without defaults.
            kept = dict(dump(mode="json", exclude_unset=True, warnings=False))
            hidden = getattr(value, "__api_exclude__", None) or ()
            return {key: one for key, one in kept.items() if key not in hidden}
        return dict(dump(mode="json", exclude_none=True))
    if is_dataclass(value):
        named = ((field.name, getattr(value, field.name)) for field in list_fields(value))
        return {name: one for name, one in named if one is not None}
    for name in ("to_dict", "dict", "_asdict"):
        method = getattr(value, name, None)
        if callable(method):
            written = method()
            if isinstance(written, Mapping):
                return {key: one for key, one in written.items() if one is not None}
    return None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's answer: its messages as they are stored, and the usage and finish reason if they are known."""

    messages: list[Any]
    usage: object = None
    finish_reason: str | None = None
    is_response: bool = False


def read_reply(reply: object) -> ModelReply:
    """Read an answer: a message, a list of messages, or a whole response of a provider, as an object or as JSON."""
    if isinstance(reply, ModelReply):
        return reply
    if isinstance(reply, list | tuple):
        return ModelReply(list(reply))
    fields = reply if isinstance(reply, Mapping) else None
    if fields is None:
        is_whole = hasattr(reply, "choices") or hasattr(reply, "output") or hasattr(reply, "stop_reason")
        fields = to_plain(reply) if is_whole else None
    if not isinstance(fields, Mapping):
        return ModelReply([] if reply is None else [reply])
    usage = fields.get("usage")
    if isinstance(fields.get("choices"), list):
        first = fields["choices"][0] if fields["choices"] else {}
        message = first.get("message")
        return ModelReply([message] if message else [], usage, first.get("finish_reason"), is_response=True)
    if isinstance(fields.get("output"), list) and "role" not in fields:
        details = fields.get("incomplete_details") or {}
        reason = "length" if details.get("reason") == "max_output_tokens" else None
        return ModelReply(list(fields["output"]), usage, reason, is_response=True)
    if fields.get("type") == "message" and "stop_reason" in fields:
        message = {"role": "assistant", "content": fields.get("content")}
        return ModelReply([message] if fields.get("content") else [], usage, fields["stop_reason"], is_response=True)
    return ModelReply([reply])


def _refuse_others(value: object, where: str) -> None:
    """Raise FormatError for a whole response and for a message of a framework."""
    name = type(value).__name__
    if isinstance(value, str | bytes | Mapping) or value is None:
        return
    if hasattr(value, "choices"):
        raise FormatError(f"{where} is a whole {name}; append its choices[0].message")
    if hasattr(value, "output") and hasattr(value, "output_text"):
        raise FormatError(f"{where} is a whole {name}; append the items of its output, one by one")
    if hasattr(value, "stop_reason") and hasattr(value, "content"):
        raise FormatError(f'{where} is a whole {name}; append {{"role": "assistant", "content": response.content}}')
    if type(value).__module__.partition(".")[0] in _FRAMEWORKS:
        raise FormatError(f"{where} is a {name} of {type(value).__module__.partition('.')[0]}; {_CODEC}")


_CODEC = "pass codec= to convert it both ways, or use the integration in refold.integrations"


def _find_remedy(value: object) -> str:
    if isinstance(value, str):
        return 'write {"role": "user", "content": text} for what a user says'
    if isinstance(value, list | tuple):
        return "the messages are nested one list too deep"
    return f'give {{"role": ..., "content": ...}}, an object of the OpenAI or Anthropic SDK, or {_CODEC}'
