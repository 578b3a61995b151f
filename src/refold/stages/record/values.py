"""Exact values of a span, each with its owner, and which of them a record lists.

Values are ranked by the odds that a later call uses them (``reading/weights``). A record lists each once, under its
owner; values that the text or the view has already are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.conversation.message import message_handle
from refold.conversation.reason import Language
from refold.conversation.view import Artifact
from refold.patterns import lazy_regex
from refold.reading.events import Value
from refold.reading.weights import Evidence
from refold.stages.record.frame import neutralise, shorten_handle
from refold.stages.record.lines import Count
from refold.stages.record.story import ReadMessage

# As many values are kept with a fold; a record lists the first of them.
ARTIFACTS_MAX = 2_000
VALUE_CHARS_MAX = 160
# Values of one owner that are listed; more are counted.
LISTED_MAX = 8
# After so many values that did not fit the rest is not tried.
MISSES_MAX = 20
# A value that is less likely to be used is not worth a line.
WEIGHT_MIN = 0.02
# Values of one message that have no owner are listed by their message from so many on.
GROUP_MIN = 3
_RUN = lazy_regex(r"[\w.@+~/\\:-]+")
SORT_NAMES: dict[str, tuple[str, str]] = {
    "file": ("files", "文件"),
    "url": ("links", "链接"),
    "id": ("ids", "编号"),
    "identifier": ("names in code", "代码名"),
    "name": ("names", "名称"),
    "term": ("terms", "术语"),
    "flag": ("options", "选项"),
    "number": ("numbers", "数字"),
    "money": ("amounts", "金额"),
    "date": ("dates", "日期"),
    "time": ("times", "时间"),
    "version": ("versions", "版本"),
    "address": ("addresses", "地址"),
    "email": ("email", "邮箱"),
    "value": ("values", "值"),
}
_MORE: dict[Language, str] = {"en": "and {count} more", "zh": "等另外 {count} 个"}


def find_artifacts(evidence: Evidence, span: Sequence[ReadMessage], secrets: frozenset[str]) -> list[Artifact]:
    """Return the values of a span with their owners, likeliest to be used first; secrets are left out."""
    handles: dict[str, str] = {}
    for one in span:
        for event in one.events:
            if isinstance(event, Value):
                handles[event.text] = message_handle(one.message, event.part)
    whole = "\n".join(secrets)
    return [
        Artifact(value.sort, text, handles[text], value.owner, weight)
        for weight, value in evidence.rank(handles)
        if len(text := value.text) <= VALUE_CHARS_MAX
        and not (secrets and (text in whole or any(secret in text for secret in secrets)))
    ][:ARTIFACTS_MAX]


def choose_values(
    found: Sequence[Artifact], count: Count, language: Language, view: tuple[str, str], tokens_max: int, body: str = ""
) -> str:
    """Write the values likeliest to be used, within ``tokens_max``; not those of the view (its text and its runs)."""
    seen, runs = f"{view[0]}\n{body}", f"{view[1]}\n{list_runs(body)}"
    chosen: list[Artifact] = []
    room, misses = tokens_max, 0
    for artifact in found:
        if misses > MISSES_MAX or artifact.weight < WEIGHT_MIN:
            break
        if artifact.value in (runs if _RUN.fullmatch(artifact.value) else seen):
            continue
        cost = count(f" {artifact.value},") + (count(artifact.note) // 2 if artifact.note else 0)
        if cost > room:
            misses += 1
            continue
        room -= cost
        chosen.append(artifact)
    while chosen:
        text = _write_values(chosen, language)
        size = count(text)
        if size <= tokens_max:
            return text
        # The estimate was too low: drop the least likely ones, so that this ends soon.
        chosen = chosen[: -max(1, len(chosen) * (size - tokens_max) // size)]
    return ""


def list_runs(text: str) -> str:
    """Return the different runs of a text; a value that is one is looked for here, because texts repeat their words."""
    return "\n".join(dict.fromkeys(_RUN.findall(text)))


def _write_values(chosen: Sequence[Artifact], language: Language) -> str:
    """Write values under their owners; values without one under their message or their sort."""
    owned: dict[str, list[str]] = {}
    by_message: dict[str, list[Artifact]] = {}
    for one in chosen:
        if one.note:
            owned.setdefault(neutralise(one.note), []).append(one.value)
        else:
            by_message.setdefault(one.handle, []).append(one)
    names = {sort: pair[language == "zh"] for sort, pair in SORT_NAMES.items()}
    lines = [f"{owner}: {_list_some(values, language)}" for owner, values in owned.items()]
    by_sort: dict[str, list[str]] = {}
    for handle, own in by_message.items():
        if len(own) >= GROUP_MIN:
            listed = ", ".join(neutralise(one.value) for one in own)
            sort = own[0].sort if len({one.sort for one in own}) == 1 else "value"
            lines.append(f"{names.get(sort, sort)} ({shorten_handle(handle)}): {listed}")
        else:
            for one in own:
                by_sort.setdefault(one.sort, []).append(neutralise(one.value))
    return "\n".join([*lines, *(f"{names.get(sort, sort)}: {', '.join(values)}" for sort, values in by_sort.items())])


def _list_some(values: Sequence[str], language: Language) -> str:
    shown = ", ".join(neutralise(value) for value in values[:LISTED_MAX])
    more = len(values) - LISTED_MAX
    return f"{shown} {_MORE[language].format(count=more)}" if more > 0 else shown
