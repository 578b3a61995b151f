"""Advance: fold new messages into a state. Pure, and linear in what is new.

A later event changes the state instead of adding to it: a correction strikes what it corrects, an answer closes its
ask, a retraction takes back what was said before it, a new task of a person replaces the old one.
Only ``Utterance`` events, which are a person's words, can become a task, a rule, an ask or something said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from refold.conversation.message import Message
from refold.reading.deeds import note_call, note_change, take_outcome
from refold.reading.draft import BLOCK_CHARS, TASK_CHARS, StateDraft, cut_lines
from refold.reading.events import (
    Action,
    CallOutcome,
    FileChange,
    HarnessNote,
    ReadEvent,
    Statement,
    Utterance,
    Value,
    WorkPlan,
)
from refold.reading.same import is_negative, matter_words, share_matter
from refold.reading.state import (
    Belief,
    BeliefKind,
    OpenItem,
    OwnedValue,
    Quote,
    Said,
    StandingRule,
    State,
    TaskText,
)

Reader = Callable[[Message, tuple[Action, ...]], Sequence[ReadEvent]]
"""Return the events of a message; the actions are the calls that wait for a result, oldest first."""

_BELIEFS: dict[str, BeliefKind] = {
    "finding": "finding",
    "cause": "cause",
    "decision": "decision",
    "conclusion": "conclusion",
    "done": "done",
}
_ASKS = frozenset({"request", "question", "correction"})
_LATER_MAX = 8
# Two rules on one matter share this much of the shorter one's words; two beliefs that say the same share more.
_SAME_RULE = 0.75
_SAME_BELIEF = 0.8
_OPPOSED = 0.6
_CORRECTS = 0.5
# A follow-up is short beside the task; a request that opens new work is not.
_NEW_TASK_SHARE = 0.25
_NEW_TASK_CHARS = 24
_FINISH = re.compile(
    r"\bsubmit\b|\b(?:when|once|after|if) (?:you(?:'re| are| have)|everything|all|the work)\b[^.\n]{0,60}"
    r"\b(?:done|finish|complet)"
    r"|\bto finish\b|\bfinish (?:your work|by|the task)|完成(?:之后|以后|后|时)|做完|提交",
    re.IGNORECASE,
)
_UNDO = re.compile(
    r"\b(?:undo|revert|roll(?:ed)? ?back|scrap|forget|never ?mind|ignore) |撤销|撤回|还原|恢复|算了|不用了",
    re.IGNORECASE,
)
_PREFERS = re.compile(
    r"\b(?:prefer|love|like|hate|dislike|favou?rite|can't stand|rather|enjoy|allergic|vegetarian|vegan)\b"
    r"|喜欢|爱吃|偏好|讨厌|最爱|习惯|过敏",
    re.IGNORECASE,
)
_DONE_STATUS = re.compile(r"complete|done|cancel|skip|\[?x\]?$|✓|✔|✅|完成|取消", re.IGNORECASE)


def advance(state: State, messages: Iterable[Message], reader: Reader) -> State:
    """Return the state after these messages. Any division into chunks gives the same state."""
    draft = StateDraft(state)
    for message in messages:
        waiting = tuple(action for call in draft.pending for action in call.actions)
        events = reader(message, waiting)
        draft.open_message(message)
        _take_message(draft, message, events)
        draft.close_message()
    return draft.freeze()


def _take_message(draft: StateDraft, message: Message, events: Sequence[ReadEvent]) -> None:
    words = [event for event in events if isinstance(event, Utterance)]
    if words:
        _hear_person(draft, message, events, words)
    statements = [event for event in events if isinstance(event, Statement)]
    has_call = False
    if statements:
        _drop_open(draft, "next")
    for event in events:
        if isinstance(event, Statement):
            _hear_assistant(draft, event)
        elif isinstance(event, Action):
            has_call = True
            _adopt_ask(draft)
            note_call(draft, event)
            if event.verb == "finish":
                _drop_open(draft, "ask", "next", "plan")
        elif isinstance(event, FileChange):
            note_change(draft, event)
        elif isinstance(event, CallOutcome):
            take_outcome(draft, event)
        elif isinstance(event, WorkPlan):
            _note_plan(draft, event)
        elif isinstance(event, Value):
            _note_value(draft, event)
    if statements:
        _end_message(draft, statements, has_call=has_call)


# A person's words


def _hear_person(draft: StateDraft, message: Message, events: Sequence[ReadEvent], words: list[Utterance]) -> None:
    draft.pending.clear()  # The person has taken over: the results of interrupted calls will not come.
    was_asked = any(item.kind == "question" for item in draft.open)
    _drop_open(draft, "question")
    kinds = {event.kind for event in words}
    is_task = "request" in kinds and _opens_work(draft, message, events, words, was_asked=was_asked)
    if is_task:
        _drop_open(draft, "ask", "plan", "next")
        draft.task = _make_task(draft, message, events, words)
    for event in words:
        quote = draft.quote(event, _join_block(event.text, event.block))
        if event.kind == "rule":
            _note_rule(draft, quote)
        elif event.kind == "approval":
            draft.said.append(Said(kind="agreement", quote=quote, about=draft.proposal))
        elif event.kind == "remark":
            if matter_words(event.text):
                draft.said.append(Said(kind="preference" if _PREFERS.search(event.text) else "fact", quote=quote))
        elif event.kind in _ASKS:
            if event.kind == "correction" or _UNDO.search(event.text):
                _strike_corrected(draft, quote)
            if not is_task:
                draft.open.append(OpenItem(kind="ask", quote=quote))
                if event.kind != "question" and draft.task is not None:
                    draft.task = replace(draft.task, later=(*draft.task.later, quote)[-_LATER_MAX:])
    draft.rested = False


def _opens_work(
    draft: StateDraft, message: Message, events: Sequence[ReadEvent], words: list[Utterance], *, was_asked: bool
) -> bool:
    """Return whether a request is new work: the first one, or a substantial one after the assistant has ended."""
    if draft.task is None:
        return True
    if was_asked or not draft.rested or any(event.kind in ("approval", "correction") for event in words):
        return False
    size = len(_person_text(message, events))
    return size >= max(_NEW_TASK_CHARS, _NEW_TASK_SHARE * len(draft.task.quote.text))


def _make_task(draft: StateDraft, message: Message, events: Sequence[ReadEvent], words: list[Utterance]) -> TaskText:
    quote = draft.quote(words[0], _person_text(message, events), TASK_CHARS)
    finish = None
    for event in words:
        if _FINISH.search(event.text):
            finish = draft.quote(event, _join_block(event.text, event.block))
    return TaskText(quote=quote, finish=finish)


def _person_text(message: Message, events: Sequence[ReadEvent]) -> str:
    """Return a person's message whole, without the notes of a harness at its edges."""
    texts = []
    for number, part in enumerate(message.parts):
        if part.kind != "text":
            continue
        start, stop = 0, len(part.text)
        notes = [event for event in events if isinstance(event, HarnessNote) and event.part == number]
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
        if share_matter(rule.quote.text, quote.text) < _SAME_RULE:
            kept.append(rule)
        elif rule.quote.text != quote.text:
            draft.strike(rule.quote, quote)
    draft.rules = [*kept, StandingRule(quote=quote)]


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


def _adopt_ask(draft: StateDraft) -> None:
    """Make the open question the task once the assistant works on it with tools."""
    if draft.task is not None:
        return
    asked = [item for item in draft.open if item.kind == "ask"]
    if asked:
        draft.task = TaskText(quote=asked[-1].quote)
        draft.open.remove(asked[-1])


# The assistant's words


def _hear_assistant(draft: StateDraft, event: Statement) -> None:
    if event.retracts:
        _drop_open(draft, "next")
        if draft.beliefs and draft.beliefs[-1].quote.position >= draft.messages - 2:
            draft.strike(draft.beliefs.pop().quote, draft.quote(event))
    if event.kind in _BELIEFS:
        _note_belief(draft, event, _BELIEFS[event.kind])
    elif event.kind == "intent":
        _drop_open(draft, "next")
        draft.open.append(OpenItem(kind="next", quote=draft.quote(event, _join_block(event.text, event.block))))
    elif event.kind == "question":
        draft.open.append(OpenItem(kind="question", quote=draft.quote(event, _join_block(event.text, event.block))))


def _note_belief(draft: StateDraft, event: Statement, kind: BeliefKind) -> None:
    quote = draft.quote(event)
    kept = []
    for belief in draft.beliefs:
        share = share_matter(belief.quote.text, quote.text)
        if share >= _OPPOSED and is_negative(belief.quote.text) != is_negative(quote.text):
            draft.strike(belief.quote, quote)
        elif share < _SAME_BELIEF:
            kept.append(belief)
    block, _ = cut_lines(event.block, BLOCK_CHARS)
    draft.beliefs = [*kept, Belief(kind=kind, quote=quote, lead=event.lead[:300], block=block)]


def _end_message(draft: StateDraft, statements: list[Statement], *, has_call: bool) -> None:
    questions = [event for event in statements if event.kind == "question"]
    words = questions[-1] if questions else statements[-1]
    draft.proposal = draft.quote(words, _join_block(words.text, words.block))
    if has_call:
        return
    draft.rested = not questions
    if not questions:
        _drop_open(draft, "ask")


def _note_plan(draft: StateDraft, event: WorkPlan) -> None:
    _drop_open(draft, "plan")
    for item in event.items:
        if not _DONE_STATUS.search(item.status):
            draft.open.append(OpenItem(kind="plan", quote=draft.quote(event, item.text), status=item.status))


def _note_value(draft: StateDraft, event: Value) -> None:
    known = draft.values.pop(event.text, None)
    if known is None:
        draft.values[event.text] = OwnedValue(
            text=event.text,
            owner=event.owner,
            sort=event.sort,
            quote=draft.quote(event, event.text),
            times=event.times,
            used=draft.messages,
        )
    else:
        owner = known.owner or event.owner
        draft.values[event.text] = replace(known, owner=owner, times=known.times + event.times, used=draft.messages)


def _drop_open(draft: StateDraft, *kinds: str) -> None:
    draft.open = [item for item in draft.open if item.kind not in kinds]


def _join_block(text: str, block: str) -> str:
    block, _ = cut_lines(block, BLOCK_CHARS)
    return f"{text.rstrip()}\n{block}" if block and block not in text else text
