"""Pictures and documents cost what their size says, and their base64 is never read as text."""

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.message import Part
from refold.tokens import TokenCounter, counter_for
from refold.tokens.images import (
    DEFAULT_TOKENS,
    DOCUMENT_TOKENS_MIN,
    LOW_DETAIL_TOKENS,
    ImageRule,
    Size,
    count_image,
    count_media,
    read_size,
)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02" + bytes(5_000)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(50)


def jpeg(width: int, height: int, before: int = 0) -> bytes:
    preview = b"\xff\xe1" + struct.pack(">H", before + 2) + bytes(before) if before else b""
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + preview + b"\xff" + frame + bytes(50)


def webp(width: int, height: int, kind: bytes = b"VP8X") -> bytes:
    if kind == b"VP8X":
        body = bytes(4) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        body = bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + body + bytes(20)


def chat_block(data: bytes, mime: str = "image/png", **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{base64.b64encode(data).decode()}", **more}}


def anthropic_block(data: bytes, mime: str = "image/png", kind: str = "image") -> dict[str, Any]:
    source = {"type": "base64", "media_type": mime, "data": base64.b64encode(data).decode()}
    return {"type": kind, "source": source}


@given(width=st.integers(1, 16_383), height=st.integers(1, 16_383))
def test_width_and_height_are_read_from_every_header(width: int, height: int) -> None:
    size = Size(width, height)
    for data in (png(*size), gif(*size), jpeg(*size), jpeg(*size, before=60_000), webp(*size)):
        assert read_size(data) == size
    assert read_size(webp(width, height, b"VP8L")) == size
    assert read_size(webp(width, height, b"VP8 ")) == size


@pytest.mark.parametrize(
    ("rule", "size", "tokens"),
    [
        ("tiles", Size(512, 512), 255),
        ("tiles", Size(1_024, 1_024), 765),
        ("tiles", Size(2_048, 4_096), 1_105),
        ("patches", Size(1_024, 1_024), 1_659),
        ("patches", Size(8_000, 8_000), 2_489),
        ("area", Size(200, 200), 54),
        ("area", Size(1_000, 1_000), 1_334),
        ("area", Size(8_000, 8_000), 1_600),
        ("area-large", Size(8_000, 8_000), 4_784),
        ("area", Size(1, 1), 1),
        ("fixed", Size(3_000, 10), 1_120),
    ],
)
def test_a_picture_costs_what_the_provider_s_rule_says(rule: ImageRule, size: Size, tokens: int) -> None:
    assert count_image(size, rule) == tokens


@given(width=st.integers(1, 10**6), height=st.integers(1, 10**6), rule=st.sampled_from(list(DEFAULT_TOKENS)))
def test_no_picture_costs_nothing_or_more_than_the_limit(width: int, height: int, rule: ImageRule) -> None:
    assert 1 <= count_image(Size(width, height), rule) <= 8_000


def test_the_shape_of_a_block_decides_where_no_model_does() -> None:
    assert count_media(chat_block(png(1_024, 1_024))) == 765
    assert count_media(anthropic_block(png(1_000, 1_000))) == 1_334
    assert count_media(anthropic_block(png(1_000, 1_000)), "tiles") == 765
    assert count_media(chat_block(png(1_024, 1_024), detail="low")) == LOW_DETAIL_TOKENS


def test_the_model_s_rule_reaches_the_counter() -> None:
    part = Part("media", payload=chat_block(png(1_024, 1_024)))
    counts = {
        model: counter_for(model).count_parts("user", [part]) - counter_for(model).count_parts("user", [])
        for model in ("gpt-4o", "gpt-6.1-sol", "claude-sonnet-4-5", "gemini-3.1-pro")
    }
    assert counts == {"gpt-4o": 765, "gpt-6.1-sol": 1_659, "claude-sonnet-4-5": 1_399, "gemini-3.1-pro": 1_120}


def test_base64_is_never_counted_as_text() -> None:
    counter = TokenCounter("o200k_base")
    for block in (chat_block(png(64, 64) + bytes(range(256)) * 4_000), anthropic_block(bytes(range(256)) * 4_000)):
        assert counter.count_messages([{"role": "user", "content": [block]}]) < 2_000


def test_a_document_costs_by_its_bytes_and_never_nothing() -> None:
    small = anthropic_block(b"%PDF-1.7", "application/pdf", "document")
    large = anthropic_block(b"%PDF-1.7" + bytes(1_000_000), "application/pdf", "document")
    named = {"type": "file", "file": {"file_id": "file-1"}}
    assert count_media(small) == count_media(named) == DOCUMENT_TOKENS_MIN
    assert 40_000 < count_media(large) < 60_000
    assert count_media({"type": "file", "file": {"file_data": large["source"]["data"]}}) == count_media(large)


def test_sound_costs_by_its_length() -> None:
    second = base64.b64encode(bytes(32_000)).decode()
    block = {"type": "input_audio", "input_audio": {"data": second * 10, "format": "wav"}}
    assert 150 <= count_media(block) <= 300


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/cat.png",
        "data:image/png;base64,%%%",
        "data:image/png",
        "data:,",
        "",
        "中文",
        "data:image/png;base64,iVBOR",
    ],
)
def test_a_picture_of_unknown_size_costs_the_stated_default(url: str) -> None:
    assert count_media({"type": "image_url", "image_url": {"url": url}}) == DEFAULT_TOKENS["tiles"]
    assert count_media({"type": "image", "source": {"type": "base64", "data": url}}) == DEFAULT_TOKENS["area"]


@given(
    head=st.binary(max_size=80),
    start=st.sampled_from((b"", b"\xff\xd8", b"GIF89a", b"RIFF1234WEBPVP8 ", b"\x89PNG\r\n\x1a\n")),
)
def test_no_header_however_broken_makes_reading_fail(head: bytes, start: bytes) -> None:
    size = read_size(start + head)
    assert size is None or min(size) > 0


VALUES = (
    st.none()
    | st.text(max_size=10)
    | st.integers()
    | st.dictionaries(st.text(max_size=4), st.text(max_size=9), max_size=2)
)


@given(
    payload=st.dictionaries(st.sampled_from(("type", "source", "image_url", "file", "detail", "input_audio")), VALUES)
    | VALUES
)
def test_no_media_block_however_broken_makes_counting_fail(payload: Any) -> None:
    assert count_media(payload) > 0
