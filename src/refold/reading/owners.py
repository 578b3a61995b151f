"""Owners of exact values: the field of a record, the label or noun beside a value, the subject of its sentence.

An owner is verbatim. Only the sentence or the line of a value is looked at; nothing is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from refold.patterns import lazy_regex
from refold.reading.tools import plain_name

BEFORE_CHARS = 120
AFTER_CHARS = 40
OWNER_CHARS_MAX = 60
LEAVES_MAX = 20_000
DEPTH_MAX = 12

_BORDER = lazy_regex(r"[\n!?。！？；;|\t]|\.(?=\s)|,(?=\s)|，|\s{3}")
_LABEL = lazy_regex(
    r"[\"'*`(\[]{0,3}([A-Za-z_\u3400-\u9fff][^:=\n\"'`{}()\[\],;|<>]{0,40}?)[\"'*`)\]]{0,3}\s{0,3}(?:[:：=]|=>|->)"
    r"[\s\"'*`$€£¥#(]{0,4}\Z"
)
_WORDS = lazy_regex(r"[A-Za-z][A-Za-z'-]{0,30}|[\u3400-\u9fff]{1,12}")
_NEXT = lazy_regex(r"[\"'`)*]{0,3}[ -]([A-Za-z]{3,24})\b|[\"'`)]{0,2}([\u3400-\u9fff]{1,8})")
_SUBJECT = lazy_regex(r"[^\w]{0,4}([A-Z][a-z]{1,20}(?: [A-Z][a-z]{1,20}){0,2})\b")
_PRONOUN_ZH = lazy_regex(r"\A(?:它|他|她|其|该|这|那|您|你|我|是|的)?(?:们|家|里|个)?(?:的)?")
_LINK_ZH = lazy_regex(r"(?:是|为|在|有|于|了|的|约|共|大概|大约|就|都|也|叫|到){1,6}\Z")
_SMALL_WORDS = (
    "the a an is are was were be been of to in at on for and or with by from as it its this that these those "
    "my your his her our their you he she we they has have had will would can could should may might must not "
    "no yes about only than over under around until since between after before also just then there here "
    "which who what when where how if so but into out up down off per via approximately exactly least most "
    "more less very too both each every any all some one two three number id ids nr code value equals equal "
    "same new old first last next please need want let me use used using see like such including plus minus "
    "do does did done get got say says said still now "
)
_STOP = frozenset(_SMALL_WORDS.split())
# Words that open a sentence in capitals and name nobody.
_OPENING_WORDS = (
    "there here please thank thanks sure great okay hi hello hey however once while based given note total "
    "finally let unfortunately therefore additionally since because although currently would could looking "
    "now "
)
_OPENERS = frozenset(_OPENING_WORDS.split())
# The field by which a record is known, and how its kind is named.
_ID_KEYS = lazy_regex(r"(?:(\w{1,40}?)_)?(?:id|number|no|code|name|symbol|title|key|login|编号|名称|姓名)", re.I)


class OwnerFinder:
    """Finds the owners of the values of one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def find(self, start: int, stop: int) -> str:
        """Return the owner of the value between two places: its label, the noun before or behind it, its subject."""
        line = self.text[max(0, start - BEFORE_CHARS) : start]
        if label := _LABEL.search(line):
            return _tidy(label[1])
        borders = [border.end() for border in _BORDER.finditer(line)]
        before = line[borders[-1] :] if borders else line
        noun = _find_noun(before) or self._find_next(stop)
        subject = _find_subject(before)
        if subject and noun and subject != noun and noun not in subject:
            return f"{subject} {noun}"
        return subject or noun

    def _find_next(self, stop: int) -> str:
        behind = _NEXT.match(self.text, stop, stop + AFTER_CHARS)
        if behind is None:
            return ""
        noun = behind[1] or _PRONOUN_ZH.sub("", behind[2])
        return "" if noun.lower() in _STOP else noun


def _find_noun(before: str) -> str:
    """Return the nearest word before a value that is a noun, as far as a list of small words tells."""
    words = _WORDS.findall(before)
    for word in reversed(words[-5:]):
        if word[0] > "\u3000":
            noun = _LINK_ZH.sub("", _PRONOUN_ZH.sub("", word))
            if len(noun) > 1:
                return str(noun[-8:])
        elif len(word) > 2 and word.lower() not in _STOP:
            return str(word)
    return ""


def _find_subject(before: str) -> str:
    """Return the name that a sentence begins with."""
    subject = _SUBJECT.match(before)
    first = subject[1].split(" ")[0].lower() if subject else ""
    return subject[1] if subject and first not in _OPENERS and first not in _STOP else ""


def _tidy(label: str) -> str:
    words = label.strip(" \t*-_#>").split()
    return " ".join(words[-4:])[-OWNER_CHARS_MAX:]


def list_leaves(record: object) -> Iterator[tuple[str, str]]:
    """Return the leaves of a JSON value as (owner, text): the record they belong to, by its id, and their field.

    ``{"reservation_id": "EHGLP3", "status": "cancelled"}`` has ``reservation EHGLP3 › status``.
    """
    stack: list[tuple[str, str, object, int]] = [("", "", record, 0)]
    seen = 0
    while stack and seen < LEAVES_MAX:
        subject, key, value, depth = stack.pop()
        seen += 1
        if isinstance(value, Mapping) and depth < DEPTH_MAX:
            own, id_key = _name_record(value, key)
            stack += [
                (subject if inner_key == id_key else own or subject, inner_key, inner, depth + 1)
                for inner_key, inner in reversed(list(value.items())[:LEAVES_MAX])
            ]
        elif isinstance(value, list) and depth < DEPTH_MAX:
            stack += [(subject, key, inner, depth + 1) for inner in reversed(value[:LEAVES_MAX])]
        elif isinstance(value, str) and value:
            yield (f"{subject} › {key}" if subject and key else subject or key), value


def _name_record(record: Mapping[str, object], key: str) -> tuple[str, str]:
    """Return how a record is called, ``reservation EHGLP3``, and the field that says so."""
    first, last = record.get("first_name"), record.get("last_name")
    if isinstance(first, str) and isinstance(last, str):
        return f"{first} {last}"[:OWNER_CHARS_MAX], ""
    for name, value in record.items():
        match = _ID_KEYS.fullmatch(name)
        if match and isinstance(value, str) and 0 < len(value) <= OWNER_CHARS_MAX:
            kind = match[1] or plain_name(key).removesuffix("s")
            return (f"{kind} {value}" if kind else value), name
    return "", ""
