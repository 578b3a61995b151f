"""Fields of a JSON result that say what happened: statuses, what the call asked for, amounts, ids.

Numbers keep the spelling of the result. The work is linear in the size of the record, and what is read is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NoReturn

from refold.patterns import lazy_regex
from refold.reading.events import Action, Status
from refold.reading.rules import find_rule
from refold.reading.tools import plain_name

FIELDS_MAX = 8
FIELD_CHARS_MAX = 120
JSON_CHARS_MAX = 8_000_000
LEAVES_MAX = 2_000

_SUCCESS = lazy_regex(r"(?:succe|ok\b|done\b|complete|confirm|approved|accepted|成功|已)", re.I)
_FAILURE = lazy_regex(r"fail|error|denied|invalid|reject|not[ _]found|unauthori|forbidden|失败|错误|拒绝", re.I)
_OTHERWISE_RANK, _REPEATED_RANK = 2, 5
# Of such lists the last entry is the news.
_HISTORY = lazy_regex(r"(?:\w{1,40}_)?(?:history|log|logs|events|transactions|payments|refunds|updates|changes)")
_LIST_SHOWN = 6


@cache
def _load_telling() -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in find_rule("outputs", "fields", "telling"))


def read_json(text: str, *, keep_numbers: bool = False) -> object | None:
    """Return the value that a text is as JSON, numbers as text if asked; None if it is not JSON, or too deep."""
    number = str if keep_numbers else None
    try:
        parsed: object = json.loads(text, parse_constant=refuse_constant, parse_float=number, parse_int=number)
    except (ValueError, RecursionError):
        return None
    return parsed


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities, which Python's parser accepts."""
    raise ValueError(f"{name} is not JSON")


def parse_record(text: str) -> object | None:
    """Return the object or list that a text is as JSON, numbers as text; None for anything else, or if too long."""
    if text[:1] not in ("{", "[") or len(text) > JSON_CHARS_MAX:
        return None
    return read_json(text, keep_numbers=True)


def open_envelope(record: object) -> object:
    """Return what a protocol wraps: the text of an MCP result, the output of a shell, the only field of an object."""
    for _ in range(4):
        if isinstance(record, dict) and isinstance(record.get("content"), list) and record["content"]:
            first = record["content"][0]
            record = first.get("text", "") if isinstance(first, dict) and first.get("type") == "text" else record
            if record is not first and isinstance(record, dict):
                return record
        elif isinstance(record, dict) and len(record) == 1:
            inner = next(iter(record.values()))
            if not isinstance(inner, dict):
                return record
            record = inner
        else:
            return record
        if isinstance(record, str) and record[:1] in ("{", "["):
            record = parse_record(record) or record
    return record


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _walk(record: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Return the short leaves of a record with their paths; leaves of records in a list stand side by side."""
    stack: list[tuple[str, object, int]] = [("", record, 0)]
    seen = 0
    while stack and seen < LEAVES_MAX:
        path, value, depth = stack.pop()
        seen += 1
        if isinstance(value, dict) and depth < 4:
            pairs = [(f"{path}.{key}" if path else str(key), inner, depth + 1) for key, inner in value.items()]
            stack += reversed(pairs[:LEAVES_MAX])
        elif isinstance(value, list) and depth < 4:
            stack += reversed(_list_entries(path, value, depth + 1))
        elif isinstance(value, bool):
            yield path, "true" if value else "false"
        elif isinstance(value, str) and 0 < len(value) <= FIELD_CHARS_MAX:
            yield path, value


def _list_entries(path: str, values: Sequence[object], depth: int) -> list[tuple[str, object, int]]:
    """Return the entries of a list as fields: the newest of a history, a few side by side, else how many there are."""
    if values and _HISTORY.fullmatch(_last(path)):
        return [(path, values[-1], depth)]
    if len(values) > _LIST_SHOWN:
        return [(f"{path}.entries", str(len(values)), depth)]
    if all(isinstance(value, str) for value in values):
        return [(path, ", ".join(map(str, values)), depth)]
    records = [value for value in values if isinstance(value, dict)]
    keys = dict.fromkeys(str(key) for value in records for key in value)
    found: list[tuple[str, object, int]] = []
    for key in keys:
        texts = [value[key] for value in records if isinstance(value.get(key), str)]
        if texts:
            found.append((f"{path}.{key}", ", ".join(dict.fromkeys(texts)), depth))
    return found


def choose_fields(record: Mapping[str, object], action: Action | None) -> list[tuple[str, str]]:
    """Return the fields of a result that say what happened, most telling kind first, at most ``FIELDS_MAX``.

    They are errors and statuses, what came otherwise than the call asked, amounts, ids, what repeats the call, prices;
    other short fields fill what is left.
    """
    leaves, telling = dict(_walk(record)), _load_telling()
    asked, words = (action.targets, action.text) if action is not None else ((), "")
    ranked: list[tuple[int, bool, int, str]] = []
    for at, (path, value) in enumerate(leaves.items()):
        key, depth = _last(path), path.count(".")
        parts = plain_name(key).split("_")
        rank = next((rank for rank, words in enumerate(telling) if not words.isdisjoint(parts)), len(telling) + 1)
        # "is_open", "has_paid": claims are statuses.
        rank = 1 if depth == 0 and parts[0] in ("is", "has") else rank
        is_asked = value in asked or f"{key}={value}" in words
        if is_asked or (depth == 0 and f"{key}=" in words):
            rank = min(rank, _REPEATED_RANK if is_asked else _OTHERWISE_RANK)
        ranked.append((rank + (2 if depth > 1 else 0), is_asked, at, path))
    return [(path, leaves[path]) for *_, path in sorted(ranked)[:FIELDS_MAX]]


def judge_record(record: Mapping[str, object]) -> Status:
    """Return whether a record says that it worked."""
    for key, value in record.items():
        name = key.lower()
        if name in ("error", "errors", "exception") and value not in (None, "", [], {}, False):
            return "failed"
        if name in ("success", "ok") and isinstance(value, bool):
            return "ok" if value else "failed"
        if name in ("status", "state", "result", "conclusion", "outcome") and isinstance(value, str):
            if _FAILURE.search(value[:80]):
                return "failed"
            if _SUCCESS.match(value[:80]):
                return "ok"
    return "ok"


def find_error(fields: Sequence[tuple[str, str]]) -> str:
    """Return the field that names an error, if there is one."""
    known = _load_telling()[0]
    return next((value for name, value in fields if not known.isdisjoint(plain_name(_last(name)).split("_"))), "")
