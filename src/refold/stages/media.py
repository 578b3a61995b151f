"""Media: one phrase that says what a picture, document or recording was, from its block alone.

Reads the header of a picture for its size in pixels; decodes nothing else. It looks for the data wherever a block
keeps it, so it knows no provider, and it must never raise on a block it has not seen before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from refold.conversation.message import Part
from refold.conversation.reason import Language
from refold.stages.gist import first_line
from refold.tokens.images import decode_head, read_size

_DEPTH_MAX = 4
_NAME_CHARS = 60
_DATA_KEYS = ("data", "file_data", "url", "image_url", "image_base64")
_NAME_KEYS = ("filename", "title", "file_id")
_WORDS: dict[str, dict[Language, str]] = {
    "image": {"en": "image", "zh": "图片"},
    "audio": {"en": "audio", "zh": "音频"},
    "video": {"en": "video", "zh": "视频"},
    "document": {"en": "document", "zh": "文档"},
}


def describe_media(part: Part, language: Language) -> str:
    """Return what a media part was: its kind, name or address, pixels and size, as far as its block tells."""
    strings = list(_find_strings(part.payload, _DEPTH_MAX))
    data = next((text for key, text in strings if key in _DATA_KEYS), "")
    kind = _tell_kind(part, strings, data)
    facts = [_WORDS[kind][language]]
    facts += [first_line(text, _NAME_CHARS) for key, text in strings if key in _NAME_KEYS][:1]
    if data.startswith(("http:", "https:", "file:")):
        facts.append(first_line(data, _NAME_CHARS * 2))
        return ", ".join(facts)
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    size = read_size(decode_head(encoded)) if kind == "image" else None
    if size:
        facts.append(f"{size.width}×{size.height}")
    if encoded:
        facts.append(_write_bytes(len(encoded) * 3 // 4 - encoded[-2:].count("=")))
    return ", ".join(facts)


def _tell_kind(part: Part, strings: list[tuple[str, str]], data: str) -> str:
    hints = [text for key, text in strings if key in ("type", "media_type", "mime_type")]
    hint = " ".join((part.name, data[:40] if data.startswith("data:") else "", *(text[:60] for text in hints))).lower()
    for word in ("image", "audio", "video"):
        if word in hint:
            return word
    return "document"


def _find_strings(value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield every string in a block with its key, outermost first."""
    if not isinstance(value, Mapping) or not depth:
        return
    for key, inner in value.items():
        if isinstance(inner, str):
            yield str(key), inner
    for inner in value.values():
        yield from _find_strings(inner, depth - 1)


def _write_bytes(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024:
        return f"{count / 1024:.0f} KB"
    return f"{count / 1024 / 1024:.1f} MB"
