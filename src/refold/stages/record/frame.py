"""The headings of a record, in the order of HEADINGS or of the third document, and the mark of a cut."""

from __future__ import annotations

from typing import Literal

from refold.conversation.reason import Language
from refold.stages.extract.layout import HEADINGS, Layout, Section, shorten_handle

Topic = Literal["wanted", "now", "found", "failed", "open", "happened"]

# A cut that removes less would hardly save what its mark costs.
CUT_CHARS_MIN = 40
INDEX_TITLES: dict[Language, str] = {"en": "Exact values", "zh": "精确值"}
NOTE_HEADINGS: dict[Topic, dict[Language, str]] = {
    "wanted": {"en": "What the user wants", "zh": "用户的要求"},
    "now": {"en": "Where things are now", "zh": "现状"},
    "found": {"en": "Findings and decisions", "zh": "发现与决定"},
    "failed": {"en": "What failed", "zh": "失败的尝试"},
    "open": {"en": "Open", "zh": "未完成"},
    "happened": {"en": "What happened", "zh": "经过"},
}
# The eight sections of the third document, and the topic that each of them holds.
_TOPICS: dict[Section, Topic] = {
    "project": "wanted",
    "code": "now",
    "debugging": "failed",
    "status": "happened",
    "pending": "open",
    "decisions": "found",
}
SECTIONS: dict[Section, tuple[dict[Language, str], Topic | None]] = {
    section: (names, _TOPICS.get(section)) for section, names in HEADINGS.items()
}


def order_topics(layout: Layout, language: Language) -> list[tuple[Topic, str]]:
    """Return each topic with its heading, in the order of a layout."""
    if layout == "note":
        return [(topic, names[language]) for topic, names in NOTE_HEADINGS.items()]
    return [(topic, names[language]) for names, topic in SECTIONS.values() if topic is not None]


def cut_text(text: str, chars_max: int, handle: str = "") -> str:
    """Return the head of a text, cut between words, with the number of characters left out and where they are."""
    if len(text) <= chars_max + CUT_CHARS_MIN:
        return text
    space = max(text.rfind(sign, chars_max // 2, chars_max + 1) for sign in " \n，。；、")
    head = text[: space if space > 0 else chars_max].rstrip(" \n:,;，、；：")
    where = f" {shorten_handle(handle)}" if handle else ""
    return f"{head} [+{len(text) - len(head)}{where}]"
