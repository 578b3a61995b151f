"""Logs: the common beginning of consecutive lines is written once; and back, byte for byte.

Only what logs and searches print counts as a beginning: times, levels, names in brackets, ``path:`` of a search. A
source file is never taken for a log. A line that is repeated in a row is written once with its count; a long line that
occurs many times is written once and then referred to by a code.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby

from refold.reading.outputs import looks_like_log

_LINES_MIN = 8
_PREFIX_MIN = 10
_RUN_MIN = 3
_CODED_CHARS_MIN = 30
_CODED_USES_MIN = 4
_CODES_MAX = 99
_HITS_SHARE = 0.25
_SAY = (
    "log of {count} lines: after »P lines begin with P until the next »; »×N: the line above, N times in all; "
    "»1=L: »1 stands for L"
)
_HEAD = re.compile(r"log of (\d{1,12}) lines: .*")
_SIGN, _TIMES = "»", "»×"
_REPEAT = re.compile(r"»×(\d{1,12})")
_CODE = re.compile(r"»\d{1,2}")
_DEFINITION = re.compile(r"(»\d{1,2})=(.*)", re.S)
# One piece of a beginning: a time, a bracket, a level, the path of a hit, a name before a colon.
_PIECE = re.compile(
    r"""(?:
        \[[^\]\n]{1,60}\]\ ?
      | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[\ :]\ ?
      | (?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?)[ ]
      | [A-Z][a-z]{2}\ [\ \d]\d\ (?:\d\d:\d\d:\d\d\ )?
      | (?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b:?\ {0,2}
      | (?:[\w.@+-]*/)[\w./@+-]{1,200}:
      | [\w.-]{2,60}(?:\[\d{1,8}\])?:[ ]
      | -[ ]
    )""",
    re.X,
)
_PIECES_MAX = 6


def find_prefixes(line: str) -> list[str]:
    """Return the beginnings of a line that logs repeat, shortest first."""
    found: list[str] = []
    at = 0
    while len(found) < _PIECES_MAX and (match := _PIECE.match(line, at)):
        at = match.end()
        found.append(line[:at])
    return found


def write_log(text: str) -> list[str] | None:
    """Return the lines of a block for a log; None if the text is not a log or nothing in it repeats."""
    source = text.split("\n")
    if len(source) < _LINES_MIN or "⟨" in text or any(line.startswith(_SIGN) for line in source):
        return None
    if not _is_log(text, source):
        return None
    counted = [(line, sum(1 for _ in group)) for line, group in groupby(source)]
    codes = _find_codes(counted)
    made = [_SAY.format(count=len(source)), *(f"{code}={line}" for line, code in codes.items())]
    prefixes = [[] if line in codes else find_prefixes(line) for line, _ in counted]
    at = 0
    shared = ""
    while at < len(counted):
        prefix, stop = _find_run(counted, prefixes, at)
        if prefix != shared and counted[at][0] not in codes:
            made.append(_SIGN + prefix)
            shared = prefix
        for line, count in counted[at:stop]:
            made.append(codes.get(line) or line[len(prefix) :])
            if count > 1:
                made.append(f"{_TIMES}{count}")
        at = stop
    return made if sum(map(len, made)) + len(made) < len(text) else None


def read_log(lines: list[str]) -> str:
    """Return the text that the lines of a block encode."""
    head = _HEAD.fullmatch(lines[0])
    if head is None:
        raise ValueError("the first line of a log is not ours")
    made: list[str] = []
    codes: dict[str, str] = {}
    prefix = ""
    for line in lines[1:]:
        if not line.startswith(_SIGN):
            made.append(prefix + line)
        elif (times := _REPEAT.fullmatch(line)) is not None:
            made += [made[-1]] * (int(times[1]) - 1)
        elif _CODE.fullmatch(line):
            made.append(codes[line])
        elif not made and (defined := _DEFINITION.fullmatch(line)) is not None:
            codes[defined[1]] = defined[2]
        else:
            prefix = line[len(_SIGN) :]
    if len(made) != int(head[1]):
        raise ValueError(f"a log of {head[1]} lines has {len(made)}")
    return "\n".join(made)


def _is_log(text: str, lines: list[str]) -> bool:
    if _is_csv(lines):
        return False
    hits = sum(1 for line in lines if len((find_prefixes(line) or [""])[-1]) >= _PREFIX_MIN)
    return hits >= _HITS_SHARE * len(lines) or looks_like_log(text)


def _is_csv(lines: list[str]) -> bool:
    """Return whether most lines have as many commas, semicolons or tabs as the first: such a table is dense already."""
    sample = [line for line in lines[:200] if line]
    for sign in ",;\t":
        columns = sample[0].count(sign) if sample else 0
        if columns >= 2 and sum(line.count(sign) == columns for line in sample) >= 0.9 * len(sample):
            return True
    return False


def _find_codes(counted: list[tuple[str, int]]) -> dict[str, str]:
    """Return the long lines that repeat, each with its code."""
    seen = Counter(line for line, _ in counted if len(line) >= _CODED_CHARS_MIN)
    often = [line for line, count in seen.items() if count >= _CODED_USES_MIN]
    return {line: f"{_SIGN}{at}" for at, line in enumerate(often[:_CODES_MAX], 1)}


def _find_run(counted: list[tuple[str, int]], prefixes: list[list[str]], at: int) -> tuple[str, int]:
    """Return the beginning that saves most from here on, or an empty one, and where its run stops."""
    best, best_stop, best_saved = "", at + 1, 0
    for prefix in reversed(prefixes[at]):
        if len(prefix) < _PREFIX_MIN:
            break
        stop = at + 1
        while stop < len(counted) and _may_follow(counted[stop][0], prefix):
            stop += 1
        saved = (stop - at - 1) * len(prefix)
        if stop - at >= _RUN_MIN and saved > best_saved:
            best, best_stop, best_saved = prefix, stop, saved
    return best, best_stop


def _may_follow(line: str, prefix: str) -> bool:
    # The rest of the line must not look like one of our markers.
    return line.startswith(prefix) and not line.startswith(_SIGN, len(prefix))
