"""The layout of a record: its frame, its headings, and which lines of a story are written within a budget of tokens.

The opening and the closing line say that this is a record, that done work is done, that tools may be used, and by which
handle the originals come back. Text of the conversation can neither close nor open a frame: the brackets that make one,
and those of handles, are written as plain brackets wherever they are quoted. Lines are taken by what they are worth for
what they cost; a line that says what was said already is worth less. An empty section has no heading.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from refold.conversation.message import mark
from refold.conversation.reason import Language
from refold.patterns import lazy_regex

Topic = Literal["rule", "asked", "happened", "found", "failed", "open", "changed"]


OPENS, CLOSES = "⟦", "⟧"
# A record of fewer tokens has no room for a story.
SMALL_TOKENS = 400
# The full frame takes about 75 tokens: a record of fewer than this many has one short line in its place.
FRAME_TOKENS_MIN = 700

# Digits of a handle in a record: as few as lookup still finds.
HANDLE_DIGITS = 6
_MARK = lazy_regex(r"⟨([^⟨⟩]{0,60})⟩")
# Marks of a cut, before its handle is known: characters for private use, which no text should have.
_CUT_OPENS, _CUT_CLOSES = "\ue0c1", "\ue0c2"
_CUT_TOKENS, CUT_CHARS_MIN = 9, 24
_CUT_LIST = lazy_regex(f" ?{_CUT_OPENS}×(\\d+){_CUT_CLOSES}")
_CUT = lazy_regex(f" ?{_CUT_OPENS}(\\d+){_CUT_CLOSES}")
_FULL = {
    "en": (
        "{count} earlier messages, folded into this record{turns}. Not a request: what is done is done, do not do it "
        "again; tools may be used as before. U> and A> quote user and assistant, [+n id] leaves n characters out. "
        "Originals: {handle}"
    ),
    "zh": (
        "较早的 {count} 条消息已折叠为本记录{turns}，不是请求：已完成的不要重做，工具照常可用。"
        "U>、A> 后为用户、助手原话，[+n 标识] 处省略 n 字。原文见 {handle}"
    ),
}
_SMALL = {
    "en": "record of {count} earlier messages, done work: {handle}",
    "zh": "较早 {count} 条消息的记录，已做的不重做：{handle}",
}
_END = {"en": "end of record", "zh": "记录结束"}

# The sentence after a summary that is placed among system messages, where a reader could take it for a rule.
CLOSING: dict[Language, str] = {
    "zh": "（以上为较早对话的摘要，回答时请与下面的对话一并考虑。）",
    "en": "(The above sums up the earlier conversation; read it together with what follows.)",
}

_MARKER = lazy_regex(r"\[[^\[\]\n]++\]")


def neutralise(text: str) -> str:
    """Return a text that can neither open nor close a frame nor pass for a handle; other text stays as it is."""
    if OPENS in text or CLOSES in text:
        text = text.replace(OPENS, "[[").replace(CLOSES, "]]")
    return _MARK.sub(r"<\1>", text) if "⟨" in text else text


def open_frame(
    *, count: int, turns: tuple[int, int], handle: str, language: Language = "en", is_small: bool = False
) -> str:
    """Return the opening line of a record."""
    wording = (_SMALL if is_small else _FULL)[language]
    return f"{OPENS}{wording.format(count=count, turns=_write_turns(turns, language), handle=mark(handle))}{CLOSES}"


def close_frame(*, language: Language = "en", is_small: bool = False) -> str:
    """Return the closing line of a record; a small one ends with its message."""
    return "" if is_small else f"{OPENS}{_END[language]}{CLOSES}"


def wrap_record(body: str, opening: str, closing: str) -> str:
    """Put a body between its lines; ``body`` must have been neutralised where it quotes."""
    return "\n".join(line for line in (opening, body, closing) if line)


def wrap_prefix(body: str, prefix: str, closing: str) -> str:
    """Put a body between a preset's own prefix, which quoted text cannot repeat, and the handle of its originals."""
    for marker in _MARKER.findall(prefix):
        body = body.replace(marker, f"({marker[1:-1]})")
    return f"{prefix}{body}\n{closing}" if prefix.endswith("\n") else f"{prefix}\n{body}\n{closing}"


def _write_turns(turns: tuple[int, int], language: Language) -> str:
    first, last = turns
    if not last:
        return ""
    if language == "zh":
        return f"（第 {first} 轮）" if first == last else f"（第 {first}–{last} 轮）"
    return f" (turn {first})" if first == last else f" (turns {first}–{last})"


# The place of a line that comes before all others.
BEFORE_ALL = -1.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story. ``at`` places it in the conversation; lines of one message and topic are joined.

    ``who`` is ``U``, ``A`` or empty for what was done; ``worth`` is what a reader would miss without it.
    """

    topic: Topic
    text: str
    worth: float
    at: float
    who: str = ""
    # The text right before it in its message and the text between them: if both are shown, no gap is marked.
    after: str = ""
    glue: str = ""
    # The handle of the message that it quotes.
    handle: str = ""

    @property
    def written(self) -> str:
        """The line as it is written in a record."""
        return f"{self.who}> {self.text}" if self.who else self.text


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
# The section of each topic in the two layouts.
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
# A line of which less than this is new is left out; rules and open asks always count.
KNOWN_SHARE = 0.3
# After so many lines that differ in their figures alone another one is worth half of the first, in the end this share.
SHAPES_FEW, SHAPE_SHARE_MIN = 4, 0.3
# A message's lead has so many characters, more where there is room.
LEAD_CHARS_MIN, LEAD_CHARS_MAX = 80, 400
# A line worth less ("This looks correct.") is no lead.
LEAD_WORTH_MIN = 0.5
HEADING_TOKENS = 6
_MISSES_MAX = 60
# Signs after which a sentence goes on.
_PAUSES = "，、；,;"
# A shorter quotation may be a name.
QUOTED_CHARS_MIN = 40
_QUOTE = lazy_regex('["“”「」]')
_HAN = lazy_regex(r"[\u3400-\u9fff]")
_FIGURES = lazy_regex(r"\bm:[0-9a-f]{6}(?:\.\d{1,4})?|\d+")
_WORD = lazy_regex(r"[A-Za-z0-9_./-]{3,40}|\d{1,2}|[\u3400-\u9fff]{2}")


def headings_of(layout: Layout) -> Mapping[str, dict[Language, str]]:
    """Return the headings of a layout, in their order."""
    return NOTE_HEADINGS if layout == "note" else HEADINGS  # type: ignore[return-value]


def heading_of(topic: Topic, layout: Layout) -> Mapping[Language, str]:
    """Return the heading of a topic."""
    return headings_of(layout)[_PLACES[layout][topic]]


def choose_leads(lines: Sequence[Line], tokens_max: int, count: Count) -> tuple[list[Line], list[Line]]:
    """Return the lead of each of the assistant's messages, as long as fits for all, and the lines that are left.

    A reader who takes over wants a word about every step before a second one about any. Where not even short leads
    fit, the messages that tell most have theirs.
    """
    messages: dict[int, list[Line]] = {}
    told: set[str] = set()
    # Newest first: of a sentence that was said again and again, and of messages that tell as much, the newest counts.
    for line in sorted(lines, key=lambda line: -line.at):
        is_lead = line.who == "A" and line.topic != "open" and line.worth >= LEAD_WORTH_MIN
        if is_lead and line.text not in told:
            messages.setdefault(int(line.at), []).insert(0, line)
            told.add(line.text)
    costs = {id(line): count(f"{line.written}\n") for own in messages.values() for line in own}
    by_worth = sorted(messages.values(), key=lambda own: -max(line.worth for line in own))
    low, high = LEAD_CHARS_MIN, LEAD_CHARS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        taken = [pair for own in by_worth for pair in _take_lead(own, middle)]
        cost = sum(costs[id(line)] * share + (share < 1) * _CUT_TOKENS for line, share in taken)
        low, high = (middle, high) if cost <= tokens_max else (low, middle - 1)
    leads: list[Line] = []
    used: set[int] = set()
    room = tokens_max
    for line, share in (pair for own in by_worth for pair in _take_lead(own, low)):
        cut = line.text if share == 1 else cut_line(line.text, int(len(line.text) * share))
        short = replace(line, text=note_cuts(cut, line.handle))
        room -= costs[id(line)] if share == 1 else count(f"{short.written}\n")
        if room < 0:
            break
        leads.append(short)
        used.add(id(line))
    return leads, [line for line in lines if id(line) not in used]


def _take_lead(lines: Sequence[Line], chars: int) -> list[tuple[Line, float]]:
    """Return the first lines of a message that fit, each with the share of it that does."""
    taken: list[tuple[Line, float]] = []
    for line in lines:
        width = _width(line.text)
        if width <= chars:
            taken.append((line, 1.0))
        elif chars >= LEAD_CHARS_MIN:
            taken.append((line, min(chars, max(LEAD_CHARS_MIN // 2, width - 2 * CUT_CHARS_MIN)) / width))
        chars -= width
        if chars < LEAD_CHARS_MIN:
            break
    return taken


def _width(text: str) -> int:
    """Return the length of a text; a Chinese character says as much as two others."""
    return len(text) if text.isascii() else len(text) + len(_HAN.findall(text))


def cut_line(line: str, most: int) -> str:
    """Cut a line between words, so that no half of a path or an address looks like a whole one.

    The cut is marked with the number of characters that are left out; ``note_cuts`` adds the handle.
    """
    space = line.rfind(" ", most // 3, most + 1)
    if space < 0 and not line.isascii():
        space = max(line.rfind(pause, most // 3, most + 1) for pause in _PAUSES)
    kept = line[:space].rstrip(f" :{_PAUSES}") if space > 0 else line[:most]
    left = len(line) - len(kept)
    # The mark of a cut takes as much room as a few words.
    return f"{kept}{mark_cut(left)}" if left > CUT_CHARS_MIN else line


def mark_cut(chars: int) -> str:
    """Return the mark for so many characters that are left out, until ``note_cuts`` writes it."""
    return f"{_CUT_OPENS}{chars}{_CUT_CLOSES}"


def mark_list(entries: int) -> str:
    """Return the mark for a list of so many entries that is left out, until ``note_cuts`` writes it."""
    return f"{_CUT_OPENS}×{entries}{_CUT_CLOSES}"


def note_cuts(text: str, handle: str) -> str:
    """Write the marks of cuts in a text as ``[+41 m:1790d2]``: 41 characters more are behind the handle.

    A list that is left out is written as ``[14 × m:1790d2]``.
    """
    if _CUT_OPENS not in text:
        return text
    text = _CUT_LIST.sub(rf" [\1 × {shorten_handle(handle)}]", text)
    return _CUT.sub(rf" [+\1 {shorten_handle(handle)}]", text)


def is_cut_only(text: str) -> bool:
    """Return whether a text shows nothing but that something was left out."""
    return not _CUT.sub("", text).strip(", ")


def leave_seen(lines: Sequence[Line], seen: str) -> list[Line]:
    """Leave out words that another record or a message in view has, or that mostly quote one."""
    view = SeenText(seen)
    return [line for line in lines if not line.who or line.topic == "open" or not repeats(line.text, view)]


class SeenText:
    """What is in view, on one line, with its words."""

    def __init__(self, seen: str) -> None:
        # Issue trackers put spaces of no width into names.
        words = seen.replace("\u200b", "").split()
        self._flat = " ".join(words)
        self._words = frozenset(words)

    def __contains__(self, text: str) -> bool:
        # Most texts have a word that the view has not: looking that up is faster than searching the whole view.
        return self._words.issuperset(text.split()[1:-1]) and text in self._flat


def repeats(text: str, view: SeenText) -> bool:
    """Return whether a text is in view, or a long quotation from it in other words: ``The task says: "…"``."""
    if text in view:
        return True
    quoted = max(_QUOTE.split(text), key=len).strip(" .…")
    is_long = len(quoted) >= QUOTED_CHARS_MIN and 2 * len(quoted) > len(text)
    return is_long and quoted != text and quoted in view


def choose_lines(
    lines: Iterable[Line], tokens_max: int, count: Count, *, told: str = "", begun: Sequence[Line] = ()
) -> list[Line]:
    """Take the lines worth most for their cost until the budget is full.

    ``told`` is what the reader knows already; further lines of the messages of ``begun`` add less than a first one.
    """
    counted = ((line, count(f"{line.written}\n")) for line in lines)
    # Of messages that are worth as much the newest comes first.
    waiting = [(-_price(line.worth, cost), -int(line.at), at, line, cost) for at, (line, cost) in enumerate(counted)]
    heapq.heapify(waiting)
    known = set(_words(told))
    taken: Counter[float] = Counter(int(line.at) for line in begun)
    shapes: Counter[str] = Counter()
    chosen: list[Line] = []
    room, misses = tokens_max, 0
    while waiting and misses <= _MISSES_MAX:
        before, age, at, line, cost = heapq.heappop(waiting)
        if -before < PRICE_MIN:
            break
        fresh = _fresh_share(line, known, taken)
        if not fresh:
            continue
        price = _price(line.worth * fresh, cost)
        # Other lines come before the tenth that differs in its figures alone; it is left out only if there is no room.
        again = max(SHAPE_SHARE_MIN, 1 / (1 + shapes[_shape(line.text)] / SHAPES_FEW))
        now = -min(price, max(PRICE_MIN, price * again))
        if now > before * 0.999 and waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, age, at, line, cost))
            continue
        if cost > room:
            misses += 1
            continue
        room -= cost
        chosen.append(line)
        known.update(_words(line.text))
        taken[int(line.at)] += bool(line.who)
        shapes[_shape(line.text)] += 1
    return chosen


def _price(worth: float, cost: int) -> float:
    return float(worth / max(COST_MIN, cost) ** COST_POWER)


def _fresh_share(line: Line, known: set[str], taken: Counter[float]) -> float:
    """Return how much of a line's worth is left beside what was chosen already."""
    words = _words(line.text)
    new = sum(word not in known for word in words) / len(words) if words else 1.0
    if new < KNOWN_SHARE and line.topic not in ("rule", "open", "changed"):
        # A repeated step keeps half of its worth: that a command was run once more matters. So does a sentence that
        # states the same of another thing, such as the port of the next service.
        has_figure = any(word not in known and any(map(str.isdigit, word)) for word in words)
        return 0.5 if not line.who or has_figure else 0.0
    again = SAME_MESSAGE ** taken[int(line.at)] if line.who else 1.0
    return (1 - NOVELTY_SHARE + NOVELTY_SHARE * new) * again


def _shape(text: str) -> str:
    """Return a text without its figures and handles, which is what repeated steps have in common."""
    return _FIGURES.sub("#", text)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def write_lines(lines: Sequence[Line], layout: Layout, language: Language) -> str:
    """Write lines under their headings in the order of the conversation; sentences in a row share a line."""
    blocks = []
    for section, names in headings_of(layout).items():
        mine = [line for line in lines if _PLACES[layout][line.topic] == section]
        if mine:
            mine.sort(key=lambda line: (line.topic != "rule" and line.at > BEFORE_ALL, line.at))
            written = _join_files(mine) if mine[0].topic == "changed" else _join_sentences(mine)
            blocks.append("\n".join((f"## {names[language]}", *written)))
    return "\n".join(blocks)


def _join_files(lines: Sequence[Line]) -> list[str]:
    """Write what happened to files once, before the files to which it happened."""
    files: dict[str, list[str]] = {}
    for line in lines:
        verb, _, name = line.text.partition(": ")
        files.setdefault(verb, []).append(name)
    return [f"{verb}: {', '.join(names)}" for verb, names in files.items()]


def _join_sentences(lines: Sequence[Line]) -> list[str]:
    written: list[str] = []
    last: Line | None = None
    for line in lines:
        is_same = last is not None and line.who and last.who == line.who and int(last.at) == int(line.at)
        if is_same and last is not None and last.topic == line.topic and line.after == last.text:
            written[-1] = f"{written[-1]}{line.glue}{line.text}"
        else:
            written.append(line.written)
        last = line
    # A clause of a longer sentence is quoted without the comma that ends it.
    return [line.rstrip(_PAUSES) if line[1:3] == "> " else line for line in written]


def shorten_handle(handle: str) -> str:
    """Return a handle as short as the index writes it: a prefix that lookup still finds."""
    head, dot, part = handle.partition(".")
    return f"{head[: 2 + HANDLE_DIGITS]}{dot}{part}"
