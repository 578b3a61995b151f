"""Cutting a request down by the sizes of its messages alone, where there is no time or no memory to compress it.

Nothing is counted but samples of the text, and nothing is stored: this is the last resort before a request that is too
long would go upstream unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from refold.formats import place_messages
from refold.server.body import dump_json, parse_json
from refold.server.wires import Wire

# How much of a request is counted to estimate the rest.
_SAMPLES, _SAMPLE_BYTES = 16, 1_000
# Fields that are worth nothing if they are cut: signed or encoded content, and addresses.
_WHOLE_FIELDS = frozenset(
    ("signature", "thinking", "encrypted_content", "data", "file_data", "url", "image_url", "id", "call_id")
)
# The smallest piece of a message that is worth keeping.
_PIECE_CHARS_MIN = 200
# About how much one element of a list or one field of an object takes, and how many of each are kept in any case.
_ELEMENT_CHARS, _ELEMENTS_MIN, _ELEMENTS_MAX = 16, 16, 1_000


def choose_by_size(messages: list[Any], bytes_max: int) -> list[Any]:
    """Return leading system messages, the first user message and the newest messages within a limit, long strings in
    them shortened.

    The newest part begins with a user message, if need be the last one before it, and never with a tool result.
    """
    lead = 0
    while lead < len(messages) - 1 and _role_of(messages[lead]) in ("system", "developer"):
        lead += 1
    piece = max(_PIECE_CHARS_MIN, bytes_max // 4)
    head = [shorten(message, piece // 2) for message in messages[:lead]]
    first = next((at for at in range(lead, len(messages)) if _starts_turn(messages[at])), len(messages))
    asked = [shorten(message, piece // 2) for message in messages[first : first + 1]]
    room = bytes_max - sum(map(_measure, head + asked))
    newest: list[Any] = []
    start = len(messages)
    while start > lead:
        message = shorten(messages[start - 1], piece)
        room -= _measure(message) + 1
        if newest and room < 0:
            break
        newest.append(message)
        start -= 1
    while newest and (_is_result(newest[-1]) or _is_open(messages[start - 1])):
        newest.pop()
        start += 1
    kept = newest[::-1]
    if not kept or not _starts_turn(kept[0]):
        opener = next((one for one in reversed(messages[first + 1 : start]) if _starts_turn(one)), None)
        kept = kept if opener is None else [shorten(opener, piece // 2), *kept]
    return [*head, *(asked if first < start else ()), *kept]


def trim(wire: Wire, body: bytes, tokens_max: int, count_text: Callable[[str], int]) -> tuple[bytes | None, int, int]:
    """Return the newest part of a request that has at most so many tokens, and the tokens before and after.

    The last resort: sizes decide, and tokens are estimated from samples of the text. None if all of it fits.
    """
    whole = parse_json(body)
    given = whole[wire.key]
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    data = dump_json(whole)
    density = _estimate_density(data, count_text)
    if len(data) * density <= tokens_max:
        return None, int(len(data) * density), int(len(data) * density)
    room = max(2 * _PIECE_CHARS_MIN, int(tokens_max / density) - len(data) + _measure(messages))
    bytes_max, kept = room, messages
    while (size := _measure(kept)) > room and bytes_max > _PIECE_CHARS_MIN:
        # Sizes shrink about as the limit does: the next try is near, and there are few of them.
        bytes_max = room if kept is messages else min(bytes_max * 3 // 4, bytes_max * room // size)
        kept = choose_by_size(messages, max(_PIECE_CHARS_MIN, bytes_max))
    made = dump_json({**whole, wire.key: place_messages(wire.name, kept)})
    return made, int(len(data) * density), int(len(made) * density)


def _estimate_density(data: bytes, count_text: Callable[[str], int]) -> float:
    """Return about how many tokens a byte of a request has, rather too many than too few."""
    step = max(_SAMPLE_BYTES, len(data) // _SAMPLES)
    sample = b"".join(data[at : at + _SAMPLE_BYTES] for at in range(0, len(data), step))
    return 1.1 * max(1, count_text(sample.decode("utf-8", "replace"))) / max(1, len(sample))


def shorten(value: Any, chars_max: int) -> Any:
    """Return a value with long strings, lists and objects cut in the middle, so that it stays near a size.

    What lies in an element gets only its share of the size: nesting does not multiply it.
    """
    if isinstance(value, str):
        half = max(_PIECE_CHARS_MIN, chars_max) // 2
        if len(value) <= 2 * half:
            return value
        gone = len(value) - 2 * half
        return f"{value[:half]}\n[… {gone:,} characters left out: the request was too large …]\n{value[-half:]}"
    if not isinstance(value, list | dict) or not value:
        return value
    if chars_max < 2:
        return type(value)()
    half = max(_ELEMENTS_MIN, min(_ELEMENTS_MAX, chars_max // _ELEMENT_CHARS)) // 2
    if isinstance(value, list):
        kept = value if len(value) <= 2 * half else [*value[:half], *value[-half:]]
        return [shorten(one, chars_max // len(kept)) for one in kept]
    named = list(value.items())[: 2 * half]
    share = chars_max // max(1, sum(isinstance(one, list | dict) for _, one in named))
    return {name: one if name in _WHOLE_FIELDS else _shorten_field(name, one, share) for name, one in named}


def _shorten_field(name: str, value: Any, chars_max: int) -> Any:
    """Return one field of an object, shortened; a call's arguments stay valid JSON."""
    if name == "arguments" and isinstance(value, str) and len(value) > chars_max:
        return dump_json({"left_out": f"{len(value):,} characters"}).decode()
    return shorten(value, chars_max)


def _measure(value: Any) -> int:
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return len(repr(value))


def _role_of(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else ""
    return role if isinstance(role, str) else ""


def _starts_turn(message: Any) -> bool:
    return _role_of(message) == "user" and not _is_result(message)


def _is_open(message: Any) -> bool:
    """Tell whether the next item belongs to the same step as this one (Responses)."""
    kind = str(message.get("type", "")) if isinstance(message, dict) else ""
    return kind == "reasoning" or kind.endswith("_call")


def _is_result(message: Any) -> bool:
    """Tell whether a message answers a tool call, in any wire format."""
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    if isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    ):
        return True
    return _role_of(message) == "tool" or str(message.get("type", "")).endswith("_output")
