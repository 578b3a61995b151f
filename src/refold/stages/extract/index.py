"""Writes the artifact index: as many of the best exact values as a budget of tokens holds.

A value that the reader sees anyway, in what is kept or within a longer value already chosen, costs nothing and is
not written again. Values of one message stand together behind its handle; a lone value stands in the line of its
sort, and the fold's own handle leads to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from refold.conversation.edit import Artifact
from refold.conversation.language import Language

Count = Callable[[str], int]
Read = Callable[[str], str]

# A bare handle of six digits costs about as much as two values: it pays from this many on.
GROUP_MIN = 4
HANDLE_DIGITS = 6
# Chinese and English names of the sorts, in the order of their lines.
SORT_NAMES: dict[str, tuple[str, str]] = {
    "file": ("files", "文件"),
    "id": ("ids", "编号"),
    "email": ("emails", "邮箱"),
    "url": ("links", "链接"),
    "address": ("addresses", "地址"),
    "date": ("dates", "日期"),
    "time": ("times", "时间"),
    "money": ("amounts", "金额"),
    "number": ("numbers", "数字"),
    "version": ("versions", "版本"),
    "flag": ("options", "选项"),
    "identifier": ("identifiers", "标识符"),
    "name": ("names", "名称"),
    "term": ("terms", "词语"),
}
_NOTES: dict[str, tuple[str, str]] = {
    "read": ("read", "已读"),
    "written": ("written", "已写"),
    "deleted": ("deleted", "已删"),
}
# Values that mean nothing without their label.
_MEANT = frozenset(("id", "number", "money", "date", "time", "address", "version"))
# These are noise without it.
_BARE = frozenset(("number", "money", "time", "version", "term"))
_LABEL = re.compile(
    r"""["']?\b([A-Za-z][\w.-]{1,28})["']?\s{0,3}[:=]\s{0,3}["'$€£¥]{0,2}\Z"""
    r"""|\b([A-Za-z][\w-]{2,24})\s(?:is|are|was|of|number|no\.)\s(?:at\s|about\s)?["'`$€£¥]?\Z"""
    r"""|([\u3400-\u9fff]{2,6})(?:是|为|：|:)\s?\Z"""
)
_STATED = re.compile(r"\s{0,2}(?:=|: )\s{0,2}([^\s{\[\"',][^\n{}\[\]\"]{2,50})(?:\n|\Z|(?<=[.;。；]))")


@dataclass(frozen=True, slots=True)
class Index:
    """The written index, and the artifacts that are in it."""

    text: str
    shown: tuple[Artifact, ...]


@dataclass(frozen=True, slots=True)
class Meant:
    """An exact value with what its source says it is: the label before it, or what is stated about it after it."""

    artifact: Artifact
    cost: int
    label: str = ""
    statement: str = ""

    @property
    def says_more(self) -> bool:
        """True if the index says more of a value than the value itself."""
        return bool(self.artifact.note or self.artifact.alike or self.statement)


def find_useful(artifacts: Iterable[Artifact], count: Count, read: Read, seen: str = "") -> list[Meant]:
    """Return the values that tell a reader something new, with what they mean and what they cost.

    ``read`` returns an original by its handle; ``seen`` is what stays in view.
    """
    useful = []
    for artifact in artifacts:
        if artifact.value in seen:
            continue
        label, statement = find_meaning(artifact, read(artifact.handle))
        if artifact.sort not in _BARE or label or statement:
            useful.append(Meant(artifact, count(f" {artifact.value},"), label, statement))
    return useful


def write_index(
    values: Sequence[Artifact | Meant], tokens_max: int, count: Count, *, seen: str = "", language: Language = "en"
) -> Index:
    """Write the best values that fit into ``tokens_max``, leaving out what ``seen`` shows already."""
    meant = [one if isinstance(one, Meant) else Meant(one, count(f" {one.value},")) for one in values]
    chosen = choose_values(meant, tokens_max, seen)
    while chosen:
        text = _write_lines(chosen, language)
        size = count(text)
        if size <= tokens_max:
            return Index(text, tuple(one.artifact for one in chosen))
        # The estimate was too kind: let go of the lightest share, at least one, so that this ends soon.
        surplus = max(1, len(chosen) * (size - tokens_max) // size)
        chosen = chosen[:-surplus]
    return Index("", ())


def choose_values(values: Iterable[Meant], tokens_max: int, seen: str = "") -> list[Meant]:
    """Return the values to write: those worth most for each token that they cost."""
    priced = [(one, one.cost + (2 if one.says_more else 0)) for one in values]
    priced.sort(key=lambda pair: (-pair[0].artifact.weight / pair[1], pair[0].artifact.value))
    chosen: list[Meant] = []
    written = ""
    room = tokens_max
    misses = 0
    for one, cost in priced:
        value = one.artifact.value
        if value in seen or (value in written and not one.says_more):
            continue
        if cost > room:
            misses += 1
            if misses > 20:
                break
            continue
        room -= cost
        chosen.append(one)
        written += f"{value}\n"
    # A short value may have come before a longer one that contains it.
    return [one for one in chosen if one.says_more or written.count(one.artifact.value) == 1]


def _write_lines(chosen: Sequence[Meant], language: Language) -> str:
    """Write values under what they are: their own key or label, else their message or their sort."""
    zh = language == "zh"
    labelled: dict[str, list[str]] = {}
    stated: list[str] = []
    rest: list[Artifact] = []
    for one in chosen:
        artifact = one.artifact
        if artifact.alike:
            stated.append(_write_crowd(artifact, zh))
        elif one.statement:
            stated.append(f"{artifact.value} = {one.statement}")
        elif one.label and not artifact.note:
            labelled.setdefault(one.label, []).append(artifact.value)
        else:
            rest.append(artifact)
    told = "\n".join(stated)
    labelled = {
        label: left for label, values in labelled.items() if (left := [one for one in values if one not in told])
    }
    keyed = "; ".join(f"{label}: {', '.join(values)}" for label, values in labelled.items())
    return "\n".join(filter(None, (*stated, keyed, *_write_sorts(rest, zh))))


def _write_sorts(chosen: Sequence[Artifact], zh: bool) -> list[str]:
    groups: dict[str, list[Artifact]] = {}
    for artifact in chosen:
        if not artifact.note:
            groups.setdefault(artifact.handle, []).append(artifact)
    grouped = {handle for handle, members in groups.items() if handle and len(members) >= GROUP_MIN}
    by_sort: dict[str, list[Artifact]] = {}
    for artifact in chosen:
        if artifact.note or artifact.handle not in grouped:
            by_sort.setdefault(artifact.sort, []).append(artifact)
    lines = [
        f"{SORT_NAMES[sort][zh]}: {', '.join(_write_value(artifact, zh) for artifact in by_sort[sort])}"
        for sort in SORT_NAMES
        if sort in by_sort
    ]
    lines += [
        f"{shorten_handle(handle)} {', '.join(artifact.value for artifact in groups[handle])}"
        for handle in groups
        if handle in grouped
    ]
    return lines


def find_meaning(artifact: Artifact, text: str) -> tuple[str, str]:
    """Return what a text says a value is: the key or label before it, or what is stated about it after it.

    Names of code and files say themselves what they are.
    """
    if artifact.sort not in _MEANT or not text:
        return "", ""
    at = text.find(artifact.value)
    if at < 0:
        return "", ""
    stop = at + len(artifact.value)
    if artifact.sort == "id" and (stated := _STATED.match(text, stop, stop + 80)):
        return "", stated[1].strip()
    before = _LABEL.search(text[max(0, at - 48) : at])
    return (next(filter(None, before.groups())).strip(), "") if before else ("", "")


def _write_crowd(artifact: Artifact, zh: bool) -> str:
    where = shorten_handle(artifact.handle)
    name = SORT_NAMES.get(artifact.sort, ("values", "值"))[zh]
    if zh:
        return f"{artifact.alike} 个{name}，形如 {artifact.value}，见 {where}"
    return f"{artifact.alike} {name} like {artifact.value} in {where}"


def _write_value(artifact: Artifact, zh: bool) -> str:
    return f"{artifact.value} ({_NOTES[artifact.note][zh]})" if artifact.note in _NOTES else artifact.value


def shorten_handle(handle: str) -> str:
    """Return a handle as short as the index writes it: a prefix that lookup still finds."""
    head, dot, part = handle.partition(".")
    return f"{head[: 2 + HANDLE_DIGITS]}{dot}{part}"
