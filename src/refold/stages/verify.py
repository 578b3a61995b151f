"""Checks a note line by line before it counts: drops what its messages contradict, adds what is missing.

Every line names the messages that it rests on (``[12, 14-16]``); ``claims`` says whether they bear it out. A line stays
as it is, is marked ``(unchecked)``, or goes, with the reason. A line without numbers is checked against all messages. A
quotation (``U>``, ``A>``) counts only if its speaker said it; in a section of wishes everything must be a person's.
Open asks and standing rules that a note leaves out are added verbatim, behind ``U>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from refold.conversation import because
from refold.conversation.reason import Language, Reason
from refold.patterns import lazy_regex
from refold.reading.sentences import split_sentences
from refold.reading.state import Quote, State
from refold.stages.claims import carries_claim, find_fault, is_supported
from refold.stages.ground import Ground, Scope, normalise
from refold.stages.record.frame import HEADINGS, NOTE_HEADINGS, Layout, Topic, cut_text, heading_of

# A longer line is no line of a note: nothing could check it.
LINE_CHARS_MAX = 1_500
UNCHECKED: dict[Language, str] = {"en": "(unchecked)", "zh": "（未核实）"}
HEADING = lazy_regex(r"#{1,6}\s|\*\*[^*]{1,60}\*\*:?\s*\Z")
_LEADS_IN = lazy_regex(r"[^:：]{1,60}[:：]\Z")
_UNDERLINE = lazy_regex(r"(?:-{3,}|={3,})\Z")
_LEVEL = lazy_regex(r"#{1,6}(?=\s)")
_NUMBERED = lazy_regex(r"\d{1,2}[.)]\s")
_LEAD = lazy_regex(r"\A(\s*(?:[-*•]|\d{1,3}[.)])?\s*)(.*)\Z", re.S)
_ITEM = lazy_regex(r"\s*(?:[-*•>|]|\d{1,3}[.)])\s")
_CITES = lazy_regex(r"(?<![ \t])[ \t]*+[\[【［]\s*+#?\d{1,6}(?:\s*+[-–,，、;]\s*+#?\d{1,6})*+\s*+[\]】］]")
_SPEAKER = lazy_regex(
    r"[^\S\n]*(?:(?:[-*•>|]|\d{1,3}[.)])[^\S\n]*){0,4}\*{0,2}(?P<who>[UA])\*{0,2}[^\S\n]?(?:>|&gt;|›|»)\*{0,2}[^\S\n]*"
    r"(?P<said>.*)\Z",
    re.I | re.S,
)
_TEMPLATE = lazy_regex(
    r"<\|?/?(?:im_start|im_end|user|human|start_header_id|start_of_turn|system)\b[^>]*>?|\[/?INST\]|<<SYS>>", re.I
)
_BORDERS = "\n.!?;:,…。！？；：，、—"
_AROUND = " \t\"'`“”‘’「」『』（）()[]*_>-•#0123456789"
_BLANK_LINES = lazy_regex(r"\n{3,}")
# Sections that hold what people want: ours, and others whose name says so.
_WISHES = frozenset(
    name.casefold()
    for names in (HEADINGS["preferences"], NOTE_HEADINGS["wanted"], {"en": "goal", "zh": "目标"})
    for name in names.values()
)
_WISH_NAME = lazy_regex(
    r"\b(?:users?|humans?|customers?|wish\w*|rules?|instructions?|orders?|policy|policies|preferences?|requirements?|"
    r"requests?|constraints?|guidelines?|agree\w*|decisions?(?! and| made)|goals?)\b|"
    r"用户|客户|要求|规则|指令|指示|偏好|需求|约定|规定|目标|原话",
    re.I,
)
_OURS = frozenset(
    name.casefold() for names in (*HEADINGS.values(), *NOTE_HEADINGS.values()) for name in names.values()
) | {"findings and decisions", "发现与决定"}


@dataclass(frozen=True, slots=True)
class Dropped:
    """A line or sentence that was dropped, and why."""

    text: str
    why: Reason

    @property
    def is_invented(self) -> bool:
        """It names something that occurs nowhere."""
        return self.why.holds(because.NOT_IN_SOURCE) or self.why.holds(because.NOT_A_RECORD)


@dataclass(frozen=True, slots=True)
class Verified:
    """A note without what was dropped. ``sentences`` is how many there were."""

    text: str
    dropped: tuple[Dropped, ...] = ()
    sentences: int = 0

    @property
    def invented_share(self) -> float:
        """The share of sentences that name what occurs nowhere."""
        return sum(one.is_invented for one in self.dropped) / self.sentences if self.sentences else 0.0


def verify_words(words: str, ground: Ground, language: Language | None = None) -> Verified:
    """Return the lines of a note that their messages bear out, without the numbers that they cite.

    With a ``language``, a line that rests on nothing and claims nothing is marked in it.
    """
    dropped: list[Dropped] = []
    lines: list[str] = []
    total = 0
    judge = cache(partial(_check_line, ground=ground, mark=UNCHECKED[language] if language else ""))
    for line, is_wish in _read_lines(words):
        if not line.strip():
            lines.append("")
            continue
        if HEADING.match(line.strip()):
            fault = find_fault(line.strip("#* "), ground.scope(), is_heading=True)
            dropped += [Dropped(line.strip(), fault)] if fault else []
            total += bool(fault)
            lines += [] if fault else [line.rstrip()]
            continue
        kept, gone, count = judge(line, is_wish=is_wish)
        total += count
        dropped += gone
        lines += [kept] if kept.strip() else []
    return Verified(_drop_bare_headings(lines), tuple(dropped), total)


def read_cites(line: str) -> tuple[str, tuple[int, ...]]:
    """Return a line without the numbers of messages in brackets, and these numbers."""
    found: list[int] = []
    for cited in _CITES.findall(line):
        for piece in re.split(r"[,，、;]", cited.strip(" \t[]【】［］")):
            ends = [int(one) for one in re.findall(r"\d+", piece)]
            found += range(ends[0], min(ends[-1], ends[0] + 200) + 1)
    return _CITES.sub("", line), tuple(found)


def _read_lines(words: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, joined with those that continue it, and whether it is in a section of wishes."""
    lines = words.splitlines()
    is_wish, level = False, 0
    held = ""
    for at, line in enumerate(lines):
        plain = normalise(line).strip()
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        is_heading = bool(HEADING.match(plain) or _LEADS_IN.match(plain) or _UNDERLINE.match(below))
        continues = (
            held and plain and line[:1].isspace() and not (_ITEM.match(line) or _SPEAKER.match(plain) or is_heading)
        )
        if continues:
            held = f"{held} {line.strip()}"
            continue
        if held:
            yield held, is_wish
        held = ""
        if is_heading:
            is_wish, level = _read_heading(plain, is_wish, level)
            yield (line if HEADING.match(plain) or not _LEADS_IN.match(plain) else f"**{line.strip()}**"), is_wish
        elif plain:
            held = line
        else:
            yield "", is_wish
    if held:
        yield held, is_wish


def _read_heading(line: str, is_wish: bool, level: int) -> tuple[bool, int]:
    """Return whether the lines below a heading are wishes, and the level of the heading that says so."""
    name = line.strip("#*:：- ").casefold()
    # A numbered heading is below all marked ones; the next number ends its section.
    own = 7 if _NUMBERED.match(line) else len(marks[0]) if (marks := _LEVEL.match(line)) else 0
    if name in _WISHES or (name not in _OURS and _WISH_NAME.search(name)):
        return True, own or level or 6
    if is_wish and name not in _OURS and (not own or own > level):
        return True, level
    return (False, 0) if own or name in _OURS else (is_wish, level)


def _check_line(line: str, *, ground: Ground, is_wish: bool, mark: str) -> tuple[str, list[Dropped], int]:
    """Return a line without its wrong sentences, the dropped ones, and how many sentences it had."""
    bare, cites = read_cites(line)
    scope = ground.scope(cites)
    if _TEMPLATE.search(bare):
        # The marks by which chat templates open a person's turn.
        bare, is_wish = _TEMPLATE.sub(" ", bare), True
    speaker = _SPEAKER.match(normalise(bare))
    if speaker:
        who, said = speaker["who"].upper(), speaker["said"].strip()
        if said and _is_quoted(said, ground.texts_of("user" if who == "U" else "assistant")):
            return f"{who}> {said}", [], 1
        bare, is_wish = f"- {said}", True
    if len(bare) > LINE_CHARS_MAX:
        return "", [Dropped(bare[:80], because.NOT_A_RECORD())], 1
    lead, body = _LEAD.match(bare).groups()  # type: ignore[union-attr]
    sentences = [one.text for one in split_sentences(body)] or ([body] if body.strip() else [])
    judged = [(sentence, find_fault(sentence, scope, is_wish=is_wish)) for sentence in sentences]
    gone = [Dropped(sentence, fault) for sentence, fault in judged if fault]
    kept = [_mark(sentence, scope, mark) for sentence, fault in judged if not fault]
    if not gone and kept == sentences:
        return bare.rstrip(), [], len(sentences)
    glue = "" if body and not body.isascii() and "。" in body else " "
    return (f"{lead}{glue.join(kept)}".rstrip() if kept else ""), gone, len(sentences)


def _mark(sentence: str, scope: Scope, mark: str) -> str:
    is_plain = not mark or is_supported(sentence, scope) or carries_claim(sentence)
    return sentence if is_plain else f"{sentence.rstrip()} {mark}"


def _is_quoted(said: str, texts: Iterable[str]) -> bool:
    """Return whether a text contains these words from one border of a sentence, clause or line to another."""
    wanted = normalise(said)
    for text in texts:
        at = text.find(wanted)
        # "delete it" is not what "do not delete it" says.
        while at >= 0:
            before, after = text[max(0, at - 12) : at].rstrip(_AROUND), text[at + len(wanted) :][:12].lstrip(_AROUND)
            is_begun = not before or before[-1] in _BORDERS
            if is_begun and (not after or after[0] in _BORDERS or wanted[-1] in _BORDERS):
                return True
            at = text.find(wanted, at + len(wanted))
    return False


def _drop_bare_headings(lines: list[str]) -> str:
    kept: list[str] = []
    for at, line in enumerate(lines):
        if HEADING.match(line):
            following = next((other for other in lines[at + 1 :] if other), "#")
            if following.startswith("#"):
                continue
        kept.append(line)
    return _BLANK_LINES.sub("\n\n", "\n".join(kept)).strip()


RULES_MAX, PENDING_MAX = 12, 6
RULE_CHARS_MAX, ASK_CHARS_MAX, OLD_ASK_CHARS = 300, 1_200, 240
# A note that contains this much of a request covers it.
COVERED_CHARS = 80


@dataclass(frozen=True, slots=True)
class Added:
    """A note with what was missing, and how much that was."""

    text: str
    pending: int = 0
    rules: int = 0


def add_missing(
    words: str,
    state: State,
    count: Callable[[str], int],
    *,
    tokens_max: int,
    layout: Layout | None = "note",
    language: Language = "en",
) -> Added:
    """Add a person's open asks and standing rules that the words do not have, newest first, within ``tokens_max``.

    They go under the headings of ``layout``; without a layout to the end.
    """
    room = tokens_max
    taken: dict[Topic, list[str]] = {}
    asks = [item.quote for item in state.open if item.kind == "ask"]
    if state.task is not None and state.task.quote.position + 1 == state.messages:
        asks.append(state.task.quote)
    rules = [rule.quote for rule in state.rules]
    for topic, quotes, chars, most in (
        ("open", asks, ASK_CHARS_MAX, PENDING_MAX),
        ("rule", rules, RULE_CHARS_MAX, RULES_MAX),
    ):
        for age, one in enumerate(reversed(quotes[-most:])):
            line = _quote(one, chars if not age else min(chars, OLD_ASK_CHARS))
            cost = count(f"{line}\n")
            if not _covers(words, one.text) and cost <= room:
                room -= cost
                taken.setdefault(topic, []).insert(0, line)  # type: ignore[arg-type]
    text = words
    for topic, lines in taken.items():
        text = _put(text, heading_of(topic, layout) if layout else {}, lines, language)
    return Added(text, len(taken.get("open", ())), len(taken.get("rule", ())))


def _quote(quote: Quote, chars_max: int) -> str:
    return f"U> {cut_text(' '.join(quote.text.split()), chars_max, quote.handle)}"


def _covers(words: str, text: str) -> bool:
    """Return whether a note has the beginning of a text."""
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
