"""The text of a system prompt that stands apart from the messages."""

from __future__ import annotations

from refold.errors import FormatError
from refold.formats.block import fail, read_object, read_str

_TEXT_TYPES = ("text", "input_text")


def read_system(system: object, where: str = "system") -> str:
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
            raise FormatError(f"{place}.type is {holder.get('type')!r}; a system prompt is made of text blocks")
        texts.append(read_str(holder, "text", place))
    return "\n".join(texts)
