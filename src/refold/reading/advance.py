"""Advance: fold new messages into a state. Pure, and linear in what is new.

A later event changes the state instead of adding to it: a correction strikes what it corrects, an answer closes its
ask, a retraction takes back what was said before it, a new task of a person replaces the old one.
Only ``Utterance`` events, which are a person's words, can become a task, a rule, an ask or something said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from refold.conversation.message import Message, is_observation
from refold.conversation.speaker import judge_speaker
from refold.reading.calls import read_fenced_call
from refold.reading.deeds import note_call, note_change, take_outcome
from refold.reading.draft import ASK_CHARS, BLOCK_CHARS, TASK_CHARS, StateDraft, cut_lines
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
from refold.reading.read import read
from refold.reading.rules import find_kinds
from refold.reading.same import is_negative, matter_words, share_matter
from refold.reading.state import (
    Belief,
    BeliefKind,
    OpenItem,
    OwnedValue,
    Quote,
    Said,
    SaidKind,
    StandingRule,
    State,
    TaskText,
)
from refold.sentences import is_chinese

Reader = Callable[[Message, tuple[Action, ...]], Sequence[ReadEvent]]
"""Returns the events of a message, given the calls that wait for a result, oldest first."""

_BELIEFS: dict[str, BeliefKind] = {
    "finding": "finding",
    "cause": "cause",
    "decision": "decision",
    "conclusion": "conclusion",
    "done": "done",
}
_ASKS = frozenset({"request", "question", "correction"})
_LATER_MAX = 12
_BELIEFS_PER_MESSAGE = 5
_CAUSES_PER_MESSAGE = 2
# A remark of fewer words is politeness, unless it has a number.
_TELLING_WORDS = 3
# Two rules on one matter share this much of the shorter one's words; two beliefs that say the same share more.
_SAME_RULE = 0.75
_SAME_ORDER = 0.5
_SHORT_ORDER_WORDS = 2
_SHORT_ORDER_PAIRS = 7
_SAME_BELIEF = 0.8
_OPPOSED = 0.6
_CORRECTS = 0.5
_FIRST_PERSON = re.compile(
    r"(?:\W*(?:so|now|ok|okay|then|wait|first|next|also|and)\b){0,3}\W*(?:I|we|let)\b|[^，。]{0,6}(?:我|我们)(?:将|会|要|来|先)",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\b(?:because|since|so that|instead of|rather than|to avoid|otherwise|as it|due to)\b|因为|由于|以免|而不是|避免",
    re.IGNORECASE,
)
_FORBIDS = re.compile(r"\b(?:avoid|stop|only)\b|只|禁止|避免", re.IGNORECASE)
_POINTS = re.compile(r"\b(?:that|this|it|those|them)\b|[这那]", re.IGNORECASE)
_POINTING_CHARS = 80
_DONE_STATUS = re.compile(r"complete|done|cancel|skip|\[?x\]?$|✓|✔|✅|完成|取消", re.IGNORECASE)


def advance(state: State, messages: Iterable[Message], reader: Reader) -> State:
    """Return the state after these messages. Any division into chunks gives the same state."""
    draft = StateDraft(state)
    for message in messages:
        events = reader(message, tuple(call.action for call in draft.pending))
        draft.open_message(message)
        _take_message(draft, message, (*events, *_read_typed_calls(draft, message, events)))
        draft.close_message()
    return draft.freeze()


def _read_typed_calls(draft: StateDraft, message: Message, events: Sequence[ReadEvent]) -> Iterator[ReadEvent]:
    """Yield the calls that the assistant types as text, in a conversation whose results come as text, too."""
    texts = [index for index, part in enumerate(message.parts) if part.kind == "text"]
    if message.role == "user" and any(isinstance(event, CallOutcome) and event.part in texts for event in events):
        draft.has_text_results = True
    is_typed = draft.has_text_results and message.role == "assistant"
    if is_typed and not any(isinstance(event, Action) for event in events):
        for index in texts:
            yield from read_fenced_call(message.parts[index].text, index)


def make_reader(is_result: Callable[[Message], bool] = is_observation) -> Reader:
    """Return the reader of a conversation; ``is_result`` recognises results that are sent as a user's text."""

    def read_message(message: Message, waiting: tuple[Action, ...]) -> Sequence[ReadEvent]:
        # Of two calls with one id the older one is answered first.
        pending = {action.call_id: action for action in reversed(waiting)}
        return read(message, pending=pending, as_result=message.role == "user" and is_result(message))

    return read_message


def _take_message(draft: StateDraft, message: Message, events: Sequence[ReadEvent]) -> None:
    words = [event for event in events if isinstance(event, Utterance)]
    if words:
        _hear_person(draft, message, events, words)
    statements = [event for event in events if isinstance(event, Statement)]
    if draft.is_talk and statements:
        asks = [item.quote for item in draft.open if item.kind == "ask"]
        _hear_talk(draft, statements, _take_question(draft) or (asks[-1] if asks else None))
        statements = []
    answered = _find_answered(draft)
    has_call = any(isinstance(event, Action) for event in events)
    if statements:
        _drop_open(draft, "next")
    for event in events:
        if isinstance(event, Statement) and not draft.is_talk:
            is_step = has_call and event.kind == "decision" and _announces_step(event.text)
            # A question beside a call is put to nobody.
            is_musing = has_call and event.kind == "question"
            if not is_musing:
                event = replace(event, kind="intent") if is_step else event
                _hear_assistant(draft, event, None if has_call else answered)
        elif isinstance(event, Action):
            _adopt_ask(draft)
            draft.acted = draft.messages
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
    asked = _take_question(draft)
    text = _person_text(message, events)
    draft.heard = draft.quote(words[0], text, ASK_CHARS)
    if draft.is_talk:
        _hear_talk(draft, words, asked)
        return
    # The view keeps the same message as the task: one function decides.
    states_work = judge_speaker(text, draft.task.quote.text if draft.task else "") == "task"
    is_task = states_work and any(event.kind == "request" for event in words)
    if states_work and draft.opening is None:
        draft.opening = draft.quote(words[0], text, TASK_CHARS)
    if is_task:
        _drop_open(draft, "ask", "plan", "next")
        draft.task = _make_task(draft, text, words)
    # A task and a request are kept whole, with every remark in them.
    is_whole = is_task or (len(text) <= ASK_CHARS and any(event.kind in _ASKS for event in words))
    for event in words:
        quote = draft.quote(event, _join_block(event.text, event.block))
        if event.kind == "rule":
            _note_rule(draft, quote)
        elif event.kind == "approval":
            if asked is not None or _tells_something(event.text):
                draft.said.append(Said(kind="agreement", quote=quote, about=draft.proposal))
        elif event.kind == "remark":
            if not is_whole and (asked is not None or _tells_something(event.text)):
                draft.said.append(Said(kind=_judge_said(event.text), quote=quote, about=asked))
        elif event.kind == "correction" or "undo" in find_kinds(event.text, "person"):
            _strike_corrected(draft, quote)
    if not is_task:
        _note_asks(draft, text, words)


def _take_question(draft: StateDraft) -> Quote | None:
    """Close the questions that this message answers, and return the newest one."""
    asked = next((item.quote for item in reversed(draft.open) if item.kind == "question"), None)
    _drop_open(draft, "question")
    said = draft.proposal
    if asked is None and said is not None and said.position == draft.messages - 1 and said.text.endswith(("?", "？")):
        return said
    return asked


def _find_answered(draft: StateDraft) -> Quote | None:
    """Return what an answer of the assistant is about: the open ask, else what the person said just before."""
    if draft.heard is not None and draft.heard.position == draft.messages - 1:
        return draft.heard
    return next((item.quote for item in reversed(draft.open) if item.kind == "ask"), None)


def _hear_talk(draft: StateDraft, words: Sequence[Utterance | Statement], asked: Quote | None) -> None:
    """Keep what two people tell each other: preferences, agreements, answers, and what has a date or a number."""
    _drop_open(draft, "ask")
    answer = next((event for event in words if _tells_something(event.text)), None) if asked is not None else None
    for event in words:
        kind = _judge_said(event.text)
        is_answer = event is answer
        if kind == "preference" or is_answer or any(letter.isdigit() for letter in event.text):
            quote = draft.quote(event, _join_block(event.text, event.block))
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
    return len(matter_words(text)) >= _TELLING_WORDS and "polite" not in find_kinds(text, "assistant")


def _make_task(draft: StateDraft, text: str, words: list[Utterance]) -> TaskText:
    quote = draft.quote(words[0], text, TASK_CHARS)
    said = [event for event in words if "finish" in find_kinds(event.text, "person")]
    # The sentence with the command says more than the one after it.
    finish = next((event for event in reversed(said) if event.block or "`" in event.text), said[-1] if said else None)
    return TaskText(quote=quote, finish=draft.quote(finish, _join_block(finish.text, finish.block)) if finish else None)


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
        if not _is_same_rule(rule.quote.text, quote.text):
            kept.append(rule)
        elif rule.quote.text != quote.text:
            draft.strike(rule.quote, quote)
    about = draft.proposal if _POINTS.search(quote.text) and len(quote.text) <= _POINTING_CHARS else None
    draft.rules = [*kept, StandingRule(quote=quote, about=about)]


def _is_same_rule(one: str, other: str) -> bool:
    """Return whether two rules are on one matter. Short orders replace each other sooner, prohibitions add up."""
    share = share_matter(one, other)
    # Chinese words are counted as pairs of characters.
    most = _SHORT_ORDER_PAIRS if is_chinese(one) else _SHORT_ORDER_WORDS
    is_short = min(len(matter_words(one)), len(matter_words(other))) <= most
    is_short_order = is_short and not _forbids(one) and not _forbids(other)
    return share >= (_SAME_ORDER if is_short_order else _SAME_RULE)


def _forbids(text: str) -> bool:
    return is_negative(text) or _FORBIDS.search(text) is not None


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
    """Make what the person said first the task, once the assistant works on it with tools."""
    if draft.task is None and draft.opening is not None:
        opening = draft.opening
        draft.task = TaskText(quote=opening)
        draft.open = [item for item in draft.open if item.quote.position != opening.position]


# The assistant's words


def _hear_assistant(draft: StateDraft, event: Statement, answered: Quote | None) -> None:
    if event.retracts:
        _drop_open(draft, "next")
        if draft.beliefs and draft.beliefs[-1].quote.position >= draft.messages - 2:
            draft.strike(draft.beliefs.pop().quote, draft.quote(event))
    if event.kind in _BELIEFS and not (event.retracts and len(matter_words(event.text)) < _TELLING_WORDS):
        _note_belief(draft, event, _BELIEFS[event.kind], answered)
    elif event.kind == "intent":
        _drop_open(draft, "next")
        draft.open.append(OpenItem(kind="next", quote=draft.quote(event, _join_block(event.text, event.block))))
    elif event.kind == "question":
        draft.open.append(OpenItem(kind="question", quote=draft.quote(event, _join_block(event.text, event.block))))


def _announces_step(text: str) -> bool:
    """Return whether a decision only says what the call beside it does; one with a reason says more."""
    return _FIRST_PERSON.match(text) is not None and _REASON.search(text) is None


def _note_belief(draft: StateDraft, event: Statement, kind: BeliefKind, answered: Quote | None) -> None:
    quote = draft.quote(event)
    kept = []
    for belief in draft.beliefs:
        share = share_matter(belief.quote.text, quote.text, of_longer=True)
        if share >= _OPPOSED and is_negative(belief.quote.text) != is_negative(quote.text):
            draft.strike(belief.quote, quote)
        elif share < _SAME_BELIEF:
            kept.append(belief)
    block, _ = cut_lines(event.block, BLOCK_CHARS)
    belief = Belief(kind=kind, quote=quote, lead=event.lead[:300], block=block, is_last=event.is_last, about=answered)
    draft.beliefs = [*kept, belief]


def _end_message(draft: StateDraft, statements: list[Statement], *, has_call: bool) -> None:
    _thin_beliefs(draft)
    questions = [event for event in statements if event.kind == "question"]
    words = questions[-1] if questions else statements[-1]
    text = words.text
    before = statements[statements.index(words) - 1] if words is not statements[0] else None
    if before is not None and before.part == words.part and len(text) <= _POINTING_CHARS:
        text = f"{before.text} {text}"  # "Shall I?" says nothing alone.
    draft.proposal = draft.quote(words, _join_block(text, words.block))
    # A question that comes with an answer leaves nothing open; one alone asks for more.
    has_answer = not questions or any(event.kind in _BELIEFS or event.block for event in statements)
    if not has_call and has_answer:
        _drop_open(draft, "ask")


def _thin_beliefs(draft: StateDraft) -> None:
    """Keep the last beliefs of a long train of thought, and its causes: the thoughts on the way hold less."""
    own = [belief for belief in draft.beliefs if belief.quote.position == draft.messages]
    if len(own) <= _BELIEFS_PER_MESSAGE:
        return
    causes = [belief for belief in own[:-_BELIEFS_PER_MESSAGE] if belief.kind == "cause"][-_CAUSES_PER_MESSAGE:]
    kept = [*causes, *own[-_BELIEFS_PER_MESSAGE:]]
    draft.omitted["beliefs"] += len(own) - len(kept)
    draft.beliefs = [*(belief for belief in draft.beliefs if belief.quote.position != draft.messages), *kept]


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
