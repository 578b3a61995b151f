"""Exact values: paths, ids, numbers, dates, names that a later step must spell letter for letter, with their owners.

Text is cut into words by one linear pattern and each different word is classified once, so a line of a megabyte
costs no more than many short ones. Nothing here invents or changes a value: each is a substring of its text. A value
that means nothing by itself (a number, a date, a random id) is a value only if its owner is known; the owner is found
by ``owners``, and in JSON it is the field.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from refold.conversation.message import Part
from refold.patterns import lazy_regex
from refold.reading.changes import content_keys
from refold.reading.events import Action, Value, ValueSource
from refold.reading.fields import parse_record
from refold.reading.outcomes import split_notes
from refold.reading.outputs import is_frame
from refold.reading.owners import OPENS_ZH, OwnerFinder, list_leaves, name_object
from refold.reading.rules import find_rule, find_words, lazy_rule
from refold.reading.words import find_stamp

# A part longer than this is read at its head and its tail; the middle of a giant output is reached by its handle.
HEAD_CHARS = 300_000
TAIL_CHARS = 100_000
VALUE_CHARS_MAX = 160
# A field of a record that is not longer is a value as a whole.
FIELD_CHARS_MAX = 60
FRAME_LINES = 12
# So many blanks before a name may stand for a stamp, which a sentence begins behind.
BLANK_CHARS = 100
# Values that say themselves what they are.
SELF_EXPLAINED = frozenset(("file", "url", "email", "identifier", "flag", "name", "term"))
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
_NAMES_ZH = lazy_rule("values", "zh", "names")
_NO_VALUE = lazy_rule("values", "no_value", "is")
_AFTER_LINK = lazy_regex(r"\A[^(（]*[是有叫去到在和的我了为]")
# In backticks a common word is a name of the code; in quotes ("yes.") it is how somebody put it.
_HAN = lazy_regex(r"[\u3400-\u9fff]")
_COMMON_WORD = lazy_regex(r"[a-z]+[.!?]?")
_NAME = lazy_regex(
    r"[A-Z](?<!\w[A-Z])(?<!\D[.!?] [A-Z])(?<!^[A-Z])[a-z]{2,20}"
    r"(?<!\bHey)(?<!\bHello)(?<!\bDear)(?<!\bWow)(?<!\bThanks)(?<!\bYep)(?<!\bYes)(?<!\bYeah)(?<!\bBye)(?<!\bCongrats)(?<!\bSorry)"
    r"(?<!\bThe)(?<!\bThis)(?<!\bThat)"
    r"(?<!\bLet)(?<!\bWhat)(?<!\bHow)(?<!\bAnd)(?<!\bBut)(?<!\bFor)(?<!\bAll)(?<!\bYour)(?<!\bWhen)(?<!\bAlso)"
    r"(?<!\bKey)(?: (?:of|the|de|van)\b)?(?: [A-Z][a-z]{2,20}){1,3}\b"
    # "**Cabin Class:** economy": the label of a field names nothing.
    r"(?!\*{0,2}[:：])"
)
# ``@property`` on a line of its own is code, nobody's name.
_DECORATOR = lazy_regex(r"^[ \t]{0,40}@[\w.]{2,60}(?=\(|[ \t]{0,4}$)", re.M)
# 1724-1732 are lines of a file, gone with the next edit, or years.
_RANGE = lazy_regex(r"([1-9]\d{1,4})-([1-9]\d{1,4})")
RANGE_MAX = 500
_TAG = lazy_regex(r"[#@](?<![\w&/#][#@])[A-Za-z]\w{2,40}", re.ASCII)
# Not the end of a code such as YL-0472. Bounded, and never read again from a digit further on: a list of numbers
# without a space is one long run.
_ZH_NUMBER = lazy_regex(
    r"(?<![\dA-Za-z])(?<![A-Za-z]-)\d[\d,.]{0,20}+(?:年(?:\d{1,2}月(?:\d{1,2}日)?)?|月\d{1,2}[日号]|[万亿]?(?:元|块|美元|米|公里|分钟|小时|天|个月|人|岁|平方米|分(?!钟))|点\d{0,2}分?)"
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
_ADDRESS = lazy_regex(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?|localhost:\d{2,5}")
_PROSE_PAIR = lazy_regex(r"[A-Za-z]?[a-z]{1,30}[/-][a-z]{2,30}(?:[/-][a-z]{2,30})?[.,:]?")
_BETWEEN_WORDS = lazy_regex(r"(?: [A-Za-z]{2}|[.,!?]?\s|\Z)")
_PAIR = lazy_regex(r"[A-Za-z-]+/[A-Za-z-]+")
# An id that names its kind: certificate_3221322, PY-313, @octocat.
_NAMED_ID = lazy_regex(r"[#@][A-Za-z]\w*|[A-Za-z]{3,30}_\w*\d\w*|[A-Z]{2,10}-\d{1,8}")

_LISTING = lazy_regex(lambda: f"(?m)^(?:{'|'.join(rule['is'] for rule in find_rule('values', 'listing'))})[^\n]*")
# What a field holds as a whole: a word or a few, never code.
_FIELD = lazy_regex(r"[\w$€£¥#@+~/.-][\w .,:/@#&'%+~-]*")

_CACHED_CHARS_MAX = 100


@lru_cache(maxsize=32_768)
def classify_word(word: str) -> tuple[str, str] | None:
    """Return the sort and the value in one word of a text, or None if it is an ordinary word."""
    if word.isalpha() and (word.islower() or word.istitle()):
        return None
    value = _TAIL.sub("", _HEAD.sub("", word))
    if (
        len(value) < 2
        or _NO_VALUE.fullmatch(value)
        or _is_range(value)
        or (value.isalpha() and (value.islower() or value.istitle()))
    ):
        return None
    if ":" in value and "::" not in value:
        value = _before_colon(value)
    pattern, sorts = _load_sorts()
    found = pattern.fullmatch(value)
    if found is None or found.lastgroup is None:
        return None
    sort = sorts[int(found.lastgroup[1:])]
    return ("term" if sort == "file" and _PAIR.fullmatch(value) else sort), value


@cache
def _load_sorts() -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return one pattern for all sorts, with a group for each: most are tried in vain, and each try has its price."""
    rules = find_rule("values", "sort")
    pattern = "|".join(f"(?P<g{at}>{rule['is']})" for at, rule in enumerate(rules))
    return re.compile(pattern), tuple(rule["sort"] for rule in rules)


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


def read_values(part: Part, index: int, source: ValueSource, action: Action | None = None) -> tuple[Value, ...]:
    """Return the exact values of one part of a message, each once, with its owner.

    In what a person or an assistant says, names and quoted phrases are values, too. ``action`` is the call, or the one
    that a result answers.
    """
    is_spoken = source in ("person", "assistant")
    text = _blank_notes(part.text)
    if is_spoken:
        stamp = find_stamp(text)
        text = f"{' ' * stamp}{text[stamp:]}"
    else:
        text = blank_frame(text)
    record = None if is_spoken else parse_record(text.strip())
    if record is not None:
        found = _read_record(record, len(text), index, source, name_object(action))
    else:
        found = _read_text(text, index, source)
    return tuple(sorted(found, key=_order)[:VALUES_MAX])


def _blank_notes(text: str) -> str:
    """Blank out what a harness wrote into a text: nobody's values."""
    notes, _ = split_notes(text)
    for start, stop, _ in notes:
        text = f"{text[:start]}{' ' * (stop - start)}{text[stop:]}"
    return text


def blank_frame(text: str) -> str:
    """Blank out the lines that a harness put in front of an output and behind it."""
    at = 0
    for _ in range(FRAME_LINES):
        border = text.find("\n", at, at + 300)
        if border < 0 or not is_frame(text[at:border]):
            break
        at = border + 1
    end = len(text)
    for _ in range(FRAME_LINES):
        border = text.rfind("\n", max(at, end - 300), end)
        if border < 0 or not is_frame(text[border + 1 : end]):
            break
        end = border
    return f"{' ' * at}{text[at:end]}" if at or end < len(text) else text


def _order(value: Value) -> tuple[bool, int]:
    """Order values of one part: what nobody else explains comes first, names of code last."""
    return value.sort in ("identifier", "term", "flag"), value.start


def _read_text(text: str, index: int, source: ValueSource) -> Iterator[Value]:
    for sort, value, times, start, owner in _find_owned(text, is_spoken=source in ("person", "assistant")):
        stop = start + len(value)
        yield Value(part=index, start=start, stop=stop, text=value, sort=sort, source=source, owner=owner, times=times)


def _find_owned(text: str, *, is_spoken: bool) -> Iterator[tuple[str, str, int, int, str]]:
    """Return the values of a text that explain themselves or have an owner: sort, value, times, start, owner."""
    places = find_places(text, with_names=is_spoken)
    needs_names = is_spoken and any(sort not in SELF_EXPLAINED for sort, *_ in places)
    names = sorted((start, name) for sort, name, start in _find_names(text) if sort == "name") if needs_names else ()
    owners = OwnerFinder(text, names, is_spoken=is_spoken)
    listed = () if is_spoken else [line.span() for line in _LISTING.finditer(text)]
    for sort, value, times, start in places:
        if sort in SELF_EXPLAINED:
            yield sort, value, times, start, ""
            continue
        at = bisect_left(listed, (start + 1, 0)) - 1
        if at >= 0 and start < listed[at][1]:
            continue
        owner = owners.find(start, start + len(value), is_id=sort == "id")
        if owner or explains_itself(sort, value):
            yield sort, value, times, start, owner


def _read_record(record: object, size: int, index: int, source: ValueSource, thing: str) -> Iterator[Value]:
    """Read the leaves of a JSON value; the same value under several fields keeps its first owner."""
    met: dict[str, Value] = {}
    for owner, leaf in list_leaves(record, thing):
        for sort, value, times, label in _read_leaf(owner, leaf):
            before = met.get(value)
            count = times + (before.times if before else 0)
            label = before.owner if before and before.owner else label
            met[value] = Value(part=index, stop=size, text=value, sort=sort, source=source, owner=label, times=count)
    yield from met.values()


def _read_leaf(owner: str, leaf: str) -> Iterator[tuple[str, str, int, str]]:
    """Return the values of one field: itself where it is short, else those in its text; of content only those."""
    key = owner.rpartition("› ")[2]
    is_text = key in content_keys() or key in find_words("values", "keys", "text")
    if len(leaf) <= FIELD_CHARS_MAX and not is_text and _FIELD.fullmatch(leaf):
        known = classify_word(leaf) if " " not in leaf else None
        if known is not None and known[1] == leaf:
            sort, own = known[0], "" if known[0] == "file" and "›" not in owner else owner
            if own or explains_itself(sort, leaf):
                yield sort, leaf, 1, own
            return
        if owner and (len(leaf) > 1 or leaf.isdecimal()):
            yield "field", leaf, 1, owner
            if " " not in leaf:
                return
    for sort, value, times, _, own in _find_owned(leaf, is_spoken=False):
        if value != leaf:
            yield sort, value, times, own if is_text or not (own and owner) else f"{owner} › {own}"


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
        # "short-term", "read/write": two words of prose.
        if known is not None and not (known[0] == "term" and _is_prose(text, start, start + len(word))):
            note(*known, start + max(0, word.find(known[1])), times)
    if with_names:
        for sort, name, start in _find_names(text):
            if name not in found:
                note(sort, name, start)


def _is_prose(text: str, start: int, stop: int) -> bool:
    return _PROSE_PAIR.fullmatch(text, start, stop) is not None and _BETWEEN_WORDS.match(text, stop) is not None


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
    if not text.isascii():
        for name in _NAMES_ZH.finditer(text):
            bare = OPENS_ZH.sub("", _AFTER_LINK.sub("", name[0]))
            if len(bare) > 3:
                yield "name", bare, name.end() - len(bare)
    for name in _NAME.finditer(text):
        if len(name[0]) <= VALUE_CHARS_MAX and text[max(0, name.start() - BLANK_CHARS) : name.start()].strip():
            yield "name", name[0], name.start()
    for tag in _TAG.finditer(text):
        yield "id", tag[0], tag.start()


def _list_spans(text: str) -> Iterable[tuple[int, int]]:
    """Return the parts of a text that are read: all of it, or head and tail of a giant one."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return ((0, len(text)),)
    return (0, HEAD_CHARS), (len(text) - TAIL_CHARS, len(text))
