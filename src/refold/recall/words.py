"""Words as the index and queries use them. Pure and linear, the same for both sides.

Chinese, Japanese, Korean and Thai become single characters and pairs, so that a word of two characters is found without
a dictionary. Paths, versions, dates, error codes and identifiers are kept whole and in pieces. English is stemmed by
the search engine. Days that a question names by their distance (yesterday, 上周五) become the words of their date. A
word never holds a space, a quote or a control character: it can be passed to a search engine as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import apsw

from refold.patterns import lazy_regex

# A longer word hardly occurs twice, and a cache of them would hold any amount of memory.
_CACHED_CHARS_MAX = 100

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about again all also am an and any are as at be because been before being both but by can cannot could did
        do doe does doing done for from further get give got had has have having he her here hers him his how
        i if in into is it its itself just kind let like may me might mine more most much must my need no nor
        not now of off on once one only or other our out over own please remember said same say shall she
        should so some such tell than that the their them then there these they thing this those through to
        too type under until up us use very want was way we well were what when where which while who whom
        whose why will with would yes you your im ive id dont didnt doesnt isnt wasnt cant wont thats whats""",
    )
)

# The search engine's own stemmer for English, Porter's.
_PORTER = apsw.Connection(":memory:").fts5_tokenizer("porter", ["ascii"])


def stem(word: str) -> str:
    """Return the stem of a lower-case word of ASCII letters; it need not be a word."""
    if len(word) > _CACHED_CHARS_MAX or not word.isascii():
        return word
    found = _PORTER(word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
    return "".join(map(str, found))


# "Likes", "gave" and "before" say something in a question, unlike the words that they are stems of.
_COMMON = (STOP_WORDS | {stem(word) for word in STOP_WORDS}) - {"like", "give", "type", "onc", "befor", "mai"}


_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS_ZH = "一二三四五六日"
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "两": 2} | {
    character: at for at, character in enumerate("一二三四五六七", 1)
}
_NEAR = {
    "today": 0, "yesterday": 1, "the day before yesterday": 2, "今天": 0, "昨天": 1, "前天": 2, "昨晚": 1,
}  # fmt: skip
_JOINT = lazy_regex(r"[,:@]+")
_NEAR_WORD = lazy_regex("|".join(sorted(_NEAR, key=len, reverse=True)), re.I)
_LAST_DAY = lazy_regex(rf"\b(?:last|on|this past) ({'|'.join(_DAYS)})\b", re.I)
_LAST_DAY_ZH = lazy_regex(r"上(?:周|星期|个星期|礼拜)([一二三四五六日天])")
_AGO = lazy_regex(r"\b(\d{1,3}|one|two|three|four|five|six|seven|a) (day|week)s? ago\b", re.I)
_AGO_ZH = lazy_regex(r"(\d{1,3}|[一两二三四五六七])(天|周|个星期)前")


def name_day(moment: float) -> tuple[str, ...]:
    """Return the index's words for the day of a moment; none if the moment is not set."""
    return _name_day(int(moment // 86_400)) if 0 < moment < 32_503_680_000 else ()


@lru_cache(maxsize=1_024)
def _name_day(day: int) -> tuple[str, ...]:
    return tuple(_write(datetime.fromtimestamp(day * 86_400, UTC).date()))


def find_relative_days(query: str, now: float) -> list[str]:
    """Return the words of every day that a query names relative to ``now``."""
    if not 0 < now < 32_503_680_000:
        return []
    today = datetime.fromtimestamp(now, UTC).date()
    found: list[str] = []
    near = _NEAR_WORD.search(query)
    if near:
        found += _write(today - timedelta(_NEAR[near.group().lower()]))
    for name in _LAST_DAY.findall(query):
        found += _write(today - timedelta((today.weekday() - _DAYS.index(name.lower()) - 1) % 7 + 1))
    for character in _LAST_DAY_ZH.findall(query):
        monday = today - timedelta(today.weekday() + 7)
        found += _write(monday + timedelta(_DAYS_ZH.index("日" if character == "天" else character)))
    for number, unit in (*_AGO.findall(query), *_AGO_ZH.findall(query)):
        days = 1 if number.lower() == "a" else _NUMBERS.get(number.lower()) or int(number)
        found += _write(today - timedelta(days * (1 if unit.lower() in ("day", "天") else 7)))
    return found


def _write(day: date) -> list[str]:
    return [f"@{day:%m-%d}", f"@{day:%Y-%m-%d}"]


WORD_CHARS_MAX = 64
# A query is a question or a value; of a pasted megabyte, the beginning and the end count.
QUERY_CHARS_MAX = 8_000
QUERY_WORDS_MAX = 64

# Scripts that do not put spaces between words, and Hangul, whose words change their ends.
_UNSPACED = "\u0e00-\u0e7f\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_SYMBOLS = "\u2190-\u21ff\u2600-\u27bf\U0001f300-\U0001faff"
_LETTERS = rf"[^\W{_UNSPACED}]"
# One match is a run of an unspaced script, a compound (letters and digits with joints inside), or one symbol.
_RUN = lazy_regex(
    rf"(?P<run>[{_UNSPACED}]+)|(?P<word>{_LETTERS}+(?:(?:[.:/\\@+#%~'’-]{{1,3}}|,(?=\d)){_LETTERS}+)*)|(?P<symbol>[{_SYMBOLS}])"
)
# A pair with one of these crosses a word border or is not a word.
_STOP_CHARACTERS = frozenset("的是了吗呢么吧啊")
_STOP_PAIRS = frozenset(
    re.findall(r"\w+", "多少 哪个 哪些 哪里 怎样 之前 刚才 上次 我们 你们 他们 请问 可以 一下 这个 那个 没有 记得")
)
# The same words where a text is plain ASCII, in one pass.
_ASCII_WORD = lazy_regex(r"\w+(?:(?:[.:/\\@+#%~'-]{1,3}|,(?=\d))\w+)*", re.ASCII)
_VALUE_MARK = lazy_regex(r"\d{3}|[A-Za-z]\d|\d[A-Za-z]|[\w-][_./@:]\w")
_JOINTS = frozenset("_./:@+#%~-")
_PIECE = lazy_regex(rf"{_LETTERS}+")
_NOT_WORD = lazy_regex(r"[^\w./:@+#%~-]")
_CAMEL = lazy_regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")
_COMMA_NUMBER = lazy_regex(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_POSSESSIVE = lazy_regex(r"['’]s?\b")
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
_DATE_NUMERIC = lazy_regex(
    r"(?P<y1>\d{4})[-/.年](?P<m1>\d{1,2})[-/.月](?P<d1>\d{1,2})(?!\d)|(?<!\d)(?P<m4>\d{1,2})月(?P<d4>\d{1,2})[日号]"
)
_DATE_NAMED = lazy_regex(
    rf"(?<!\d)(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m2>{_MONTH})\b\.?(?:,? (?P<y2>\d{{4}})\b)?"
    rf"|\b(?P<m3>{_MONTH})\b\.? (?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<y3>\d{{4}})\b)?",
    re.I,
)
_DIGIT = lazy_regex(r"\d")
_DATE_JOINT = lazy_regex(r"\d[-/.年月]")
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
    return {word: 1.0 if times == 1 else 1.3 for word, times in list(words.items())[:QUERY_WORDS_MAX]}


def _is_common(word: str) -> bool:
    """Return whether a word is in every other question, so that it says nothing about this one."""
    return word in _COMMON or word in _STOP_PAIRS or (len(word) == 2 and not _STOP_CHARACTERS.isdisjoint(word))


def value_words(text: str) -> list[str]:
    """Return the exact values in a text: paths, versions, identifiers, codes, longer numbers."""
    found = dict.fromkeys(_walk(clip_query(text), with_singles=False))
    return [word for word in found if len(word) > 2 and word[0] != "@" and _VALUE_MARK.search(word)]


def is_value(query: str) -> bool:
    """Return whether a query is one exact value, such as a path, an id or a version, and no question."""
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
        # Every form of a word begins with its stem, except for the last letters.
        heads = {word[: max(2, min(len(word) - 2, 5))] for word in self.wanted}
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
    """Return the words of a text; single characters of an unspaced script only if asked for, or if they are alone."""
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


def _split_compound(compound: str) -> tuple[str, ...]:
    """Return a compound's words: itself whole, its components, and the words that they are made of."""
    return (_split if len(compound) <= _CACHED_CHARS_MAX else _split.__wrapped__)(compound)


@lru_cache(maxsize=65_536)
def _split(compound: str) -> tuple[str, ...]:
    if compound.isalpha() and compound.isascii() and (compound.islower() or compound[1:].islower()):
        return (shorten(stem(compound.lower())),)
    compound = _POSSESSIVE.sub("", compound)
    if _COMMA_NUMBER.fullmatch(compound):
        return (compound.replace(",", ""),)
    found: dict[str, None] = {}
    lowered = compound.lower().replace("\\", "/")
    parts = [lowered]
    if len(lowered) > 2:
        # path:12, host/path, user@host, key:value: each piece between the joints is a separate name.
        parts += (segments := _JOINT.split(lowered))
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
