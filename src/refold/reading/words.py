"""What people and the assistant say: sentences with their meaning, as events.

A person's sentence is an ``Utterance``, the assistant's a ``Statement``, what the program around the model writes a
``HarnessNote``. The meaning comes from the rules of each language; where several rules fit a sentence, the order of
``_PERSON`` and ``_ASSISTANT`` decides: a guess is never a finding, a question never a fact. Code, tables and headings
are no sentences; they are kept with the sentence that introduces them. A very long text is read at both ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from refold.conversation.message import Part
from refold.conversation.speaker import find_blocks
from refold.patterns import lazy_regex
from refold.reading.events import (
    HarnessNote,
    NoteKind,
    PlanItem,
    ReadEvent,
    Statement,
    StatementKind,
    Utterance,
    UtteranceKind,
    WorkPlan,
)
from refold.reading.rules import find_kinds, lazy_rule, load_weights
from refold.reading.sentences import PlacedSentence, split_sentences

Voice = Literal["person", "assistant", "harness"]

# Of a longer text so many characters are read at its beginning and at its end.
HEAD_CHARS, TAIL_CHARS = 48_000, 24_000
# A longer message of a person is a document, such as a task with the report of a bug: past its beginning it answers
# nothing.
PASTED_CHARS = 1_500
OPENING_CHARS = 200
# The last sentence of so long a text is its conclusion, unless it only announces, asks or guesses.
TRAIN_CHARS = 600
# An approval is short.
APPROVAL_CHARS = 120
RULE_CHARS = 400
BOXES_MIN = 2
# What kind of note it is shows at its beginning.
NOTE_CHARS = 600

_PERSON: tuple[UtteranceKind, ...] = ("rule", "correction", "approval", "request", "question")
_ASSISTANT: tuple[StatementKind, ...] = ("guess", "conclusion", "done", "cause", "decision", "finding", "intent")
_QUESTION = lazy_rule("words", "form", "question", "is")
# A question that asks for a deed, not for words.
_ASKS_FOR = lazy_rule("words", "form", "asks_for", "is")
_ASKS_OPENLY = lazy_rule("words", "form", "asks_openly", "is")
_BOX = lazy_regex(r"\[[ xX~-]\][ \t]{1,4}(?=\S)")
_NEXT_STEP = lazy_rule("words", "form", "next_step", "is")
# Labels before the first sentence: "THOUGHT:", and stamps of time and name of a chat that was recorded.
_LABEL = lazy_rule("words", "form", "label", "is")
_STAMP = lazy_rule("words", "form", "stamp", "is")
_STAMP_OPENS = lazy_rule("words", "form", "stamp_opens", "is")
_NAMED = lazy_rule("words", "form", "named", "is")
# A client's own commands, as it writes them into the message of a person.
_COMMAND_TAGS = lazy_rule("words", "form", "command_tags", "is")
_NOTES: dict[NoteKind, re.Pattern[str]] = {
    "complaint": lazy_rule("words", "note", "complaint"),
    "continue": lazy_rule("words", "note", "continue"),
    "environment": lazy_rule("words", "note", "environment"),
    "command": lazy_rule("words", "note", "command"),
}
_ASKS_LAST_ZH = lazy_rule("words", "form", "asks_last_zh", "is")


def read_words(part: Part, index: int, speaker: Voice) -> tuple[ReadEvent, ...]:
    """Return what the words of one part say, in order; ``index`` is the place of the part in its message."""
    text = part.text
    if not text.strip():
        return ()
    if speaker == "harness":
        return (_read_note(text, index, 0, len(text)),)
    if speaker == "assistant":
        sentences = _read_sentences(text, 0, len(text))
        return (*_read_statements(sentences, index, text), *_read_boxes(sentences, index, text))
    events: list[ReadEvent] = []
    at = 0
    for start, stop in [*_find_notes(text), (len(text), len(text))]:
        events += _read_utterances(_read_sentences(text, at, start), index, text)
        if start < stop:
            events.append(_read_note(text, index, start, stop))
        at = stop
    return tuple(events)


def _find_notes(text: str) -> list[tuple[int, int]]:
    """Return what the program around the model wrote into a person's message: reminders, names of commands."""
    command = _COMMAND_TAGS.match(text)
    return [command.span()] if command is not None else find_blocks(text)


def _read_note(text: str, index: int, start: int, stop: int) -> HarnessNote:
    opening = text[start : min(stop, start + NOTE_CHARS)]
    kind: NoteKind = next((kind for kind, pattern in _NOTES.items() if pattern.search(opening)), "reminder")
    return HarnessNote(part=index, start=start, stop=stop, text=text[start:stop], kind=kind)


def _read_sentences(text: str, start: int, stop: int) -> list[PlacedSentence]:
    """Return the sentences of a text without the label before them; a label that names the speaker is their lead."""
    lead = ""
    stamp = _STAMP.match(text, start, stop) if _STAMP_OPENS.match(text, start, stop) else None
    if stamp is not None:
        start, lead = stamp.end(), stamp[0].strip()
    elif (label := _LABEL.match(text, start, stop)) is not None:
        start = label.end()
    if stop - start <= HEAD_CHARS + TAIL_CHARS:
        found = split_sentences(text, start, stop)
    else:
        # Both cuts fall on the border of a line where there is one near.
        head_stop = text.rfind("\n", start + HEAD_CHARS // 2, start + HEAD_CHARS)
        tail_start = text.find("\n", stop - TAIL_CHARS, stop - TAIL_CHARS // 2)
        head = split_sentences(text, start, start + HEAD_CHARS if head_stop < 0 else head_stop)
        found = [*head, *split_sentences(text, stop - TAIL_CHARS if tail_start < 0 else tail_start, stop)]
    split = [piece for one in found for piece in _split_question(one)]
    return [replace(one, lead=lead) for one in split] if lead else split


def find_stamp(text: str) -> int:
    """Return where the words of a recorded chat begin, behind the time and the name of the speaker; else 0."""
    stamp = _STAMP.match(text) if _STAMP_OPENS.match(text) else None
    return stamp.end() if stamp is not None else 0


def _split_question(sentence: PlacedSentence) -> tuple[PlacedSentence, ...]:
    """Split a Chinese statement from the question at its end: "…推荐您去故宫，您看可以吗？"."""
    text = sentence.text
    if text.isascii() or text[-1] not in "？?" or sentence.block:
        return (sentence,)
    border = _ASKS_LAST_ZH.fullmatch(text)
    if border is None:
        return (sentence,)
    at = border.end(1)
    return (
        replace(sentence, text=text[:at], stop=sentence.start + at),
        replace(sentence, text=text[at:], start=sentence.start + at),
    )


def _read_utterances(sentences: Iterable[PlacedSentence], index: int, text: str) -> Iterator[Utterance]:
    is_pasted = len(text) > PASTED_CHARS
    block_stop = -1
    for sentence in sentences:
        if sentence.shape in ("code", "table", "tag", "heading"):
            continue
        kinds = find_kinds(sentence.text, "person")
        yield Utterance(
            part=index,
            start=sentence.start,
            stop=sentence.stop,
            text=sentence.text,
            kind=_classify_person(sentence, kinds, is_pasted=is_pasted and sentence.start > OPENING_CHARS),
            is_fact="fact" in kinds,
            lead=sentence.lead,
            block=sentence.block,
            in_block=sentence.start < block_stop,
        )
        block_stop = max(block_stop, _find_block_stop(sentence, text))


def _find_block_stop(sentence: PlacedSentence, text: str) -> int:
    """Return where the block of a sentence ends in its text; before everything if it has none."""
    if not sentence.block:
        return -1
    return text.find(sentence.block, sentence.stop) + len(sentence.block)


def _classify_person(sentence: PlacedSentence, found: frozenset[str], *, is_pasted: bool) -> UtteranceKind:
    text, kinds = sentence.text, set(found)
    if sentence.shape == "quote":
        return "remark"
    if _QUESTION.search(text) is not None:
        return "request" if "request" in kinds and _ASKS_FOR.search(text) is not None else "question"
    if len(text) > RULE_CHARS:
        kinds.discard("rule")
    # "Yes, my user ID is JT-70" answers a question.
    if len(text) > APPROVAL_CHARS or "fact" in kinds:
        kinds.discard("approval")
    if is_pasted:
        kinds -= {"approval", "correction"}
    return next((kind for kind in _PERSON if kind in kinds), "remark")


def _read_statements(sentences: Sequence[PlacedSentence], index: int, text: str) -> Iterator[Statement]:
    spoken = [one for one in sentences if one.shape in ("prose", "item", "quote")]
    closing = _find_closing(spoken)
    block_stop = -1
    for sentence in spoken:
        is_last = sentence is closing
        kind, retracts = _classify_assistant(sentence, closes_train=is_last and len(text) >= TRAIN_CHARS)
        yield Statement(
            part=index,
            start=sentence.start,
            stop=sentence.stop,
            text=sentence.text,
            kind=kind,
            lead=sentence.lead,
            block=sentence.block,
            in_block=sentence.start < block_stop,
            retracts=retracts,
            is_last=is_last,
        )
        block_stop = max(block_stop, _find_block_stop(sentence, text))


def _read_boxes(sentences: Sequence[PlacedSentence], index: int, text: str) -> Iterator[WorkPlan]:
    """Yield the plan that a list of boxes to tick is; a single box is a remark."""
    found = [(one, box) for one in sentences if one.shape == "item" and (box := _BOX.match(one.text))]
    if len(found) >= BOXES_MIN:
        items = tuple(PlanItem(one.text[box.end() :], box[0].strip()) for one, box in found)
        start, stop = found[0][0].start, found[-1][0].stop
        yield WorkPlan(part=index, start=start, stop=stop, text=text[start:stop], items=items)


def _find_closing(spoken: Sequence[PlacedSentence]) -> PlacedSentence | None:
    """Return the sentence that closes a message: the last one that is no politeness; of a list, what introduces it."""
    last = next((one for one in reversed(spoken) if "polite" not in find_kinds(one.text, "assistant")), None)
    if last is None or last.shape == "prose":
        return last
    return next((one for one in reversed(spoken) if one.block and one.text == last.lead), last)


def _classify_assistant(sentence: PlacedSentence, *, closes_train: bool) -> tuple[StatementKind, bool]:
    """Return the kind of a statement, and whether it takes back the one before it."""
    if sentence.shape == "quote":
        return "remark", False
    kinds = find_kinds(sentence.text, "assistant")
    retracts = "retraction" in kinds
    if _QUESTION.search(sentence.text) is not None:
        # A question that the assistant asks itself is a doubt.
        is_asked = "question" in kinds or _ASKS_OPENLY.search(sentence.text) is not None
        return ("question" if is_asked else "guess"), retracts
    if "question" in kinds and not kinds & {"guess", "done"}:
        return "question", retracts
    if "polite" in kinds:
        return "remark", retracts
    if "negated" in kinds and "done" in kinds:
        kinds = (kinds - {"done"}) | {"finding"}
    # "I'm loading the guide because it is published" announces a step; "I'll use a lock" decides.
    if "step" in kinds or ("intent" in kinds and not kinds & {"decision", "conclusion", "guess"}):
        return "intent", retracts
    kind: StatementKind = next((kind for kind in _ASSISTANT if kind in kinds), "remark")
    # "But first I should revert the prints" ends a thought with the next step, not with its point.
    is_point = kind in ("cause", "decision", "finding", "done", "remark") and not _NEXT_STEP.match(sentence.text)
    if closes_train and is_point:
        kind = "conclusion"
    return kind, retracts


@lru_cache(maxsize=32_768)
def weigh(event: Utterance | Statement, *, is_talk: bool = False) -> float:
    """Return how much a sentence counts beside others, by its kind, its place and the exact names it has.

    In a talk a message is a sentence or two: names and the last place say nothing there.
    """
    weights = load_weights("sentences")
    kind: str = event.kind
    is_said = isinstance(event, Utterance)
    as_person = find_kinds(event.text, "person") if is_said or is_talk else frozenset()
    kinds = as_person if is_said else find_kinds(event.text, "assistant")
    if kind in ("remark", "question") and "polite" in find_kinds(event.text, "assistant"):
        return 0.0
    if is_talk and _STAMP_OPENS.match(event.lead):
        # Two people talk with each other: the role of one of them is the assistant's.
        return max(load_weights("talk").get(kind, 0.0) for kind in ("remark", *as_person))
    if kind == "question" and not is_said:
        kind = "intent"
    elif kind == "remark":
        kind = "rule" if "decision" in as_person else "fact" if as_person & {"fact", "news"} else kind
    worth = weights[kind] + weights["denied"] * ("negated" in kinds and kind in ("finding", "decision"))
    if is_talk:
        return worth
    worth += weights["named"] * min(3, len(_NAMED.findall(event.text[:400])))
    return worth * weights["last"] if isinstance(event, Statement) and event.is_last else worth


def close_once(events: Sequence[ReadEvent]) -> tuple[ReadEvent, ...]:
    """Return the events of a message of several parts: only the last part with words closes the message."""
    last = max((event.part for event in events if isinstance(event, Statement)), default=-1)
    return tuple(
        replace(event, is_last=False)
        if isinstance(event, Statement) and event.is_last and event.part != last
        else event
        for event in events
    )
