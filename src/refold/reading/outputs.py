"""Telling lines of an output: how it ended, what failed, where; and the lines around it that say nothing.

The rules are data, ``rules/outputs.toml``. The search is linear and bounded in what it reads and in what it finds; it
points at lines and never changes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from refold.reading.rules import lazy_rule, read_table

LineKind = Literal["frame", "total", "well", "failing", "error", "place", "raised", "changed", "trace", "level", "exit"]

TABLE = "rules/outputs.toml"
_FOUND_MAX = 5_000
# Of a longer text, this much is searched at each end.
_SEARCH_CHARS = 4_000_000
# The search goes piece by piece: one long search would block other threads.
_PIECE_CHARS = 32_000
# What a text is, is judged by this much of it.
_SAMPLE_CHARS = 20_000
_LOG_SHARE = 0.25
_CODE_SHARE = 0.2
_LOG_LINE = lazy_rule("outputs", "form", "log_line", "is")
_RUN_SIGN = lazy_rule("outputs", "form", "run_sign", "is")
_CODE_LINE = lazy_rule("outputs", "form", "code_line", "is")


class TellingLine(NamedTuple):
    """The line ``start`` to ``stop``, the place ``at`` that matched, what it is, the name that it gives, and its rank.

    Rank 0 is the most important.
    """

    start: int
    stop: int
    at: int
    kind: LineKind
    name: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class LineRule:
    """Lines of one kind, as one pattern."""

    kind: LineKind
    rank: int
    pattern: re.Pattern[str]
    logs_only: bool = False


@cache
def load_line_rules() -> tuple[LineRule, ...]:
    """Return the rules. Those of one kind share one anchor, so that the engine skips the rest of a line."""
    joined: dict[tuple[LineKind, int, bool], list[str]] = {}
    ranks = read_table(TABLE)["ranks"]
    for rule in read_table(TABLE)["line"]:
        rank = rule.get("rank", ranks.get(rule["kind"], 9))
        joined.setdefault((rule["kind"], rank, rule.get("anywhere", False)), []).append(rule["is"])
    return tuple(
        LineRule(kind, rank, re.compile("|".join(found) if anywhere else f"^(?:{'|'.join(found)})", re.M), anywhere)
        for (kind, rank, anywhere), found in joined.items()
    )


def is_frame(line: str) -> bool:
    """Return whether a line was written around an output, or says nothing."""
    return _pattern("frame").match(line) is not None


def says_well(line: str) -> bool:
    """Return whether a line says that something worked."""
    return _pattern("well").match(line) is not None


@cache
def _pattern(kind: LineKind) -> re.Pattern[str]:
    return next(rule.pattern for rule in load_line_rules() if rule.kind == kind)


def looks_like_log(text: str) -> bool:
    """Return whether a text is the output of a command, a test run or a log, judged by its beginning and its end."""
    half = _SAMPLE_CHARS // 2
    sample = text if len(text) <= _SAMPLE_CHARS else f"{text[:half]}\n{text[-half:]}"
    lines = [line[:300] for line in sample.split("\n") if line.strip()]
    logged = sum(1 for line in lines if _LOG_LINE.match(line))
    if lines and logged >= _LOG_SHARE * len(lines):
        return True
    # A run's own signs settle it, unless much of what was printed is a program's source.
    code = sum(1 for line in lines if _CODE_LINE.match(line))
    return _RUN_SIGN.search(sample) is not None and code <= _CODE_SHARE * len(lines)


def find_lines(text: str, start: int, stop: int, *, is_log: bool = False) -> list[TellingLine]:
    """Return the telling lines between two places of a text in order, each once, under its first rule."""
    found: dict[int, TellingLine] = {}
    for rule in load_line_rules():
        if rule.kind in ("frame", "well") or (rule.logs_only and not is_log):
            continue
        for begin, end in _list_pieces(text, start, stop):
            at = begin
            while len(found) < _FOUND_MAX and (match := rule.pattern.search(text, at, end)) is not None:
                first = max(start, text.rfind("\n", begin, match.start() + 1) + 1) if rule.logs_only else match.start()
                last = text.find("\n", match.end(), stop)
                last = stop if last < 0 else last
                names = match.groupdict().values() if rule.kind in ("failing", "place") else ()
                name = next(filter(None, names), "")
                found.setdefault(
                    min(first, match.start()), TellingLine(first, last, match.start(), rule.kind, name, rule.rank)
                )
                at = last + 1
    # A piece may begin or end inside a line; such a partial line is not telling.
    return sorted(line for line in found.values() if line.start < line.stop)


def _list_pieces(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Return the pieces of a text that are searched, each ending with a line."""
    spans = [(start, stop)]
    if stop - start > 2 * _SEARCH_CHARS:
        spans = [(start, start + _SEARCH_CHARS), (stop - _SEARCH_CHARS, stop)]
    for begin, end in spans:
        at = begin
        while at < end:
            border = text.find("\n", min(end, at + _PIECE_CHARS), end)
            last = end if border < 0 else border
            yield at, last
            at = last + 1
