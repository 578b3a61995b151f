"""Turns what was said and done into pieces for the sections, ranked by what an agent would miss most.

The words of people come first: rules, open asks, the first ask. Then where the work stands, what changed, what
failed, what was decided. All of it is verbatim behind ``U>`` (a person) and ``A>`` (the assistant), or a line of
calls, commands and files as they were written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from refold.conversation.edit import Fact
from refold.conversation.language import Language
from refold.conversation.message import Message
from refold.stages.extract.actions import Action, first_line
from refold.stages.extract.frame import neutralise
from refold.stages.extract.index import shorten_handle
from refold.stages.extract.sections import Piece, Section
from refold.stages.extract.words import RULE_CHARS_MAX, Saying, is_intent, shorten, split_sentences

# Characters of one saying, by how much it matters; a budget of tokens is applied on top.
FIRST_ASK_CHARS = 1_600
PENDING_CHARS = 1_600
NEW_ASK_CHARS = 600
OLD_ASK_CHARS = 240
CONCLUSION_CHARS = 900
OLD_CONCLUSION_CHARS = 200
NEW_ASKS = 4
# So many rules come before everything else; a person who talks in rules must not fill the record with them.
RULES_FIRST = 12
NEW_CONCLUSIONS = 2
# Words beside a call are mostly "let me check": only longer ones are told, and not many.
TELLING_CHARS = 80
STEPS_MAX = 12
ACTION_CHARS = 300
ISSUES_MAX = 8
HANDLED_FILES = 5
FACTS_MAX = 8
DECISIONS_FIRST = 3
DONE_MAX = 30

_READING = re.compile(
    r"(?:cd [^&;]{1,200}(?:&&|;) *)?(?:get|list|search|find|read|view|show|fetch|look|query|calculate|think|cat|ls|"
    r"cd|pwd|grep|rg|head|tail|nl|sed -n|wc|tree|echo|open|which|git (?:log|show|status|diff|grep|blame))",
    re.I,
)
_BULLET = re.compile(r"\A(?:[-*•]\s+)+")
_TODO_TOOL = re.compile(r"todo|plan|task", re.I)
_CHECKBOX = re.compile(r"^[^\S\n]*+(?:[-*]|\d++\.)[^\S\n]*+\[( |x|X|~|-)\].{1,200}$", re.M)
# Everything that some reader takes for the end of a line.
_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_LEFT_OUT = {"en": "[… {count} characters left out, {handle}]", "zh": "[…… 省略 {count} 字，{handle}]"}


@dataclass(frozen=True, slots=True)
class Span:
    """What pieces are made of: the messages of a span and what was read from them."""

    messages: Sequence[Message]
    asks: Sequence[Saying]
    replies: Sequence[Saying]
    rules: Sequence[Saying]
    pending: Sequence[Saying]
    actions: Sequence[Action]
    facts: Sequence[Fact]
    language: Language


def make_pieces(span: Span) -> list[Piece]:
    """Return every piece that a span has to offer."""
    pieces = [
        *_piece_rules(span),
        *_piece_asks(span),
        *_piece_replies(span),
        *_piece_files(span),
        *_piece_issues(span),
        *_piece_done(span),
        *_piece_plan(span),
        *_piece_facts(span),
    ]
    return [piece for piece in pieces if piece.text]


def quote(saying: Saying, chars_max: int, language: Language) -> str:
    """Return a saying as quoted lines, shortened at borders of sentences, with the exact number left out.

    Lines after the first are set in, so that no line of the text can pass for a heading or another's words.
    """
    head, left_out, tail = shorten(saying.text, chars_max)
    lines = _split_lines(head)
    if left_out:
        lines.append(_LEFT_OUT[language].format(count=left_out, handle=shorten_handle(saying.handle)))
        lines += _split_lines(tail)
    who = "U> " if saying.role == "user" else "A> "
    return who + "\n  ".join(lines) if lines else ""


def _split_lines(text: str) -> list[str]:
    return [neutralise(line) for raw in _LINE_END.split(text) if (line := raw.strip())]


def _piece_rules(span: Span) -> list[Piece]:
    """Quote the standing rules, newest first in rank: a rule may replace an older one."""
    pieces = []
    for age, rule in enumerate(reversed(span.rules)):
        rank = age / 100 if age < RULES_FIRST else 2.8 + age / 100
        pieces.append(Piece("preferences", quote(rule, RULE_CHARS_MAX, span.language), rank, -age))
    return pieces


def _piece_asks(span: Span) -> list[Piece]:
    pieces: list[Piece] = []
    open_asks = {ask.at for ask in span.pending}
    rest = [ask for ask in span.asks if ask.at not in open_asks]
    for age, ask in enumerate(reversed(span.pending)):
        chars = PENDING_CHARS if not age else OLD_ASK_CHARS
        pieces.append(Piece("pending", quote(ask, chars, span.language), 1 + age / 10, ask.at))
    for age, ask in enumerate(reversed(rest)):
        if ask.at == span.asks[0].at:
            rank, chars = 1.5, FIRST_ASK_CHARS
        elif age < NEW_ASKS:
            rank, chars = 3 + age / 10, NEW_ASK_CHARS
        else:
            rank, chars = 7 + age / 1000, OLD_ASK_CHARS
        section: Section = "status" if age < NEW_ASKS and rank != 1.5 else "project"
        pieces.append(Piece(section, quote(ask, chars, span.language), rank, ask.at))
    return pieces


def _piece_replies(span: Span) -> list[Piece]:
    """Quote the last conclusions at length; of older words only the answers, and what an agent said that tells much."""
    pieces: list[Piece] = []
    steps = {action.at for action in span.actions}
    told = 0
    for age, reply in enumerate(reversed(span.replies)):
        section: Section = "status" if age < NEW_CONCLUSIONS + 2 else "project"
        if age < NEW_CONCLUSIONS:
            rank, chars = 2.0 + age, CONCLUSION_CHARS
        elif reply.at not in steps:
            rank, chars = 7.5 + age / 1000, OLD_CONCLUSION_CHARS
        elif told < STEPS_MAX and _tells(reply.text):
            told += 1
            rank, chars = 8.0 + age / 1000, OLD_CONCLUSION_CHARS
        else:
            continue
        pieces.append(Piece(section, quote(reply, chars, span.language), rank, reply.at + 0.1))
    return pieces


def _tells(text: str) -> bool:
    """True if words beside a call say more than what the call will do."""
    told = [sentence for sentence in split_sentences(text[:2_000]) if not is_intent(sentence)]
    return sum(map(len, told)) >= TELLING_CHARS


def _piece_files(span: Span) -> list[Piece]:
    """Name each file that was written or deleted, with the handle of its newest change."""
    newest: dict[str, tuple[str, str, int]] = {}
    for action in span.actions:
        for touch, path in action.touched:
            if touch != "read" and not action.failed:
                times = newest[path][2] + 1 if path in newest else 1
                newest.pop(path, None)
                newest[path] = (touch, action.call_handle, times)
    verbs: dict[str, tuple[str, str]] = {"written": ("written", "已写"), "deleted": ("deleted", "已删")}
    pieces = []
    for age, (path, (change, handle, times)) in enumerate(reversed(newest.items())):
        verb = verbs[change][span.language == "zh"]
        often = f" ×{times}" if times > 1 else ""
        # A handle costs more than a path: only the newest changes have theirs.
        where = f" {shorten_handle(handle)}" if age < HANDLED_FILES else ""
        text = f"{verb}{often}: {neutralise(path)}{where}"
        pieces.append(Piece("code", text, 2.5 + age / 10, -age))
    return pieces


def _piece_issues(span: Span) -> list[Piece]:
    """Name the newest failures, each error once."""
    pieces: list[Piece] = []
    met: set[str] = set()
    mended: set[str] = set()
    for action in reversed(span.actions):
        if not action.failed:
            mended.add(action.command)
            continue
        # The same command went well later: the failure is history.
        if not (action.error or action.command) or action.error in met or (action.command and action.command in mended):
            continue
        met.add(action.error)
        text = f"{_write_action(action)} {shorten_handle(action.result_handle)}".rstrip()
        pieces.append(Piece("debugging", text, 4 + len(pieces) / 4, action.at))
        if len(pieces) == ISSUES_MAX:
            break
    return pieces


def _piece_done(span: Span) -> list[Piece]:
    """Name what was done, so that it is not done again: calls that change something first, then what was looked up."""
    pieces: list[Piece] = []
    met: set[str] = set()
    for action in reversed(span.actions):
        # What only reads a file or a listing is in the index; naming each look would crowd out the deeds.
        if action.failed or not action.is_answered or action.touched or (action.command and _is_look(action.command)):
            continue
        text = _write_action(action)
        if text in met:
            continue
        met.add(text)
        is_reading = not action.command and _is_look(action.tool)
        rank = 6 + len(pieces) / 20 if is_reading else 3.5 + len(pieces) / 20
        pieces.append(Piece("technical" if is_reading else "status", text, rank, action.at))
        if len(pieces) == DONE_MAX:
            break
    return pieces


def _is_look(name: str) -> bool:
    return bool(_READING.match(name))


def _write_action(action: Action) -> str:
    """Return a call as one line: the command or the tool with its arguments, and how it ended."""
    if action.command:
        line = f"$ {neutralise(action.command)}"
    else:
        line = f"{neutralise(action.tool)}({neutralise(action.arguments)[:ACTION_CHARS]})"
    if action.exit_status is not None:
        line = f"{line} → exit {action.exit_status}"
    if action.failed and action.error:
        return f"{line}: {neutralise(action.error)}"
    if not action.command and not action.touched and (gist := first_line(action.result, 100)):
        line = f"{line} → {neutralise(gist)}"
    return line


def _piece_plan(span: Span) -> list[Piece]:
    """Return the newest plan or checklist: open items first, then how many are done."""
    for action in reversed(span.actions):
        if _TODO_TOOL.search(action.tool) and (items := _read_todos(action)):
            return [Piece("pending", "\n".join(items), 2.2, 1e9)]
    for reply in reversed(span.replies):
        boxes = [match.group().strip() for match in _CHECKBOX.finditer(reply.text)]
        if len(boxes) >= 2:
            return [Piece("pending", "\n".join(f"A> {neutralise(box)}" for box in boxes[:30]), 2.2, 1e9)]
    return []


def _read_todos(action: Action) -> list[str]:
    try:
        arguments = json.loads(action.raw or "{}")
    except (ValueError, RecursionError):
        return []
    lists = [value for value in arguments.values() if isinstance(value, list)] if isinstance(arguments, dict) else []
    items = []
    for entry in (lists[0] if lists else [])[:30]:
        if isinstance(entry, dict):
            words = next(
                (
                    value
                    for key in ("content", "step", "text", "title", "task")
                    if isinstance(value := entry.get(key), str)
                ),
                "",
            )
            status = entry.get("status", "")
            if words:
                items.append(
                    f"- {neutralise(first_line(words, 200))} ({status})"
                    if isinstance(status, str) and status
                    else f"- {neutralise(first_line(words, 200))}"
                )
    return items


def _piece_facts(span: Span) -> list[Piece]:
    places: dict[str, tuple[Section, float]] = {
        "preference": ("preferences", 3.2),
        "decision": ("decisions", 4.5),
        "todo": ("pending", 5.0),
        "key": ("project", 5.5),
    }
    quoted = {saying.text for saying in span.rules}
    pieces = []
    taken: Counter[str] = Counter()
    for age, fact in enumerate(reversed(span.facts)):
        if fact.text in quoted or taken[fact.kind] == FACTS_MAX:
            continue
        taken[fact.kind] += 1
        section, rank = places[fact.kind]
        # The newest decisions outrank what was merely said last: an agent that misses one does the wrong thing.
        if fact.kind == "decision" and taken[fact.kind] <= DECISIONS_FIRST:
            rank = 1.3 if taken[fact.kind] == 1 else 2.4
        text = _BULLET.sub("", fact.text, count=1)
        pieces.append(Piece(section, f"- {neutralise(text)}", rank + taken[fact.kind] / 10, 1e6 - age))
    return pieces
