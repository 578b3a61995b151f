"""The frame of a record: its first and last line, its headings, and the mark of what is left out.

The opening and the closing line say that this is a record, that done work is done, that tools may be used, and by which
handle the originals come back. Text of the conversation can neither close nor open a frame: the brackets that make one,
and those of handles, are written as plain brackets wherever they are quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from refold.conversation.message import mark
from refold.conversation.reason import Language
from refold.patterns import lazy_regex
from refold.reading.sentences import find_ends

Layout = Literal["note", "sections"]
Topic = Literal["rule", "wanted", "now", "found", "failed", "open", "happened"]
Section = Literal["technical", "project", "code", "debugging", "status", "pending", "preferences", "decisions"]

OPENS, CLOSES = "⟦", "⟧"
# Digits of a handle in a record: as few as lookup still finds.
HANDLE_DIGITS = 6
_MARK = lazy_regex(r"⟨([^⟨⟩]{0,60})⟩")
# A cut that removes less would hardly save what its mark costs.
CUT_CHARS_MIN = 40
# Opens a line of an earlier record that nobody said: whoever writes it again must not quote it.
TOLD = "\u2060"
INDEX_TITLES: dict[Language, str] = {"en": "Exact values", "zh": "精确值"}
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


# The eight sections of the third document.
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
NOTE_HEADINGS: dict[Topic, dict[Language, str]] = {
    "wanted": {"en": "What the user wants", "zh": "用户的要求"},
    "now": {"en": "Where things are now", "zh": "现状"},
    "found": {"en": "Findings and decisions", "zh": "发现与决定"},
    "failed": {"en": "What failed", "zh": "失败的尝试"},
    "open": {"en": "Open", "zh": "未完成"},
    "happened": {"en": "What happened", "zh": "经过"},
}
_SECTIONS: dict[Topic, Section] = {
    "wanted": "project",
    "now": "code",
    "failed": "debugging",
    "happened": "status",
    "open": "pending",
    "rule": "preferences",
    "found": "decisions",
}


def heading_of(topic: Topic, layout: Layout) -> Mapping[Language, str]:
    """Return the heading of a topic."""
    if layout == "sections":
        return HEADINGS[_SECTIONS[topic]]
    return NOTE_HEADINGS["wanted" if topic == "rule" else topic]


def order_headings(layout: Layout, language: Language) -> list[str]:
    """Return the headings of a layout in their order."""
    return [names[language] for names in (HEADINGS if layout == "sections" else NOTE_HEADINGS).values()]


def shorten_handle(handle: str) -> str:
    """Return a handle as short as records write it: a prefix that lookup still finds."""
    head, dot, part = handle.partition(".")
    return f"{head[: 2 + HANDLE_DIGITS]}{dot}{part}"


def cut_text(text: str, chars_max: int, handle: str = "") -> str:
    """Return the head of a text, cut between words, with the number of characters left out and where they are."""
    if len(text) <= chars_max + CUT_CHARS_MIN:
        return text
    space = max(text.rfind(sign, chars_max // 2, chars_max + 1) for sign in " \n，。；、")
    head = text[: space if space > 0 else chars_max].rstrip(" \n:,;，、；：")
    where = f" {shorten_handle(handle)}" if handle else ""
    return f"{head} [+{len(text) - len(head)}{where}]"


def shorten_words(text: str, chars_max: int) -> str:
    """Return the whole sentences of a text that fit; of a first one that does not, the words that fit."""
    if len(text) <= chars_max:
        return text
    lines = (text.rfind("\n", 0, chars_max + 1), *find_ends(text, 0, min(len(text), chars_max + 1)))
    end = max((end for end in lines if 0 < end <= chars_max), default=0)
    space = text.rfind(" ", chars_max // 2, chars_max)
    return text[: end or (space if space > 0 else chars_max)].rstrip()
