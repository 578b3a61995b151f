"""Advance: fold new messages into a state. Pure, and linear in what is new.

A later event changes the state instead of adding to it: a correction strikes what it corrects, an answer closes its
ask, a retraction takes back what was said before it, a new task of a person replaces the old one.
Only ``Utterance`` events, which are a person's words, can become a task, a rule, an ask or something said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from zlib import crc32

from refold.conversation.message import ROOT, Message, chain_id, is_observation
from refold.reading.calls import read_fenced_call
from refold.reading.deeds import note_call, note_change, take_outcome
from refold.reading.draft import BLOCK_CHARS, StateDraft, cut_lines, join_block
from refold.reading.events import Action, CallOutcome, FileChange, ReadEvent, Statement, Utterance, Value, WorkPlan
from refold.reading.person import (
    POINTING_CHARS,
    TELLING_WORDS,
    adopt_ask,
    find_answered,
    hear_person,
    hear_talk,
    take_question,
)
from refold.reading.read import is_typed_result, read, read_all
from refold.reading.rules import lazy_form
from refold.reading.same import is_negative, matter_words
from refold.reading.state import Belief, BeliefKind, OpenItem, OwnedValue, Quote, State

Reader = Callable[[Message, tuple[Action, ...]], Sequence[ReadEvent]]
"""Returns the events of a message, given the calls that wait for a result, oldest first."""

_BELIEFS: dict[str, BeliefKind] = {
    "finding": "finding",
    "cause": "cause",
    "decision": "decision",
    "conclusion": "conclusion",
    "done": "done",
}
_BELIEFS_PER_MESSAGE = 5
_CAUSES_PER_MESSAGE = 2
# Two beliefs that say the same share this much of the longer one's words; two that deny each other share less.
_SAME_BELIEF = 0.8
_OPPOSED = 0.6
_FIRST_PERSON = lazy_form("first_person")
_REASON = lazy_form("reason")
_DONE_STATUS = lazy_form("done_status")


def advance(state: State, messages: Iterable[Message], reader: Reader) -> State:
    """Return the state after these messages. Any division into chunks gives the same state."""
    draft = StateDraft(state)
    for message in messages:
        events = reader(message, tuple(call.action for call in draft.pending))
        draft.open_message(message)
        _take_message(draft, message, (*events, *_read_typed_calls(draft, message, events)))
        draft.close_message()
    return draft.freeze()


# States by the id of the last message and a mark of all the texts before: what is forgotten keeps its id, not its text.
STATES_MAX = 256
_KNOWN: dict[tuple[str, int], State] = {}


def advance_known(messages: Sequence[Message], events: Sequence[Sequence[ReadEvent]]) -> State | None:
    """Return the state after messages whose events were read, from the newest known one; None if none is before them.

    Ids are chained: a known message stands for everything before it.
    """
    keys = list(accumulate(messages, _follow, initial=_find_parent(messages[0])))
    known = next((at for at in range(len(messages), 0, -1) if keys[at] in _KNOWN), 0)
    before = keys[known][0]
    state = State() if before == ROOT else _KNOWN.get(keys[known])
    for message in messages[known:] if state is not None else ():
        if message.id != chain_id(before, message.digest):
            return None
        before = message.id
    if state is not None and known < len(messages):
        rest = iter(events[known:])
        state = advance(state, messages[known:], lambda _message, _waiting: next(rest))
        while len(_KNOWN) >= STATES_MAX:
            _KNOWN.pop(next(iter(_KNOWN.copy())), None)
        _KNOWN[keys[-1]] = state
    return state


def _follow(key: tuple[str, int], message: Message) -> tuple[str, int]:
    return message.id, crc32(b"".join(part.text.encode("utf-8", "surrogatepass") for part in message.parts), key[1])


def _find_parent(message: Message) -> tuple[str, int]:
    """Return the key of the known message that this one follows, or one that is no key."""
    keys = ((ROOT, 0), *reversed(_KNOWN.copy()))  # The newest is the likeliest.
    return next((known for known in keys if chain_id(known[0], message.digest) == message.id), ("?", 0))


def read_ahead(messages: Sequence[Message]) -> None:
    """Read messages when they arrive, and advance the state, so that a later fold finds both in memory."""
    events = list(read_all(messages))
    for event in chain.from_iterable(events):
        if isinstance(event, Statement | Utterance):
            matter_words(event.text)
    # What counts as a result among a user's texts is settled by the fold, which sees all of them.
    if messages and not any(is_typed_result(message, is_observation) for message in messages):
        advance_known(messages, events)


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
        hear_person(draft, message, events, words)
    statements = [event for event in events if isinstance(event, Statement)]
    if draft.is_talk and statements:
        asks = [item.quote for item in draft.open if item.kind == "ask"]
        hear_talk(draft, statements, take_question(draft) or (asks[-1] if asks else None))
        statements = []
    answered = find_answered(draft)
    has_call = any(isinstance(event, Action) for event in events)
    if statements:
        draft.drop_open("next")
    for event in events:
        if isinstance(event, Statement) and not draft.is_talk:
            is_step = has_call and event.kind == "decision" and _announces_step(event.text)
            # A question beside a call is put to nobody.
            is_musing = has_call and event.kind == "question"
            if not is_musing:
                event = replace(event, kind="intent") if is_step else event
                _hear_assistant(draft, event, None if has_call else answered)
        elif isinstance(event, Action):
            adopt_ask(draft)
            draft.acted = draft.messages
            note_call(draft, event)
            if event.verb == "finish":
                draft.drop_open("ask", "next", "plan")
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


def _hear_assistant(draft: StateDraft, event: Statement, answered: Quote | None) -> None:
    if event.retracts:
        draft.drop_open("next")
        if draft.beliefs and draft.beliefs[-1].quote.position >= draft.messages - 2:
            draft.strike(draft.beliefs.pop().quote, draft.quote(event))
    if event.kind in _BELIEFS and not (event.retracts and len(matter_words(event.text)) < TELLING_WORDS):
        _note_belief(draft, event, _BELIEFS[event.kind], answered)
    elif event.kind == "intent":
        draft.drop_open("next")
        draft.open.append(OpenItem(kind="next", quote=draft.quote(event, join_block(event.text, event.block))))
    elif event.kind == "question":
        draft.open.append(OpenItem(kind="question", quote=draft.quote(event, join_block(event.text, event.block))))


def _announces_step(text: str) -> bool:
    """Return whether a decision only says what the call beside it does; one with a reason says more."""
    return _FIRST_PERSON.match(text) is not None and _REASON.search(text) is None


def _note_belief(draft: StateDraft, event: Statement, kind: BeliefKind, answered: Quote | None) -> None:
    quote = draft.quote(event)
    words = matter_words(quote.text)
    kept = []
    for belief in draft.beliefs:
        own = matter_words(belief.quote.text)
        shared = len(own & words) / (max(len(own), len(words)) or 1)
        if shared < _OPPOSED:
            kept.append(belief)
        elif is_negative(belief.quote.text) != is_negative(quote.text):
            draft.strike(belief.quote, quote)
        elif shared < _SAME_BELIEF:
            kept.append(belief)
    block, _ = cut_lines(event.block, BLOCK_CHARS)
    belief = Belief(kind=kind, quote=quote, lead=event.lead[:300], block=block, is_last=event.is_last, about=answered)
    draft.beliefs = [*kept, belief]


def _end_message(draft: StateDraft, statements: list[Statement], *, has_call: bool) -> None:
    _thin_beliefs(draft)
    questions = [event for event in statements if event.kind == "question"]
    words = questions[-1] if questions else statements[-1]
    text = words.text
    before = next((event for event in reversed(statements[: statements.index(words)]) if not event.in_block), None)
    if before is not None and before.part == words.part and len(text) <= POINTING_CHARS:
        text = f"{before.text} {text}"  # "Shall I?" says nothing alone, nor does the last item of a list.
    draft.proposal = draft.quote(words, join_block(text, words.block))
    # A question that comes with an answer leaves nothing open; one alone asks for more.
    has_answer = not questions or any(event.kind in _BELIEFS or event.block for event in statements)
    if not has_call and has_answer:
        draft.drop_open("ask")


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
    draft.drop_open("plan")
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
