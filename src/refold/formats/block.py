"""Reading and changing provider objects: what the three formats do alike.

Reading checks types and names the place of what is wrong. Changing copies along the changed path only, keeps the
order of keys, and never touches the object that came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from refold.conversation.message import Message, Part, Role, write_json
from refold.errors import FormatError
from refold.formats.canonical import parse_arguments

Raw = dict[str, Any]
# Where a part stands in its message: the field, and the place in it if the field is a list.
Spot = tuple[str, int | None]
Found = list[tuple[Part, Spot]]

DROPPED = object()


def read_object(value: object, where: str) -> Raw:
    """Return a value that must be a JSON object."""
    if not isinstance(value, dict):
        hint = (
            "; convert it first, for example with .model_dump(exclude_none=True)"
            if hasattr(value, "model_dump")
            else ""
        )
        fail(where, value, "an object", hint)
    return value


def read_list(value: object, where: str) -> list[Any]:
    """Return a value that must be a list."""
    if not isinstance(value, list):
        hint = "; put it into a list" if isinstance(value, dict) else ""
        fail(where, value, "text or a list" if where.endswith((".content", ".output")) else "a list", hint)
    return value


def read_str(holder: Raw, key: str, where: str) -> str:
    """Return a field that must be a string; an absent or null one is empty."""
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        fail(f"{where}.{key}", value, "a string")
    return value


def read_role(holder: Raw, roles: Mapping[str, Role], form: str, where: str) -> Role:
    """Return the role of a message in a format that knows these."""
    role = holder.get("role")
    if role is None:
        raise FormatError(f"{where} has no role; add one of {', '.join(roles)}")
    if not isinstance(role, str) or role not in roles:
        raise FormatError(f"{where}.role is {str(role)[:40]!r}; {form} knows {', '.join(roles)}")
    return roles[role]


def str_or_empty(value: object) -> str:
    """Return a string, or an empty one for anything else: what a block that we do not know may call its name."""
    return value if isinstance(value, str) else ""


def fail(where: str, value: object, wanted: str, hint: str = "") -> NoReturn:
    """Raise FormatError for a value of the wrong type."""
    raise FormatError(f"{where} is {name_type(value)}, expected {wanted}{hint}")


def name_type(value: object) -> str:
    """Return what JSON calls the type of a value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), f"a Python {type(value).__name__}")


def make_arguments(text: str) -> Raw:
    """Return a changed call's arguments as an object; a text that is none is put into one."""
    value = parse_arguments(text)
    return value if isinstance(value, dict) else {"refold": text}


def write_arguments(text: str) -> str:
    """Return a changed call's arguments as the text of a JSON object."""
    return text if isinstance(parse_arguments(text), dict) else write_json({"refold": text})


def join_texts(parts: Iterable[Part]) -> str:
    """Return the texts of parts as one, each on its own line."""
    return "\n".join(part.text for part in parts if part.text)


def check_changes(message: Message, changes: Mapping[int, str | None]) -> None:
    """Raise ValueError for changes that no format may carry out: they are bugs of whoever proposed them."""
    if message.is_sealed:
        raise ValueError("a sealed message takes no edit")
    if not message.parts and set(changes.items()) == {(0, None)}:
        return  # How an empty message is left out.
    for at, text in changes.items():
        if not 0 <= at < len(message.parts):
            raise ValueError(f"part {at} does not exist; the message has {len(message.parts)}")
        kind = message.parts[at].kind
        if kind == "opaque":
            raise ValueError(f"part {at} is opaque: it goes with its message or not at all")
        if kind == "thinking" and text is not None:
            raise ValueError(f"part {at} is thinking: it stays as it is or goes whole")
        if kind in ("call", "result") and text is None:
            raise ValueError(f"part {at} is a {kind}: its partner would stay behind without it; fold the unit")


def has_content(parts: Sequence[Part], changes: Mapping[int, str | None]) -> bool:
    """Tell whether a message still says something under these changes."""
    for at, part in enumerate(parts):
        text = changes.get(at, part.text)
        if part.kind in ("call", "result", "opaque"):
            return True
        if part.kind in ("media", "thinking") and at not in changes:
            return True
        if text and text.strip():
            return True
    return False


def change_list(blocks: Sequence[Any], new: Mapping[int, object]) -> list[Any]:
    """Return a list with some elements exchanged, or left out where the new one is DROPPED."""
    changed = (new.get(at, block) for at, block in enumerate(blocks))
    return [block for block in changed if block is not DROPPED]


def write_text_block(kind: str, text: str, old: Raw) -> Raw:
    """Return a text block for the place of another one; a cache breakpoint stays where it was."""
    block: Raw = {"type": kind, "text": text}
    if "cache_control" in old:
        block["cache_control"] = old["cache_control"]
    return block
