"""The originals that a note is checked against: their exact words, and what happened in them, by message.

A claim is a path, an identifier, a code or a number of three digits or more, spelled letter for letter. A ``Scope`` is
what one line of a note rests on: the messages it cites, their calls and results, and a few messages before them. It
separates what people said, what the assistant said and what was done. An earlier note is never part of a ground.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from refold.conversation.author import Author, read_said
from refold.conversation.message import Message
from refold.patterns import lazy_regex
from refold.reading.events import Action, CallOutcome, FileChange, ReadEvent, Statement, Utterance, Value
from refold.reading.read import read_all
from refold.reading.same import matter_words

# Latin, Greek and Cyrillic letters: a name must not escape the check through an accent or a look-alike letter.
LETTERS = "A-Za-z\u00c0-\u024f\u0370-\u052f"
_JOINT = lazy_regex(r"[=:&]+")
_RUN = lazy_regex(rf"[{LETTERS}0-9_./\\:@#$%&=?~+\-]{{2,400}}")
_QUOTED = lazy_regex(r"`([^`\s]{2,120})`")
_THOUSANDS = lazy_regex(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER = lazy_regex(r"[-+$#~]?\d+(?:\.\d+)*%?")
_LETTER = lazy_regex(rf"[{LETTERS}]")
_HUMP = lazy_regex(r"[a-z][A-Z]")
# 2nd, 10k, 30ms, 5x, 3pm, 16GB, 90s: small amounts are not claims that could be looked up.
_AMOUNT = lazy_regex(r"\d{1,2}(?:\.\d)?(?:st|nd|rd|th|x|[kKmMgGtT]i?[bB]?|s|ms|min|h|hrs?|d|am|pm|px|em|rem|%)")
_COUNTED = lazy_regex(r"\d{1,3}(?:-[a-z]+)+")
# Lines 967-1030, ports 5001/8080: numbers of their own.
_RANGE = lazy_regex(r"(?<![\w.-])(\d+)[-–/](\d+)(?![\w-]|[/.]\d)")
# Two words with a slash are a choice; a path has a sign, a digit or an ending, or stands in backquotes.
_PAIR = lazy_regex(r"[A-Za-z]+/[A-Za-z]+|(?:w/o|n/a|i/o)", re.I)
_DOTTED_LETTERS = lazy_regex(rf"(?:[{LETTERS}]\.)+[{LETTERS}]?")
_EDGES_LEFT, _EDGES_RIGHT = ":;?!&=+.%,-", ":;?!&=+.%,-/\\#$@~"
_FLAG = lazy_regex(r"--[A-Za-z][\w-]*")
_INNER = lazy_regex(r"[0-9A-Za-z_\u00c0-\u024f\u0370-\u052f]")
_PRODUCT = lazy_regex(r"[A-Z][A-Za-z]+")
_ERROR = lazy_regex(
    r"\b(?:errors?|failures?|failed|exception|traceback|rejected|denied|refused)\b|错误|失败|异常", re.I
)
# How often a claim is looked for in hostile text, and how much of a result says how a call went.
TRIES_MAX, OPENING_CHARS = 5_000, 600
# A line may take names from messages shortly before those that it cites.
BEFORE = 3


def normalise(text: str) -> str:
    """Return a text with plain digits in place of wide and look-alike ones, and without invisible characters."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf")


def join_thousands(text: str) -> str:
    """Return a text with 12,345 written as 12345."""
    return _THOUSANDS.sub("", text) if "," in text else text


def find_claims(text: str) -> list[str]:
    """Return every claim of a text, each once, in order; numbers without their thousands' commas."""
    plain = _RANGE.sub(r"\1 \2", join_thousands(normalise(text)))
    found: dict[str, None] = {}
    for quoted in _QUOTED.findall(plain):
        word = _trim(quoted)
        if _LETTER.search(word) or is_number(word):
            found[word] = None
    for run in _RUN.findall(plain):
        for piece in [run] if "://" in run or "::" in run else _JOINT.split(run):
            word = _trim(piece)
            if _is_claim(word):
                found[word] = None
    return list(found)


def _trim(word: str) -> str:
    """Return a word without the punctuation around it; the dashes of an option and the root of a path stay."""
    right = word.removesuffix("()").rstrip(_EDGES_RIGHT)
    return right if _FLAG.fullmatch(right) else right.lstrip(_EDGES_LEFT)


def is_number(word: str) -> bool:
    """Return whether a word is a number, a version or a date of digits with three of them or more."""
    return bool(_NUMBER.fullmatch(word)) and sum(char.isdigit() for char in word) >= 3


def _is_claim(word: str) -> bool:
    """Return whether a word names something that its source must have, letter for letter."""
    digits = sum(char.isdigit() for char in word)
    if len(word) < 2 or not _LETTER.search(word):
        return digits >= 3
    if any(mark in word for mark in ("_", "@", "\\", "#", "$", "::", "~")) or word.startswith("--"):
        return True
    if "/" in word:
        return not _PAIR.fullmatch(word)
    if "." in word:
        return not _DOTTED_LETTERS.fullmatch(word) and not _AMOUNT.fullmatch(word)
    # Letters and digits mix as in an id, a code or a name with a number; not as in an amount.
    is_code = digits and not _AMOUNT.fullmatch(word) and not _COUNTED.fullmatch(word) and (digits >= 3 or len(word) > 4)
    return bool(is_code or _HUMP.search(word))


class Wording:
    """A text in which claims are looked up."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.text = normalise("\n".join(texts))
        joined = join_thousands(self.text)
        self._forms = (self.text,) if joined == self.text else (self.text, joined)
        self._known: dict[str, bool] = {}

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    def has(self, claim: str) -> bool:
        """Return whether the text contains a claim as a whole word."""
        known = self._known.get(claim)
        if known is None:
            known = self._known[claim] = self._look_up(claim)
        return known

    def has_like(self, code: str) -> bool:
        """Return whether the text has another code of the same shape: the same letters, other digits."""
        shape = re.sub(r"\d", r"\\d", re.escape(code))
        return any(char.isdigit() for char in code) and bool(re.search(rf"(?<![\w.-]){shape}(?![\w-])", self.text))

    def _look_up(self, claim: str) -> bool:
        if _NUMBER.fullmatch(claim):
            number = claim.strip("$#~%+-")
            # 113.5623 for 113.56230000000001 is a rounded number; 12.34 is not 12.345.
            longer = rf"(?<![\d.]){re.escape(number)}\d{{4}}" if "." in number else ""
            return any(
                _finds(text, number, is_whole_number) or bool(longer and re.search(longer, text))
                for text in self._forms
            )
        if any(_finds(text, claim, _is_whole_word) for text in self._forms):
            return True
        # GitHub for github is a spelling, not an invention; names from code must match letter for letter.
        return bool(_PRODUCT.fullmatch(claim)) and _finds(self.lower, claim.lower(), _is_whole_word)


def _finds(text: str, wanted: str, is_whole: Callable[[str, int, int], bool]) -> bool:
    at = text.find(wanted)
    # In hostile text it is everywhere and nowhere whole: then it counts as absent, which drops the line.
    for _ in range(TRIES_MAX):
        if at < 0:
            return False
        if is_whole(text, at, at + len(wanted)):
            return True
        at = text.find(wanted, at + 1)
    return False


def _is_whole_word(text: str, start: int, stop: int) -> bool:
    before = start > 0 and _INNER.match(text[start]) and _INNER.match(text[start - 1])
    after = stop < len(text) and _INNER.match(text[stop - 1]) and _INNER.match(text[stop])
    return not before and not after


def is_whole_number(text: str, start: int, stop: int) -> bool:
    """Return whether a number is whole: not part of a longer number or of its decimals."""
    if start and (text[start - 1].isdigit() or (text[start - 1] == "." and text[start - 2 : start - 1].isdigit())):
        return False
    follows = text[stop : stop + 2]
    return not (follows[:1].isdigit() or (follows[:1] == "." and follows[1:].isdigit()))


@dataclass(frozen=True, slots=True)
class Deed:
    """A call with its result: the numbers of their messages. ``text`` is all that the two say of it."""

    action: Action
    number: int
    answered: int = 0
    outcome: CallOutcome | None = None
    changes: tuple[FileChange, ...] = ()
    text: str = ""
    result: str = ""

    @property
    def sign(self) -> int:
        """1 if it went well, -1 if it failed, 0 if the result does not say."""
        if self.outcome is None or (self.outcome.status == "unknown" and self.action.verb in ("read", "search")):
            return 0
        if self.outcome.status == "failed" or _ERROR.search(self.result[:OPENING_CHARS]):
            return -1 if self.outcome.status != "ok" else 1
        return 1 if self.outcome.status == "ok" else 0


@dataclass(frozen=True, slots=True)
class Scope:
    """What one line rests on. ``near`` has the words of all its messages and of those shortly before.

    ``said`` has the sentences of its messages and of those shortly before that say what is the case, in order.
    ``is_cited``: the line names messages. ``spoke``: the assistant is in them. ``values`` are those of its messages
    that have an owner, ``rivals`` those of the messages before. ``windows`` has each of its messages, alone and
    together with the three before it.
    """

    ground: Ground
    person: tuple[str, ...]
    assistant: tuple[str, ...]
    approves: bool
    steps: tuple[Deed, ...]
    recent: tuple[Deed, ...]
    near: Wording
    texts: tuple[str, ...]
    has_person: bool
    is_cited: bool
    spoke: bool
    said: tuple[str, ...]
    values: tuple[Value, ...]
    rivals: tuple[Value, ...]
    windows: tuple[tuple[str, str], ...]


class Ground:
    """The originals of a note. ``numbers`` are the numbers by which lines cite them, from 1 if not given.

    ``also`` is other text that may be quoted, ``asked`` what people said before these messages.
    """

    def __init__(
        self, messages: Sequence[Message], *, numbers: Sequence[int] = (), also: Iterable[str] = (), asked: str = ""
    ) -> None:
        self.numbers = tuple(numbers) or tuple(range(1, len(messages) + 1))
        self._messages, self._asked = messages, asked
        events = list(read_all(messages))
        self._events: Mapping[int, tuple[ReadEvent, ...]] = dict(zip(self.numbers, events, strict=True))
        self._texts = {at: tuple(_read_texts(one)) for at, one in zip(self.numbers, messages, strict=True)}
        self.whole = Wording([*(text for texts in self._texts.values() for text in texts), *also, asked])
        self.steps = tuple(self._pair(messages))
        self._roles = dict(zip(self.numbers, (message.role for message in messages), strict=True))
        self._results = {
            at for at, read in self._events.items() if any(isinstance(event, CallOutcome) for event in read)
        }
        self._said: dict[Author, tuple[str, ...]] = {}
        self._scopes: dict[frozenset[int], Scope] = {}

    def scope(self, cites: Iterable[int] = ()) -> Scope:
        """Return what a line rests on that cites these messages; everything if it cites none of ours."""
        cited = frozenset(cites).intersection(self._events)
        if cited not in self._scopes:
            self._scopes[cited] = self._read_scope(cited)
        return self._scopes[cited]

    def texts_of(self, author: Author) -> tuple[str, ...]:
        """Return what an author said, message by message, in plain characters."""
        if author not in self._said:
            said = [read_said(message, author) for message in self._messages if message.role == author]
            asked = [self._asked] if author == "user" else []
            self._said[author] = tuple(normalise(one) for one in (*said, *asked) if one)
        return self._said[author]

    def _read_scope(self, cited: frozenset[int]) -> Scope:
        own = cited or frozenset(self._events)
        # Of several calls of a message, a cited result picks its own.
        picked = {step.number for step in self.steps if step.answered in own}
        steps = [
            step for step in self.steps if not cited or step.answered in own or step.number in own.difference(picked)
        ]
        paired = {at for step in steps for at in (step.number, step.answered) if at in self._events}
        before = {at - back for at in cited for back in range(1, BEFORE + 1)}
        # What is said right after a result is what was read in it.
        after = {at + 1 for at in paired & self._results if at + 1 in self._events} - self._results
        near = own | paired | before if cited else own
        events = [event for at in sorted(own) for event in self._events[at]]
        stated = (event for at in sorted(own | after) for event in self._events[at])
        owned = (event for at in sorted(own | paired) for event in self._events.get(at, ()))
        around = (event for at in sorted(before) for event in self._events.get(at, ()))
        talk = (event for at in sorted(own | before | after) for event in self._events.get(at, ()))
        said = [event for event in events if isinstance(event, Utterance)]
        return Scope(
            self,
            person=(*(event.text for event in said), *((self._asked,) if not cited and self._asked else ())),
            assistant=tuple(f"{event.text} {event.block}" for event in stated if isinstance(event, Statement)),
            approves=any(event.kind == "approval" for event in said),
            steps=tuple(steps),
            recent=tuple(step for step in self.steps if step.number in near),
            near=Wording(text for at in sorted(near) for text in self._texts.get(at, ())) if cited else self.whole,
            texts=tuple(text for at in sorted(own | paired) for text in self._texts.get(at, ())),
            windows=tuple((self._join(at, at), self._join(at - BEFORE, at)) for at in sorted(cited)),
            said=tuple(event.text for event in talk if isinstance(event, (Utterance, Statement)) and _asserts(event)),
            values=tuple(event for event in owned if isinstance(event, Value) and event.owner),
            rivals=tuple(event for event in around if isinstance(event, Value) and event.owner),
            is_cited=bool(cited),
            spoke=any(self._roles[at] == "assistant" for at in own),
            has_person=bool(said) or (not cited and bool(self._asked)),
        )

    def _join(self, first: int, last: int) -> str:
        return "\n".join(text for at in range(first, last + 1) for text in self._texts.get(at, ()))

    def _pair(self, messages: Sequence[Message]) -> Iterator[Deed]:
        """Yield every call with its result and the changes that it made."""
        waiting: dict[str, list[Deed]] = {}
        for at, message in zip(self.numbers, messages, strict=True):
            events = self._events[at]
            for event in events:
                if isinstance(event, Action):
                    changes = [one for one in events if isinstance(one, FileChange) and one.call_id == event.call_id]
                    told = [one.text for one in events if isinstance(one, Statement)]
                    made = (piece for change in changes for piece in (change.path, change.removed, change.added))
                    text = "\n".join((event.tool, event.text, *event.targets, *made, *told, *self._texts[at]))
                    waiting.setdefault(event.call_id, []).append(Deed(event, at, 0, None, tuple(changes), text))
                elif isinstance(event, CallOutcome) and waiting.get(event.call_id):
                    result = message.parts[event.part].text
                    step = waiting[event.call_id].pop(0)
                    yield replace(step, answered=at, outcome=event, result=result, text=f"{step.text}\n{result}")
        yield from (step for steps in waiting.values() for step in steps)


def _asserts(event: Utterance | Statement) -> bool:
    """Return whether a sentence says what is the case, or asks whether it is."""
    return event.kind not in ("request", "approval", "intent", "guess") or event.text.rstrip().endswith(("?", "？"))


def share_words(words: frozenset[str], texts: Iterable[str]) -> float:
    """Return how many of these words texts have, 0 to 1."""
    found = {word for text in texts for word in words & (matter_words(text) | matter_words(text.replace("-", " ")))}
    return len(found) / len(words) if words else 0.0


def _read_texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        if part.name:
            yield part.name
        yield part.text
        if part.kind == "call" and "\\" in part.text:
            yield part.text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
