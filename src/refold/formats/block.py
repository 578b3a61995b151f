"""Shared by the three formats: their base class, reading and changing provider objects, pairing calls with results.

Reading checks types and names the place of a fault. Changing copies only along the changed path, keeps the order of
keys, and never modifies the input object.

Every provider rejects calls and results that do not pair. They pair by position: a result answers an open call of its
own unit. Ids may recur in a later unit, but not within one. Calls may be open only at the very end.
``find_pair_faults`` never raises; a fault is a short stable line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from refold.conversation.message import Message, Part, Role, Spoken, chain_id, write_json
from refold.errors import FormatError
from refold.formats.canonical import digest_message, parse_arguments

Raw = dict[str, Any]
# Where a part is in its message: the field, and the index in it if the field is a list.
Spot = tuple[str, int | None]
Found = list[tuple[Part, Spot]]

DROPPED = object()
MARK = "cache_control"  # The field with which clients of Anthropic mark the end of a prefix to cache.


class WireFormat(ABC):
    """The shared half of a format. ``conversation.message.Format`` documents the calls."""

    name: ClassVar[str]
    # The field of a request that holds its system prompt.
    system_field: ClassVar[str] = "system"

    def parse(self, raw: object, parent: str = "", where: str = "message", *, digest: str = "") -> Message:
        holder = read_object(raw, where)
        role = self._read_role(holder, where)
        # Compute the digest first: it refuses nesting that would overflow the reader's stack.
        digest = digest or digest_message(holder, where)
        parts = self._read_parts(holder, where)
        name, is_sealed = self._read_name(holder), self._is_sealed(holder, parts)
        return Message(raw, role, parts, digest, chain_id(parent, digest), name, is_sealed)

    def parse_parts(self, raw: object) -> tuple[Part, ...]:
        return self._read_parts(read_object(raw, "message"), "message")

    def render(self, message: Message, changes: Mapping[int, str | None]) -> object | None:
        if not changes:
            return message.raw
        check_changes(message, changes)
        if not has_content(message.parts, changes):
            return None
        return self._change(message, read_object(message.raw, "message"), changes)

    def read_system(self, system: object) -> str:
        return _read_system(system, self.system_field)

    @abstractmethod
    def _read_role(self, raw: Raw, where: str) -> Role:
        """Return the role of a message; raise FormatError if it has none."""

    @abstractmethod
    def _read_parts(self, raw: Raw, where: str) -> tuple[Part, ...]:
        """Return the parts of a message, in the order of part numbers."""

    @abstractmethod
    def _change(self, message: Message, raw: Raw, changes: Mapping[int, str | None]) -> object:
        """Return the message with parts replaced or left out; something is left of it."""

    def _read_name(self, raw: Raw) -> str:  # noqa: ARG002
        return ""

    def _is_sealed(self, raw: Raw, parts: Sequence[Part]) -> bool:  # noqa: ARG002
        return False


def read_object(value: object, where: str) -> Raw:
    """Return a value that must be a JSON object."""
    if not isinstance(value, dict):
        hint = "; convert it first, for example with .model_dump(exclude_none=True)"
        fail(where, value, "an object", hint if hasattr(value, "model_dump") else "")
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
        raise FormatError("{where} has no role; add one of {listed}", where=where, listed=", ".join(roles))
    if not isinstance(role, str) or role not in roles:
        raise FormatError(
            "{where}.role is {role!r}; {form} knows {listed}",
            where=where,
            role=str(role)[:40],
            form=form,
            listed=", ".join(roles),
        )
    return roles[role]


def str_or_empty(value: object) -> str:
    """Return a string, or an empty one for any other value; unknown blocks may hold anything in their fields."""
    return value if isinstance(value, str) else ""


def fail(where: str, value: object, wanted: str, hint: str = "") -> NoReturn:
    """Raise FormatError for a value of the wrong type."""
    raise FormatError(
        "{where} is {kind}, expected {wanted}{hint}", where=where, kind=name_type(value), wanted=wanted, hint=hint
    )


def name_type(value: object) -> str:
    """Return what JSON calls the type of a value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), f"a Python {type(value).__name__}")


def make_arguments(text: str) -> Raw:
    """Return a changed call's arguments as an object; a text that is not JSON is wrapped in one."""
    value = parse_arguments(text)
    return value if isinstance(value, dict) else {"refold": text}


def write_arguments(text: str) -> str:
    """Return a changed call's arguments as the text of a JSON object."""
    return text if isinstance(parse_arguments(text), dict) else write_json({"refold": text})


def join_texts(parts: Iterable[Part]) -> str:
    """Return the texts of parts as one, each on its own line."""
    return "\n".join(part.text for part in parts if part.text)


ReadBlock = Callable[[object, str], Part]


def read_content(content: object, where: str, read_block: ReadBlock) -> tuple[Part, ...]:
    """Return the parts of a content, which is a string, a list of blocks, or None."""
    if content is None or isinstance(content, str):
        return (Part("text", content),) if content else ()
    return tuple([read_block(block, f"{where}[{at}]") for at, block in enumerate(read_list(content, where))])


def read_output(content: object, where: str, read_block: ReadBlock) -> tuple[str, tuple[Part, ...]]:
    """Return the text of a result's content, and its parts that are not text."""
    if content is None or isinstance(content, str):
        return content or "", ()
    parts = read_content(content, where, read_block)
    texts = join_texts(part for part in parts if part.kind == "text")
    return texts, tuple(part for part in parts if part.kind != "text")


def read_openai_block(block: object, where: str, *, texts: Collection[str], media: Collection[str]) -> Part:
    """Return a block of one of OpenAI's formats, which have these types of text and of media."""
    holder = read_object(block, where)
    kind = str_or_empty(holder.get("type"))
    if kind in texts:
        return Part("text", read_str(holder, "text", where), payload=holder)
    if kind == "refusal":
        return Part("text", read_str(holder, "refusal", where), payload=holder)
    return Part("media" if kind in media else "opaque", payload=holder)


def check_changes(message: Message, changes: Mapping[int, str | None]) -> None:
    """Raise ValueError for changes that no format allows; they are bugs of the stage that proposed them."""
    if message.is_sealed:
        raise ValueError("a sealed message takes no edit")
    if not message.parts and set(changes.items()) == {(0, None)}:
        return  # This removes an empty message.
    for at, text in changes.items():
        if not 0 <= at < len(message.parts):
            raise ValueError(f"part {at} does not exist; the message has {len(message.parts)}")
        kind = message.parts[at].kind
        if kind == "opaque":
            raise ValueError(f"part {at} is opaque: it can only be removed with its whole message")
        if kind == "thinking" and text is not None:
            raise ValueError(f"part {at} is thinking: it can be dropped, not changed")
        if kind in ("call", "result") and text is None:
            raise ValueError(f"part {at} is a {kind}: dropping it would leave its partner alone; fold the unit")


def has_content(parts: Sequence[Part], changes: Mapping[int, str | None]) -> bool:
    """Return whether a message still says something under these changes."""
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


def change_block(part: Part, block: Raw, text: str | None, kind: str = "text") -> object:
    """Return a block with another text, DROPPED without one; text blocks of this format have the type ``kind``."""
    if not text:
        return DROPPED
    if part.kind != "media":
        return {**block, ("refusal" if block.get("type") == "refusal" else "text"): text}
    # A cache breakpoint stays where it was.
    kept = {MARK: block[MARK]} if MARK in block else {}
    return {"type": kind, "text": text, **kept}


def drop_marks(raw: object) -> object:
    """Return a provider's message without prompt-cache marks; the same object if it has no marks."""
    content = raw.get("content") if isinstance(raw, dict) else None
    if not isinstance(content, list) or not any(isinstance(block, dict) and MARK in block for block in content):
        return raw
    bare = [
        {key: value for key, value in block.items() if key != MARK} if isinstance(block, dict) else block
        for block in content
    ]
    return {**raw, "content": bare}  # type: ignore[dict-item]


_TEXT_TYPES = ("text", "input_text")


def _read_system(system: object, where: str) -> str:
    """Return the text of a system prompt: a string, a list of text blocks, or None."""
    if system is None:
        return ""
    if isinstance(system, str):
        return system
    if not isinstance(system, list):
        fail(where, system, "a string or a list of text blocks")
    texts: list[str] = []
    for at, block in enumerate(system):
        place = f"{where}[{at}]"
        holder = {"type": "text", "text": block} if isinstance(block, str) else read_object(block, place)
        if holder.get("type") not in _TEXT_TYPES:
            raise FormatError(
                "{place}.type is {given!r}; a system prompt is made of text blocks",
                place=place,
                given=holder.get("type"),
            )
        texts.append(read_str(holder, "text", place))
    return "\n".join(texts)


def find_pair_faults(items: Sequence[Spoken], *, is_spread: bool = False) -> list[str]:
    """Return the faults of calls and results. ``is_spread``: one step is several items in a row (Responses)."""
    pairing = _Pairing()
    for item in items:
        has_results = any(part.kind == "result" for part in item.parts)
        is_linked = any(part.kind == "opaque" and part.call_id in pairing.linked for part in item.parts)
        if not has_results and not is_linked and not (is_spread and item.role == "assistant"):
            pairing.close_step()
        for part in item.parts:
            if part.kind == "call":
                pairing.open_call(part.call_id)
            elif part.kind == "result":
                pairing.answer_call(part.call_id)
            elif part.kind == "opaque" and part.call_id:
                pairing.meet_linked(part.call_id)
    return pairing.finish()


class _Pairing:
    """The open and the answered calls of the current step."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.open: dict[str, None] = {}
        self.answered: set[str] = set()
        self.linked: dict[str, None] = {}

    def open_call(self, call_id: str) -> None:
        if not self.open and self.answered:
            self.answered = set()  # A new step: ids may recur.
        if call_id in self.open or call_id in self.answered:
            self.faults.append(f"call id twice in one step {call_id}")
        self.open[call_id] = None

    def answer_call(self, call_id: str) -> None:
        if call_id in self.open:
            del self.open[call_id]
            self.answered.add(call_id)
        elif call_id in self.answered:
            self.faults.append(f"second result {call_id}")
        else:
            self.faults.append(f"orphan result {call_id}")

    def meet_linked(self, call_id: str) -> None:
        """Pair blocks that the provider runs itself: they come in twos with one id."""
        if call_id in self.linked:
            del self.linked[call_id]
        else:
            self.linked[call_id] = None

    def close_step(self) -> None:
        """End the step: calls that are still open will never be answered."""
        self.faults += [f"unanswered call {call_id}" for call_id in self.open]
        self.faults += [f"block without its partner {call_id}" for call_id in self.linked]
        self.open, self.answered, self.linked = {}, set(), {}

    def finish(self) -> list[str]:
        """Return the faults. Calls may be open at the end, unless another call of their step was answered."""
        if self.answered:
            self.faults += [f"unanswered call {call_id}" for call_id in self.open]
        return self.faults
