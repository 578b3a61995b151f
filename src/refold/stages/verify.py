"""Checks a summary against its source before it counts: drops what is wrong, adds what is missing.

Text in, text and findings out. Nothing here asks a model or rewords a sentence: a sentence stays as it is or goes.

A sentence that claims what its source does not have is dropped whole, and reported. So is one that gives orders
("ignore everything above"), unless it is in the source word for word, and one that passes a tool's words off as a wish,
a rule or a decision. A heading left without content goes with its last sentence. Unanswered asks and standing rules
that the summary leaves out are added verbatim, behind ``U>``, under the heading where they belong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refold.conversation import because
from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Language, Reason
from refold.patterns import lazy_regex
from refold.stages.extract.layout import HEADINGS, NOTE_HEADINGS, Layout, Topic, heading_of
from refold.stages.extract.story import PENDING_CHARS, Span, quote
from refold.stages.extract.words import RULE_CHARS_MAX, Saying
from refold.stages.ground import Ground, find_claims, split_words

_BORDER = lazy_regex(r"(?<=[.!?;])[ \t]+|(?<=[。！？；])")
_HEADING = lazy_regex(r"#{1,6}\s|\*\*[^*]{1,60}\*\*:?\s*\Z")
_LEAD = lazy_regex(r"\A(\s*(?:[-*•]|\d{1,3}[.)])?\s*)(.*)\Z", re.S)
_ORDER = lazy_regex(
    r"\b(?:ignore|disregard|forget|override)\b[^.!?\n]{0,40}\b(?:previous|prior|above|all|everything|instructions?|rules?|"
    r"earlier)\b|\byou (?:are now|must now) |\bnew (?:system )?(?:instructions?|prompt):|"
    r"(?:忽略|无视|忘记|忘掉)[^。！？\n]{0,12}(?:以上|之前|先前|所有|一切|全部|上述|指令|规则)|你现在是",
    re.I,
)
SHOWN_CHARS_MAX = 160
# This many equal words in a row are no coincidence.
RUN_WORDS, RUN_CHARS, RUNS_MAX = 5, 9, 400
# In a sentence that names a person as its source, fewer Chinese characters are enough.
RUN_CHARS_ATTRIBUTED = 6
# These sections hold what people want and what was decided: nothing there may come from a tool.
_WISHES = frozenset(
    name.casefold()
    for heading in (
        *(HEADINGS[section] for section in ("pending", "preferences", "decisions")),
        *(NOTE_HEADINGS[section] for section in ("asked", "found", "open")),
    )
    for name in heading.values()
)
# In other sections it is dropped if it sounds like a rule, a wish or a decision.
_RULES = lazy_regex(
    r"\b(?:always|never|must|from now on|decided|agreed|approved|the user (?:wants|asked|asks|said|prefers)|"
    r"do not|don't)\b|"
    r"必须|一律|以后|永远|决定|同意|用户(?:要求|希望|说)|不要|禁止",
    re.I,
)
# A sentence that says whose wish, rule or decision it is: a name or a number that only a tool returned is not theirs.
_ATTRIBUTED = lazy_regex(
    r"\busers? (?:wants?|ask(?:ed|s)|said|says|prefers?|requires?|requested|decided|agreed|instructed)\b|"
    r"\bas (?:requested|instructed|agreed|decided)\b|\bwe (?:decided|agreed)\b|"
    r"\b(?:rules?|decisions?|instructions?|orders?|policy):|"
    r"用户(?:要求|希望|说|决定|同意|想)|(?:规则|决定|要求|约定)[：:]|按照?(?:用户|要求)",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped sentence, and what was wrong with it: claims that its source does not have, or ``order``."""

    sentence: str
    claims: tuple[str, ...] = ()
    is_borrowed: bool = False

    @property
    def why(self) -> str:
        """Return what was wrong, in a few words."""
        if self.is_borrowed:
            return "words of a tool, not of a person"
        return f"not in the source: {', '.join(self.claims[:3])}" if self.claims else "an instruction, not a record"


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


@dataclass(frozen=True, slots=True)
class Voices:
    """The source split by speaker: a quote counts only for its own speaker, and tools make no decisions."""

    user: Ground
    assistant: Ground
    tool: Ground

    @classmethod
    def of_messages(cls, messages: Sequence[Message], asked: str = "") -> Voices:
        """Return the voices of these messages; ``asked`` is what the user said before them."""
        user = Ground.of_voice(messages, "user", (asked,))
        return cls(user, Ground.of_voice(messages, "assistant"), Ground.of_voice(messages, "tool"))

    def is_quote(self, who: str, text: str) -> bool:
        """Tell whether the named speaker (``U`` or ``A``) said this."""
        return (self.user if who == "U" else self.assistant).has_text(text)

    def is_borrowed(self, sentence: str) -> bool:
        """Tell whether a sentence repeats a run of words that only a tool ever returned.

        If it names a person as its source, one name or number that only a tool returned is enough.
        """
        is_attributed = _ATTRIBUTED.search(sentence) is not None
        if is_attributed and any(self._is_of_tool(Ground.has, claim) for claim in find_claims(sentence)):
            return True
        words = split_words(sentence)
        chars = RUN_CHARS_ATTRIBUTED if is_attributed else RUN_CHARS
        size = chars if words and not words[0].isascii() else RUN_WORDS
        runs = (words[at : at + size] for at in range(min(len(words) - size + 1, RUNS_MAX)))
        return any(self._is_of_tool(Ground.has_run, run) for run in runs)

    def _is_of_tool(self, has: Callable[[Ground, Any], bool], piece: Any) -> bool:
        return has(self.tool, piece) and not has(self.user, piece) and not has(self.assistant, piece)


def verify_words(words: str, ground: Ground, voices: Voices | None = None) -> Verified:
    """Return the sentences whose every claim is in the source; with ``voices``, only those attributed correctly."""
    lines: list[str] = []
    dropped: list[Dropped] = []
    total = 0
    is_wish = False
    for line in words.splitlines():
        if not line.strip():
            lines.append("")
            continue
        if _HEADING.match(line.strip()):
            is_wish = line.strip().strip("#*:： ").casefold() in _WISHES
        is_claimed = is_wish or _RULES.search(line) or _ATTRIBUTED.search(line)
        if voices is not None and is_claimed and voices.is_borrowed(line):
            dropped.append(Dropped(line.strip()[:SHOWN_CHARS_MAX], is_borrowed=True))
            total += 1
            continue
        kept, gone, count = _check_line(line, ground)
        total += count
        dropped += gone
        if kept.strip():
            lines.append(kept)
    return Verified(_drop_bare_headings(lines), tuple(dropped), total)


def _check_line(line: str, ground: Ground) -> tuple[str, list[Dropped], int]:
    """Return a line without its wrong sentences, the dropped ones, and how many sentences it had."""
    if _HEADING.match(line.strip()):
        wrong = find_wrong(line, ground)
        return ("", [wrong], 1) if wrong else (line.rstrip(), [], 0)
    lead, body = _LEAD.match(line).groups()  # type: ignore[union-attr]
    sentences = [piece for piece in _BORDER.split(body) if piece.strip()]
    kept: list[str] = []
    gone: list[Dropped] = []
    for sentence in sentences:
        wrong = find_wrong(sentence, ground)
        if wrong is None:
            kept.append(sentence)
        else:
            gone.append(wrong)
    if not gone:
        return line.rstrip(), [], len(sentences)
    glue = "" if body and not body.isascii() and "。" in body else " "
    return (f"{lead}{glue.join(kept)}".rstrip() if kept else ""), gone, len(sentences)


def find_wrong(sentence: str, ground: Ground) -> Dropped | None:
    """Return what is wrong with a sentence, or None."""
    invented = tuple(claim for claim in find_claims(sentence) if not ground.has(claim))
    if invented:
        return Dropped(sentence.strip()[:SHOWN_CHARS_MAX], invented)
    if _ORDER.search(sentence) and not ground.has_text(sentence.strip()):
        return Dropped(sentence.strip()[:SHOWN_CHARS_MAX])
    return None


def _drop_bare_headings(lines: list[str]) -> str:
    kept: list[str] = []
    for at, line in enumerate(lines):
        if line.startswith("#"):
            following = next((other for other in lines[at + 1 :] if other), "#")
            if following.startswith("#"):
                continue
        kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


RULES_MAX = 12
OLD_ASK_CHARS = 240
PENDING_MAX = 6
# The summary must contain this much of a request to cover it.
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
        # In a chat the visible answer shows what was asked; a task may take many more steps.
        (span.ask_topic, [] if span.ask_topic == "happened" else _pick(span.pending, PENDING_MAX), PENDING_CHARS),
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
    return Added(text, len(taken.get(span.ask_topic, ())), len(taken.get("rule", ())))


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


# A text longer than this share of what it replaces is not a summary.
SIZE_SHARE_MAX = 0.7
HEADINGS_MIN = 2
ECHO_CHARS = 60
COPIED_CHARS = 400
# A refusal is short, or opens the answer; a summary may well mention one that happened.
REFUSAL_CHARS_MAX = 600

_REASONS = {
    "length": because.ANSWER_CUT_OFF(),
    "tool_calls": because.ANSWER_CALLS(),
    "refusal": because.ANSWER_REFUSES(),
    "content_filter": because.ANSWER_FILTERED(),
    "error": because.NO_ANSWER(),
}
_REFUSAL = lazy_regex(
    r"\A\W{0,4}(?:(?:I['’]?m|I am) (?:(?:very |really |so )?sorry|unable|not able)|(?:sorry|apologies|unfortunately),? "
    r"(?:but )?(?:I|as)\b|I (?:can(?:no|['’])t|could not|won['’]t|will not|must decline|do not feel)|as an AI\b|"
    r"很?抱歉|对不起|我(?:无法|不能|没有办法)|作为(?:一个|一名)?(?:AI|人工智能)|不好意思)",
    re.I,
)
_CALL = lazy_regex(
    r"\A\s*(?:```(?:json|xml)?\s*)?(?:<\|?(?:tool_call|function_call|tool_use|invoke|function=|antml)|"
    r"\[TOOL_CALLS?\]|\{\s*\"(?:name|tool|function|tool_name|tool_calls|action)\"\s*:)",
    re.I,
)
_PAGE = lazy_regex(r"\A\s*(?:<!doctype|<html|<\?xml|<head|<body)", re.I)
_DATA = lazy_regex(r"\A\s*(?:```(?:json)?\s*)?[\[{]\s*(?:[\"'{\[]|\Z)")
_WORD = lazy_regex(r"\w{2}|[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer and the requirements for it. It must use some of ``headings``."""

    text: str
    finish_reason: str = "stop"
    prompt: str = ""
    demands: str = ""
    tokens: int = 0
    source_tokens: int = 0
    headings: Sequence[str] = ()


def find_rejection(answer: Answer) -> Reason:
    """Return why an answer cannot be a summary; no reason if it can."""
    told = _REASONS.get(answer.finish_reason, NO_REASON)
    if told:
        return told
    text = answer.text.strip()
    if not _WORD.search(text):
        return because.ANSWER_EMPTY()
    if _CALL.match(text):
        return because.ANSWER_CALLS()
    if _PAGE.match(text):
        return because.ANSWER_IS_PAGE()
    if _REFUSAL.match(text) and len(text) <= REFUSAL_CHARS_MAX:
        return because.ANSWER_REFUSES()
    if is_echo(text, answer.prompt, answer.demands):
        return because.ANSWER_ECHOES()
    if answer.source_tokens and answer.tokens > answer.source_tokens * SIZE_SHARE_MAX:
        return because.ANSWER_LONG(tokens=answer.tokens, source=answer.source_tokens)
    if answer.headings and _count_headings(text, answer.headings) < min(HEADINGS_MIN, len(answer.headings)):
        return because.ANSWER_BARE()
    if _DATA.match(text):
        return because.ANSWER_IS_DATA()
    return NO_REASON


def is_echo(text: str, prompt: str, demands: str) -> bool:
    """Tell whether an answer is the question again, or a long piece of it."""
    opening = " ".join(demands.split())[:ECHO_CHARS]
    if len(opening) >= ECHO_CHARS // 2 and opening in " ".join(text[:20_000].split()):
        return True
    return len(text) >= COPIED_CHARS and bool(prompt) and text in prompt


def _count_headings(text: str, headings: Sequence[str]) -> int:
    lines = {line.strip().strip("#*:： ").casefold() for line in text.splitlines() if len(line) < 80}
    return sum(heading.casefold() in lines for heading in headings)
