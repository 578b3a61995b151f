"""The story of a span, line by line: what people asked, what was said and done, what came of it, what is open.

Everything is verbatim: sentences behind ``U>`` (a person) and ``A>`` (the assistant), calls and commands as they were
written, outcomes as the tools reported them. Each line has a worth; which lines are written is decided by the room.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from refold.conversation.message import Message
from refold.conversation.reason import Language
from refold.conversation.view import Fact, FoldRecord
from refold.memo import Memo
from refold.patterns import lazy_regex
from refold.stages.extract import words
from refold.stages.extract.actions import Action, find_actions, first_line
from refold.stages.extract.facts import classify_sentence, find_facts, merge_facts
from refold.stages.extract.layout import Line, Topic, cut_line, mark_list, neutralise, note_cuts, shorten_handle
from refold.stages.extract.steps import tell_files, tell_steps
from refold.stages.extract.words import (
    SCAN_CHARS,
    Saying,
    find_pending,
    find_rules,
    find_sayings,
    is_announcement,
    is_intent,
    shorten,
    split_sentences,
)

# A sentence longer than this is cut; Chinese says as much in half as many characters.
SENTENCE_CHARS = 160
# A text of which at least one in so many characters is Chinese.
HAN_PART = 4
SENTENCES_MAX = 40
# So many words make a sentence that can say something.
FULL_WORDS = 6.0
INFO_POWER = 0.7
# The opening of an answer is more often its point than the rest, in work more than in talk.
FIRST_BOOST, FIRST_BOOST_TALK = 2.0, 1.2
# A task begins with what it is about: so much more are its first sentences worth, even beside its rules.
GOAL_SENTENCES, GOAL_BOOST = 2, 8.0
# A later fold reads the sentences of an earlier one again: they may take so much memory in this process.
READ_BYTES_MAX = 16_000_000
RULE_CHARS = 300
PENDING_CHARS = 1_600
# A shorter question ("And now?") leans on what was said before.
QUESTION_CHARS_MIN = 16
PLAN_MAX = 30
# A task that the assistant called unfinished is open only if one of its newest messages says so.
OPEN_REPLIES = 6

_LINE_END = lazy_regex(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_LEFT_OUT = {"en": "[… {count} characters left out, {handle}]", "zh": "[…… 省略 {count} 字，{handle}]"}
# A longer Chinese sentence is quoted clause by clause.
WHOLE_CHARS_ZH, CLAUSE_CHARS_ZH = 70, 20
# The text after one of these signs can be read by itself, unless its first word refers to what came before.
_CLAUSE_ZH = lazy_regex(
    r"[，；](?!(?:因|由于|所以|因此|但|可是|不过|而|并|且|也|就|才|却|还|又|再|则|便|其|它|这|那|否则|结果|导致|以|需|说明|比)|"
    r"[^，；。！？]{0,9}(?:[。！？]|\Z))"
)
# A statement of some length, and the question behind it.
_ASKS_LAST_ZH = lazy_regex(r"([^\n]{9,}[，；。！])([^，；。！]+)\Z")
_HAN = lazy_regex(r"[\u3400-\u9fff]")
_FENCE = lazy_regex(r"```.*?(?:```|\Z)", re.S)
# A line that announces a list, and three entries or more. Entries of so many words on average are sentences.
_LIST = lazy_regex(
    r"^(?P<claim>[^\n]{3,400}[:：])[ \t]*\n(?:[ \t]*\n)?"
    r"(?P<entries>(?:[ \t]*(?:[-*•]|\d{1,3}[.)、])[ \t]{0,4}[^\n]{1,300}(?:\n|\Z)){3,})",
    re.M,
)
ENTRY_WORDS_MAX = 7
LIST_CHARS_MAX = 200
_TODO_TOOL = lazy_regex(r"todo|plan|task", re.I)
_BOX = lazy_regex(r"(?:[-*]|\d{1,3}\.)[ \t]{0,4}\[[ xX~-]\]")
_LEANS = lazy_regex(
    r"(?:(?:but|and|so|now|yes|no|ah|ok(?:ay)?),? ){0,3}(?:this|that|these|those|it|here|there|everything)\b", re.I
)
# A sentence that leans on the one before it needs so many words of its own, one less if it gives a cause.
LEANING_WORDS_MIN = 3
# A cause, a decision or a failure is worth telling wherever it is.
TELLING_BONUS = 0.7
_AT_LINE = lazy_regex(
    r"\blines? (?:\d|numbers?\b)|\b(?:is|are|starts?|begins?|ends?|defined) at \d{3,5}\b(?![-:.%]\d| ?%)", re.I
)
_NAMED = lazy_regex(r"`[^`\n]{2,60}`|\d{2}|\w_\w|[a-z][A-Z]|“|「|《|\w/\w")


@dataclass(frozen=True, slots=True)
class Span:
    """Source of a story: the messages of a span and what was read from them."""

    messages: Sequence[Message]
    asks: Sequence[Saying]
    replies: Sequence[Saying]
    rules: Sequence[Saying]
    pending: Sequence[Saying]
    actions: Sequence[Action]
    facts: Sequence[Fact]
    language: Language
    # The assistant spoke right after the span: ``pending`` asks are no longer open.
    is_answered: bool = False

    @property
    def ask_topic(self) -> Topic:
        """The section for asks at the end that the span does not answer."""
        if not self.is_answered:
            return "open"
        return "happened" if self.is_talk else "asked"

    @property
    def is_talk(self) -> bool:
        """True if hardly anything was done: then the words of both sides are one thread."""
        return not self.actions or len(self.actions) * 4 < len(self.replies)


def read_span(
    whole: Sequence[Message],
    fresh: Sequence[Message],
    previous: Sequence[FoldRecord],
    language: Language,
    *,
    is_answered: bool = False,
) -> Span:
    """Read what was said and done in a span: words from all originals, facts from the new ones and earlier folds."""
    replies = find_sayings(whole, "assistant")
    asks = _join_approved(find_sayings(whole, "user"), replies)
    new = {message.id for message in fresh}
    said = sorted((one for one in (*asks, *replies) if whole[one.at].id in new), key=lambda one: one.at)
    carried = [fact for fold in previous for fact in fold.facts]
    return Span(
        messages=whole,
        asks=asks,
        replies=replies,
        rules=find_rules(asks),
        pending=find_pending(whole, asks),
        actions=find_actions(whole),
        facts=merge_facts(carried, find_facts(said)),
        language=language,
        is_answered=is_answered,
    )


def _join_approved(asks: Sequence[Saying], replies: Sequence[Saying]) -> list[Saying]:
    """Return the asks; one that only approves has what it approves behind it, or is left out."""
    joined: list[Saying] = []
    for ask in asks:
        if not words.is_approval(ask.text):
            joined.append(ask)
            continue
        before = next((reply for reply in reversed(replies) if reply.at < ask.at), None)
        asked = [one for one in before.sentences if words.QUESTION.search(one)] if before else []
        if asked and len(asked[-1]) <= SENTENCE_CHARS:
            joined.append(replace(ask, text=f"{ask.text} ← {asked[-1]}"))
    return joined


def tell_story(span: Span) -> list[Line]:
    """Return every line that a span has to offer, oldest first within its topic."""
    lines = [
        *_tell_rules(span),
        *_tell_pending(span),
        *_tell_plan(span),
        *_tell_words(span),
        *tell_steps(span.actions, span.language),
        *tell_files(span.actions, span.language),
    ]
    return [line for line in lines if line.text]


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


def _quote_bare(saying: Saying, chars_max: int, language: Language) -> str:
    return quote(saying, chars_max, language)[3:]


def _tell_rules(span: Span) -> Iterator[Line]:
    """Standing rules, the newest worth most: a rule may replace an older one."""
    for age, rule in enumerate(reversed(span.rules)):
        yield Line("rule", _quote_bare(rule, RULE_CHARS, span.language), 40 / (4 + age), rule.at, "U")


def _tell_pending(span: Span) -> Iterator[Line]:
    for age, ask in enumerate(reversed(span.pending)):
        chars = PENDING_CHARS // (1 + 3 * age)
        yield Line(span.ask_topic, _quote_bare(ask, chars, span.language), 12 / (1 + age), ask.at, "U")


def _tell_words(span: Span) -> Iterator[Line]:
    """The sentences of both sides that tell something, each worth what its words promise and how rare they are."""
    open_asks = {ask.at for ask in span.pending}
    rules = {rule.text for rule in span.rules}
    newest = {reply.at for reply in span.replies[-OPEN_REPLIES:]}
    is_talk, has_actions = span.is_talk, bool(span.actions)
    said = [(one, read_saying(one, is_talk=is_talk)) for one in (*span.asks, *span.replies) if one.at not in open_asks]
    # In a talk the rare words tell; in work the words that come back are what it is about.
    rarity = Rarity([sentence.text for _, sentences in said for sentence in sentences]) if is_talk else None
    for saying, sentences in said:
        who = "U" if saying.role == "user" else "A"
        is_first = not is_talk and bool(span.asks) and saying is span.asks[0]
        weighed: list[Line] = []
        follows = False
        for number, sentence in enumerate(sentences):
            if sentence.text in rules or (has_actions and sentence.is_announced):
                follows = False
                continue
            topic: Topic = "happened" if sentence.topic == "open" and saying.at not in newest else sentence.topic
            boost = 1.0 if number else (FIRST_BOOST_TALK if is_talk else FIRST_BOOST)
            if is_first and number < GOAL_SENTENCES:
                boost = GOAL_BOOST
            for clause in sentence.clauses:
                before = weighed[-1].text if weighed else ""
                glue = clause.glue if follows else _find_glue(before, clause.text, saying.text) if before else ""
                worth = boost * clause.worth * (rarity.weigh(clause.whole) if rarity else clause.told)
                after = before if glue is not None else ""
                at = saying.at + len(weighed) / 10_000
                text = note_cuts(clause.text, saying.handle)
                weighed.append(Line(topic, text, worth, at, who, after, glue or "", handle=saying.handle))
                follows = True
        yield from heapq.nlargest(SENTENCES_MAX, weighed, key=lambda line: line.worth)


class Rarity:
    """Weights of words by rarity: a word that hardly any other sentence has says most."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._words = {sentence: words.find_words(sentence) for sentence in sentences}
        seen = Counter(word for sentence in sentences for word in self._words[sentence])
        most = math.log(len(sentences) + 2)
        self._told = {word: 1 - math.log(1 + times) / most for word, times in seen.items()}

    def weigh(self, sentence: str) -> float:
        """Return about 1 for a sentence of a handful of telling words, less for fewer, a little more for many."""
        found = self._words.get(sentence)
        found = words.find_words(sentence) if found is None else found
        # The words are a set: fsum gives the same sum in whichever order a process has them.
        return _weigh_telling(math.fsum([self._told.get(word, 1.0) for word in found]))


def _weigh_telling(told: float) -> float:
    return float(min(1.6, (told / FULL_WORDS) ** INFO_POWER))


class Clause(NamedTuple):
    """A sentence, or a clause of it, as a story may quote it, and what it is worth by itself.

    ``told`` weighs its words where none is rare. ``glue`` is what lies between it and the clause before it; None if
    they do not follow each other.
    """

    text: str
    worth: float
    told: float
    glue: str | None
    whole: str


class SaidSentence(NamedTuple):
    """A sentence that is made of words, its topic, and its clauses."""

    text: str
    topic: Topic
    is_announced: bool
    clauses: tuple[Clause, ...]


def _measure(sentences: tuple[SaidSentence, ...]) -> int:
    """Return about how many bytes the sentences of a saying take."""
    return sum(300 + 2 * len(one.text) + sum(200 + len(clause.text) for clause in one.clauses) for one in sentences)


_READ: Memo[tuple[SaidSentence, ...]] = Memo(READ_BYTES_MAX, _measure)


def read_saying(saying: Saying, *, is_talk: bool) -> tuple[SaidSentence, ...]:
    """Return the sentences of a saying that may be quoted; a later fold does not read them again."""
    return _READ.recall(lambda: tuple(_read_sentences(saying, is_talk)), saying.text, saying.role, is_talk)


def _read_sentences(saying: Saying, is_talk: bool) -> Iterator[SaidSentence]:
    who = "U" if saying.role == "user" else "A"
    before = ""
    for sentence in _find_sentences(saying):
        clauses = []
        for clause in split_clauses(sentence):
            text = _shorten_sentence(clause)
            worth = weigh_sentence(clause, saying.role, is_talk=is_talk)
            told = _weigh_telling(len(words.find_words(clause)))
            clauses.append(Clause(text, worth, told, _find_glue(before, text, saying.text), clause))
            before = text
        is_announced = who == "A" and is_announcement(sentence)
        yield SaidSentence(sentence, _find_topic(sentence, who, is_talk=is_talk), is_announced, tuple(clauses))


def _find_glue(before: str, text: str, whole: str) -> str | None:
    """Return what is between two clauses of a text that follow each other: nothing or a blank; else None."""
    return next((gap for gap in ("", " ") if f"{before}{gap}{text}" in whole), None)


def _find_topic(sentence: str, who: str, *, is_talk: bool) -> Topic:
    if who == "U":
        return "happened" if is_talk else "asked"
    if is_talk:
        return "happened"
    if words.finds(words.STORY_OPEN, sentence):
        return "open"
    if words.finds(words.STORY_GUESS, sentence):
        return "happened"
    if words.finds(words.STORY_CAUSE, sentence):
        return "found"
    is_decision = words.finds(words.STORY_DECIDES, sentence) and not words.STORY_EDITS.match(sentence)
    return "found" if is_decision else "happened"


def _find_sentences(saying: Saying) -> list[str]:
    """Return the sentences of a saying that are made of words, in order, without what only leads in."""
    text = saying.text[:SCAN_CHARS]
    said = _split_with_lists(_FENCE.sub("\n", text) if "```" in text else text)
    whole = words.join_halves(said, text, _most_chars(text))
    trimmed = (words.trim_opening(sentence, saying.role) for sentence in whole)
    return [sentence for sentence in trimmed if words.is_prose(sentence) and not words.is_polite(sentence)]


def _split_with_lists(text: str) -> list[str]:
    """Return the sentences of a text; a list of names or values is one of them, whole or as its claim and its count."""
    said: list[str] = []
    start = 0
    for found in _LIST.finditer(text):
        entries = [line for line in found["entries"].split("\n") if line.strip()]
        if sum(len(words.find_words(entry)) for entry in entries) > ENTRY_WORDS_MAX * len(entries):
            continue
        block = text[found.start() : found.end()].strip()
        said += split_sentences(text[start : found.start()])
        said.append(block if len(block) <= LIST_CHARS_MAX else f"{found['claim'].strip()}{mark_list(len(entries))}")
        start = found.end()
    return [*said, *split_sentences(text[start:])]


def split_clauses(sentence: str) -> list[str]:
    """Return a long Chinese sentence in its clauses, each with the sign that ends it; any other whole.

    Chinese strings together with commas what English says in several sentences. A statement that ends in a question
    ("…推荐您去故宫，您看可以吗？") is two clauses however short it is: the statement tells something.
    """
    if sentence.isascii() or not _HAN.search(sentence):
        return [sentence]
    if words.QUESTION.search(sentence) and (border := _ASKS_LAST_ZH.match(sentence)):
        return [*split_clauses(border[1]), border[2]]
    if len(sentence) <= WHOLE_CHARS_ZH:
        return [sentence]
    clauses: list[str] = []
    start = 0
    for match in _CLAUSE_ZH.finditer(sentence):
        if match.end() - start >= CLAUSE_CHARS_ZH <= len(sentence) - match.end():
            clauses.append(sentence[start : match.end()])
            start = match.end()
    return [*clauses, sentence[start:]]


def weigh_sentence(sentence: str, role: str, *, is_talk: bool) -> float:
    """Return what a sentence promises by its words: causes, decisions and failures most, guesses and offers least."""
    found = [bonus for cue, bonus in words.STORY_WORTH if words.finds(cue, sentence)]
    worth = 0.7 + sum(found)
    worth += 0.2 * min(3, len(_NAMED.findall(sentence[:SENTENCE_CHARS])))
    if words.is_chatter(sentence):
        worth *= 0.3
    is_question = words.QUESTION.search(sentence) is not None
    if role == "user":
        if is_question or words.finds(words.STORY_REQUEST, sentence):
            # Where something is done for a person, the request is the goal; in a talk the answer tells more.
            return worth * (0.5 if is_talk or (is_question and len(sentence) < QUESTION_CHARS_MIN) else 1.0)
        kind = classify_sentence(sentence, role)
        return worth * USER_FACTOR.get(kind or "", 1.1)
    says_nothing = words.finds(words.STORY_OFFER, sentence) or words.is_field(sentence) or words.only_leans(sentence)
    if is_question or says_nothing:
        return worth * 0.3
    if not is_talk and is_intent(sentence):
        return worth * (0.3 if words.STORY_LOOKS.search(sentence) else 0.7)
    if not is_talk and _says_little(sentence, max(found, default=0.0)):
        return worth * 0.3
    return worth * 0.45 if words.finds(words.STORY_GUESS, sentence) else worth


def _says_little(sentence: str, bonus: float) -> bool:
    """True for a sentence that means nothing by itself: "This looks good now.", or a place that the next edit moves."""
    is_telling = bonus >= TELLING_BONUS
    if _LEANS.match(sentence) and not _NAMED.search(sentence):
        return len(words.find_words(sentence)) < (LEANING_WORDS_MIN - 1 if is_telling else LEANING_WORDS_MIN)
    return not is_telling and _AT_LINE.search(sentence) is not None


USER_FACTOR = {"decision": 2.0, "preference": 1.7, "todo": 1.6, "key": 1.4}


def _shorten_sentence(sentence: str) -> str:
    """Return a sentence on one line, cut where it is very long."""
    most = _most_chars(sentence)
    line = " ".join(_split_lines(sentence))
    if len(line) <= most:
        return line
    return cut_line(line, most)


def _most_chars(text: str) -> int:
    # English has signs beyond ASCII, too: dashes, quotes, names of people.
    is_chinese = not text.isascii() and len(_HAN.findall(text)) * HAN_PART > len(text)
    return SENTENCE_CHARS * 2 // 3 if is_chinese else SENTENCE_CHARS


# What is planned.


def _tell_plan(span: Span) -> Iterator[Line]:
    """The newest plan or checklist, item by item with its state."""
    for action in reversed(span.actions):
        if _TODO_TOOL.search(action.tool) and (items := _read_todos(action)):
            yield Line("open", "\n".join(items), 6.0, 1e9)
            return
    for reply in reversed(span.replies):
        boxes = [line for raw in reply.text[:SCAN_CHARS].split("\n") if _BOX.match(line := raw.strip())]
        if len(boxes) >= 2:
            text = "\n".join(f"A> {neutralise(box[:200])}" for box in boxes[:PLAN_MAX])
            yield Line("open", text, 6.0, 1e9)
            return


def _read_todos(action: Action) -> list[str]:
    try:
        arguments = json.loads(action.raw or "{}")
    except (ValueError, RecursionError):
        return []
    lists = [value for value in arguments.values() if isinstance(value, list)] if isinstance(arguments, dict) else []
    items = []
    for entry in (lists[0] if lists else [])[:PLAN_MAX]:
        if not isinstance(entry, dict):
            continue
        named = (entry.get(key) for key in ("content", "step", "text", "title", "task"))
        words = next((value for value in named if isinstance(value, str)), "")
        status = entry.get("status", "")
        if words:
            told = f"- {neutralise(first_line(words, 200))}"
            items.append(f"{told} ({neutralise(status[:40])})" if isinstance(status, str) and status else told)
    return items
