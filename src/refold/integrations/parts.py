"""A codec for frameworks whose messages are a role and a list of parts.

Each part is exchanged as a block: ``text``, ``thinking`` (with ``signature``), ``image_url``, ``call`` (``id``,
``name`` and ``arguments`` as JSON), ``result`` (``id``, ``content`` and perhaps the tool's ``name``), or ``part``, the
framework's own form of anything else, which is passed through unchanged. A framework's codec is a table of its kinds of
parts; this module converts them to chat messages and back.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from itertools import groupby
from typing import Any, ClassVar

from pydantic import TypeAdapter

from refold.formats import MessageSource
from refold.formats.intake import to_plain

Block = dict[str, Any]
# Sources that are the caller's own messages. Folds and restored messages come from our ledger.
_OWN = frozenset(("whole", "shortened", "extended"))
_ROLES = frozenset(("system", "user", "assistant", "tool"))
_SAME_ROLES = {"model": "assistant", "chatbot": "assistant", "developer": "system", "function": "tool"}
# Default values of missing fields.
_EMPTY = {"arguments": "{}", "text": "", "content": ""}
# The field of a block that a compression changes.
_CHANGED = {"call": ("arguments", "json"), "result": ("content",)}
_BLOCK_NAMES = {"json": "arguments"}


@dataclass(frozen=True, slots=True)
class At:
    """The place of a block's field in a part: a path such as ``function_call.args``.

    ``read`` gets the part instead of the value at the path; ``write`` returns the value for the path. With an empty
    path, ``write`` returns all fields that change. ``wrapped`` is the only field of an object around the value, as in
    ``{"result": …}``; an object with other fields is the value itself.
    """

    path: str
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = None
    wrapped: str = ""

    def take(self, part: Any) -> Any:
        """Return the field's value; None if the part has none."""
        if self.read is not None:
            return self.read(part)
        for name in filter(None, self.path.split(".")):
            part = part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)
        is_wrapped = self.wrapped and isinstance(part, Mapping) and part.keys() == {self.wrapped}
        return part[self.wrapped] if is_wrapped else part

    def put(self, part: Any, block: Block, name: str) -> Any:
        """Return a copy of a part, or of the fields of a new one, with the block's value at the path."""
        value = block[_BLOCK_NAMES.get(name, name)]
        if name == "content":
            value = read_text(value)
        if self.write is not None:
            value = self.write(value)
        elif name == "arguments":
            value = _read_object(value)
        return evolve(part, self.path, {self.wrapped: value} if self.wrapped else value)


class PartKind:
    """One kind of part: the type of its block, the class of such parts, and where they have the block's fields.

    A part is of this kind if it is of that class, has the values ``fixed`` and has the first of the fields. Without a
    class, the codec's ``dump`` and ``load`` convert between a part and its fields; of several classes, a new part has
    the first. A picture has its address (``url``), or its ``data`` and ``media_type``; the arguments of a call are an
    object (``arguments``) or a text (``json``). All paths begin ``at`` one place. ``of`` is the field of a message that
    holds such parts, where there are several.
    """

    def __init__(
        self,
        kind: str,
        maker: type | tuple[type, ...] | None = None,
        fixed: Block | None = None,
        *,
        at: str = "",
        of: str = "",
        **fields: str | At,
    ) -> None:
        self.kind, self.maker, self.of = kind, maker, of
        self.fixed = {f"{at}.{path}" if at else path: value for path, value in (fixed or {}).items()}
        places = {name: place if isinstance(place, At) else At(place) for name, place in fields.items()}
        self.fields = {
            name: replace(place, path=f"{at}.{place.path}") if at else place for name, place in places.items()
        }

    def read(self, part: Any) -> Block | None:
        """Return a part as a block; None if it is of another kind."""
        if not isinstance(part, self.maker or Mapping):
            return None
        if isinstance(part, str):
            return {"type": self.kind, "text": part}
        if any(At(path).take(part) != value for path, value in self.fixed.items()):
            return None
        block: Block = {}
        for name, place in self.fields.items():
            value = place.take(part)
            if value is None and not block:
                return None
            block[_BLOCK_NAMES.get(name, name)] = value
        if self.kind == "image_url":
            kind = block.get("media_type") or "image/png"
            url = block["url"] if "url" in block else write_url(kind, block["data"])
            is_picture = url is not None and kind.partition("/")[0] in ("image", kind)
            return {"type": self.kind, "image_url": {"url": str(url)}} if is_picture else None
        if self.kind == "thinking":
            block.setdefault("signature", "")  # Some frameworks keep it among other fields.
        block |= {name: block[name] or "" for name in ("id", "signature") if name in block}
        block |= {name: _write_json(block[name], empty) for name, empty in _EMPTY.items() if name in block}
        return {"type": self.kind, **block}

    def make(self, block: Block, load: Callable[[Any], Any]) -> Any:
        """Return a new part for a block."""
        if self.maker is str:
            return block["text"]
        given: Block = {}
        for path, value in self.fixed.items():
            given = evolve(given, path, value)
        values = block
        if self.kind == "image_url":
            media_type, data = read_url(block["image_url"]["url"])
            values = {**block["image_url"], "media_type": media_type, "data": data}
        elif self.kind == "result":
            values = {"name": "tool", **block}  # Chat messages need no name there; some frameworks do.
        for name, place in self.fields.items():
            if _BLOCK_NAMES.get(name, name) in values:
                given = place.put(given, values, name)
        maker = self.maker[0] if isinstance(self.maker, tuple) else self.maker
        return load(given) if maker is None else maker(**given)


class PartsCodec:
    """Converts messages with parts to chat messages and back. A part that did not change is the same object again.

    A subclass has the table ``kinds``, and says what a message is: its class, its field with the parts, or its fields,
    and the names of roles that differ from ours (``system``, ``user``, ``assistant``, ``tool``), or the class of the
    messages of each role (that of users also for roles without one); or it overrides ``open`` and ``close``. A kind of
    part whose class is that of the messages has its fields in the message itself.
    """

    kinds: ClassVar[Sequence[PartKind]]
    message: ClassVar[Callable[..., Any]]
    field: ClassVar[str | Sequence[str]]
    roles: ClassVar[Mapping[str, str]] = {}
    classes: ClassVar[Mapping[str, type]] = {}
    # The field for the text of a message with calls, where texts and calls exclude each other.
    aside: ClassVar[str] = ""
    # Where a part holds texts and pictures that are no parts themselves: an attribute that only parts have, and the
    # class of the part that holds them in a message of each role.
    mark: ClassVar[str] = ""
    holders: ClassVar[Mapping[str, type]] = {}
    # Reads and writes parts where they are types that Pydantic knows.
    parts: ClassVar[TypeAdapter[Any] | None] = None
    # Ids with this prefix were invented by the framework after the answer was stored, so they are ignored.
    made_ids: ClassVar[str] = ""

    def open(self, message: Any) -> tuple[str, Sequence[Any]]:
        """Return a message's role and its parts."""
        own = next((role for role, kind in self.classes.items() if isinstance(message, kind)), None)
        role = own or str(to_plain(At("role").take(message)))
        known = {theirs: ours for ours, theirs in self.roles.items() if theirs not in _ROLES}
        inside = [kind.kind for kind in self._list_inside() if kind.read(message) is not None]
        if "result" in inside:
            return "tool", [message]
        parts = [message] * len(inside)
        for name in self._list_fields():
            held = At(name).take(message)
            parts += [held] if isinstance(held, str) and held else list(held or ())
        if self.mark:
            parts = [item for part in parts for item in self._open_part(part)]
        if self.aside and self._list_calls(parts):
            parts = [*filter(None, (At(self.aside).take(message),)), *parts]
        return known.get(role) or _SAME_ROLES.get(role, role), parts

    def _open_part(self, part: Any) -> list[Any]:
        """Return the texts and pictures that a part holds; a part that holds no list of them is returned itself."""
        held = self.read(part).get("text") if hasattr(part, self.mark) else None
        return held if isinstance(held, list) else [part]

    def _list_calls(self, parts: Sequence[Any]) -> list[Any]:
        return [part for part in parts if self.read(part)["type"] == "call"]

    def close(self, role: str, parts: list[Any], origin: Any) -> Any:
        """Return a message with these parts: a copy of ``origin``, or a new one where that is None."""
        inside = [part for part in parts if any(kind.read(part) for kind in self._list_inside())]
        if role == "tool" and inside:
            return inside[0]
        made: Any = {"role": self.roles.get(role, role)} if origin is None else origin
        for kind in self._list_inside():
            for place in kind.fields.values() if kind.kind != "result" else ():
                root, _, _ = place.path.partition(".")
                made = evolve(made, root, None)
                if inside:
                    made = evolve(made, place.path, place.take(inside[0]))
        names = self._list_fields()
        rest = [part for part in parts if not any(part is one for one in inside)]
        if self.mark:
            rest = self._hold(role, rest)
        if self.aside and (calls := self._list_calls(rest)):
            made = evolve(made, self.aside, "\n".join(part for part in rest if isinstance(part, str)) or None)
            rest = calls
        for name in names:
            held = [part for part in rest if len(names) == 1 or (self._match(part)[0].of or names[0]) == name]
            is_text = bool(held) and all(isinstance(part, str) for part in held)
            made = evolve(made, name, "\n".join(held) if is_text else held or (None if len(names) > 1 else []))
        if origin is not None:
            return made
        if hasattr(self, "message"):
            return self.message(**made)
        return self.classes.get(made.pop("role"), self.classes["user"])(**made)

    def _hold(self, role: str, parts: list[Any]) -> list[Any]:
        """Return parts; consecutive texts and pictures that are not parts are put into one that holds them."""
        holder, made = self.holders.get(role, self.holders["user"]), []
        for is_part, row in groupby(parts, lambda part: hasattr(part, self.mark)):
            held = list(row)
            is_text = len(held) == 1 and isinstance(held[0], str)
            made += held if is_part else [holder(held[0] if is_text else held)]
        return made

    def _list_inside(self) -> list[PartKind]:
        own = getattr(self, "message", None)
        return [kind for kind in self.kinds if kind.maker is not None and kind.maker is own]

    def _list_fields(self) -> Sequence[str]:
        return (self.field,) if isinstance(self.field, str) else self.field

    def dump(self, part: Any) -> Any:
        """Return a part as JSON."""
        return to_plain(part) if self.parts is None else self.parts.dump_python(part, mode="json", exclude_none=True)

    def load(self, part: Any) -> Any:
        """Return the part that ``dump`` wrote; without a type of parts its JSON, as a text if parts are objects."""
        if self.parts is not None:
            return self.parts.validate_json(json.dumps(part))
        if self._reads_json:
            return part
        return self.make({"type": "text", "text": json.dumps(part, ensure_ascii=False)}, None)

    def read(self, part: Any) -> Block:
        """Return a part as a block; a call without an id has an empty one."""
        return self._match(part)[1]

    def make(self, block: Block, origin: Any) -> Any:
        """Return the part for a block: a changed copy of ``origin``, or a new one where that is None."""
        if block["type"] == "part":
            return self.load(block["part"])
        if origin is not None:
            kind = self._match(origin)[0]
            name = next(name for name in _CHANGED[block["type"]] if name in kind.fields)
            return kind.fields[name].put(origin, block, name)
        known = {kind.kind: kind for kind in reversed(self.kinds)}
        return known[block["type"]].make(block, self.load) if block["type"] in known else self.load(block)

    @property
    def _reads_json(self) -> bool:
        return not any(kind.maker for kind in self.kinds)

    def _match(self, part: Any, *, is_dumped: bool = False) -> tuple[Any, Block]:
        seen = self.dump(part) if self._reads_json and not is_dumped else part
        for kind in self.kinds:
            block = kind.read(seen)
            if block is None:
                continue
            if isinstance(block.get("content"), list):
                block["content"] = self._read_items(block["content"])
            if self.made_ids and str(block.get("id", "")).startswith(self.made_ids):
                block["id"] = ""
            return kind, block
        return None, {"type": "part", "part": seen if self._reads_json else self.dump(part)}

    def _read_items(self, items: list[Any]) -> str | list[Block]:
        """Return a result that is a list of parts as text, or as blocks if it carries more than text."""
        # The items of a part that was dumped are dumped, too.
        blocks = [self._match(item, is_dumped=self._reads_json)[1] for item in items]
        if all(block["type"] == "text" for block in blocks):
            return "\n".join(block["text"] for block in blocks)
        dumped = items if self._reads_json else map(self.dump, items)
        return [
            block if block["type"] in ("text", "part") else {"type": "part", "part": item}
            for block, item in zip(blocks, dumped, strict=True)
        ]

    def to_raw(self, message: Any) -> list[Block]:
        """Return a message as chat messages: one for each tool result, one for everything else."""
        role, parts = self.open(message)
        blocks = _number([self.read(part) for part in parts])
        raws = [
            {"role": "tool", "tool_call_id": block["id"],
             **{key: block[key] for key in ("name", "content") if key in block}}
            for block in blocks
            if block["type"] == "result"
        ]  # fmt: skip
        calls = [write_call(one["id"], one["name"], one["arguments"]) for one in blocks if one["type"] == "call"]
        said = [block for block in blocks if block["type"] not in ("call", "result")]
        # A user's message may also hold instructions of the system: these blocks have a role of their own.
        for spoken, group in groupby(said, lambda block: block.pop("role", "user" if role == "tool" else role)):
            listed = list(group)
            is_text = len(listed) == 1 and listed[0]["type"] == "text"
            raws.append({"role": spoken, "content": listed[0]["text"] if is_text else listed})
        if calls:
            last = raws.pop() if said else {"role": role, "content": None}
            raws.append({**last, "tool_calls": calls})
        return raws

    def from_raw(self, raw: Block, source: MessageSource) -> Any:
        """Return the message for a raw one: a changed copy of its source, or a new message for a fold."""
        origin = find_origin(source)
        parts = list(self.open(origin)[1]) if origin is not None else []
        blocks = [{name: value for name, value in self.read(part).items() if name != "role"} for part in parts]
        known = list(enumerate(_number(blocks)))
        placed: list[tuple[int, Any]] = []
        last = -1
        for block in _split(raw):
            found = next((entry for entry in known if entry[1] == block), None)
            if found is not None:
                made = parts[found[0]]
            else:
                same = (block["type"], block.get("id") or None)
                found = next((entry for entry in known if (entry[1]["type"], entry[1].get("id", "")) == same), None)
                made = self.make(block, parts[found[0]] if found else None)
            if found is not None:
                known.remove(found)
                last = found[0]
            placed.append((last, made))
        placed.sort(key=lambda entry: entry[0])
        return self.close(raw["role"], [part for _, part in placed], origin)

    def gather(
        self, messages: Sequence[Any], sources: Sequence[MessageSource]
    ) -> tuple[list[Any], list[MessageSource]]:
        """Join what was one message, such as the results of parallel calls, to one again."""
        gathered: list[Any] = []
        kept: list[MessageSource] = []
        for message, source in zip(messages, sources, strict=True):
            origin = find_origin(source)
            if kept and origin is not None and kept[-1].positions == source.positions:
                parts = [*self.open(gathered[-1])[1], *self.open(message)[1]]
                gathered[-1] = self.close(self.open(origin)[0], parts, origin)
                kept[-1] = kept[-1] if source.kind == "whole" else source
            else:
                gathered.append(message)
                kept.append(source)
        return gathered, kept


def find_origin(source: MessageSource) -> Any:
    """Return the caller's message that an outgoing one is a copy of; None if it is new to the caller."""
    return source.messages[0] if source.messages and source.kind in _OWN else None


def evolve(whole: Any, path: str, value: Any) -> Any:
    """Return a copy of a message or part with another value at a path; with an empty path, with these fields."""
    name, _, rest = path.partition(".")
    inner = At(name).take(whole) if rest else None
    changes = {name: evolve(inner if inner is not None else {}, rest, value) if rest else value} if name else value
    if isinstance(whole, dict):
        return {**whole, **changes}
    if hasattr(whole, "model_copy"):
        return whole.model_copy(update=changes)
    if is_dataclass(whole) and not isinstance(whole, type):
        return replace(whole, **changes)
    made = copy.copy(whole)
    for field, one in changes.items():
        setattr(made, field, one)
    return made


def read_text(content: Any) -> str:
    """Return the text of a chat message's content."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(str(block.get("text") or "") for block in content)


def write_url(media_type: str | None, data: bytes | str | None) -> str | None:
    """Return a picture's bytes, or their base64, as a data address; None if there are none."""
    kind = media_type or "image/png"
    written = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return f"data:{kind if '/' in kind else f'image/{kind}'};base64,{written}" if written else None


def read_url(url: str) -> tuple[str, str]:
    """Return the media type of a data address and its bytes as base64; no bytes for another address."""
    head, _, written = url.partition(";base64,")
    return head.removeprefix("data:") if written else "image/png", written


def write_call(name: str, function: str, arguments: Any) -> Block:
    """Return a call as chat completions have it."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": function, "arguments": written}}


def _number(blocks: list[Block]) -> list[Block]:
    """Return the blocks with an id for every call and result: some frameworks pair them by their order alone."""
    count = {"call": 0, "result": 0}
    numbered = []
    for block in blocks:
        kind = block["type"]
        if kind in count:
            numbered.append({**block, "id": block["id"] or f"call-{count[kind]}"})
            count[kind] += 1
        else:
            numbered.append(block)
    return numbered


def _split(raw: Block) -> Iterator[Block]:
    """Yield the blocks of a chat message."""
    content = raw.get("content")
    if raw["role"] == "tool":
        named = {"name": raw["name"]} if "name" in raw else {}
        yield {"type": "result", "id": raw["tool_call_id"], **named, "content": content}
        return
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    else:
        yield from content or ()
    for call in raw.get("tool_calls") or ():
        function = call["function"]
        yield {"type": "call", "id": call["id"], "name": function["name"], "arguments": function["arguments"]}


def _write_json(value: Any, empty: str) -> Any:
    """Return a value as a text, unless it is a text or a list of parts already."""
    if value is None or isinstance(value, str | list | tuple):
        return empty if value is None else list(value) if isinstance(value, tuple) else value
    return json.dumps(value, ensure_ascii=False, default=str)


def _read_object(text: str) -> Block:
    """Return a call's arguments as an object, even if the model wrote something else."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    return read if isinstance(read, dict) else {"arguments": text}
