"""What a summary must not leave out, added by rule: asks that nobody has begun to answer, and standing rules.

What is added is verbatim, behind ``U>``, under the heading where it belongs. Exact values are not added here: the
artifact index follows the words and leaves out what they say already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from refold.conversation.language import Language
from refold.stages.extract.sections import Layout, heading_of
from refold.stages.extract.story import PENDING_CHARS, Span, Topic, quote
from refold.stages.extract.words import RULE_CHARS_MAX, Saying

RULES_MAX = 12
OLD_ASK_CHARS = 240
PENDING_MAX = 6
# So much of an ask must be in the summary for it to count as told.
TOLD_CHARS = 80


@dataclass(frozen=True, slots=True)
class Added:
    """A summary with what was missing, and how much that was."""

    text: str
    pending: int = 0
    rules: int = 0


def add_missing(
    words: str,
    span: Span,
    count: Callable[[str], int],
    *,
    tokens_max: int,
    with_headings: bool = True,
    layout: Layout = "note",
) -> Added:
    """Add open asks and standing rules that the words do not have, newest first, within ``tokens_max``."""
    room = tokens_max
    taken: dict[Topic, list[str]] = {}
    topics: tuple[tuple[Topic, list[Saying], int], ...] = (
        ("open", _pick(span.pending, PENDING_MAX), PENDING_CHARS),
        ("rule", _pick(span.rules, RULES_MAX), RULE_CHARS_MAX),
    )
    for topic, sayings, chars in topics:
        for age, saying in enumerate(sayings):
            if is_told(words, saying.text):
                continue
            line = quote(saying, chars if not age else min(chars, OLD_ASK_CHARS), span.language)
            cost = count(f"{line}\n")
            if line and cost <= room:
                room -= cost
                taken.setdefault(topic, []).insert(0, line)
    text = words
    for topic, lines in taken.items():
        names = heading_of(topic, layout) if with_headings else {}
        text = _put(text, names, lines, span.language)
    return Added(text, len(taken.get("open", ())), len(taken.get("rule", ())))


def is_told(words: str, text: str) -> bool:
    """Tell whether a summary has the beginning of a text."""
    opening = " ".join(text.split())[:TOLD_CHARS]
    return not opening or opening in " ".join(words.split())


def _pick(sayings: Sequence[Saying], most: int) -> list[Saying]:
    return list(reversed(sayings))[:most]


def _put(words: str, names: Mapping[Language, str], lines: Sequence[str], language: Language) -> str:
    """Put lines at the end of the section with one of these names; one that is not there is opened at the end."""
    added = "\n".join(lines)
    if not names:
        return f"{words}\n{added}".strip()
    known = {name.casefold() for name in names.values()}
    rows = words.splitlines()
    start = next((at for at, row in enumerate(rows) if row.strip().strip("#*:： ").casefold() in known), None)
    if start is None:
        return f"{words}\n## {names[language]}\n{added}".strip()
    stop = next((at for at in range(start + 1, len(rows)) if rows[at].startswith("#")), len(rows))
    while stop > start + 1 and not rows[stop - 1].strip():
        stop -= 1
    return "\n".join([*rows[:stop], added, *rows[stop:]])
