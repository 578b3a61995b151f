"""A codec for frameworks whose messages are a role and a list of parts.

Each part is exchanged as a block: ``text``, ``thinking`` (with ``signature``), ``image_url``, ``call`` (``id``,
``name`` and ``arguments`` as JSON), ``result`` (``id``, ``content`` and perhaps the tool's ``name``), or another type,
which nobody reads or changes. A framework's codec says what one message and one part are; this module makes chat
messages of them and takes them back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from refold.formats import MessageSource
from refold.prepared import PreparedContext

Block = dict[str, Any]
# What comes from a message of the caller. A fold and what it restores come from our record of others.
_OWN = frozenset(("whole", "shortened", "extended"))


class PartsCodec(ABC):
    """Converts messages with parts to chat messages and back. A part that did not change comes back as the object."""

    @abstractmethod
    def open(self, message: Any) -> tuple[str, Sequence[Any]]:
        """Return a message's role (``system``, ``user``, ``assistant`` or ``tool``) and its parts."""

    @abstractmethod
    def close(self, role: str, parts: list[Any], origin: Any) -> Any:
        """Return a message with these parts: a copy of ``origin``, or a new one where that is None."""

    @abstractmethod
    def read(self, part: Any) -> Block:
        """Return a part as a block; a call without an id has an empty one."""

    @abstractmethod
    def make(self, block: Block, origin: Any) -> Any:
        """Return the part for a block: a changed copy of ``origin``, or a new one where that is None."""

    def to_raw(self, message: Any) -> list[Block]:
        """Return a message as chat messages: one for each tool result, one for everything else."""
        role, parts = self.open(message)
        blocks = _number([self.read(part) for part in parts])
        raws = [
            {
                "role": "tool",
                "tool_call_id": block["id"],
                **{key: block[key] for key in ("name", "content") if key in block},
            }
            for block in blocks
            if block["type"] == "result"
        ]
        calls = [
            {"id": block["id"], "type": "function",
             "function": {"name": block["name"], "arguments": block["arguments"]}}
            for block in blocks
            if block["type"] == "call"
        ]  # fmt: skip
        said = [block for block in blocks if block["type"] not in ("call", "result")]
        if not said and not calls:
            return raws
        content = said[0]["text"] if len(said) == 1 and said[0]["type"] == "text" else said or None
        role = "user" if role == "tool" else role
        return [*raws, {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}]

    def from_raw(self, raw: Block, source: MessageSource) -> Any:
        """Return the message for a raw one: a changed copy of its source, or a new message for a fold."""
        origin = find_origin(source)
        parts = list(self.open(origin)[1]) if origin is not None else []
        known = list(enumerate(_number([self.read(part) for part in parts])))
        placed: list[tuple[int, Any]] = []
        last = -1
        for block in _split(raw):
            found = next((entry for entry in known if entry[1] == block), None)
            if found is not None:
                made = parts[found[0]]
            else:
                found = next((entry for entry in known if block.get("id") and _is_same_call(entry[1], block)), None)
                made = self.make(block, parts[found[0]] if found else None)
            if found is not None:
                known.remove(found)
                last = found[0]
            placed.append((last, made))
        placed.sort(key=lambda entry: entry[0])
        return self.close(raw["role"], [part for _, part in placed], origin)

    def gather(self, prepared: PreparedContext) -> list[Any]:
        """Return the messages to send; what was one message, such as the results of parallel calls, is one again."""
        gathered: list[Any] = []
        before: MessageSource | None = None
        for message, source in zip(prepared.messages, prepared.sources, strict=True):
            origin = find_origin(source)
            if before is not None and origin is not None and before.positions == source.positions:
                parts = [*self.open(gathered[-1])[1], *self.open(message)[1]]
                gathered[-1] = self.close(self.open(origin)[0], parts, origin)
            else:
                gathered.append(message)
            before = source
        return gathered


def find_origin(source: MessageSource) -> Any:
    """Return the caller's message that an outgoing one is a copy of; None if it is new to the caller."""
    return source.messages[0] if source.messages and source.kind in _OWN else None


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


def _is_same_call(known: Block, block: Block) -> bool:
    return (known["type"], known.get("id")) == (block["type"], block["id"])


def read_text(content: Any) -> str:
    """Return the text of a chat message's content."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(str(block.get("text") or "") for block in content)
