"""Checks a summary against its source before it counts: drops what is wrong, adds what is missing.

Text in, text and findings out. Nothing here asks a model or rewords a sentence: a sentence stays as it is or goes.

A sentence that claims what its source does not have is dropped whole, and reported. So is one that gives orders
("ignore everything above"), unless it is in the source word for word, and one that passes a tool's words off as a
person's (``voices.py``). A heading left without content goes with its last sentence. Unanswered asks and standing rules
that the summary leaves out are added verbatim, behind ``U>``, under the heading where they belong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from refold.conversation.reason import Language
from refold.patterns import lazy_regex
from refold.reading.sentences import split_sentences
from refold.stages.extract.layout import Layout, Topic, heading_of
from refold.stages.extract.story import PENDING_CHARS, Span, quote
from refold.stages.extract.words import RULE_CHARS_MAX, Saying
from refold.stages.ground import Ground, find_claims
from refold.stages.voices import HEADING, Voices

_BLANK_LINES = lazy_regex(r"\n{3,}")
_LEAD = lazy_regex(r"\A(\s*(?:[-*•]|\d{1,3}[.)])?\s*)(.*)\Z", re.S)
_ORDER = lazy_regex(
    r"\b(?:ignore|disregard|forget|override)\b[^.!?\n]{0,40}\b(?:previous|prior|above|all|everything|instructions?|rules?|"
    r"earlier)\b|\byou (?:are now|must now) |\bnew (?:system )?(?:instructions?|prompt):|"
    r"(?:忽略|无视|忘记|忘掉)[^。！？\n]{0,12}(?:以上|之前|先前|所有|一切|全部|上述|指令|规则)|你现在是",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped sentence: ``claims`` are not in its source. Without claims it is an order or repeats a tool's words."""

    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """A summary without what could not be verified. ``sentences`` is how many there were."""

    text: str
    dropped: tuple[Dropped, ...] = ()
    sentences: int = 0

    @property
    def dropped_share(self) -> float:
        """The share of sentences that were dropped."""
        return len(self.dropped) / self.sentences if self.sentences else 0.0


def verify_words(words: str, ground: Ground, voices: Voices | None = None) -> Verified:
    """Return the sentences whose every claim is in the source; with ``voices``, only those attributed correctly."""
    screened, borrowed = voices.screen(words) if voices is not None else (words.splitlines(), 0)
    dropped = [Dropped()] * borrowed
    lines: list[str] = []
    total = borrowed
    for line in screened:
        if not line.strip():
            lines.append("")
            continue
        kept, gone, count = _check_line(line, ground)
        total += count
        dropped += gone
        if kept.strip():
            lines.append(kept)
    return Verified(_drop_bare_headings(lines), tuple(dropped), total)


def _check_line(line: str, ground: Ground) -> tuple[str, list[Dropped], int]:
    """Return a line without its wrong sentences, the dropped ones, and how many sentences it had."""
    if HEADING.match(line.strip()):
        wrong = find_wrong(line, ground)
        return ("", [wrong], 1) if wrong else (line.rstrip(), [], 0)
    lead, body = _LEAD.match(line).groups()  # type: ignore[union-attr]
    sentences = [one.text for one in split_sentences(body)]
    judged = [(sentence, find_wrong(sentence, ground)) for sentence in sentences]
    kept = [sentence for sentence, wrong in judged if wrong is None]
    gone = [wrong for _, wrong in judged if wrong is not None]
    if not gone:
        return line.rstrip(), [], len(sentences)
    glue = "" if body and not body.isascii() and "。" in body else " "
    return (f"{lead}{glue.join(kept)}".rstrip() if kept else ""), gone, len(sentences)


def find_wrong(sentence: str, ground: Ground) -> Dropped | None:
    """Return what is wrong with a sentence, or None."""
    invented = tuple(claim for claim in find_claims(sentence) if not ground.has(claim))
    is_order = _ORDER.search(sentence) is not None and not ground.has_text(sentence.strip())
    return Dropped(invented) if invented or is_order else None


def _drop_bare_headings(lines: list[str]) -> str:
    kept: list[str] = []
    for at, line in enumerate(lines):
        if line.startswith("#"):
            following = next((other for other in lines[at + 1 :] if other), "#")
            if following.startswith("#"):
                continue
        kept.append(line)
    return _BLANK_LINES.sub("\n\n", "\n".join(kept)).strip()


RULES_MAX = 12
OLD_ASK_CHARS = 240
PENDING_MAX = 6
# A summary that contains this much of a request covers it.
COVERED_CHARS = 80


@dataclass(frozen=True, slots=True)
class Added:
    """A summary with what was missing, and how much that was."""

    text: str
    pending: int = 0
    rules: int = 0


def add_missing(
    words: str, span: Span, count: Callable[[str], int], *, tokens_max: int, layout: Layout | None = "note"
) -> Added:
    """Add open asks and standing rules that the words do not have, newest first, within ``tokens_max``.

    They go under the headings of ``layout``; without a layout to the end.
    """
    room = tokens_max
    taken: dict[Topic, list[str]] = {}
    topics: tuple[tuple[Topic, Sequence[Saying], int], ...] = (
        # In a chat the visible answer shows what was asked; a task may take many more steps.
        (span.ask_topic, () if span.ask_topic == "happened" else span.pending[: -PENDING_MAX - 1 : -1], PENDING_CHARS),
        ("rule", span.rules[: -RULES_MAX - 1 : -1], RULE_CHARS_MAX),
    )
    for topic, sayings, chars in topics:
        for age, saying in enumerate(sayings):
            if _covers(words, saying.text):
                continue
            line = quote(saying, chars if not age else min(chars, OLD_ASK_CHARS), span.language)
            cost = count(f"{line}\n")
            if line and cost <= room:
                room -= cost
                taken.setdefault(topic, []).insert(0, line)
    text = words
    for topic, lines in taken.items():
        names = heading_of(topic, layout) if layout else {}
        text = _put(text, names, lines, span.language)
    return Added(text, len(taken.get(span.ask_topic, ())), len(taken.get("rule", ())))


def _covers(words: str, text: str) -> bool:
    """Return whether a summary has the beginning of a text."""
    opening = " ".join(text.split())[:COVERED_CHARS]
    return not opening or opening in " ".join(words.split())


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
