"""Landmarks: the lines of a long output that a reader must not miss, wherever they are.

They are failures, errors, exit statuses, summaries of test runs and builds, and the file headers of a diff. The rules
know the common tools in English and Chinese, not one particular output. The search is linear and bounded, in what it
reads and in what it finds. It points at lines and never changes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from refold.patterns import lazy_regex

_FOUND_MAX = 5_000
# Of a longer text, this much is searched at each end.
_SEARCH_CHARS = 4_000_000
# The search goes piece by piece: one long search would block other threads.
_PIECE_CHARS = 32_000
_SAMPLE_CHARS = 20_000
_LOG_SHARE = 0.25
_CODE_SHARE = 0.2


class Landmark(NamedTuple):
    """The line ``start`` to ``stop``, the place ``at`` that matched, and its rank: 0 is the most important."""

    start: int
    stop: int
    at: int
    rank: int


@dataclass(frozen=True, slots=True)
class _Rule:
    rank: int
    pattern: re.Pattern[str]
    logs_only: bool = False


def _rule(rank: int, *starts: str) -> _Rule:
    """Return a rule for the beginning of a line. All share one anchor, so that the engine skips the rest of a line."""
    return _Rule(rank, lazy_regex(f"^(?:{'|'.join(starts)})", re.M))


def _words(rank: int, *words: str) -> _Rule:
    """Return a rule for words anywhere in a line, for logs only: code mentions errors all the time."""
    return _Rule(rank, lazy_regex("|".join(words)), logs_only=True)


# Repetitions inside a pattern are bounded, so that no pattern scans a line more than once.
_RULES = (
    # How it ended: exit statuses, totals of test runs and builds.
    _rule(
        0,
        r"=+ .{0,200}\b\d+ (?:passed|failed|errors?|skipped|deselected)\b",
        r" *\d+ (?:passed|failed|failing|passing|pending|tests? failed|examples?,|errors? generated)\b",
        r"Ran \d+ tests? in ",
        r"(?:FAILED|OK|FAILURE|SUCCESS) ?\(",
        r"(?:FAILED|OK|PASS|FAIL|PASSED|FAILURE)$",
        r"(?:Tests|Test Suites|Test Files|Snapshots|Suites|Assertions)[: ] *.{0,80}\b\d+\b",
        r"Tests run: \d+",
        r"test result: ",
        r"(?:FAIL|ok)\t\S+",
        r"(?:\[\w+\] )?BUILD (?:FAILED|FAILURE|SUCCESS)",
        r"Found \d+ (?:errors?|warnings?|problems?|issues?)\b",
        r"(?:\W{0,4})\d+ (?:errors?|problems?|warnings?)\b",
        r"<?(?:returncode|return code|exit code|exit status|exit_code|status code)>?[ :=>]*-?\d+",
        r".{0,60}\b(?:[Ee]xit(?:ed)?|finished|terminated|failed) (?:with )?(?:exit )?(?:code|status|signal)[ :=]+-?\d+",
        r".{0,40}(?:退出码|返回码|退出状态)",
    ),
    # Failures, by name.
    _rule(
        1,
        r"(?:FAILED|ERROR|FAIL|FATAL|CRITICAL|PANIC)[: ]",
        r"--- FAIL: ",
        r"not ok\b",
        r" *[✕✗✘×❌●✖] ?\S",
        r"(?:fatal|error|panic|abort(?:ed)?|Error|Fatal|Uncaught|Unhandled|Aborted)\b.{0,40}[:!]",
        r"error(?:\[\w+\])?: ",
        r"\S{1,300}:\d+(?::\d+)?: (?:fatal )?(?:error|ERROR|Error|undefined reference)\b",
        r"\S{1,300}\(\d+(?:,\d+)?\): (?:fatal )?error\b",
        r"\S{1,300}:\d+: (?:\w+\.)*\w*(?:Error|Exception|Warning|Failed)$",
        r"thread '.{0,200}' panicked at",
        r"npm ERR!",
        r"make(?:\[\d+\])?: \*\*\* ",
        r"(?:bash|sh|zsh|/bin/\w+): .{0,300}: ",
        r"(?:Segmentation fault|Killed$|Aborted|Bus error|core dumped)",
    ),
    # A changed file in a diff.
    _rule(1, r"diff --git ", r"Index: \S", r"\+\+\+ [^\n]{1,300}$", r"(?:rename|copy) (?:from|to) ", r"Binary files "),
    # Exceptions.
    _rule(
        2,
        r"(?:E {1,12})?(?:[A-Za-z_][\w.$]{0,120})?(?:Error|Exception|Failure|Warning|Interrupt|Exit|Fault)"
        r"(?:\(.{0,120}\))?:(?: |$)",
        r"(?:E {1,12})?[A-Za-z_][\w.$]{0,120}(?:Error|Exception)$",
        r"E {2,12}\S",
        r"Caused by: ",
        r"Exception in ",
        r" *(?:Expected|Received|Actual|expected|actual|assertion)\b.{0,20}:",
    ),
    # The opening of a trace says less than its end.
    _rule(4, r"Traceback \(most recent call last\)"),
    # Levels and complaints.
    _words(3, r"\b(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG|ALERT|PANIC|FAILED|FAILURE)\b"),
    _words(
        4,
        r"\b(?:[Ee]rrors?|[Ee]xceptions?|[Ff]ailed|[Ff]ailures?|[Cc]annot|denied|refused|not found|timed out|[Tt]imeout"
        r"|No such file|[Uu]nable to|panic(?:ked)?|[Cc]rash(?:ed)?|OOM|out of memory|Segmentation)\b",
        r"错误|失败|异常|报错|拒绝|超时|崩溃|无法",
    ),
    _words(5, r"\b(?:WARN|WARNING|[Ww]arning|[Dd]eprecated)\b|警告|HTTP/\d(?:\.\d)?\" [45]\d\d "),
)

_LOG_LINE = lazy_regex(
    r"""^(?:
        \[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d          # a date and a time
      | \[?\d\d:\d\d:\d\d                               # a time
      | [A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:\d\d          # syslog
      | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b
      | \S+\ (?:\.{3}\ )?(?:ok|PASS|PASSED|FAILED|FAIL|ERROR|SKIPPED)\b
      | (?:test_\w+|\w+)\ \([\w.]+\)\ \.\.\.(?=\ )
      | \.[.FEsxX]{9,}
      | (?:={3,}|-{10,}|_{3,})(?:\ .*)?(?:\ =+|\ _+)?$
      | (?:Collecting|Downloading|Installing|Requirement|Building|Compiling|Fetched|Unpacking|Setting\ up)\b
      | \s*(?:at\ \S+\(|File\ ".*",\ line\ \d+)
      | \$\ \S | >\ \S+@\S+
      | \S+:\d+(?::\d+)?:\ (?:warning|error|note)\b
    )""",
    re.X,
)
_RUN_SIGN = lazy_regex(
    r"^(?:={5,} (?:test session starts|FAILURES|ERRORS|short test summary)|Traceback \(most recent|Ran \d+ tests? in |"
    r"<?(?:returncode|exit code|exit status)>?[ :=>]*-?\d|test result: |--- FAIL: |Tests run: |npm ERR!|"
    r"make(?:\[\d+\])?: \*\*\*)",
    re.M | re.I,
)
_SHELL_NAME = lazy_regex(
    r"(?:^|[_\W])(?:bash|sh|shell|exec|execute|terminal|console|command|cmd|run|tests?|pytest|process|logs?)(?:$|[_\W])",
    re.I,
)
_CODE_LINE = lazy_regex(
    r"^\s*(?:\d+\s+)?(?:def |class |import |from \w|return\b|if .*[:{]$|for .*[:{]$|const |let |var |function |public |"
    r"private |#include|//|/\*|\*|\}|@\w)"
)


def names_shell(tool: str) -> bool:
    """Return whether a tool's name says that it runs commands."""
    return bool(tool) and _SHELL_NAME.search(tool) is not None


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


def find_landmarks(text: str, start: int, stop: int, *, is_log: bool) -> list[Landmark]:
    """Return the telling lines between two places of a text, each once, under its best rule."""
    found: dict[int, Landmark] = {}
    for rule in _RULES:
        if rule.logs_only and not is_log:
            continue
        for begin, end in _list_pieces(text, start, stop):
            at = begin
            while len(found) < _FOUND_MAX and (match := rule.pattern.search(text, at, end)) is not None:
                first = max(start, text.rfind("\n", start, match.start() + 1) + 1)
                first = min(first, match.start())
                last = text.find("\n", match.end(), stop)
                last = stop if last < 0 else last
                found.setdefault(first, Landmark(first, last, match.start(), rule.rank))
                at = last + 1
    # A piece may begin or end inside a line; such a partial line is not a landmark.
    return [mark for mark in found.values() if mark.start < mark.stop]


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
