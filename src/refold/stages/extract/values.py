"""Exact values: paths, ids, numbers, dates, names that a later step must spell letter for letter, and their meaning.

Text is cut into words by one linear pattern and each different word is classified once, so a line of a megabyte
costs no more than many short ones. Nothing here invents or changes a value: each is a substring of its text.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from refold.memo import Memo
from refold.patterns import lazy_regex

# A part longer than this is read at its head and its tail; the middle of a giant output is reached by its handle.
HEAD_CHARS = 300_000
TAIL_CHARS = 100_000
VALUE_CHARS_MAX = 160
# What was read of texts may take so much memory in this process.
READ_BYTES_MAX = 12_000_000

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
    r"(?<![\dA-Za-z])(?<![A-Za-z]-)\d[\d,.]{0,20}+(?:年\d{1,2}月(?:\d{1,2}日)?|月\d{1,2}[日号]|[万亿]?(?:元|块|美元|米|公里|分钟|小时|天|个月|人|岁|平方米)|点\d{0,2}分?)"
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
    r"(?:pyi?|ipynb|[jt]sx?|mjs|cjs|json|jsonl|ya?ml|toml|ini|cfg|conf|md|rst|txt|csv|tsv|html?|css|scss|xml|svg|sh|bash|"
    r"zsh|ps1|bat|c|h|cc|cpp|hpp|cs|java|kt|go|rs|rb|php|swift|scala|lua|pl|r|sql|db|sqlite3?|proto|lock|log|env|"
    r"diff|patch|gz|zip|tar|tgz|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|webp|mp[34]|wav|so|dll|exe|whl|jar|vue|tex|bib)"
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


Values = tuple[tuple[tuple[str, str], int], ...]
_READ: Memo[Values] = Memo(READ_BYTES_MAX, lambda values: sum(120 + len(value) for (_, value), _ in values))


def read_values(text: str, *, with_names: bool) -> Values:
    """Return the exact values of a text as ``find_values`` does; a text is read once."""
    return _READ.recall(lambda: tuple(find_values(text, with_names=with_names).items()), text, with_names)


def find_values(text: str, *, with_names: bool = False) -> Counter[tuple[str, str]]:
    """Return every exact value of a text as (sort, value) with how often it occurs.

    ``with_names`` also takes quoted phrases, tags and capitalised names: for what people and models say. Without it
    the text is a tool's: numbers of lines and keys of JSON records are layout, not values.
    """
    text = clip_text(text)
    if with_names:
        text = _DECORATOR.sub(" ", text) if "@" in text else text
    else:
        text = _LINE_NUMBER.sub(" ", text)
        text = _SED.sub(" ", text)
        if "[" in text:
            text = _ANSI.sub(" ", text)
        if text[:1] in ("{", "["):
            text = _JSON_KEY.sub(" ", text)
    found: Counter[tuple[str, str]] = Counter()
    if "://" in text:
        for url in _URL.findall(text):
            found["url", url.rstrip(".,;:")] += 1
        text = _URL.sub(" ", text)
    if "@" in text:
        found.update(("email", email) for email in _EMAIL.findall(text))
    if "," in text:
        pattern = _THOUSANDS if with_names else _MONEY_THOUSANDS
        found.update(("money" if amount[0] in "$€£¥" else "number", amount) for amount in pattern.findall(text))
        text = pattern.sub(" ", text)
    for word, times in Counter(_WORD.findall(text)).items():
        # The cache holds short words only: nothing bounds its memory otherwise.
        classify = classify_word if len(word) <= _CACHED_CHARS_MAX else classify_word.__wrapped__
        sorted_value = classify(word)
        if sorted_value is not None:
            found[sorted_value] += times
    if not text.isascii() and _HAN.search(text):
        found.update(("number", value) for value in _ZH_NUMBER.findall(text))
    if with_names:
        found.update(_find_names(text))
    return found


def _find_names(text: str) -> list[tuple[str, str]]:
    names: list[tuple[str, str]] = []
    for *quoted, code in _QUOTED.findall(text):
        name = code or next(filter(None, quoted)).strip()
        # Chinese puts speech and emphasis into the same quotes as names.
        is_speech = bool(quoted[2]) and _HAN.search(name) is not None
        if name and not is_speech and (code or not _COMMON_WORD.fullmatch(name)):
            names.append(("name", name))
    names += [("name", name) for name in _NAME.findall(text)]
    names += [("id", tag) for tag in _TAG.findall(text)]
    return [(sort, name) for sort, name in names if len(name) <= VALUE_CHARS_MAX]


def clip_text(text: str) -> str:
    """Return the part of a text that is read: all of it, or head and tail of a giant one."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"


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


# Values that mean nothing without their label.
_MEANT = frozenset(("id", "number", "money", "date", "time", "address", "version"))
_LABEL = lazy_regex(
    # On one line: "else:" is no label of the line number below it.
    r"""["']?\b([A-Za-z][\w.-]{1,28})["']?[ \t]{0,3}[:=][ \t]{0,3}["'$€£¥]{0,2}\Z"""
    r"""|\b([A-Za-z][\w-]{2,24})\s(?:is|are|was|of|number|no\.)\s(?:at\s|about\s)?["'`$€£¥]?\Z"""
    r"""|(?<![\u3400-\u9fff])([\u3400-\u9fff]{2,8}(?<![了就也都还才只不又已我你您他她它们这那的很要会能]))(?:是|为|：|:)\s?\Z"""
)
# "Its phone": whose it is was said before.
_PRONOUN_ZH = lazy_regex(r"\A(?:它|他|她|其|该|这|那|您|你|我)?(?:们|家|里|个)?的")
# A call is a line of code, no statement: ``password1 = forms.CharField(``.
_STATED = lazy_regex(
    r"\s{0,2}(?:=|: )\s{0,2}(?![^\n]{0,50}\w\()([^\s{\[\"',][^\n{}\[\]\"]{2,50})(?:\n|\Z|(?<=[.;])(?=\s)|(?<=[。；]))"
)


def find_meaning(sort: str, value: str, text: str) -> tuple[str, str]:
    """Return what a text says a value is: the key or label before it, or what is stated about it after it.

    Names of code and files say themselves what they are.
    """
    if sort not in _MEANT or not text:
        return "", ""
    at = text.find(value)
    if at < 0:
        return "", ""
    stop = at + len(value)
    if sort == "id" and (stated := _STATED.match(text, stop, stop + 80)):
        return "", stated[1].strip()
    before = _LABEL.search(text[max(0, at - 48) : at])
    return (_PRONOUN_ZH.sub("", next(filter(None, before.groups())).strip()), "") if before else ("", "")
