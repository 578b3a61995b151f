"""Which lines of a story are written, and under which headings, within a budget of tokens.

A note for a successor has its own headings, in the order in which one reads it; the eight of a published design are
another way to lay out the same lines. Lines are taken by what they are worth for what they cost; a line that says what
was said already is worth less, and so is the third line of one message. An empty section has no heading.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from refold.conversation.language import Language
from refold.stages.extract.story import Line, Topic

Count = Callable[[str], int]
Layout = Literal["note", "sections"]
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
NOTE_HEADINGS: dict[str, dict[Language, str]] = {
    "asked": {"en": "What the user wants", "zh": "用户的要求"},
    "happened": {"en": "What happened", "zh": "经过"},
    "found": {"en": "Findings and decisions", "zh": "发现与决定"},
    "failed": {"en": "What failed", "zh": "失败的尝试"},
    "open": {"en": "Open", "zh": "未完成"},
    "changed": {"en": "Files changed", "zh": "改动的文件"},
}
# Where each topic stands in the two layouts.
_PLACES: dict[Layout, dict[Topic, str]] = {
    "note": {
        "rule": "asked",
        "asked": "asked",
        "happened": "happened",
        "found": "found",
        "failed": "failed",
        "open": "open",
        "changed": "changed",
    },
    "sections": {
        "rule": "preferences",
        "asked": "project",
        "happened": "status",
        "found": "decisions",
        "failed": "debugging",
        "open": "pending",
        "changed": "code",
    },
}
# A line further down in the same message adds less than the first; a long line is paid for, but not in full.
SAME_MESSAGE = 0.8
COST_POWER = 0.75
COST_MIN = 10
# A line worth less than this for its cost is noise even where there is room.
PRICE_MIN = 0.02
NOVELTY_SHARE = 0.4
# A line of which less than this is new is not told at all; rules and open asks always count.
KNOWN_SHARE = 0.3
HEADING_TOKENS = 6
_MISSES_MAX = 60
_WORD = re.compile(r"[A-Za-z0-9_./-]{3,40}|[\u3400-\u9fff]{2}")


def headings_of(layout: Layout) -> Mapping[str, dict[Language, str]]:
    """Return the headings of a layout, in their order."""
    return NOTE_HEADINGS if layout == "note" else HEADINGS  # type: ignore[return-value]


def heading_of(topic: Topic, layout: Layout) -> Mapping[Language, str]:
    """Return the heading under which a topic stands."""
    return headings_of(layout)[_PLACES[layout][topic]]


def choose_lines(lines: Iterable[Line], tokens_max: int, count: Count, *, told: str = "") -> list[Line]:
    """Take the lines worth most for their cost until the budget is full; ``told`` is what the reader knows already."""
    counted = ((line, count(f"{line.written}\n")) for line in lines)
    waiting = [(-_price(line.worth, cost), at, line, cost) for at, (line, cost) in enumerate(counted)]
    heapq.heapify(waiting)
    known = set(_words(told))
    taken: Counter[float] = Counter()
    chosen: list[Line] = []
    room, misses = tokens_max, 0
    while waiting and misses <= _MISSES_MAX:
        before, at, line, cost = heapq.heappop(waiting)
        if -before < PRICE_MIN:
            break
        fresh = _fresh_share(line, known, taken)
        if not fresh:
            continue
        now = -_price(line.worth * fresh, cost)
        if now > before * 0.999 and waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, at, line, cost))
            continue
        if cost > room:
            misses += 1
            continue
        room -= cost
        chosen.append(line)
        known.update(_words(line.text))
        taken[int(line.at)] += bool(line.who)
    return chosen


def _price(worth: float, cost: int) -> float:
    return float(worth / max(COST_MIN, cost) ** COST_POWER)


def _fresh_share(line: Line, known: set[str], taken: Counter[float]) -> float:
    """Return how much of a line's worth is left beside what was chosen already."""
    words = _words(line.text)
    new = sum(word not in known for word in words) / len(words) if words else 1.0
    if new < KNOWN_SHARE and line.topic not in ("rule", "open"):
        # Steps are told again, cheaply: that a command was run once more matters.
        return 0.0 if line.who else 0.5
    again = SAME_MESSAGE ** taken[int(line.at)] if line.who else 1.0
    return (1 - NOVELTY_SHARE + NOVELTY_SHARE * new) * again


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def write_lines(lines: Sequence[Line], layout: Layout, language: Language) -> str:
    """Write lines under their headings in the order of the conversation; sentences of one message stand together."""
    blocks = []
    for section, names in headings_of(layout).items():
        mine = [line for line in lines if _PLACES[layout][line.topic] == section]
        if mine:
            mine.sort(key=lambda line: (line.topic != "rule", line.at))
            written = ["; ".join(line.text for line in mine)] if section == "changed" else _join_sentences(mine)
            blocks.append("\n".join((f"## {names[language]}", *written)))
    return "\n".join(blocks)


def _join_sentences(lines: Sequence[Line]) -> list[str]:
    written: list[str] = []
    last: Line | None = None
    for line in lines:
        is_same = last is not None and line.who and last.who == line.who and int(last.at) == int(line.at)
        if is_same and last is not None and last.topic == line.topic:
            gap = "" if line.after == last.text else " … "
            written[-1] = f"{written[-1]}{gap}{line.text}"
        else:
            written.append(line.written)
        last = line
    return written
