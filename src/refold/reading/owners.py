"""Owners of exact values: the field of a record, the label or phrase before a value, the name that its line speaks of.

An owner is verbatim: the words of the text, and "›" between a thing and its field. A value that means nothing by itself
and has no owner is no value. Words and patterns are data, ``rules/values.toml``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from refold.patterns import lazy_regex
from refold.reading.events import Action
from refold.reading.rules import find_words, lazy_rule
from refold.reading.tools import find_tool, plain_name

BEFORE_CHARS = 120
AFTER_CHARS = 60
OWNER_CHARS_MAX = 60
PHRASE_WORDS = 5
# How far back the name may be that a line speaks of, or the line that introduces a list.
PARAGRAPH_CHARS = 600
LEAVES_MAX = 20_000
DEPTH_MAX = 12
# A longer list of numbers is a series.
SERIES_MIN = 6

_BORDER = lazy_regex(r"[\n!?;|\t]|[.,](?=\s)|\s{3}")
_BORDER_ZH = lazy_regex(r"[，。；！？…\n,;!?]|、")
_LABEL = lazy_regex(
    r"[\"'*`(\[]{0,3}(-{0,2}[A-Za-z_\u3400-\u9fff][^:：=\n\"'`{}()\[\],;|<>，。、；]{0,40}?)[\"'*`)\]]{0,3}\s{0,3}(?:[:：=]|=>|->)"
    r"[\s\"'*`$€£¥#(]{0,4}\Z"
)
_FLAG = lazy_regex(r"(?:\A|\s)(--?[A-Za-z][\w-]{1,40})[ =][\"']?\Z")
_WORD = lazy_regex(r"[^\s\"“”()\[\]{}<>]+")
_NEXT = lazy_regex(r"[\"'`)*]{0,3}[ -]([A-Za-z]{3,24})\b")
_ITEM = lazy_regex(r"\s*+(?:[-*•]|\d{1,3}[.)])\s++[\W_]*\Z")
_LEAD = lazy_regex(r"[^\n]{3,300}[:：][*_ ]{0,4}(?=\n)")
# Words of a sentence with single blanks: no code, no table.
_PROSE = lazy_regex(r"(?:\A|\n)[^\n(){}\[\]=<>|_\"\\/]*\Z")
_TITLE = lazy_regex(r"[ \t](?:\([^)\n]{1,80}\) )?([A-Za-z\u3400-\u9fff][^\n]{4,60})")
_HAN = lazy_regex(r"[\u3400-\u9fff]")
_DATE_ZH = lazy_regex(r"\d{4}(?:年|\Z)|[月日号]")
OPENS_ZH = lazy_rule("values", "zh", "opens", form=r"\A{}+")
_LINKS = lazy_rule("values", "zh", "links", form=r"{}{1,6}\Z")
_DATED = lazy_rule("values", "zh", "dated", form="年?{}")
_WISH = lazy_rule("values", "zh", "wish")
_PRONOUN_ZH = lazy_regex(r"[他她它你您我这那其哪]")
_SIZE_ZH = lazy_regex(r"\d[\d,.]*+\D")
# The field by which a record is known, and how its kind is named.
_ID_KEYS = lazy_regex(r"(?:(\w{1,40}?)_)?(?:id|number|no|code|name|symbol|title|key|login|编号|名称|姓名)", re.I)


class OwnerFinder:
    """Finds the owners of the values of one text. ``names`` are the places of the names that it gives, in order."""

    def __init__(self, text: str, names: Sequence[tuple[int, str]] = (), *, is_spoken: bool) -> None:
        self.text = text
        self.names = names
        self.is_spoken = is_spoken

    def find(self, start: int, stop: int, *, is_id: bool = False) -> str:
        """Return the owner of the value between two places, or nothing.

        An owner that begins with "›" is a field; the thing that has it was named in an earlier message, if at all.
        """
        line = self.text[max(0, start - BEFORE_CHARS) : start]
        if flag := _FLAG.search(line):
            return str(flag[1])
        label = _LABEL.search(line)
        owner = _tidy(label[1]) if label else ""
        if not owner and self._is_chinese(line, stop):
            return self._find_chinese(line, start, stop)
        if not owner:
            borders = [border.end() for border in _BORDER.finditer(line)]
            before = line[borders[-1] :] if borders else line
            if self.is_spoken or (_PROSE.search(before) and before.count(" ") > 3):
                owner = _cut_phrase(before) or self._find_next(stop) or self._find_lead(start)
            else:
                owner = (_cut_phrase(before, words=2) or self._find_title(start, stop)) if is_id else ""
        if not owner or _is_place(owner):
            return ""
        subject = self._find_subject(start) if self.is_spoken and label else ""
        return f"{subject} › {owner}" if subject and subject not in owner else owner

    def _find_next(self, stop: int) -> str:
        behind = _NEXT.match(self.text, stop, stop + AFTER_CHARS)
        return "" if behind is None or behind[1].lower() in find_words("values", "en", "stop") else str(behind[1])

    def _find_lead(self, start: int) -> str:
        """Return what the line before a list says of its items."""
        before = self.text[max(0, start - PARAGRAPH_CHARS) : start]
        if not _ITEM.fullmatch(before[before.rfind("\n") + 1 :]):
            return ""
        leads = _LEAD.findall(before)
        return _cut_phrase(leads[-1].rstrip(":： *_")) if leads else ""

    def _find_title(self, start: int, stop: int) -> str:
        """Return what follows a hash or a number at the beginning of a line: ``6d12f80 Fix the upload``."""
        if start and self.text[start - 1] != "\n":
            return ""
        title = _TITLE.match(self.text, stop, stop + AFTER_CHARS + 20)
        words = title[1].rpartition(" ")[0] if title and len(title[1]) > AFTER_CHARS else title[1] if title else ""
        return words.strip() if words.count(" ") > 0 or _HAN.search(words) else ""

    def _find_subject(self, start: int) -> str:
        """Return the last name before a place in its line; else in its paragraph."""
        at = bisect_left(self.names, (start, "")) - 1
        if at < 0:
            return ""
        place, name = self.names[at]
        is_near = start - place < PARAGRAPH_CHARS and "\n\n" not in self.text[place:start]
        return name if is_near else ""

    def _is_chinese(self, line: str, stop: int) -> bool:
        near = f"{line[-12:]}{self.text[stop - 2 : stop + 2]}"
        return not near.isascii() and _HAN.search(near) is not None

    def _find_chinese(self, line: str, start: int, stop: int) -> str:
        value, behind = self.text[start:stop], self.text[stop : stop + 8]
        if _WISH.match(behind) or _WISH.search(line[-2:] + value[:1]):
            return ""
        borders = [border.end() for border in _BORDER_ZH.finditer(line)]
        clause = line[borders[-1] :] if borders else line
        told = _DATED.match(behind) if _DATE_ZH.search(value) else None
        if told is not None:
            field = told[0].lstrip("年月日号")
        else:
            linked = _LINKS.sub("", clause)
            # "南四环西路126号", "第82届": a number that no word links to what is before it is a part of a name.
            if linked == clause and not _SIZE_ZH.fullmatch(value):
                return ""
            field = OPENS_ZH.sub("", linked)
        thing, _, own = field.partition("的")
        if own and len(thing) > 1 and len(field) <= 30 and not _PRONOUN_ZH.search(thing):
            return field
        field = own or field
        if not 1 < len(field) <= 8 or not field.isalpha():
            return ""
        return f"{self._find_subject(start)} › {field}".lstrip()


def _cut_phrase(before: str, words: int = PHRASE_WORDS) -> str:
    """Return the last words before a value that mean something, verbatim."""
    stop = find_words("values", "en", "stop")
    found = list(_WORD.finditer(before))
    while found and (_plain(found[-1][0]) in stop or not any(map(str.isalpha, found[-1][0]))):
        found.pop()
    found = found[-words:]
    while found and (_plain(found[0][0]) in stop or _plain(found[0][0]) in find_words("values", "en", "opens")):
        found.pop(0)
    phrase = before[found[0].start() : found[-1].end()] if found else ""
    phrase = phrase.strip(" \t*-_#>`'\",:;.")
    is_said = sum(map(str.isalpha, phrase)) > 2 and not _HAN.search(phrase)
    return phrase[-OWNER_CHARS_MAX:] if is_said else ""


def _plain(word: str) -> str:
    return word.strip("*_`'\",:;.!?").lower()


def _is_place(owner: str) -> bool:
    words = owner.lower().split(" ")
    return words[-1] in find_words("values", "en", "place") or not {"line", "lines"}.isdisjoint(words)


def _tidy(label: str) -> str:
    words = label.strip(" \t*-_#>").split() if not label.startswith("--") else [label]
    owner = " ".join(words[-4:])[-OWNER_CHARS_MAX:]
    return owner if sum(map(str.isalpha, owner)) > 1 else ""


def name_object(action: Action | None) -> str:
    """Return what a tool is about, as its name says: ``get_user_details`` of one user has "user anya_garcia_5901"."""
    words = [word for word in plain_name(action.tool).split("_") if word] if action is not None else []
    if action is None or len(words) < 2 or any("/" in target or "." in target for target in action.targets):
        return ""
    rule = find_tool(action.tool)
    noun = next((word for word in reversed(words) if word not in find_words("values", "keys", "tools")), "")
    if not noun or (rule is not None and rule.prints):
        return ""
    known = next((target for target in action.targets if f"{noun}_id={target}" in action.text), "")
    return f"{noun} {known}" if 0 < len(known) <= OWNER_CHARS_MAX else noun


def list_leaves(record: object, thing: str = "") -> Iterator[tuple[str, str]]:
    """Return the leaves of a JSON value as (owner, text): the record they belong to, by its id, and their field.

    ``{"reservation_id": "EHGLP3", "status": "cancelled"}`` has ``reservation EHGLP3 › status``; ``thing`` has what is
    in no record with a name of its own. A field that says nothing by itself has no owner without one.
    """
    stack: list[tuple[str, str, object, int]] = [(thing, "", record, 0)]
    harness, bare = find_words("values", "keys", "harness"), find_words("values", "keys", "bare")
    seen = 0
    while stack and seen < LEAVES_MAX:
        subject, key, value, depth = stack.pop()
        seen += 1
        if key[:1] == "-" or plain_name(key) in harness:
            continue
        if isinstance(value, Mapping) and depth < DEPTH_MAX:
            own, id_key = _name_record(value, key or thing.partition(" ")[0])
            if not depth and " " in thing:
                own, id_key = (own, id_key) if "_" in id_key else (thing, "")
            # The id of a record belongs to what the record is in.
            outer = subject if depth else ""
            stack += [
                (outer if inner_key == id_key else own or subject, inner_key, inner, depth + 1)
                for inner_key, inner in reversed(list(value.items())[:LEAVES_MAX])
            ]
        elif isinstance(value, list) and depth < DEPTH_MAX:
            is_series = len(value) >= SERIES_MIN and all(isinstance(one, str) and one[-1:].isdigit() for one in value)
            stack += [] if is_series else [(subject, key, inner, depth + 1) for inner in reversed(value[:LEAVES_MAX])]
        elif isinstance(value, str) and value:
            if subject and key:
                yield f"{subject} › {key}", value
            else:
                yield subject or (thing if plain_name(key) in bare else key), value


def _name_record(record: Mapping[str, object], key: str) -> tuple[str, str]:
    """Return how a record is called, ``reservation EHGLP3``, and the field that says so."""
    whole = record.get("name") if isinstance(record.get("name"), Mapping) else record
    assert isinstance(whole, Mapping)
    first, last = whole.get("first_name"), whole.get("last_name")
    if isinstance(first, str) and isinstance(last, str):
        return f"{first} {last}"[:OWNER_CHARS_MAX], ""
    best: tuple[bool, str, str] | None = None
    for name, value in record.items():
        match = _ID_KEYS.fullmatch(name)
        if match and isinstance(value, str) and 0 < len(value) <= OWNER_CHARS_MAX:
            kind = match[1] or (plain_name(key).removesuffix("s") if key != value else "")
            # A name tells more than a number of nothing.
            found = (bool(kind) or not value.isdecimal(), f"{kind} {value}".strip(), name)
            if best is None or (found[0] and not best[0]):
                best = found
    return (best[1], best[2]) if best and best[0] else ("", "")
