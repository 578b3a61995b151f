"""Tokens of pictures and documents, from their headers alone.

Providers bill pictures by size, never by the length of their base64. Width and height are read from the first bytes
of a PNG, JPEG, GIF or WebP; nothing is decoded. Where the size is not known (a URL, a file id, broken data) a stated
default counts. Nothing here raises on any input, and nothing counts base64 as text.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

ImageRule = Literal["tiles", "patches", "area", "area-large", "fixed"]

# Where the size is unknown: a picture of about 1,024 x 1,024, high detail.
DEFAULT_TOKENS: dict[ImageRule, int] = {
    "tiles": 765,
    "patches": 1_659,
    "area": 1_399,
    "area-large": 1_399,
    "fixed": 1_120,
}
LOW_DETAIL_TOKENS = 85
# A PDF page is billed as its text and its picture, about 2,250 tokens; a page is about 50 KB of file.
DOCUMENT_TOKENS_MIN = 1_500
DOCUMENT_BYTES_PER_TOKEN = 22
AUDIO_BYTES_PER_TOKEN = 1_600  # 16 kHz, 16 bit: 32,000 bytes are a second, billed as about 20 tokens.

_HEADER_CHARS = 262_144  # A JPEG may carry a preview of 64 KB before its size.
_AREA_PIXELS_PER_TOKEN = 750
_AREA_LIMITS: dict[ImageRule, tuple[int, int]] = {"area": (1_568, 1_600), "area-large": (2_576, 4_784)}  # edge, tokens
_PATCHES_MAX = 1_536
_PATCH_FACTOR = 1.62


class Size(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


def count_media(payload: object, rule: ImageRule | None = None) -> int:
    """Return the tokens of a provider's media block. ``rule`` is that of the model; else the block's shape decides."""
    if not isinstance(payload, Mapping):
        return DEFAULT_TOKENS[rule or "tiles"]
    kind = str(payload.get("type", ""))
    if kind == "input_audio":
        return _count_audio(payload)
    data, length, mime = _find_data(payload)
    if kind in ("document", "file", "input_file") or mime == "application/pdf":
        return max(DOCUMENT_TOKENS_MIN, length * 3 // 4 // DOCUMENT_BYTES_PER_TOKEN)
    if rule is None:
        rule = "area" if kind == "image" else "tiles"
    if _find_detail(payload) == "low" and rule == "tiles":
        return LOW_DETAIL_TOKENS
    size = read_size(decode_head(data))
    return DEFAULT_TOKENS[rule] if size is None else count_image(size, rule)


def count_image(size: Size, rule: ImageRule) -> int:
    """Return the tokens of a picture of this size by a provider's rule."""
    if rule == "tiles":
        return _count_tiles(size)
    if rule == "patches":
        return _count_patches(size)
    if rule in _AREA_LIMITS:
        return _count_area(size, *_AREA_LIMITS[rule])
    return DEFAULT_TOKENS["fixed"]


def _count_tiles(size: Size) -> int:
    """GPT-4o: fit into 2,048 square, bring the short edge down to 768, then 170 for each 512 tile and 85 for all."""
    width, height = _shrink(size, 2_048 / max(size))
    width, height = _shrink(Size(width, height), 768 / min(width, height))
    return 85 + 170 * math.ceil(width / 512) * math.ceil(height / 512)


def _count_patches(size: Size) -> int:
    """The small GPT models and those since 5.4: patches of 32 pixels, at most 1,536, times a factor."""
    patches = math.ceil(size.width / 32) * math.ceil(size.height / 32)
    return math.ceil(min(patches, _PATCHES_MAX) * _PATCH_FACTOR)


def _count_area(size: Size, edge_max: int, tokens_max: int) -> int:
    """Anthropic: width x height / 750, after the long edge is brought down; a limit on the tokens of one picture."""
    width, height = _shrink(size, edge_max / max(size))
    return max(1, min(tokens_max, math.ceil(width * height / _AREA_PIXELS_PER_TOKEN)))


def _shrink(size: Size, factor: float) -> Size:
    if factor >= 1:
        return size
    return Size(max(1, int(size.width * factor)), max(1, int(size.height * factor)))


def _count_audio(payload: Mapping[object, object]) -> int:
    audio = payload.get("input_audio")
    data = audio.get("data") if isinstance(audio, Mapping) else None
    length = len(data) if isinstance(data, str) else 0
    return max(20, length * 3 // 4 // AUDIO_BYTES_PER_TOKEN)


def _find_data(payload: Mapping[object, object]) -> tuple[str, int, str]:
    """Return the first characters of the base64 in a block, the length of all of it, and its media type if stated."""
    source = payload.get("source")
    if isinstance(source, Mapping):
        return _base64_of(source.get("data"), str(source.get("media_type", "")))
    image = payload.get("image_url", payload.get("file", payload))
    if isinstance(image, Mapping):
        image = image.get("url") or image.get("file_data") or image.get("data")
    return _base64_of(image, "")


def _base64_of(value: object, mime: str) -> tuple[str, int, str]:
    if not isinstance(value, str):
        return "", 0, mime
    if value.startswith("data:"):
        comma = value.find(",", 0, 200)
        if comma < 0:
            return "", 0, mime
        mime = value[5:comma].partition(";")[0]
        return value[comma + 1 : comma + 1 + _HEADER_CHARS], len(value) - comma - 1, mime
    if value.startswith(("http:", "https:", "file:")):
        return "", 0, mime
    return value[:_HEADER_CHARS], len(value), mime


def _find_detail(payload: Mapping[object, object]) -> str:
    image = payload.get("image_url")
    holder = image if isinstance(image, Mapping) else payload
    return str(holder.get("detail", ""))


def decode_head(data: str) -> bytes:
    """Return what the first characters of base64 decode to; b"" if they are not base64."""
    head = data[:_HEADER_CHARS]
    try:
        return binascii.a2b_base64(head[: len(head) // 4 * 4])
    except ValueError:  # binascii.Error is one; so is a character outside ASCII.
        return b""


def read_size(head: bytes) -> Size | None:
    """Return width and height from the first bytes of a PNG, GIF, WebP or JPEG; None if they are not in there."""
    size = _read_size(head)
    return size if size is not None and size.width > 0 and size.height > 0 else None


def _read_size(head: bytes) -> Size | None:
    if head[:8] == b"\x89PNG\r\n\x1a\n" and len(head) >= 24:
        return Size(int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return Size(int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little"))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _read_webp(head)
    if head[:2] == b"\xff\xd8":
        return _read_jpeg(head)
    return None


def _read_webp(head: bytes) -> Size | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return Size(1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little"))
    if kind == b"VP8 ":
        width, height = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
        return Size(width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    return None


def _read_jpeg(head: bytes) -> Size | None:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:  # Fill byte.
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return Size(int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big"))
        elif marker in (0x01, *range(0xD0, 0xD9)):  # Markers without a length.
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return None
