"""Writes the artifact index: as many of the best exact values as a budget of tokens holds.

A value that the reader sees anyway, in what is kept or within a longer value already chosen, costs nothing and is
not written again. Values of one message stand together behind its handle; a lone value stands in the line of its
sort, and the fold's own handle leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from refold.conversation.edit import Artifact
from refold.conversation.language import Language

Count = Callable[[str], int]

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


@dataclass(frozen=True, slots=True)
class Index:
    """The written index, and the artifacts that are in it."""

    text: str
    shown: tuple[Artifact, ...]


def write_index(
    artifacts: Sequence[Artifact], tokens_max: int, count: Count, *, seen: str = "", language: Language = "en"
) -> Index:
    """Write the best artifacts that fit into ``tokens_max``, leaving out what ``seen`` shows already."""
    chosen = choose_artifacts(artifacts, tokens_max, count, seen)
    while chosen:
        text = _write_lines(chosen, language)
        size = count(text)
        if size <= tokens_max:
            return Index(text, tuple(chosen))
        # The estimate was too kind: let go of the lightest share, at least one, so that this ends soon.
        surplus = max(1, len(chosen) * (size - tokens_max) // size)
        chosen = chosen[:-surplus]
    return Index("", ())


def choose_artifacts(artifacts: Iterable[Artifact], tokens_max: int, count: Count, seen: str = "") -> list[Artifact]:
    """Return the artifacts to write: those worth most for each token that they cost."""
    priced = [(artifact, count(f" {artifact.value},") + (2 if artifact.note else 0)) for artifact in artifacts]
    priced.sort(key=lambda pair: (-pair[0].weight / pair[1], pair[0].value))
    chosen: list[Artifact] = []
    written = ""
    room = tokens_max
    misses = 0
    for artifact, cost in priced:
        if artifact.value in seen or (artifact.value in written and not artifact.note):
            continue
        if cost > room:
            misses += 1
            if misses > 20:
                break
            continue
        room -= cost
        chosen.append(artifact)
        written += f"{artifact.value}\n"
    # A short value may have come before a longer one that contains it.
    return [artifact for artifact in chosen if artifact.note or written.count(artifact.value) == 1]


def _write_lines(chosen: Sequence[Artifact], language: Language) -> str:
    zh = language == "zh"
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
    return "\n".join(lines)


def _write_value(artifact: Artifact, zh: bool) -> str:
    return f"{artifact.value} ({_NOTES[artifact.note][zh]})" if artifact.note in _NOTES else artifact.value


def shorten_handle(handle: str) -> str:
    """Return a handle as short as the index writes it: a prefix that lookup still finds."""
    head, dot, part = handle.partition(".")
    return f"{head[: 2 + HANDLE_DIGITS]}{dot}{part}"
