"""One section of a daily page: session, time, archived count, summary, facts (S0.8), in Chinese or English.

Pure. Text of a session stays text: it can open no heading above the fourth level, no front matter, no code fence or
HTML block that would swallow what comes after it, and it cannot move a reader's cursor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from refold.conversation.language import Language

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAK = re.compile("\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")
_HEADING = re.compile(r"^ {0,3}(#{1,6})(?=[ \t]|$)")
# Quotes and lists may hold all of it as well.
_MARKER = re.compile(r"(?:>|[-*+]|\d{1,9}[.)])[ \t]*")
_OPENER = re.compile(
    r"`{3}|~{3}|<[A-Za-z/!?]|#{1,6}(?:[ \t]|$)|=+[ \t]*$|(?:-[ \t]*)+$|(?:\*[ \t]*){3,}$|(?:_[ \t]*){3,}$"
)
_FACTS_MAX = 50
_FACT_CHARS_MAX = 500
SHOWN_ID_CHARS = 8

_WORDS: dict[Language, tuple[str, str, str, str, str]] = {
    "zh": ("会话 {} 上下文压缩归档", "时间", "归档消息数", "摘要", "关键事实"),
    "en": ("Session {} context archived", "Time", "Messages archived", "Summary", "Key facts"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """What a section says. ``time`` is local, in ISO form."""

    session_id: str
    time: str
    archived_count: int
    summary: str
    key_facts: Sequence[str] = ()
    language: Language = "zh"


def write_entry(entry: Entry) -> str:
    """Return the section as Markdown."""
    _, time, archived, summary, facts = _WORDS[entry.language]
    lines = [
        write_heading(entry.session_id, entry.language),
        "",
        f"**{time}**: {entry.time}",
        f"**{archived}**: {entry.archived_count}",
        "",
        f"### {summary}",
        quiet_text(entry.summary),
        "",
        f"### {facts}",
        *(_quiet_markup(f"- {fact}") for fact in map(quiet_line, entry.key_facts[:_FACTS_MAX]) if fact),
    ]
    return "\n".join(lines) + "\n"


def write_heading(session_id: str, language: Language) -> str:
    """Return the heading of a session's section."""
    shown = re.sub(r"([\\`*_\[\]<>#])", r"\\\1", quiet_line(session_id[:SHOWN_ID_CHARS]))
    return f"## {_WORDS[language][0].format(f'{shown}...')}"


def is_section_of(section: str, session_id: str, time: str) -> bool:
    """Tell whether a section of a page is the one that was written for this session at this time."""
    lines = section.split("\n", 3)
    return len(lines) > 2 and any(
        lines[0] == write_heading(session_id, language) and lines[2] == f"**{words[1]}**: {time}"
        for language, words in _WORDS.items()
    )


def quiet_text(text: str) -> str:
    """Return text of a session as Markdown that stays inside its section."""
    lines = [_quiet_markup(_CONTROL.sub("", line)) for line in _BREAK.split(text)]
    return "\n".join(lines).strip("\n")


def quiet_line(text: str) -> str:
    """Return text of a session as one line."""
    line = " ".join(_CONTROL.sub("", _BREAK.sub(" ", text[: _FACT_CHARS_MAX * 2])).split())
    return line if len(line) <= _FACT_CHARS_MAX else f"{line[: _FACT_CHARS_MAX - 1]}…"


def _quiet_markup(line: str) -> str:
    heading = _HEADING.match(line)
    if heading:
        level = max(4, min(6, len(heading[1]) + 2))
        return "#" * level + line[heading.end() :]
    start = len(line) - len(line.lstrip(" \t"))
    while not _OPENER.match(line, start):
        marker = _MARKER.match(line, start)
        if marker is None:
            return line
        start = marker.end()
    return f"{line[:start]}\\{line[start:]}"
