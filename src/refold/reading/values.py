"""Exact values: paths, ids, numbers, dates, names that a later step must spell letter for letter, with their owners.

Text is cut into words by one linear pattern and each different word is classified once, so a line of a megabyte
costs no more than many short ones. Nothing here invents or changes a value: each is a substring of its text. A value
that means nothing by itself (a number, a date, a random id) is a value only if its owner is known; the owner is found
by ``owners``, and in JSON it is the field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from refold.conversation.message import Part
from refold.patterns import lazy_regex
from refold.reading.changes import CONTENT_KEYS
from refold.reading.events import Value, ValueSource
from refold.reading.fields import parse_record
from refold.reading.outcomes import split_notes
from refold.reading.outputs import is_frame
from refold.reading.owners import OwnerFinder, list_leaves

# A part longer than this is read at its head and its tail; the middle of a giant output is reached by its handle.
HEAD_CHARS = 300_000
TAIL_CHARS = 100_000
VALUE_CHARS_MAX = 160
# A field of a record that is not longer is a value as a whole.
FIELD_CHARS_MAX = 60
# An output has at most so many lines of its harness in front.
FRAME_LINES = 12
# Values that say themselves what they are.
SELF_EXPLAINED = frozenset(("file", "url", "email", "identifier", "flag", "name", "term"))
# So many different values of one part become events.
VALUES_MAX = 1_500

_WORD = lazy_regex(r"[A-Za-z0-9_$€£¥#@~%./\\:+\-]{2,200}")
_URL = lazy_regex(r"https?://[^\s\"'<>`\\|)\]}，。；、）】》]{3,300}")
_EMAIL = lazy_regex(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}", re.ASCII)
# A quoted phrase opens and closes on a letter: else the text between two phrases would pass for one.
# The pattern begins with the sign itself, so that the engine can skip to it; the text before it is checked afterwards.
_QUOTED = lazy_regex(
    r"""['"“「《`](?:(?<=')(?<![\w\\]')([A-Za-z0-9#@~/.][^'"\\\n<>{}=;]{1,58}[\w.!?)%])'(?![\w'])"""
    r"""|(?<=")(?<![\w\\]")([A-Za-z0-9#@~/.][^"\\\n<>{}=;]{1,58}[\w.!?)%])"(?![\w"])"""
    r"""|(?<=“)([^”\n]{2,60})”|(?<=「)([^」\n]{2,60})」|(?<=《)([^》\n]{1,60})》"""
    r"""|(?<=`)(?<!``)([\w.$@#/:-]{2,60})`(?!`))"""
)
# In backticks a common word is a name of the code; in quotes ("yes.") it is how somebody put it.
_HAN = lazy_regex(r"[\u3400-\u9fff]")
_COMMON_WORD = lazy_regex(r"[a-z]+[.!?]?")
_NAME = lazy_regex(
    r"[A-Z](?<!\w[A-Z])(?<![.!?] [A-Z])(?<!^[A-Z])[a-z]{2,20}"
    r"(?<!\bHey)(?<!\bHello)(?<!\bDear)(?<!\bWow)(?<!\bThanks)(?<!\bYep)(?<!\bYes)(?<!\bYeah)(?<!\bBye)(?<!\bCongrats)(?<!\bSorry)"
    r"(?<!\bThe)(?<!\bThis)(?<!\bThat)"
    r"(?<!\bLet)(?<!\bWhat)(?<!\bHow)(?<!\bAnd)(?<!\bBut)(?<!\bFor)(?<!\bAll)(?<!\bYour)(?<!\bWhen)(?<!\bAlso)"
    r"(?<!\bKey)(?: (?:of|the|de|van)\b)?(?: [A-Z][a-z]{2,20}){1,3}\b"
    # "**Cabin Class:** economy": the label of a field names nothing.
    r"(?!\*{0,2}[:：])"
)
# ``@property`` on a line of its own is code, nobody's name; nor is the address of an object in memory an id.
_DECORATOR = lazy_regex(r"^[ \t]{0,40}@[\w.]{2,60}(?=\(|[ \t]{0,4}$)", re.M)
_OBJECT = lazy_regex(r"0x[57][0-9a-f]{11}")
# Types and encodings, which every program names; PY-313 is a ticket.
_TYPE = lazy_regex(r"(?:u?int|float|complex|bool|str|base|md|python|py)\d{1,3}|(?:utf|sha)-?\d{1,3}", re.I)
# 1724-1732 are lines of a file, gone with the next edit, or years.
_RANGE = lazy_regex(r"([1-9]\d{1,4})-([1-9]\d{1,4})")
RANGE_MAX = 500
_TAG = lazy_regex(r"[#@](?<![\w&/][#@])[A-Za-z]\w{2,40}", re.ASCII)
# Not the end of a code such as YL-0472. Bounded, and never read again from a digit further on: a list of numbers
# without a space is one long run.
_ZH_NUMBER = lazy_regex(
    r"(?<![\dA-Za-z])(?<![A-Za-z]-)\d[\d,.]{0,20}+(?:年\d{1,2}月(?:\d{1,2}日)?|月\d{1,2}[日号]|[万亿]?(?:元|块|美元|米|公里|分钟|小时|天|个月|人|岁|平方米|分(?!钟))|点\d{0,2}分?)"
)
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|"
    r"Nov(?:ember)?|Dec(?:ember)?)"
)
_DATE_WORDS = lazy_regex(
    rf"\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}\b(?:,? \d{{4}}\b)?"
    r"|\b\d{1,2}:\d{2} ?[ap]\.?m\b\.?|\b\d{1,2} [ap]m\b"
)
_JSON_KEY = lazy_regex(r'"[\w .-]{1,60}"\s*:(?=\s*[\[{"\dtfn-])', re.ASCII)
_LINE_NUMBER = lazy_regex(r"^[ \t]{0,12}\d{1,7}(?=[\t:|→-])", re.M)
# The scripts of sed and the like: 12,30p and 25s/a/b/ are places in a file, gone with the next edit.
_ANSI = lazy_regex(r"(?:\x1b|\\x1b|\\e|\\033)\[[\d;]{0,20}m")
# The pattern begins with the digit itself, so that the engine can skip to it; the text before it is checked afterwards.
_SED = lazy_regex(
    r"\d(?<![\w.]\d)\d{0,5}(?:,\d{1,6})?[pdsaic](?=['\"\s/\\])(?:/[^'\"\n]{0,200})?"
    r"|['\"]/[^'\"\n]{1,160}/[pd](?=['\"])"
)
# In a tool's table "100,200" may be two cells; a sign before it, or a person writing it, makes it one amount.
_MONEY_THOUSANDS = lazy_regex(r"[$€£¥]\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,9})?(?![\d,])")
_THOUSANDS = lazy_regex(
    r"[\d$€£¥](?<![\d,.$€£¥][\d$€£¥])(?:(?<=\d)\d{0,2}|(?<=[$€£¥])\d{1,3})(?:,\d{3}){1,6}(?:\.\d{1,9})?(?![\d,])"
)
_TAIL = lazy_regex(r"[.:,\\+\-/%]+\Z")
_HEAD = lazy_regex(r"\A(?:[:,%+\\-]+|\.(?=[.\W]))+")

_DATE = lazy_regex(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ][\d:.+Zz-]{4,32})?|\d{1,2}/\d{1,2}/\d{2,4}")
_TIME = lazy_regex(r"\d{1,2}:\d{2}(?::\d{2})?(?:\+\d{1,2})?")
_UUID = lazy_regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = lazy_regex(r"(?:0x)?(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{7,64}")
_COLOUR = lazy_regex(r"#[0-9a-fA-F]{6}(?:[0-9a-fA-F]{2})?")
_VERSION = lazy_regex(r"v?\d{1,4}\.\d{1,4}(?:\.\d{1,5}){1,2}(?:[.-]?(?:dev|rc|a|b|post|beta|alpha)[\w.]{0,12})?")
_ADDRESS = lazy_regex(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?|localhost:\d{2,5}")
_MONEY = lazy_regex(r"[$€£¥]\d[\d,]*(?:\.\d+)?[kKmM]?")
_UNIT = lazy_regex(r"\d+(?:\.\d+)?(?:ms|s|min|h|d|B|[kKMGT]i?B|[kMG]?Hz|px|em|rem|km|cm|mm|kg|mg|%)")
_NUMBER = lazy_regex(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d{3,18}(?:\.\d+)?|-?\d{1,2}\.\d{2,17}")
_TICKET = lazy_regex(r"#\d{1,8}|[A-Z][A-Z0-9]{1,9}-\d{1,8}|(?:PR|GH|CVE)-[\d-]{1,16}")
_CODE = lazy_regex(r"(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{4,24}")
_GROUPED = lazy_regex(r"(?=[\d-]{8})\d{2,8}(?:-\d{2,8}){1,5}")
_KEYED = lazy_regex(r"[A-Za-z][A-Za-z]*(?:[_-][A-Za-z]+)*[_-]?\d{3,20}")
_MIXED = lazy_regex(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9@]{6,40}")
_EXTENSION = (
    r"(?:pyi?|ipynb|[jt]sx?|mjs|cjs|json|jsonl|ya?ml|toml|ini|cfg|conf|mdx?|rst|txt|csv|tsv|html?|css|scss|xml|svg|sh|bash|"
    r"zsh|ps1|bat|c|h|cc|cpp|hpp|cs|java|kt|go|rs|rb|php|swift|scala|lua|pl|r|sql|db|sqlite3?|proto|lock|log|env|"
    r"diff|patch|gz|zip|tar|tgz|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|webp|mp[34]|wav|so|dll|exe|whl|jar|vue|svelte|astro|tex|bib|gradle|tf|mts|cts|snap|template|example|properties|plist|wasm)"
)
_PATH = lazy_regex(
    rf"(?:[A-Za-z]:\\|~?/|\.{{1,2}}/)?(?:[\w.@+~-]+[/\\])*[\w.@+-]*\w\.{_EXTENSION}(?:::[\w:.\[\]-]+)?", re.ASCII
)
# An attribute whose name is also an extension: client.db and Response.json are not files, but app.log is.
_ATTRIBUTE = lazy_regex(
    r"(?:self|cls|this|req|res|request|client|ctx|Request|Response|Client|Session)\.(?:json|db|log|env)"
)
_TREE = lazy_regex(r"(?:~?/|\.{1,2}/)?(?:[\w.@+-]+/){1,20}[\w.@+-]*", re.ASCII)
# Two words around a slash are more often a choice than a folder.
_PAIR = lazy_regex(r"[A-Za-z-]+/[A-Za-z-]+")
# 40/40 and 1/1 say that all is there; 38/40 says how much.
_ALL_OF = lazy_regex(r"(\d+)/\1")
_OUT_OF = lazy_regex(r"\d+/\d+")
_DOTTED = lazy_regex(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){1,8}(?:::\w+)*", re.ASCII)
_SCOPED = lazy_regex(r"[A-Za-z_]\w*(?:::[A-Za-z_~]\w*){1,8}", re.ASCII)
_SNAKE = lazy_regex(r"_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+_*|_+[A-Za-z]\w*", re.ASCII)
_PLURAL = lazy_regex(r"[A-Z]{2,}s")
_CAMEL = lazy_regex(
    r"[a-z]+\d*(?:[A-Z][a-z0-9]+)+[A-Z]*|(?:[A-Z][a-z0-9]+){2,}[A-Z]*|[A-Z]{2,}[a-z]\w*|[A-Z][a-z]+[A-Z]+\w*"
)
_CONST = lazy_regex(r"[A-Z]{2,}\d*(?:_[A-Z0-9]+)+")
_FLAG = lazy_regex(r"--[a-z][a-z0-9-]{2,40}")
_KEBAB = lazy_regex(r"[A-Za-z][a-z0-9]*(?:-[A-Za-z0-9]+){1,6}")

# An id with letters in front: certificate_3221322, HAT045, PY-313, USR005.
_NAMED_ID = lazy_regex(r"[#@][A-Za-z]\w*|[A-Za-z][A-Za-z_]{1,60}+-?\d[\w-]*+")

# What a field holds as a whole: a word or a few, never code.
_FIELD = lazy_regex(r"[\w$€£¥#@+~/.-][\w .,:/@#&'%+~-]*")

_ABBREVIATIONS = frozenset(("e.g", "i.e", "a.k.a", "etc", "and/or", "w/o", "n/a", "i/o"))

# Tried in order; the first that fits the whole word names it.
_SORTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("date", _DATE),
    ("time", _TIME),
    ("id", _UUID),
    ("id", _COLOUR),
    ("address", _ADDRESS),
    ("version", _VERSION),
    ("money", _MONEY),
    ("number", _UNIT),
    ("number", _NUMBER),
    ("number", _OUT_OF),
    ("id", _TICKET),
    ("id", _HEX),
    ("id", _CODE),
    ("id", _GROUPED),
    ("id", _KEYED),
    ("identifier", _ATTRIBUTE),
    ("file", _PATH),
    ("file", _TREE),
    ("identifier", _SCOPED),
    ("identifier", _DOTTED),
    ("identifier", _CONST),
    ("identifier", _SNAKE),
    ("identifier", _CAMEL),
    ("id", _MIXED),
    ("flag", _FLAG),
    ("term", _KEBAB),
)


_NAMES = tuple(f"g{at}" for at in range(len(_SORTS)))
# One pattern for all of them: of a word most sorts are tried in vain, and each try has its price.
_SORTED = lazy_regex(
    "|".join(
        f"(?P<{name}>{f'(?a:{pattern.pattern})' if pattern.flags & re.ASCII else pattern.pattern})"
        for name, (_, pattern) in zip(_NAMES, _SORTS, strict=True)
    )
)
_SORT_OF = {name: sort for name, (sort, _) in zip(_NAMES, _SORTS, strict=True)}
_TREE_NAME = next(name for name, (_, pattern) in zip(_NAMES, _SORTS, strict=True) if pattern is _TREE)

_CACHED_CHARS_MAX = 100


@lru_cache(maxsize=32_768)
def classify_word(word: str) -> tuple[str, str] | None:
    """Return the sort and the value in one word of a text, or None if it is an ordinary word."""
    if word.isalpha() and (word.islower() or word.istitle()):
        return None
    value = _TAIL.sub("", _HEAD.sub("", word))
    if (
        len(value) < 2
        or value.lower() in _ABBREVIATIONS
        or _TYPE.fullmatch(value)
        or _is_range(value)
        or _PLURAL.fullmatch(value)
        or _ALL_OF.fullmatch(value)
        or _OBJECT.fullmatch(value)
        or (value.isalpha() and (value.islower() or value.istitle()))
    ):
        return None
    if ":" in value and "::" not in value:
        value = _before_colon(value)
    found = _SORTED.fullmatch(value)
    if found is None or found.lastgroup is None:
        return None
    is_pair = found.lastgroup == _TREE_NAME and _PAIR.fullmatch(value) is not None
    return ("term" if is_pair else _SORT_OF[found.lastgroup]), value


def _is_range(value: str) -> bool:
    found = _RANGE.fullmatch(value)
    return found is not None and len(found[1]) == len(found[2]) and 0 < int(found[2]) - int(found[1]) < RANGE_MAX


def _before_colon(value: str) -> str:
    """Take ``path:12:3`` and ``key:value`` apart, leave times, addresses and drives alone."""
    if value[1:3] == ":\\" or _TIME.fullmatch(value) or _DATE.fullmatch(value) or _ADDRESS.fullmatch(value):
        return value
    return max(value.split(":"), key=len)


# A word, its sort, how often it occurs, and where first.
Place = tuple[str, str, int, int]


def read_values(part: Part, index: int, source: ValueSource) -> tuple[Value, ...]:
    """Return the exact values of one part of a message, each once, with its owner.

    In what a person or an assistant says, names and quoted phrases are values, too.
    """
    is_spoken = source in ("person", "assistant")
    text = _blank_notes(part.text)
    text = text if is_spoken else _blank_frame(text)
    record = None if is_spoken else parse_record(text.strip())
    if record is not None:
        found = _read_record(record, len(text), index)
    else:
        found = _read_text(text, index, is_spoken=is_spoken)
    chosen = sorted(found, key=_order)[:VALUES_MAX]
    return tuple(chosen) if source == "result" else tuple(replace(value, source=source) for value in chosen)


def _blank_notes(text: str) -> str:
    """Blank out what a harness wrote into a text: nobody's values."""
    notes, _ = split_notes(text)
    for start, stop, _ in notes:
        text = f"{text[:start]}{' ' * (stop - start)}{text[stop:]}"
    return text


def _blank_frame(text: str) -> str:
    """Blank out the lines that a harness put in front of an output."""
    at = 0
    for _ in range(FRAME_LINES):
        border = text.find("\n", at, at + 300)
        if border < 0 or not is_frame(text[at:border]):
            break
        at = border + 1
    return f"{' ' * at}{text[at:]}" if at else text


def _order(value: Value) -> tuple[bool, int]:
    """Order values of one part: what nobody else explains comes first, names of code last."""
    return value.sort in ("identifier", "term", "flag"), value.start


def _read_text(text: str, index: int, *, is_spoken: bool) -> Iterator[Value]:
    owners = OwnerFinder(text)
    for sort, value, times, start in find_places(text, with_names=is_spoken):
        stop = start + len(value)
        owner = "" if sort in SELF_EXPLAINED else owners.find(start, stop)
        if owner or explains_itself(sort, value):
            yield Value(part=index, start=start, stop=stop, text=value, sort=sort, owner=owner, times=times)


def _read_record(record: object, size: int, index: int) -> Iterator[Value]:
    """Read the leaves of a JSON value; the same value under several fields keeps its first owner."""
    met: dict[str, Value] = {}
    for owner, leaf in list_leaves(record):
        is_content = owner.rpartition("› ")[2] in CONTENT_KEYS
        for sort, value, times, own in _read_leaf(leaf, is_content=is_content):
            before = met.get(value)
            count = times + (before.times if before else 0)
            label = before.owner if before else f"{owner} › {own}" if own and owner else owner or own
            met[value] = Value(part=index, stop=size, text=value, sort=sort, owner=label, times=count)
    yield from met.values()


def _read_leaf(leaf: str, *, is_content: bool) -> Iterator[tuple[str, str, int, str]]:
    """Return the values of one field: itself where it is short, else those in its text; of content only those."""
    if len(leaf) <= FIELD_CHARS_MAX and not is_content and _FIELD.fullmatch(leaf):
        known = classify_word(leaf) if " " not in leaf else None
        if known is not None and known[1] == leaf:
            yield (*known, 1, "")
            return
        if len(leaf) > 1 or leaf.isdecimal():
            yield "field", leaf, 1, ""
            if " " not in leaf:
                return
    owners = OwnerFinder(leaf)
    for sort, value, times, start in find_places(leaf, with_names=False):
        own = "" if sort in SELF_EXPLAINED else owners.find(start, start + len(value))
        if value != leaf and (own or explains_itself(sort, value) or len(leaf) <= FIELD_CHARS_MAX):
            yield sort, value, times, own


def explains_itself(sort: str, value: str) -> bool:
    """Return whether a value needs no owner: a path, a name of code, a link, an id that names its kind."""
    return sort in SELF_EXPLAINED or (sort == "id" and _NAMED_ID.fullmatch(value) is not None)


def find_values(text: str, *, with_names: bool = False) -> Counter[tuple[str, str]]:
    """Return every exact value of a text as (sort, value) with how often it occurs."""
    return Counter({(sort, value): times for sort, value, times, _ in find_places(text, with_names=with_names)})


def find_places(text: str, *, with_names: bool = False) -> list[Place]:
    """Return every exact value of a text with how often it occurs and where first.

    ``with_names`` also takes quoted phrases, tags and capitalised names: for what people and models say. Without it
    the text is a tool's: numbers of lines and keys of JSON records are layout, not values.
    """
    found: dict[str, _Met] = {}
    for start, stop in _list_spans(text):
        _scan(text[start:stop], start, found, with_names=with_names)
    return [(met.sort, value, met.times, met.start) for value, met in found.items()]


@dataclass(slots=True)
class _Met:
    """A value while its text is read: its sort is the first that was found for it."""

    sort: str
    start: int
    times: int


def _scan(text: str, offset: int, found: dict[str, _Met], *, with_names: bool) -> None:
    """Add the values of a text. What is recognised by its form is blanked out, so that places stay what they are."""

    def note(sort: str, value: str, start: int, times: int = 1) -> None:
        known = found.get(value)
        if known is None:
            found[value] = _Met(sort, offset + start, times)
        else:
            known.times += times

    text = _blank_layout(text, with_names=with_names)
    if "://" in text:
        for url in _URL.finditer(text):
            note("url", url[0].rstrip(".,;:"), url.start())
        text = _URL.sub(_blank, text)
    if "@" in text:
        for email in _EMAIL.finditer(text):
            note("email", email[0], email.start())
    if "," in text:
        pattern = _THOUSANDS if with_names else _MONEY_THOUSANDS
        for amount in pattern.finditer(text):
            note("money" if amount[0][0] in "$€£¥" else "number", amount[0], amount.start())
        text = pattern.sub(_blank, text)
    if not text.isascii() and _HAN.search(text):
        for number in _ZH_NUMBER.finditer(text):
            note("number", number[0], number.start())
        text = _ZH_NUMBER.sub(_blank, text)
    if with_names:
        for date in _DATE_WORDS.finditer(text):
            note("date", date[0], date.start())
        text = _DATE_WORDS.sub(_blank, text)
    for word, (times, start) in _count_words(text).items():
        # The cache holds short words only: nothing bounds its memory otherwise.
        classify = classify_word if len(word) <= _CACHED_CHARS_MAX else classify_word.__wrapped__
        known = classify(word)
        if known is not None:
            note(*known, start + max(0, word.find(known[1])), times)
    if with_names:
        for sort, name, start in _find_names(text):
            if name not in found:
                note(sort, name, start)


def _count_words(text: str) -> dict[str, tuple[int, int]]:
    """Return each different word with how often it occurs and where first."""
    counts: dict[str, list[int]] = {}
    for match in _WORD.finditer(text):
        word = match[0]
        known = counts.get(word)
        if known is None:
            counts[word] = [1, match.start()]
        else:
            known[0] += 1
    return {word: (times, start) for word, (times, start) in counts.items()}


def _blank(match: re.Match[str]) -> str:
    return " " * (match.end() - match.start())


def _blank_layout(text: str, *, with_names: bool) -> str:
    if with_names:
        return _DECORATOR.sub(_blank, text) if "@" in text else text
    text = _SED.sub(_blank, _LINE_NUMBER.sub(_blank, text))
    if "[" in text:
        text = _ANSI.sub(_blank, text)
    return _JSON_KEY.sub(_blank, text) if text[:1] in ("{", "[") else text


def _find_names(text: str) -> Iterator[tuple[str, str, int]]:
    for quoted in _QUOTED.finditer(text):
        *others, code = quoted.groups()
        name = code or next(filter(None, others)).strip()
        # Chinese puts speech and emphasis into the same quotes as names.
        is_speech = bool(others[2]) and _HAN.search(name) is not None
        if name and not is_speech and (code or not _COMMON_WORD.fullmatch(name)):
            yield "name", name, quoted.start() + quoted[0].find(name)
    for name in _NAME.finditer(text):
        if len(name[0]) <= VALUE_CHARS_MAX:
            yield "name", name[0], name.start()
    for tag in _TAG.finditer(text):
        yield "id", tag[0], tag.start()


def _list_spans(text: str) -> Iterable[tuple[int, int]]:
    """Return the parts of a text that are read: all of it, or head and tail of a giant one."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return ((0, len(text)),)
    return (0, HEAD_CHARS), (len(text) - TAIL_CHARS, len(text))


def clip_text(text: str) -> str:
    """Return the part of a text that is read: all of it, or head and tail of a giant one."""
    return "\n".join(text[start:stop] for start, stop in _list_spans(text))


_HEX_DIGITS = lazy_regex(r"[0-9a-f]+")
_DIGITS = lazy_regex(r"\d+")
# A word, a sign, and letters among digits: bkg_k1hecyw115.
RANDOM = lazy_regex(r"([a-z]{1,12}[_:-])((?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{6,40})")


def shape_of(value: str) -> str:
    """Return what ids of one making have in common: hexadecimal digits by their number, else letters and lengths."""
    if len(value) >= 6 and _HEX_DIGITS.fullmatch(value):
        return f"{len(value)} hex digits"
    random = RANDOM.fullmatch(value)
    if random:
        return f"{random[1]}{len(random[2])} signs"
    return _DIGITS.sub(lambda run: "#" * len(run[0]), value)
