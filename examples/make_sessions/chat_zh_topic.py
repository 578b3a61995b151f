"""The shape of one topic in the Chinese chat: what is asked, which options there are, what is decided.

Only a shape; the words are in ``chat_zh_shell`` (walls, pipes, floors) and ``chat_zh_rooms`` (what goes into them).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One offer: its name, price, what speaks for it and what against."""

    name: str
    price: str
    good: str
    bad: str


@dataclass(frozen=True)
class Topic:
    """One subject of the renovation, in the order in which it is talked about."""

    name: str
    opens: str
    tips: tuple[str, ...]
    options: tuple[Option, ...]
    advice: str
    question: str
    answer: str
    decides: str
    noted: str
    lines: tuple[tuple[str, str, int], ...]
    facts: tuple[tuple[str, str, str], ...]
