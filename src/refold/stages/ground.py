"""The claims of a summary, and the source that they are checked against.

A claim is a path, an identifier, a code or a number of three digits or more, spelled letter for letter. Claims are
wider than the artifact index on purpose: a claim too many costs one sentence of a summary, one too few lets something
invented in. The ground is every word of the originals, calls and results included, never an earlier summary. Both are
linear in the text; the ground is built once per fold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from refold.conversation.message import Message
from refold.patterns import lazy_regex
from refold.reading.fields import read_json

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
_COUNTED = lazy_regex(r"\d{1,2}(?:-[a-z]+)+")
# Choices that people write with a slash; any other pair of words may be a folder.
_PAIRS = lazy_regex(
    r"and/or|yes/no|read/write|input/output|client/server|true/false|on/off|he/she|his/her|n/a|w/o|i/o|tcp/ip|ci/cd|"
    r"start/stop|before/after|pass/fail|frontend/backend|request/response|push/pull|add/remove|key/value|in/out|"
    r"success/failure|up/down|left/right|sync/async|user/assistant|open/close|either/or|pros/cons|create/update|"
    r"enable/disable|local/remote|start/end|min/max|date/time",
    re.I,
)
_DOTTED_LETTERS = lazy_regex(rf"(?:[{LETTERS}]\.)+[{LETTERS}]?")
_EDGES_LEFT = ":;?!&=+.%,-"
_EDGES_RIGHT = ":;?!&=+.%,-/\\#$@~"
_FLAG = lazy_regex(r"--[A-Za-z][\w-]*")


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
    plain = join_thousands(normalise(text))
    found: dict[str, None] = {}
    for quoted in _QUOTED.findall(plain):
        word = trim(quoted)
        if _LETTER.search(word) or is_number(word):
            found[word] = None
    for run in _RUN.findall(plain):
        for piece in [run] if "://" in run or "::" in run else _JOINT.split(run):
            word = trim(piece)
            if is_claim(word):
                found[word] = None
    return list(found)


def trim(word: str) -> str:
    """Return a word without the punctuation around it; the dashes of an option and the root of a path stay."""
    right = word.rstrip(_EDGES_RIGHT)
    return right if _FLAG.fullmatch(right) else right.lstrip(_EDGES_LEFT)


def is_number(word: str) -> bool:
    """Return whether a word is a number, a version or a date of digits with three of them or more."""
    return bool(_NUMBER.fullmatch(word)) and sum(char.isdigit() for char in word) >= 3


def is_claim(word: str) -> bool:
    """Return whether a word names something that its source must have, letter for letter."""
    if len(word) < 2:
        return False
    if not _LETTER.search(word):
        return sum(char.isdigit() for char in word) >= 3
    if any(mark in word for mark in ("_", "@", "\\", "#", "$", "::", "~")) or word.startswith("--"):
        return True
    if "/" in word:
        return not _PAIRS.fullmatch(word)
    if "." in word:
        return not _DOTTED_LETTERS.fullmatch(word) and not _AMOUNT.fullmatch(word)
    return _is_code(word) or bool(_HUMP.search(word))


def _is_code(word: str) -> bool:
    """Return whether letters and digits mix as in an id, a code or a name with a number; not as in an amount."""
    digits = sum(char.isdigit() for char in word)
    if not digits or _AMOUNT.fullmatch(word) or _COUNTED.fullmatch(word):
        return False
    return digits >= 3 or len(word) >= 5


_PARSE_CHARS_MAX = 400_000
_DEPTH_MAX = 20
TRIES_MAX = 5_000
# All quotations of one summary together.
QUOTE_TRIES_MAX = 50_000
_INNER = lazy_regex(r"[0-9A-Za-z_\u00c0-\u024f\u0370-\u052f]")
_SPOKEN = lazy_regex(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_PRODUCT = lazy_regex(r"[A-Z][A-Za-z]+")
# Where a clause begins and ends, and what may be between that and its first and last word.
_BORDERS = "\n.!?;:,…。！？；：，、—"
_AROUND = " \t\"'`“”‘’「」『』（）()[]*_>-•#0123456789"
_EDGE_CHARS = 12
# Words that may be between two of a run: marks of HTML, keys of JSON, numbers of lines.
_GAP_WORDS = 4
# Cyrillic and Greek letters that look like Latin ones.
_LOOK_ALIKES = str.maketrans("аеорсухіѕјһԁԛԝвкмнтαοερκντυιχγ", "aeopcyxisjhdqwbkmhtaoepkvtuixy")


def split_words(text: str) -> list[str]:
    """Return the words of a text in plain lower case letters, without signs; each Chinese character is one."""
    if text.isascii():
        return _SPOKEN.findall(text.lower())
    plain = unicodedata.normalize("NFKD", text).lower().translate(_LOOK_ALIKES)
    # Accents and invisible characters would split a word, or hide that it is the same.
    return _SPOKEN.findall("".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Mn")))


class Ground:
    """The text that claims are looked up in. ``vocabulary``: the words that runs consist of; all if None."""

    def __init__(self, texts: Iterable[str], vocabulary: Collection[str] | None = None) -> None:
        self._text = normalise("\n".join(texts))
        self._vocabulary = vocabulary
        joined = join_thousands(self._text)
        self._joined = joined if joined != self._text else ""
        self._lower: str | None = None
        self._plain: str | None = None
        self._known: dict[str, bool] = {}
        self._tries = QUOTE_TRIES_MAX

    @classmethod
    def of_messages(cls, messages: Iterable[Message], also: Iterable[str] = ()) -> Ground:
        """Return the ground of these messages; ``also`` is other text that may be quoted."""
        return cls([*(text for message in messages for text in _read_texts(message)), *also])

    def has(self, claim: str) -> bool:
        """Return whether the source contains a claim as a whole word."""
        known = self._known.get(claim)
        if known is None:
            known = self._known[claim] = self._look_up(claim)
        return known

    def has_sentence(self, text: str) -> bool:
        """Return whether the source contains a text from one border of a sentence, clause or line to another."""
        wanted = normalise(text)
        at = self._text.find(wanted)
        # A hostile summary quotes thousands of letters: once the tries are used up, a quotation counts as invented.
        while at >= 0 and self._tries > 0:
            self._tries -= 1
            if _is_whole_sentence(self._text, at, at + len(wanted)):
                return True
            at = self._text.find(wanted, at + 1)
        return False

    def has_text(self, text: str) -> bool:
        """Return whether the source contains a text as it is."""
        return normalise(text) in self._text

    def has_run(self, words: Sequence[str]) -> bool:
        """Return whether the source contains these words in a row, with signs and few words of no interest between."""
        if self._plain is None:
            self._plain = f" {' '.join(self._list_words())} "
        return f" {' '.join(words)} " in self._plain

    def _list_words(self) -> Iterator[str]:
        """Yield the words of the vocabulary, and a line break where too many others are between two of them."""
        others = 0
        for word in split_words(self._text):
            if self._vocabulary is not None and word not in self._vocabulary:
                others += 1
                continue
            if others > _GAP_WORDS:
                yield "\n"
            others = 0
            yield word

    def _look_up(self, claim: str) -> bool:
        if is_number(claim):
            bare = claim.strip("$#~%+-")
            return _finds(self._text, bare, _is_whole_number) or _finds(self._joined, bare, _is_whole_number)
        if any(_finds(text, claim, _is_whole_word) for text in (self._text, self._joined)):
            return True
        if _PRODUCT.fullmatch(claim):
            # GitHub for github is a spelling, not an invention; names from code must match letter for letter.
            if self._lower is None:
                self._lower = self._text.lower()
            return _finds(self._lower, claim.lower(), _is_whole_word)
        return False


def _finds(text: str, wanted: str, is_whole: Callable[[str, int, int], bool]) -> bool:
    at = text.find(wanted)
    # In hostile text it is everywhere and nowhere whole: then it counts as absent, which drops the sentence.
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


def _is_whole_sentence(text: str, start: int, stop: int) -> bool:
    """Return whether a piece is a sentence, clause or line: "delete it" is not what "do not delete it" says."""
    before = text[max(0, start - _EDGE_CHARS) : start].rstrip(_AROUND)
    after = text[stop : stop + _EDGE_CHARS].lstrip(_AROUND)
    is_begun = not before or before[-1] in _BORDERS
    return is_begun and (not after or after[0] in _BORDERS or text[stop - 1] in _BORDERS)


def _is_whole_number(text: str, start: int, stop: int) -> bool:
    """Return whether a number is whole: not part of a longer number or of its decimals."""
    if start and (text[start - 1].isdigit() or (text[start - 1] == "." and text[start - 2 : start - 1].isdigit())):
        return False
    follows = text[stop : stop + 2]
    return not (follows[:1].isdigit() or (follows[:1] == "." and follows[1:].isdigit()))


def _read_texts(message: Message) -> Iterable[str]:
    for part in message.parts:
        if part.name:
            yield part.name
        yield part.text
        if part.kind == "call" and "\\" in part.text:
            yield part.text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
            if len(part.text) <= _PARSE_CHARS_MAX:
                yield from _list_strings(read_json(part.text))


def _list_strings(value: object, depth: int = 0) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEPTH_MAX and isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _list_strings(inner, depth + 1)
    elif depth < _DEPTH_MAX and isinstance(value, list):
        for inner in value:
            yield from _list_strings(inner, depth + 1)
