"""Messages as SDKs hand them out: pydantic models, dataclasses, dicts with such objects inside.

A provider's SDK returns objects, and its users append these to their history as they are. ``read_object`` returns the
JSON object that the SDK itself would send for one. An object that is no message gets an error that names the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as list_fields
from enum import Enum
from typing import Any

from refold.errors import FormatError

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
    """Tell whether a message is plain JSON as far as messages nest: no object of an SDK inside."""
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
    """Return a value with every SDK object in it as plain JSON; what is none stays as it is."""
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
            # The SDKs of the providers send what they were given or received, and no default beside it.
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
class ReadReply:
    """A model's answer: its messages as they are stored, and what the provider said beside them, if it is known."""

    messages: list[Any]
    usage: object = None
    finish_reason: str | None = None
    is_response: bool = False


def read_reply(reply: object) -> ReadReply:
    """Read an answer: a message, a list of messages, or a whole response of a provider, as an object or as JSON."""
    if isinstance(reply, list | tuple):
        return ReadReply(list(reply))
    fields = reply if isinstance(reply, Mapping) else None
    if fields is None:
        is_whole = hasattr(reply, "choices") or hasattr(reply, "output") or hasattr(reply, "stop_reason")
        fields = to_plain(reply) if is_whole else None
    if not isinstance(fields, Mapping):
        return ReadReply([] if reply is None else [reply])
    usage = fields.get("usage")
    if isinstance(fields.get("choices"), list):
        first = fields["choices"][0] if fields["choices"] else {}
        message = first.get("message")
        return ReadReply([message] if message else [], usage, first.get("finish_reason"), is_response=True)
    if isinstance(fields.get("output"), list) and "role" not in fields:
        details = fields.get("incomplete_details") or {}
        reason = "length" if details.get("reason") == "max_output_tokens" else None
        return ReadReply(list(fields["output"]), usage, reason, is_response=True)
    if fields.get("type") == "message" and "stop_reason" in fields:
        message = {"role": "assistant", "content": fields.get("content")}
        return ReadReply([message] if fields.get("content") else [], usage, fields["stop_reason"], is_response=True)
    return ReadReply([reply])


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
