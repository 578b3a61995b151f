"""The eight sections of a summary, in the language of the conversation, filled within a budget of tokens.

A piece is a few lines for one section with a rank. The best pieces are taken first, whatever their section, and
written in the order of the sections; an empty section has no heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from refold.conversation.language import Language

Count = Callable[[str], int]
Section = Literal["technical", "project", "code", "debugging", "status", "pending", "preferences", "decisions"]

HEADINGS: dict[Section, dict[Language, str]] = {
    "technical": {"en": "Technical Context", "zh": "技术背景"},
    "project": {"en": "Project Overview", "zh": "项目概述"},
    "code": {"en": "Code Changes", "zh": "代码改动"},
    "debugging": {"en": "Debugging & Issues", "zh": "调试与问题"},
    "status": {"en": "Current Status", "zh": "当前状态"},
    "pending": {"en": "Pending Tasks", "zh": "待办事项"},
    "preferences": {"en": "User Preferences", "zh": "用户偏好"},
    "decisions": {"en": "Key Decisions", "zh": "关键决定"},
}
_MISSES_MAX = 40
_BULLET = re.compile(r"\A(?:- |U> |A> )")


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines for one section. A lower ``rank`` is worth more; ``order`` places it within its section."""

    section: Section
    text: str
    rank: float
    order: float = 0.0


def choose_pieces(pieces: Iterable[Piece], tokens_max: int, count: Count, *, language: Language) -> list[Piece]:
    """Take the pieces worth most until the budget is full; a piece that does not fit leaves room for smaller ones."""
    chosen: list[Piece] = []
    opened: set[Section] = set()
    room, misses, written = tokens_max, 0, ""
    for piece in sorted(pieces, key=lambda one: (one.rank, one.section, one.order)):
        # What a piece worth more says already is not said twice.
        if _BULLET.sub("", piece.text, count=1) in written:
            continue
        heading = 0 if piece.section in opened else count(f"## {HEADINGS[piece.section][language]}\n")
        cost = count(f"{piece.text}\n") + heading
        if cost > room:
            misses += 1
            if misses > _MISSES_MAX:
                break
            continue
        room -= cost
        opened.add(piece.section)
        chosen.append(piece)
        written += f"{piece.text}\n"
    return chosen


def write_sections(pieces: Sequence[Piece], language: Language) -> str:
    """Write pieces under their headings, in the order of the sections."""
    blocks = []
    for section, names in HEADINGS.items():
        lines = [piece.text for piece in sorted(pieces, key=lambda one: one.order) if piece.section == section]
        if lines:
            blocks.append("\n".join((f"## {names[language]}", *lines)))
    return "\n".join(blocks)
