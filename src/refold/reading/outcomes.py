"""What came of a call: whether it worked, by what proves it, and the line or the fields that say so.

An exit status, totals of tests, a status field or an error decide; where nothing proves anything, the outcome is
unknown. Text that was only read is no outcome, and what a harness writes into a result is a note of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from refold.conversation.message import Part
from refold.patterns import lazy_regex
from refold.reading.events import Action, CallOutcome, HarnessNote, ReadEvent, Status
from refold.reading.fields import FIELDS_MAX, choose_fields, find_error, judge_record, open_envelope, parse_record
from refold.reading.outputs import TellingLine, find_lines, is_frame, says_well
from refold.reading.rules import find_rule, lazy_rule
from refold.reading.tools import find_tool

LINE_CHARS_MAX = 300
FAILING_MAX = 50
TOTALS_MAX = 200
NOTES_MAX = 20
# Frames with an exit status are at the beginning or at the end of a result.
_PEEK_CHARS = 600
_LAST_LINES = 40

_NOTE = lazy_rule("outputs", "form", "note", "is")
_EXIT = lazy_rule("outputs", "form", "exit_code", "is")
_COUNTED = lazy_rule("outputs", "form", "counted", "is")
_BAD_TOTAL = lazy_rule("outputs", "form", "bad_total", "is")
_TESTED = frozenset(("passed", "failed", "run"))
_COMMITTED = lazy_rule("outputs", "form", "committed", "is")
_PUSHED = lazy_rule("outputs", "form", "pushed", "is")
_LINK = lazy_regex(r"https?://\S{4,200}")
# A person or a guard did not let the call run.
_REFUSED = lazy_rule("outputs", "form", "refused", "is")
# It goes on: what comes of it is not known yet.
_PENDING = lazy_rule("outputs", "form", "pending", "is")
# A program that shows files complains in its own name.
_COMPLAINT = lazy_rule("outputs", "form", "complaint", "is")
_ERROR_OPENS = lazy_rule("outputs", "form", "error_opens", "is")

_MEASURED = frozenset(("test", "build", "run", "commit", "install", "finish"))
# Programs that are silent when they succeed; a run or a test without a word proves nothing.
_SILENT = frozenset(
    ("edit", "create", "delete", "move", "revert", "build", "commit", "install", "other", "read", "search")
)
# Calls that give an answer, whatever it is.
_ANSWERED = frozenset(("fetch", "run", "ask", "other", "finish"))
# Claude Code's shell names the exit status of every command that failed.
_NAMES_FAILURES = "Bash"
_NAMED_ERROR = lazy_rule("outputs", "form", "named_error", "is")
_NO_ERROR = lazy_rule("outputs", "form", "no_error", "is")
# Signs that frame a total: "======= 5 passed =======".
_RULE = lazy_regex(r"=++ ")
# "Ran 5 tests in 0.1s" says how many; whether they passed is on the line after the next.
_RAN = lazy_rule("outputs", "form", "ran", "is")
# What a script says of itself, whatever its exit status.
_VERDICT = lazy_rule("outputs", "form", "verdict", "is")
_ANSI = lazy_regex(r"\x1b\[[\d;?]{0,20}[A-Za-z]")
_LOGGED_COMMIT = lazy_regex(r"^([0-9a-f]{7,40}) \S", re.M)


def read_result(part: Part, index: int, action: Action | None) -> tuple[ReadEvent, ...]:
    """Return the outcome of a call, and what the harness wrote into its result."""
    notes, spans = split_notes(part.text)
    output = _ToolOutput(part, action, spans)
    found = output.read()
    outcome = CallOutcome(
        part=index,
        start=found.start,
        stop=found.stop,
        text=found.text,
        call_id=part.call_id,
        status=found.status,
        fields=tuple(found.fields[:FIELDS_MAX]),
        error=found.error,
        failing=found.failing,
    )
    return (outcome, *(HarnessNote(part=index, start=start, stop=stop, text=text) for start, stop, text in notes))


def split_notes(text: str) -> tuple[list[tuple[int, int, str]], list[tuple[int, int]]]:
    """Return the harness's blocks in a result, and the spans of text around them."""
    notes: list[tuple[int, int, str]] = []
    at = 0
    while len(notes) < NOTES_MAX and (opened := _NOTE.search(text, at)) is not None:
        start, closing = opened.start(), f"</{opened[1]}>"
        at = opened.end()
        # A tag within a line is a word of the text.
        if start and not text[start - 1].isspace() and text[start - 1] != ">":
            continue
        closed = text.find(closing, at)
        at = len(text) if closed < 0 else closed + len(closing)
        notes.append((start, at, text[start:at]))
    spans, begin = [], 0
    for start, stop, _ in notes:
        spans.append((begin, start))
        begin = stop
    return notes, [*spans, (begin, len(text))]


class _ReadOutcome:
    """What was read of a result so far."""

    def __init__(self) -> None:
        self.status: Status = "unknown"
        self.start = self.stop = 0
        self.text = self.error = ""
        self.fields: list[tuple[str, str]] = []
        self.failing: tuple[str, ...] = ()


class _ToolOutput:
    """One result, with the call it answers."""

    def __init__(self, part: Part, action: Action | None, spans: Sequence[tuple[int, int]]) -> None:
        self.text = part.text
        self.is_error = part.is_error
        self.verb = action.verb if action is not None else "other"
        self.action = action
        rule = find_tool(action.tool) if action is not None else None
        self.is_shell = rule is not None and rule.prints
        # A search prints lines of files, and a read prints a file: none of them says what came of the call.
        self.only_shows = self.verb in ("read", "search")
        self.spans = [(start, stop) for start, stop in spans if start < stop]
        self.found = _ReadOutcome()

    def read(self) -> _ReadOutcome:
        exit_code = self._find_exit()
        record = self._parse_json()
        if exit_code is not None:
            self.found.fields.append(("exit_code", str(exit_code)))
        if record is not None and not (self.only_shows and self.is_shell):
            self._read_record(record)
        else:
            self._read_lines(exit_code)
        if self.is_error or (exit_code and not self._found_nothing(exit_code)):
            self.found.status = "failed"
        elif exit_code is not None and self.found.status == "unknown":
            self.found.status = "ok"
        if self.is_error and not self.found.text:
            self._take_line(next(self._first_lines(), None), is_error=True)
        return self.found

    def _found_nothing(self, exit_code: int) -> bool:
        """Return whether a search simply found nothing, which ``grep`` reports by status 1 and no output."""
        return exit_code == 1 and self.verb == "search" and next(self._first_lines(), None) is None

    def _find_exit(self) -> int | None:
        head, tail = self.text[:_PEEK_CHARS], self.text[_PEEK_CHARS:][-_PEEK_CHARS:]
        for sample in (head, tail):
            matches = list(_EXIT.finditer(sample))
            if matches:
                chosen = matches[0] if sample is head else matches[-1]
                return int(next(group for group in chosen.groups() if group is not None))
        return None

    def _lines(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        at = start
        while at <= stop:
            border = self.text.find("\n", at, stop)
            last = stop if border < 0 else border
            yield at, last
            at = last + 1

    def _first_lines(self) -> Iterator[tuple[int, int]]:
        """Return the lines that say something, from the first on."""
        for start, stop in self.spans:
            for line in self._lines(start, stop):
                if not is_frame(self.text[line[0] : min(line[1], line[0] + 1_000)].rstrip("\r")):
                    yield line

    def _last_lines(self) -> Iterator[tuple[int, int]]:
        """Return the lines that say something, from the last back; some of them only."""
        tried = 0
        for start, stop in reversed(self.spans):
            end = stop
            while end > start and tried < _LAST_LINES:
                begin = max(start, self.text.rfind("\n", start, end) + 1)
                if not is_frame(self.text[begin : min(end, begin + 1_000)].rstrip("\r")):
                    yield begin, end
                end = begin - 1
                tried += 1

    def _skip_rule(self, start: int) -> int:
        """Return where the words of a line begin; a wide terminal has hundreds of signs before them."""
        rule = _RULE.match(self.text, start)
        return rule.end() if rule else start

    def _take_line(self, line: tuple[int, int] | None, *, is_error: bool = False) -> None:
        if line is None:
            return
        start, stop = self._skip_rule(line[0]), line[1]
        raw = self.text[start : min(stop, start + LINE_CHARS_MAX)]
        text = _ANSI.sub("", raw).strip(" \t\r=*#~")
        text = text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
        self.found.start = start + max(0, raw.find(text))
        self.found.stop = self.found.start + len(text)
        self.found.text = text
        if is_error:
            self.found.error = text

    def _read_lines(self, exit_code: int | None) -> None:
        is_shown = self.only_shows and not (exit_code or self.is_error)
        marks = [] if is_shown else [mark for start, stop in self.spans for mark in find_lines(self.text, start, stop)]
        errors = [mark for mark in marks if mark.kind in ("error", "raised", "place", "failing")]
        if self.verb in _MEASURED:
            self._read_totals([mark for mark in marks if mark.kind == "total"])
        is_failed = bool(exit_code) or self.is_error or self.found.status == "failed"
        if is_failed:
            self.found.failing = _name_failing(errors)
        has_totals = bool(self.found.text)
        if self._read_receipt():
            return
        if is_failed and not has_totals:
            line = _choose_error(self.text, errors) or next(self._last_lines(), None)
            self._take_line(line, is_error=True)
        elif is_failed and (line := _choose_error(self.text, errors)):
            self.found.error = self._quote(line)
        elif not is_failed and not has_totals:
            self._read_plain(errors, exit_code)

    def _quote(self, mark: tuple[int, int]) -> str:
        return self.text[mark[0] : min(mark[1], mark[0] + LINE_CHARS_MAX)].strip(" \t\r=*#~")

    def _read_totals(self, totals: Sequence[TellingLine]) -> None:
        """Read the counts of tests and errors, and whether they mean that it worked."""
        counts: dict[str, int] = {}
        best = chosen = None
        is_bad = False
        for mark in totals[-TOTALS_MAX:]:
            start = self._skip_rule(mark.start)
            line = self.text[start : min(mark.stop, start + LINE_CHARS_MAX)]
            own = _count(line)
            is_tested = not _TESTED.isdisjoint(own)
            # A program may print anything; the totals of tests, or of a check that was asked for, prove something.
            if self.verb not in ("test", "build") and not is_tested:
                continue
            counts.update(own)
            bad = any(own.get(name) for name in ("failed", "errors", "problems", "issues"))
            bad = bad or (not own and _BAD_TOTAL.match(line) is not None)
            is_bad = is_bad or bad
            # The line to quote says what is wrong, and how much; a bare "FAIL" says least.
            weight = (bad, is_tested, bool(own) or self.verb == "test", len(line.strip()) > 8)
            if best is None or weight >= best:
                best, chosen = weight, mark
        if chosen is not None:
            self.found.fields += [(name, str(count)) for name, count in counts.items()]
            self.found.status = "failed" if is_bad else "ok"
            ran = _RAN.match(self.text, chosen.start)
            self._take_line((chosen.start, ran.end() if ran else chosen.stop))

    def _read_receipt(self) -> bool:
        """Read the hash of a commit or a push, which proves it."""
        if self.action is None or self.verb not in ("commit", "deploy", "send", "run", "test", "build", "other"):
            return False
        head = self.text[-20_000:]
        if committed := _COMMITTED.search(head):
            self.found.fields += [("branch", committed[1]), ("hash", committed[2])]
            self._take_receipt(committed, len(self.text) - len(head))
        if pushed := _PUSHED.search(head):
            self.found.fields.append(("pushed", pushed[1] or pushed[3]))
            if not committed:
                self._take_receipt(pushed, len(self.text) - len(head))
        if self.verb == "commit" and not committed and (logged := _LOGGED_COMMIT.search(head)):
            self.found.fields.append(("hash", logged[1]))
        if self.verb == "send" and not self.found.text and (link := _LINK.search(head)):
            self.found.fields.append(("url", link[0]))
        if not (committed or pushed):
            return False
        if self.found.status == "unknown":
            self.found.status = "ok"
        return True

    def _take_receipt(self, receipt: re.Match[str], offset: int) -> None:
        if self.verb in ("test", "build") and self.found.text:
            return
        stop = self.text.find("\n", offset + receipt.end())
        self._take_line((offset + receipt.start(), len(self.text) if stop < 0 else stop))

    def _read_plain(self, errors: Sequence[TellingLine], exit_code: int | None) -> None:
        """Read an output without totals and without proof of a failure: its first or its last words decide."""
        first = next(self._first_lines(), None)
        is_told = self.action is not None and self.action.tool == _NAMES_FAILURES
        if first is None:
            self.found.status = "ok" if is_told or (self.is_shell and self.verb in _SILENT) else "unknown"
            return
        opening = self.text[first[0] : first[0] + LINE_CHARS_MAX]
        if _REFUSED.match(opening):
            self._take_line(first, is_error=True)
            self.found.status = "failed"
        elif not self.is_shell and (_ERROR_OPENS.match(opening) or (errors and errors[0].start == first[0])):
            self.found.status = "failed"
            # "ERROR:" alone on its line says nothing; what went wrong is on the next one.
            is_bare = len(opening.partition("\n")[0].strip()) < 8
            later = next(islice(self._first_lines(), 1, 2), first) if is_bare else first
            self._take_line(later, is_error=True)
        elif self.only_shows and self.is_shell and _COMPLAINT.match(opening):
            self._take_line(first, is_error=True)
            self.found.status = "failed"
        elif self.only_shows or self.verb in ("think", "plan", "finish"):
            self.found.status = "ok" if self.verb != "finish" else "unknown"
        elif not self.is_shell:
            self._take_line(first)
            # What changes something says so; other words may be a guard's, and prove nothing.
            self.found.status = "ok" if self.verb in _ANSWERED or says_well(opening) else "unknown"
        else:
            last = next(self._last_lines(), first)
            verdict = next((mark for mark in errors if _VERDICT.match(self.text, mark.start)), None)
            is_failed = exit_code is None and bool(errors) and errors[-1].start == last[0]
            if verdict is not None and self.verb in ("run", "test"):
                last, is_failed = (verdict.start, verdict.stop), True
            self._take_line(last, is_error=is_failed)
            self.found.status = "failed" if is_failed else "ok" if is_told else "unknown"
        if _PENDING.search(self.text[:_PEEK_CHARS]):
            self.found.status = "unknown"

    def _parse_json(self) -> object | None:
        first = next(self._first_lines(), None)
        if first is None or self.text[first[0] : first[0] + 1] not in ("{", "["):
            return None
        return parse_record(self.text[first[0] : max(stop for _, stop in self.spans)].rstrip())

    def _read_record(self, record: object) -> None:
        """Read the fields of a record that say what happened."""
        record = open_envelope(record)
        if isinstance(record, list):
            self.found.status = "ok"
            self.found.fields.append(("entries", str(len(record))))
            record = record[0] if len(record) == 1 and not self.only_shows else None
        if isinstance(record, str):
            self.found.text = record[:LINE_CHARS_MAX]
        if not isinstance(record, dict):
            return
        self.found.status = judge_record(record)
        if self.only_shows and self.found.status == "ok":
            return
        chosen = choose_fields(record, self.action)
        self.found.fields += chosen
        self.found.stop = len(self.text)
        self.found.text = ", ".join(f"{name}: {value}" for name, value in chosen)
        if self.found.status == "failed":
            self.found.error = find_error(chosen) or self.found.text


def _name_failing(errors: Sequence[TellingLine]) -> tuple[str, ...]:
    """Return the names of failing tests, each once and as long as it is given; else the places of errors."""
    names = dict.fromkeys(mark.name for mark in errors if mark.kind == "failing" and mark.name)
    full = [name for name in names if "::" in name or "(" in name or " > " in name]
    names = dict.fromkeys(full) if full else names
    if not names:
        names = dict.fromkeys(mark.name for mark in errors if mark.kind == "place" and mark.name)
    return tuple(names)[:FAILING_MAX]


def _choose_error(text: str, errors: Sequence[TellingLine]) -> tuple[int, int] | None:
    """Return the error that tells most: the last exception by name, else the first error of a compiler or a tool."""
    raised = [mark for mark in errors if mark.kind == "raised" and not _NO_ERROR.match(text, mark.start)]
    named = [mark for mark in raised if _NAMED_ERROR.match(text, mark.start)]
    plain = [mark for mark in errors if mark.kind in ("error", "place")]
    chosen = named[-1:] or plain[:1] or raised[-1:] or errors[:1]
    return (chosen[0].start, chosen[0].stop) if chosen else None


def _count(line: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for found in _COUNTED.finditer(line):
        number, name = found[1] or found[4] or found[5] or found[7], found[2] or found[3] or found[6] or "run"
        name = find_rule("outputs", "counts").get(name.lower(), name.lower())
        counts[name] = counts.get(name, 0) + int(number)
    return counts
