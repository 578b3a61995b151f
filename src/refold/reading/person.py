"""A person's words, folded into the task, the rules, open asks and what was said.

Nothing else writes these sections: a tool's output and the notices of a harness are no utterances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from refold.conversation.message import Message
from refold.conversation.speaker import judge_speaker
from refold.reading.draft import ASK_CHARS, TASK_CHARS, StateDraft, join_block
from refold.reading.events import HarnessNote, ReadEvent, Statement, Utterance
from refold.reading.rules import find_kinds, lazy_form
from refold.reading.same import is_negative, matter_words, share_matter
from refold.reading.state import OpenItem, Quote, Said, SaidKind, StandingRule, TaskText
from refold.sentences import is_chinese

_ASKS = frozenset({"request", "question", "correction"})
_LATER_MAX = 12
# A remark of fewer words is politeness, unless it has a number.
TELLING_WORDS = 3
# A rule or question of fewer characters may point at what was said before it.
POINTING_CHARS = 80
# Two rules on one matter share this much of the shorter one's words, short orders less.
_SAME_RULE = 0.75
_SAME_ORDER = 0.5
_SHORT_ORDER_WORDS = 2
_SHORT_ORDER_PAIRS = 7
# A correction shares this much with what it corrects.
_CORRECTS = 0.5
_FORBIDS = lazy_form("forbids")
_PREDICATE = lazy_form("predicate")
_POINTS = lazy_form("points")


def hear_person(draft: StateDraft, message: Message, events: Sequence[ReadEvent], words: list[Utterance]) -> None:
    draft.pending.clear()  # The person has taken over: the results of interrupted calls will not come.
    asked = take_question(draft)
    text = _person_text(message, events)
    draft.heard = draft.quote(words[0], text, ASK_CHARS)
    if draft.is_talk:
        hear_talk(draft, words, asked)
        return
    # The view keeps the same message as the task: one function decides.
    states_work = judge_speaker(text, draft.task.quote.text if draft.task else "") == "task"
    is_task = states_work and any(event.kind == "request" for event in words)
    if states_work and draft.opening is None:
        draft.opening = draft.quote(words[0], text, TASK_CHARS)
    if is_task:
        # What was asked right before it is still to be answered.
        before = [item.quote for item in draft.open if item.kind == "ask"] + ([draft.task.quote] if draft.task else [])
        draft.drop_open("ask", "plan", "next")
        draft.open += [OpenItem(kind="ask", quote=one) for one in before if one.position == draft.messages - 1]
        draft.task = _make_task(draft, text, words)
    # A task and a request are kept whole, with every remark in them.
    is_whole = is_task or (len(text) <= ASK_CHARS and any(event.kind in _ASKS for event in words))
    for event in words:
        quote = draft.quote(event, join_block(event.text, event.block))
        if event.kind == "rule":
            _note_rule(draft, quote)
        elif event.kind == "approval":
            # "Sure! My id is …" answers and approves nothing.
            is_answer = any(other.is_fact for other in words)
            if not is_answer and (asked is not None or _tells_something(event.text)):
                draft.said.append(Said(kind="agreement", quote=quote, about=draft.proposal))
        elif event.kind == "remark":
            if not is_whole and (asked is not None or _tells_something(event.text)):
                draft.said.append(Said(kind=_judge_said(event.text), quote=quote, about=asked))
        elif event.kind == "correction" or "undo" in find_kinds(event.text, "person"):
            _strike_corrected(draft, quote)
    if not is_task:
        _note_asks(draft, text, words)


def take_question(draft: StateDraft) -> Quote | None:
    """Close the questions that this message answers, and return the newest one."""
    asked = next((item.quote for item in reversed(draft.open) if item.kind == "question"), None)
    draft.drop_open("question")
    said = draft.proposal
    if asked is None and said is not None and said.position == draft.messages - 1 and said.text.endswith(("?", "？")):
        return said
    return asked


def find_answered(draft: StateDraft) -> Quote | None:
    """Return what an answer of the assistant is about: the open ask, else what the person said just before."""
    if draft.heard is not None and draft.heard.position == draft.messages - 1:
        return draft.heard
    return next((item.quote for item in reversed(draft.open) if item.kind == "ask"), None)


def hear_talk(draft: StateDraft, words: Sequence[Utterance | Statement], asked: Quote | None) -> None:
    """Keep what two people tell each other: preferences, agreements, answers, and what has a date or a number."""
    draft.drop_open("ask")
    answer = next((event for event in words if _tells_something(event.text)), None) if asked is not None else None
    for event in words:
        kind = _judge_said(event.text)
        is_answer = event is answer
        if kind == "preference" or is_answer or any(letter.isdigit() for letter in event.text):
            quote = draft.quote(event, join_block(event.text, event.block))
            draft.said.append(Said(kind=kind, quote=quote, about=asked if is_answer else None))
        if event.kind == "question":
            draft.open.append(OpenItem(kind="question", quote=draft.quote(event)))


def _judge_said(text: str) -> SaidKind:
    return "preference" if "preference" in find_kinds(text, "person") else "fact"


def _note_asks(draft: StateDraft, text: str, words: list[Utterance]) -> None:
    """Keep a message that asks for something beside the task, whole: a request is rarely one sentence."""
    asks = [event for event in words if event.kind in _ASKS]
    if not asks:
        return
    quote = draft.quote(asks[0], text, ASK_CHARS)
    if any(event.kind in ("request", "question") for event in asks):
        # Some agents end their turn without a word: who asks for something else has seen what was done.
        draft.open = [item for item in draft.open if item.kind != "ask" or item.quote.position > draft.acted]
    draft.open.append(OpenItem(kind="ask", quote=quote))
    if draft.task is not None and any(event.kind != "question" for event in asks):
        if len(draft.task.later) >= _LATER_MAX:
            draft.omitted["later"] += 1
        draft.task = replace(draft.task, later=(*draft.task.later, quote)[-_LATER_MAX:])


def _tells_something(text: str) -> bool:
    if any(letter.isdigit() for letter in text):
        return True
    return len(matter_words(text)) >= TELLING_WORDS and "polite" not in find_kinds(text, "assistant")


def _make_task(draft: StateDraft, text: str, words: list[Utterance]) -> TaskText:
    quote = draft.quote(words[0], text, TASK_CHARS)
    said = [event for event in words if "finish" in find_kinds(event.text, "person")]
    # The sentence with the command says more than the one after it.
    finish = next((event for event in reversed(said) if event.block or "`" in event.text), said[-1] if said else None)
    return TaskText(quote=quote, finish=draft.quote(finish, join_block(finish.text, finish.block)) if finish else None)


def _person_text(message: Message, events: Sequence[ReadEvent]) -> str:
    """Return a person's message whole, without the notes of a harness at its edges."""
    texts = []
    by_part: dict[int, list[HarnessNote]] = {}
    for note in (event for event in events if isinstance(event, HarnessNote)):
        by_part.setdefault(note.part, []).append(note)
    for number, part in enumerate(message.parts):
        start, stop, notes = 0, len(part.text) if part.kind == "text" else 0, by_part.get(number, [])
        for note in sorted(notes, key=lambda note: note.start):
            if not part.text[start : note.start].strip():
                start = max(start, note.stop)
        for note in sorted(notes, key=lambda note: -note.stop):
            if note.start >= start and not part.text[note.stop : stop].strip():
                stop = note.start
        if text := part.text[start:stop].strip():
            texts.append(text)
    return "\n\n".join(texts)


def _note_rule(draft: StateDraft, quote: Quote) -> None:
    kept = []
    for rule in draft.rules:
        if not _is_same_rule(rule.quote.text, quote.text):
            kept.append(rule)
        elif rule.quote.text != quote.text:
            draft.strike(rule.quote, quote)
    about = draft.proposal if _POINTS.search(quote.text) and len(quote.text) <= POINTING_CHARS else None
    draft.rules = [*kept, StandingRule(quote=quote, about=about)]


def _is_same_rule(one: str, other: str) -> bool:
    """Return whether two rules are on one matter. Short orders replace each other sooner, prohibitions add up."""
    if _number_topic(one) != _number_topic(other):
        return False
    share = share_matter(one, other)
    # Chinese words are counted as pairs of characters.
    most = _SHORT_ORDER_PAIRS if is_chinese(one) else _SHORT_ORDER_WORDS
    is_short = min(len(matter_words(one)), len(matter_words(other))) <= most
    is_short_order = is_short and not any(is_negative(text) or _FORBIDS.search(text) for text in (one, other))
    return share >= (_SAME_ORDER if is_short_order else _SAME_RULE)


def _number_topic(text: str) -> str:
    """Return the digits in what an order is about: the rooms of floor 3 are not those of floor 5."""
    found = _PREDICATE.search(text)
    return "".join(filter(str.isdigit, text[: found.start()])) if found else ""


def _strike_corrected(draft: StateDraft, quote: Quote) -> None:
    """Strike what a correction is about: the belief or rule that shares most words, else the assistant's last one."""
    shares = [(share_matter(rule.quote.text, quote.text), rule.quote) for rule in draft.rules]
    shares += [(share_matter(belief.quote.text, quote.text), belief.quote) for belief in draft.beliefs]
    best = max(shares, key=lambda pair: (pair[0], pair[1].position), default=(0.0, quote))
    target = best[1] if best[0] >= _CORRECTS else None
    if target is None and draft.beliefs and draft.beliefs[-1].quote.position >= draft.messages - 2:
        target = draft.beliefs[-1].quote
    if target is None:
        return
    draft.rules = [rule for rule in draft.rules if rule.quote is not target]
    draft.beliefs = [belief for belief in draft.beliefs if belief.quote is not target]
    draft.strike(target, quote)


def adopt_ask(draft: StateDraft) -> None:
    """Make what the person said first the task, once the assistant works on it with tools."""
    if draft.task is None and draft.opening is not None:
        opening = draft.opening
        draft.task = TaskText(quote=opening)
        draft.open = [item for item in draft.open if item.quote.position != opening.position]
