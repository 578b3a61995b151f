"""What the index and a query call a word. Pure and linear, the same for both sides.

Chinese, Japanese, Korean and Thai become single characters and pairs, so that a word of two characters is found without
a dictionary. Paths, versions, dates, error codes and identifiers stand whole and in pieces. English is stemmed lightly.
A word never holds a space, a quote or a control character: it can be handed to a search engine as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from refold.recall.english import FAINT_STEMS, STOP_WORDS, list_forms, stem

WORD_CHARS_MAX = 64
# A query is a question or a value; who pastes a megabyte means its beginning and its end.
QUERY_CHARS_MAX = 8_000
QUERY_WORDS_MAX = 64
FAINT_WEIGHT = 0.3

# Scripts that do not put spaces between words, and Hangul, whose words change their ends.
_UNSPACED = "\u0e00-\u0e7f\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_SYMBOLS = "\u2190-\u21ff\u2600-\u27bf\U0001f300-\U0001faff"
_LETTERS = rf"[^\W{_UNSPACED}]"
# One match is a run of an unspaced script, a compound (letters and digits with joints inside), or one symbol.
_RUN = re.compile(
    rf"(?P<run>[{_UNSPACED}]+)|(?P<word>{_LETTERS}+(?:(?:[.:/\\@+#%~'’-]{{1,3}}|,(?=\d)){_LETTERS}+)*)|(?P<symbol>[{_SYMBOLS}])"
)
# A pair with one of these crosses the border of a word, or is none.
_STOP_CHARACTERS = frozenset("的是了吗呢么吧啊")
_STOP_PAIRS = frozenset(
    re.findall(r"\w+", "多少 哪个 哪些 哪里 怎样 之前 刚才 上次 我们 你们 他们 请问 可以 一下 这个 那个 没有 记得")
)
# The same words where a text is plain ASCII, in one pass.
_ASCII_WORD = re.compile(r"\w+(?:(?:[.:/\\@+#%~'-]{1,3}|,(?=\d))\w+)*", re.ASCII)
_VALUE_MARK = re.compile(r"\d{3}|[A-Za-z]\d|\d[A-Za-z]|[\w-][_./@:]\w")
_JOINTS = frozenset("_./:@+#%~-")
_PIECE = re.compile(rf"{_LETTERS}+")
_NOT_WORD = re.compile(r"[^\w./:@+#%~-]")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")
_COMMA_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_POSSESSIVE = re.compile(r"['’]s?\b")
_MONTHS = {
    name: at
    for at, names in enumerate(
        (
            ("january", "jan"), ("february", "feb"), ("march", "mar"), ("april", "apr"), ("may",), ("june", "jun"),
            ("july", "jul"), ("august", "aug"), ("september", "sep", "sept"), ("october", "oct"), ("november", "nov"),
            ("december", "dec"),
        ),
        1,
    )
    for name in names
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE_NUMERIC = re.compile(
    r"(?P<y1>\d{4})[-/.年](?P<m1>\d{1,2})[-/.月](?P<d1>\d{1,2})(?!\d)|(?<!\d)(?P<m4>\d{1,2})月(?P<d4>\d{1,2})[日号]"
)
_DATE_NAMED = re.compile(
    rf"(?<!\d)(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m2>{_MONTH})\b\.?(?:,? (?P<y2>\d{{4}})\b)?"
    rf"|\b(?P<m3>{_MONTH})\b\.? (?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<y3>\d{{4}})\b)?",
    re.I,
)
_DIGIT = re.compile(r"\d")
_DATE_JOINT = re.compile(r"\d[-/.年月]")
_MONTH_HEADS = tuple(sorted({name[:3] for name in _MONTHS}))


def find_words(text: str) -> list[str]:
    """Return the words of a text as the index keeps them, in order, repeated as they repeat."""
    return _walk(text, with_singles=True)


def query_words(query: str) -> dict[str, float]:
    """Return the words to look for, each with its weight; common ones only if there are no others."""
    clipped = clip_query(query)
    counts = Counter(_walk(clipped, with_singles=False))
    words = {word: times for word, times in counts.items() if not _is_common(word)} or dict(counts)
    # The first words of a query say most; the limit is for pasted text.
    return {
        word: FAINT_WEIGHT if word in FAINT_STEMS else 1.0 if times == 1 else 1.3
        for word, times in list(words.items())[:QUERY_WORDS_MAX]
    }


def _is_common(word: str) -> bool:
    """Tell whether a word is in every other question, and so says nothing about what this one is after."""
    return word in STOP_WORDS or word in _STOP_PAIRS or (len(word) == 2 and not _STOP_CHARACTERS.isdisjoint(word))


def value_words(text: str) -> list[str]:
    """Return the words of a text that only exact values have: paths, versions, identifiers, codes, longer numbers."""
    found = dict.fromkeys(_walk(clip_query(text), with_singles=False))
    return [word for word in found if len(word) > 2 and word[0] != "@" and _VALUE_MARK.search(word)]


def is_value(query: str) -> bool:
    """Tell whether a query is one exact value, such as a path, an id or a version, and no question."""
    value = query.strip()
    return value.isascii() and len(value.split()) == 1 and _VALUE_MARK.search(value) is not None


def piece_words(query: str) -> list[str]:
    """Return the smallest words of a query, compounds taken apart: a place that quotes it holds all of them."""
    found = dict.fromkeys(_walk(clip_query(query), with_singles=False))
    return [word for word in found if not set(word) & _JOINTS]


def clip_query(query: str) -> str:
    """Return the part of a query that is read."""
    if len(query) <= QUERY_CHARS_MAX:
        return query
    half = QUERY_CHARS_MAX // 2
    return f"{query[:half]} {query[-half:]}"


class WordSieve:
    """Finds which of a few words a text holds, as the index would, without collecting all the other words."""

    def __init__(self, words: Iterable[str]) -> None:
        self.wanted = frozenset(words)
        self._wants_dates = any(word[0] == "@" for word in self.wanted)
        # A stem is the head of every form of its word, but for its last letters and for irregular forms.
        heads = {form[: max(2, min(len(form) - 2, 5))] for word in self.wanted for form in (word, *list_forms(word))}
        # Marks that are left out of a word may be in its head.
        self._head = re.compile("|".join(("[,'\\\\]", *map(re.escape, sorted(heads)))), re.I)
        self._known: dict[str, frozenset[str]] = {}

    def find(self, text: str) -> set[str]:
        """Return the wanted words that are in a text."""
        if not text.isascii():
            return set(self.wanted.intersection(_walk(text, with_singles=True)))
        found: set[str] = set()
        known = self._known
        for compound in set(_ASCII_WORD.findall(text)):
            held = known.get(compound)
            if held is None:
                is_near = self._head.search(compound) is not None
                held = self.wanted.intersection(_split_compound(compound)) if is_near else frozenset()
                known[compound] = held
            if held:
                found |= held
        if self._wants_dates:
            found |= self.wanted.intersection(find_dates(text))
        return found


def _walk(text: str, *, with_singles: bool) -> list[str]:
    """Return the words of a text; single characters of an unspaced script only if asked, or if they stand alone."""
    if text.isascii():
        return [*itertools.chain.from_iterable(map(_split_compound, _ASCII_WORD.findall(text))), *find_dates(text)]
    found: list[str] = []
    for match in _RUN.finditer(text):
        piece = match.group()
        if match.lastgroup == "run":
            if with_singles or len(piece) == 1:
                found.extend(piece)
            found.extend(map("".join, itertools.pairwise(piece)))
        elif match.lastgroup == "word":
            found.extend(_split_compound(piece))
        else:
            found.append(piece)
    found.extend(find_dates(text))
    return found


def find_dates(text: str) -> list[str]:
    """Return the dates that a text names, however written, as ``@2023-02-04`` and ``@02-04``."""
    # Every date has a digit. Most texts name no month; looking for its head is far cheaper than the pattern.
    if _DIGIT.search(text) is None:
        return []
    matches = [*_DATE_NUMERIC.finditer(text)] if _DATE_JOINT.search(text) else []
    lowered = text.lower()
    for head in _MONTH_HEADS:
        if head in lowered:
            matches += _DATE_NAMED.finditer(text)
            break
    found: list[str] = []
    for match in matches:
        groups = {name[0]: value for name, value in match.groupdict().items() if value}
        month = _MONTHS.get(groups["m"].lower()) or int(groups["m"])
        day = int(groups["d"])
        if not (1 <= month <= 12 and 1 <= day <= 31):
            continue
        found.append(f"@{month:02}-{day:02}")
        if "y" in groups:
            found.append(f"@{int(groups['y']):04}-{month:02}-{day:02}")
    return found


@lru_cache(maxsize=65_536)
def _split_compound(compound: str) -> tuple[str, ...]:
    """Return a compound's words: itself whole, its components, and the words that they are made of."""
    if compound.isalpha() and compound.isascii() and (compound.islower() or compound[1:].islower()):
        return (shorten(stem(compound.lower())),)
    compound = _POSSESSIVE.sub("", compound)
    if _COMMA_NUMBER.fullmatch(compound):
        return (compound.replace(",", ""),)
    found: dict[str, None] = {}
    lowered = compound.lower().replace("\\", "/")
    parts = [lowered]
    if len(lowered) > 2:
        # path:12, host/path, user@host, key:value: what stands between the joints is a name of its own.
        parts += (segments := re.split(r"[,:@]+", lowered))
        parts += (component for segment in segments if "/" in segment for component in segment.split("/"))
    for part in parts:
        if part and not part.isalpha():
            found[shorten(_NOT_WORD.sub("", part).strip("./-+#~%"))] = None
    for piece in _PIECE.findall(compound):
        found[_stem_piece(piece)] = None
        inner = _CAMEL.findall(piece)
        if len(inner) > 1:
            found.update((_stem_piece(word), None) for word in inner if len(word) > 1)
    found.pop("", None)
    return tuple(found)


def _stem_piece(piece: str) -> str:
    lowered = piece.lower().strip("_")
    return shorten(stem(lowered) if lowered.isascii() and lowered.isalpha() else _NOT_WORD.sub("", lowered))


def shorten(word: str) -> str:
    """Return a word as it is kept: a very long one by its head and a hash of all of it."""
    if len(word) <= WORD_CHARS_MAX:
        return word
    return f"{word[:40]}~{hashlib.blake2b(word.encode(), digest_size=8).hexdigest()}"
