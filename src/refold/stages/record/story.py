"""The story of a span: every line that its events offer, oldest first, with what it is worth to a successor.

Sentences are worth what their kind is worth (``reading/weights.toml``), more if they name things, less if they are
small talk. In a chat, where nothing is done, rare words count: they tell one exchange from another. A call becomes a
line with its outcome; looking around is worth little, because the agent can look again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from refold.conversation.message import Message, frozen, message_handle
from refold.conversation.reason import Language
from refold.patterns import lazy_regex
from refold.reading.events import Action, CallOutcome, ReadEvent, Statement, Utterance
from refold.reading.rules import Side, find_kinds, load_weights
from refold.reading.same import matter_words
from refold.reading.words import weigh
from refold.stages.record.frame import TOLD, Topic, cut_text, neutralise, shorten_handle
from refold.stages.record.lines import RecordLine
from refold.stages.record.sought import find_sought

# A sentence longer than this is cut, a Chinese one at two thirds of it.
SENTENCE_CHARS = 400
# A Chinese sentence of more characters is split into clauses of at least so many.
WHOLE_CHARS_ZH, CLAUSE_CHARS_ZH = 70, 20
# A list or a code block of at most so many characters is kept whole below the sentence that introduces it.
BLOCK_CHARS = 600
COMMAND_CHARS, ARGUMENTS_CHARS, OUTCOME_CHARS = 120, 100, 160
# The best so many sentences of one message compete.
SENTENCES_MAX = 12
# The first sentence of a message tells what it is about, in a talk a little.
FIRST_BOOST, FIRST_BOOST_TALK = 1.3, 1.2
# In a talk rare words tell more than the kinds of sentences.
TALK_POWER = 0.8
# An announced step.
INTENT = 0.25
# What a sentence that leans on another is worth, and how long the other may be to be quoted with it.
LEANING, LEAN_CHARS = 0.5, 120
PROPOSAL_CHARS = 240
# What was looked at without a finding, in one line of so many paths.
LOOKED, LOOKS_MAX = 0.3, 12
# A line of a result that has the task's words.
FOUND = 0.5
# A text with fewer plain words is a row of codes.
PLAIN_WORDS_MIN = 3
# In a talk the answer tells more than what was asked.
ASKED_IN_TALK = 0.5
# About so many telling words make a full sentence.
FULL_WORDS, INFO_POWER, INFO_MAX = 6, 0.7, 1.6
# So many calls for each message of the assistant with words make it work, not talk.
TALK_CALLS_SHARE = 0.25
_HAN = lazy_regex(r"[\u3400-\u9fff]")
_VERBS: dict[str, tuple[str, str]] = {
    "create": ("created", "新建"),
    "edit": ("edited", "修改"),
    "delete": ("deleted", "删除"),
    "move": ("moved", "移动"),
    "revert": ("reverted", "还原"),
}
_PLAIN = lazy_regex(r"\b[A-Za-z]{2,}\b|[\u3400-\u9fff]")
_STAMP = lazy_regex(r"[\[(][^\n\[\]()]{0,60}\d[^\n\[\]()]{0,60}[\])] ?[^\n:：]{1,40}[:：]\Z")
_PAUSE = lazy_regex(r"[，；,;]")
_LOOKED = {"en": "looked at: ", "zh": "看过："}
_EXIT = {"en": "exit code", "zh": "退出码"}


@frozen
class ReadMessage:
    """A message of a span with its events; ``at`` is its position in the conversation."""

    at: int
    message: Message
    events: tuple[ReadEvent, ...]


def is_talk(read: Sequence[ReadMessage]) -> bool:
    """Return whether hardly anything was done: then the words of both sides are one thread."""
    calls = sum(isinstance(event, Action) for one in read for event in one.events)
    replies = sum(any(isinstance(event, Statement) for event in one.events) for one in read)
    return not calls or calls < replies * TALK_CALLS_SHARE


def list_lines(read: Sequence[ReadMessage], language: Language, sought: tuple[str, ...] = ()) -> list[RecordLine]:
    """Return every line that a span has to offer, oldest first; ``sought`` are the words of the task."""
    talk = is_talk(read)
    said = [
        (one, [event for event in one.events if isinstance(event, Statement | Utterance) and not event.in_block])
        for one in read
    ]
    rarity = WordRarity([event.text for _, events in said for event in events]) if talk else None
    lines: list[RecordLine] = []
    asked: Utterance | Statement | None = None
    proposal: Statement | None = None
    for one, events in said:
        weighed = []
        tells = any(isinstance(event, Utterance) and event.is_fact for event in events)
        for number, event in enumerate(events):
            worth = _weigh(event, number, rarity)
            before = events[number - 1] if number else asked if talk else None
            line = _quote(one, event, worth, "happened" if talk else None)
            if event.kind == "approval":
                # "Sure! My id is …" approves nothing.
                weighed += [_answer(line, proposal)] if proposal is not None and not tells else []
            elif leans(event):
                weighed.append(_lean(line, event, before))
            else:
                clauses = split_clauses(event)
                weighed += [line] if len(clauses) == 1 else _quote_clauses(one, clauses, number, rarity)
        best = sorted(weighed, key=lambda line: -line.worth)[:SENTENCES_MAX]
        lines += sorted(best, key=lambda line: line.start)
        asked = events[-1] if events and events[-1].kind == "question" else None
        proposal = _find_proposal(events) if events else proposal
    return [*lines, *_list_steps(read, language, sought)]


def _quote_clauses(
    one: ReadMessage, clauses: Sequence[Statement | Utterance], number: int, rarity: WordRarity | None
) -> list[RecordLine]:
    topic: Topic | None = "happened" if rarity else None
    return [_quote(one, clause, _weigh(clause, number, rarity), topic) for clause in clauses]


def leans(event: Statement | Utterance) -> bool:
    """Return whether a sentence says something of what was named before it: "It is the second one.", "地址是…"."""
    side: Side = "person" if isinstance(event, Utterance) else "assistant"
    return "leans" in find_kinds(event.text, side)


def _lean(line: RecordLine, event: Statement | Utterance, before: Statement | Utterance | None) -> RecordLine:
    """Return the line of a sentence that leans on another with that one, if it is short; alone it tells little."""
    worth = line.worth * LEANING
    if before is None or before.block or len(before.text) > LEAN_CHARS:
        return replace(line, worth=worth)
    if type(before) is type(event):
        glue = "" if line.text[:1] >= "\u3000" else " "
        return replace(line, text=f"{flatten(before.text)}{glue}{line.text}", start=before.start, worth=worth)
    return replace(_answer(line, before), worth=worth)


def _answer(line: RecordLine, before: Statement | Utterance) -> RecordLine:
    """Return a line with what it answers or approves."""
    who = "U" if isinstance(before, Utterance) else "A"
    about = cut_text(flatten(before.text), PROPOSAL_CHARS, line.handle)
    return replace(line, text=f"{line.text} ← {who}: {about}", stop=-1)


def _find_proposal(events: Sequence[Statement | Utterance]) -> Statement | None:
    """Return what a yes after this message would approve: its last question, else its last sentence."""
    spoken = [event for event in events if isinstance(event, Statement)]
    return next((event for event in reversed(spoken) if event.kind == "question"), spoken[-1] if spoken else None)


def _quote(one: ReadMessage, event: Statement | Utterance, worth: float, topic: Topic | None) -> RecordLine:
    who = "U" if isinstance(event, Utterance) else "" if one.message.parts[0].text.startswith(TOLD) else "A"
    chars = SENTENCE_CHARS if event.text.isascii() or not _HAN.search(event.text) else SENTENCE_CHARS * 2 // 3
    handle = message_handle(one.message)
    text = cut_text(flatten(event.text.lstrip(TOLD)), chars, handle)
    if event.block:
        text = f"{text}{quote_block(event.block, handle)}"
    topic = topic or ("wanted" if who == "U" else "happened")
    stop = event.stop if not event.block else -1
    stamp = flatten(event.lead) if _STAMP.match(event.lead) else ""
    return RecordLine(topic, text, worth, one.at, who, event.start, stop, handle, is_firm=bool(stamp), stamp=stamp)


def split_clauses(event: Statement | Utterance) -> list[Statement | Utterance]:
    """Return a long Chinese sentence as its clauses, any other as it is.

    Chinese strings together with commas what English says in several sentences.
    """
    text = event.text
    if text.isascii() or len(text) <= WHOLE_CHARS_ZH or event.block or not _HAN.search(text):
        return [event]
    borders = [0]
    for match in _PAUSE.finditer(text):
        if match.end() - borders[-1] >= CLAUSE_CHARS_ZH <= len(text) - match.end():
            borders.append(match.end())
    return [
        replace(event, text=text[start:stop], start=event.start + start, stop=event.start + stop)
        for start, stop in pairwise([*borders, len(text)])
    ]


def flatten(text: str, glue: str = " ") -> str:
    """Return a text on one line, harmless to the frame; within its own lines every space is kept."""
    return neutralise(glue.join(line for part in text.splitlines() if (line := part.strip())))


def quote_block(block: str, handle: str) -> str:
    """Return the list or code below its sentence: whole if it is short, else its size and where it is."""
    lines = [line.rstrip() for line in neutralise(block).strip("\n").split("\n") if line.strip()]
    if len(block) <= BLOCK_CHARS:
        return "".join(f"\n  {line}" for line in lines)
    return f" [+{len(lines)} lines {shorten_handle(handle)}]"


def _weigh(event: Statement | Utterance, number: int, rarity: WordRarity | None) -> float:
    worth = weigh(event, is_talk=rarity is not None)
    if rarity is None:
        # An announced step is listed as what was done.
        worth = worth * _weigh_words(len(telling_words(event.text))) if event.kind != "intent" else INTENT
        return worth * FIRST_BOOST if number == 0 else worth
    worth = float(worth**TALK_POWER) * rarity.weigh(event.text)
    if len(_PLAIN.findall(event.text[:SENTENCE_CHARS])) < PLAIN_WORDS_MIN:
        worth *= LEANING**2
    if event.kind in ("request", "question") and (isinstance(event, Utterance) or _STAMP.match(event.lead)):
        worth *= ASKED_IN_TALK
    return worth * FIRST_BOOST_TALK if number == 0 else worth


def telling_words(sentence: str) -> frozenset[str]:
    """Return the words that tell one sentence from another; where work is done, numbers are left to the values."""
    return frozenset(word for word in matter_words(sentence) if not word[0].isdigit())


class WordRarity:
    """Weights of words by rarity: a word that hardly any other sentence has says most."""

    def __init__(self, sentences: Sequence[str]) -> None:
        seen = Counter(word for sentence in sentences for word in matter_words(sentence))
        most = math.log(len(sentences) + 2)
        self._rare = {word: 1 - math.log(1 + times) / most for word, times in seen.items()}

    def weigh(self, sentence: str) -> float:
        """Return about 1 for a sentence of a handful of rare words, less for fewer, a little more for many."""
        # The words are a set: fsum gives the same sum in whichever order a process has them.
        return _weigh_words(math.fsum(self._rare.get(word, 1.0) for word in matter_words(sentence)))


def _weigh_words(words: float) -> float:
    return min(INFO_MAX, (words / FULL_WORDS) ** INFO_POWER) if words else 0.1


@dataclass(slots=True)
class _Step:
    one: ReadMessage
    action: Action
    outcome: CallOutcome | None = None
    result_handle: str = ""
    result: str = ""
    times: int = 1


def _list_steps(read: Sequence[ReadMessage], language: Language, sought: tuple[str, ...]) -> Iterator[RecordLine]:
    """Return one line for each call that says something, with its outcome; equal ones are counted."""
    calls = load_weights("calls")
    steps: dict[tuple[str, str, str], _Step] = {}
    for step in pair_steps(read):
        outcome = step.outcome
        key = (step.action.tool, step.action.text, outcome.text if outcome else "")
        if key in steps:
            step.times = steps.pop(key).times + 1
        steps[key] = step
    seen: dict[str, int] = {}
    for step in steps.values():
        outcome = step.outcome
        worth = calls.get(step.action.verb, calls["other"])
        if worth and outcome is not None and outcome.status == "failed":
            worth = max(worth, calls["failed"])
        found = ""
        if outcome is not None and outcome.status != "failed":
            found = find_sought(step.result, sought, step.action.text)
        if outcome is not None and found and found not in outcome.text:
            yield RecordLine("happened", _write_found(step, found), max(worth, FOUND), step.one.at, start=1 << 30)
        elif worth:
            yield RecordLine("happened", _write_step(step, language), worth, step.one.at, start=1 << 30)
        elif step.action.verb in ("read", "search"):
            seen.update((target, step.one.at) for target in step.action.targets)
    if seen:
        more = f" [+{len(seen) - LOOKS_MAX}]" if len(seen) > LOOKS_MAX else ""
        paths = neutralise(", ".join(list(seen)[-LOOKS_MAX:]))
        yield RecordLine("happened", f"{_LOOKED[language]}{paths}{more}", LOOKED, max(seen.values()), start=1 << 30)


def pair_steps(read: Sequence[ReadMessage]) -> list[_Step]:
    """Return every call of a span in order, each with its outcome if it came: paired by position, as ids repeat."""
    steps: list[_Step] = []
    waiting: dict[str, list[_Step]] = {}
    for one in read:
        for event in one.events:
            if isinstance(event, Action):
                steps.append(_Step(one, event))
                waiting.setdefault(event.call_id, []).append(steps[-1])
            elif isinstance(event, CallOutcome) and waiting.get(event.call_id):
                step = waiting[event.call_id].pop()
                step.outcome, step.result_handle = event, message_handle(one.message, event.part)
                step.result = one.message.parts[event.part].text
    return steps


def _write_found(step: _Step, found: str) -> str:
    call = cut_text(flatten(step.action.text), ARGUMENTS_CHARS)
    return f"{neutralise(step.action.tool)}({call}) → {flatten(found)} {shorten_handle(step.result_handle)}"


def _write_step(step: _Step, language: Language) -> str:
    action, outcome = step.action, step.outcome
    zh = language == "zh"
    if action.verb in _VERBS and action.targets:
        line = f"{_VERBS[action.verb][zh]} {neutralise(', '.join(action.targets[:3]))}"
    elif action.verb in ("run", "test", "build", "install", "commit", "revert", "deploy") and action.text:
        line = f"$ {cut_text(flatten(action.text), COMMAND_CHARS)}"
    else:
        line = f"{neutralise(action.tool)}({cut_text(flatten(action.text), ARGUMENTS_CHARS)})"
    line += f" ×{step.times}" if step.times > 1 else ""
    if outcome is None or (action.verb in _VERBS and outcome.status != "failed"):
        return line
    came = write_outcome(outcome, language)
    where = f" {shorten_handle(step.result_handle)}" if outcome.status == "failed" else ""
    return f"{line} → {came}{where}" if came else line


def write_outcome(outcome: CallOutcome, language: Language, chars: int = OUTCOME_CHARS) -> str:
    """Return what came of a call in a few words: the exit status of a failure, the line that says so, the error."""
    status = dict(outcome.fields).get("exit_code", "")
    pieces = [f"{_EXIT[language]} {status}"] if outcome.status == "failed" and status not in ("", "0") else []
    for text in (outcome.text, outcome.error):
        brief = cut_text(flatten(text, ": "), chars)
        if brief and not any(brief in piece or piece in brief for piece in pieces):
            pieces.append(brief)
    return ": ".join(pieces)
