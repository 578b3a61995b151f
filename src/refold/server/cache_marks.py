"""Anthropic's cache marks after a compression: at most four, where the prefix stays as it is.

A mark writes the prefix up to its block; a later request finds it if one of its own marks is no more than 20 blocks
further on. Marks on tools and system prompt are the client's and stay. Those among the messages move: one to the end of
what was folded, which stays until the next batch, one to the newest block, and one between them where they lie further
apart than a look back reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refold.manager.session import MARK, drop_marks

MARKS_MAX = 4
LOOKBACK_BLOCKS = 20
# What the provider does not let carry a mark.
_UNMARKED = frozenset(("thinking", "redacted_thinking"))

Place = tuple[int, int]


def move_marks(body: Mapping[str, Any], messages: Sequence[Any]) -> dict[str, Any]:
    """Return the request with these messages and the client's marks moved; none are added where it set none."""
    marks = [*_find_marks(body.get("messages"))]
    if not marks:
        return {**body, "messages": list(messages)}
    taken = len(_find_top_marks(body.get("tools"))) + len(_find_top_marks(body.get("system")))
    plain = [drop_marks(message) for message in messages]
    places = choose_places(plain, _find_stable_end(body, messages), MARKS_MAX - taken)
    for place in places:
        plain[place[0]] = _set_mark(plain[place[0]], place[1], marks[-1])
    return {**body, "messages": plain}


def choose_places(messages: Sequence[Any], stable: int, free: int) -> list[Place]:
    """Return where marks go, as message and block: newest first in importance, ``free`` of them at most."""
    blocks = [
        (at, index)
        for at, message in enumerate(messages)
        for index, block in enumerate(_list_blocks(message))
        if _takes_mark(block)
    ]
    if not blocks or free <= 0:
        return []
    last = len(blocks) - 1
    wanted = [last]
    ends = [number for number, place in enumerate(blocks) if place[0] <= stable]
    if ends and ends[-1] != last:
        wanted.append(ends[-1])
    if last - (ends[-1] if ends else 0) > LOOKBACK_BLOCKS:
        wanted.append(last - LOOKBACK_BLOCKS)
    return sorted({blocks[number] for number in wanted[:free]})


def _find_stable_end(body: Mapping[str, Any], messages: Sequence[Any]) -> int:
    """Return the place of the last message that is not the client's own object: what a compression made."""
    given = {id(message) for message in body.get("messages", ())}
    return max((at for at, message in enumerate(messages) if id(message) not in given), default=-1)


def _list_blocks(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []


def _takes_mark(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") in _UNMARKED:
        return False
    return block.get("type") != "text" or bool(block.get("text"))


def _find_marks(messages: Any) -> list[Any]:
    return [
        block[MARK]
        for message in (messages if isinstance(messages, list) else ())
        for block in _list_blocks(message)
        if isinstance(block, dict) and isinstance(block.get(MARK), dict)
    ]


def _find_top_marks(blocks: Any) -> list[Any]:
    return [one for one in blocks if isinstance(one, dict) and one.get(MARK)] if isinstance(blocks, list) else []


def _set_mark(message: Any, index: int, mark: Any) -> Any:
    blocks = list(_list_blocks(message))
    blocks[index] = {**blocks[index], MARK: mark}
    return {**message, "content": blocks}
