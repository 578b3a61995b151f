"""What came of a call: whether it worked, by what proves it, and the line or the fields that say so.

An exit status, totals of tests, a status field or an error decide; where nothing proves anything, the outcome is
unknown. Text that was only read is no outcome, and what a harness writes into a result is a note of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from refold.conversation.message import Part
from refold.patterns import lazy_regex
from refold.reading.events import Action, CallOutcome, HarnessNote, ReadEvent, Status
from refold.reading.outputs import TellingLine, find_lines, is_frame

LINE_CHARS_MAX = 300
FIELDS_MAX = 8
FAILING_MAX = 50
FIELD_CHARS_MAX = 120
JSON_CHARS_MAX = 2_000_000
LEAVES_MAX = 2_000
# Frames with an exit status are at the beginning or at the end of a result.
_PEEK_CHARS = 600
_LAST_LINES = 40

_NOTE_TAGS = ("system-reminder", "warning", "environment_details", "environment_context", "reminder")
_EXIT = lazy_regex(
    r"<(?:returncode|exit_code|exitcode)>\s{0,4}(-?\d{1,6})\s{0,4}</|^(?:Error: )?Exit code:? (-?\d{1,6})\b"
    r"|^(?:\[?(?:Command|The command|Process|\w{1,20} test:)|Exited|\[)[^\n]{0,40}?"
    r"(?:exit(?:ed)?|finished|completed|failed)"
    r"(?: with)?(?: exit)? (?:code|status)[:= ]{1,3}(-?\d{1,6})\b"
    r"|\"(?:exit_code|returncode|exitCode|return_code)\"\s{0,4}:\s{0,4}(-?\d{1,6})|^exit status (\d{1,4})$"
    r"|^\W{0,3}(?:退出码|返回码|退出状态)\s{0,2}[:：]?\s{0,2}(-?\d{1,6})",
    re.M,
)
_COUNTED = lazy_regex(
    r"\b(\d{1,7}) (passed|failed|failing|passing|pass|fail|errors?|failures?|exceptions?|skipped|xfailed|problems?|"
    r"warnings?)\b"
    r"|\b(failures|errors|skipped|Failures|Errors|Skipped|Failed|Passed|Tests run)[=:] ?(\d{1,7})\b"
    r"|\b(\d{1,7}) ?个?(?:测试)?(?:用例)?(通过|失败)|\bRan (\d{1,7}) tests?\b"
)
_COUNT_NAMES = {
    "passing": "passed",
    "pass": "passed",
    "failing": "failed",
    "fail": "failed",
    "failures": "failed",
    "failure": "failed",
    "error": "errors",
    "exception": "errors",
    "exceptions": "errors",
    "problem": "problems",
    "warning": "warnings",
    "通过": "passed",
    "失败": "failed",
    "tests run": "run",
}
_BAD_TOTAL = lazy_regex(
    r"[^\n]{0,80}\b(?:FAILED|FAIL|FAILURE)\b|Found [1-9]|[^\n]{0,20}BUILD FAIL"
    r"|\W{0,4}[1-9]\d* (?:errors?|problems?)\b|[^\n]{0,40}[1-9]\d* ?个?\w{0,4}失败"
)
_GOOD_TOTAL = lazy_regex(r"OK\b|ok\s|PASS|All |Success|BUILD SUCCESS|\W{0,4}0 (?:errors|problems|fail)|DONE")
_COMMITTED = lazy_regex(r"^\[([^\]\n]{1,120}?) (?:\(root-commit\) )?([0-9a-f]{7,40})\] ([^\n]{0,200})", re.M)
_PUSHED = lazy_regex(
    r"^ {1,3}[*+ ] {1,3}"
    r"(?:([0-9a-f]{7,40}\.{2,3}[0-9a-f]{7,40})|\[new (?:branch|tag)\]) {1,20}(\S{1,200}) -> (\S{1,200})",
    re.M,
)
_LINK = lazy_regex(r"https?://\S{4,200}")
_SUCCESS = lazy_regex(r"(?:succe|ok\b|done\b|complete|confirm|approved|accepted|成功|已)", re.I)
_FAILURE = lazy_regex(r"fail|error|denied|invalid|reject|not[ _]found|unauthori|forbidden|失败|错误|拒绝", re.I)
_ERROR_OPENS = lazy_regex(
    r"\s{0,4}(?:<tool_use_error>|Error\b|ERROR\b|error:|Failed\b|Invalid\b|MCP error|错误|失败|无法|"
    r"String to replace not found|No replacement was performed|The user doesn't want to proceed|Permission to use)"
)

# Names of fields that say what happened, in the order of what they tell.
_TELLING_KEYS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("error", lazy_regex(r"(?:errors?|error_?(?:message|code|type)|exception|stderr|failure|detail)", re.I)),
    (
        "status",
        lazy_regex(
            r"(?:\w{0,40}_?status|state|success|ok|result|outcome|conclusion|\w{0,40}Status|is_\w{1,40}|状态|结果)",
            re.I,
        ),
    ),
    ("message", lazy_regex(r"(?:message|msg|reason|note|description|summary|title|消息|原因)", re.I)),
    (
        "id",
        lazy_regex(
            r"(?:id|\w{1,40}_id|\w{1,40}Id|\w{1,40}_?number|confirmation\w{0,20}|code|hash|sha|commit|url|html_url|link|key|token|access_token|编号|订单号)",
            re.I,
        ),
    ),
    (
        "amount",
        lazy_regex(
            r"(?:\w{0,40}(?:amount|price|total|cost|balance|refund|fee|fare|paid|due|value|quantity|count|level|distance|rate)\w{0,20}|金额|价格|余额)",
            re.I,
        ),
    ),
)
_LOOKS = frozenset(("read", "search", "fetch", "think", "plan"))


def read_result(part: Part, index: int, action: Action | None) -> tuple[ReadEvent, ...]:
    """Return the outcome of a call, and what the harness wrote into its result."""
    notes, spans = _split_notes(part.text)
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


def _split_notes(text: str) -> tuple[list[tuple[int, int, str]], list[tuple[int, int]]]:
    """Return the harness's blocks in a result, and the spans of text around them."""
    notes: list[tuple[int, int, str]] = []
    at = 0
    while (start := min((place for tag in _NOTE_TAGS if (place := text.find(f"<{tag}>", at)) >= 0), default=-1)) >= 0:
        tag = text[start + 1 : text.index(">", start)]
        stop = text.find(f"</{tag}>", start)
        stop = len(text) if stop < 0 else stop + len(tag) + 3
        is_own_line = not text[max(0, start - 1) : start].strip() or text[start - 1] == ">"
        if is_own_line and len(notes) < 20:
            notes.append((start, stop, text[start:stop]))
            at = stop
        else:
            at = start + 1
        if len(notes) >= 20:
            break
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
        # A search prints lines of files, and a read prints a file: none of them says what came of the call.
        self.only_shows = self.verb in ("read", "search")
        self.spans = [(start, stop) for start, stop in spans if start < stop]
        self.found = _ReadOutcome()

    def read(self) -> _ReadOutcome:
        exit_code = self._find_exit()
        record = self._parse_json()
        if exit_code is not None:
            self.found.fields.append(("exit_code", str(exit_code)))
        if record is not None and not self.only_shows:
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

    def _take_line(self, line: tuple[int, int] | None, *, is_error: bool = False) -> None:
        if line is None:
            return
        start, stop = line
        raw = self.text[start : min(stop, start + LINE_CHARS_MAX)]
        text = raw.strip(" \t\r=*#~")
        text = text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
        self.found.start = start + max(0, raw.find(text))
        self.found.stop = self.found.start + len(text)
        self.found.text = text
        if is_error:
            self.found.error = text

    def _read_lines(self, exit_code: int | None) -> None:
        marks = [] if self.only_shows and not (exit_code or self.is_error) else self._find_marks()
        totals = [mark for mark in marks if mark.kind == "total"]
        names = dict.fromkeys(mark.name for mark in marks if mark.kind == "failing" and mark.name)
        if self.verb in ("test", "build", "run", "other", "commit", "install", "finish"):
            self._read_totals(totals)
            if not names and self.found.status != "ok":
                names = dict.fromkeys(mark.name for mark in marks if mark.kind == "place" and mark.name)
            self.found.failing = tuple(names)[:FAILING_MAX] if self.found.status != "ok" else ()
        if self._read_receipt():
            return
        is_failed = bool(exit_code) or self.is_error or self.found.status == "failed"
        errors = [mark for mark in marks if mark.kind in ("error", "raised", "place", "failing")]
        if is_failed and errors and not totals:
            self._take_line(_choose_error(errors), is_error=True)
        elif is_failed and errors:
            self.found.error = self._quote(_choose_error(errors))
        elif not is_failed and not totals:
            self._read_plain(errors, exit_code)
        elif is_failed and not totals:
            self._take_line(next(self._last_lines(), None), is_error=True)

    def _quote(self, mark: tuple[int, int]) -> str:
        return self.text[mark[0] : min(mark[1], mark[0] + LINE_CHARS_MAX)].strip(" \t\r=*#~")

    def _find_marks(self) -> list[TellingLine]:
        return [mark for start, stop in self.spans for mark in find_lines(self.text, start, stop)]

    def _read_totals(self, totals: Sequence[TellingLine]) -> None:
        """Read the counts of tests and errors, and whether they mean that it worked."""
        if not totals:
            return
        counts: dict[str, int] = {}
        is_bad = False
        chosen = totals[-1]
        for mark in totals[-200:]:
            line = self.text[mark.start : min(mark.stop, mark.start + LINE_CHARS_MAX)]
            own = _count(line)
            counts.update(own)
            bad = any(own.get(name) for name in ("failed", "errors", "problems")) or bool(
                _BAD_TOTAL.match(line) and not own
            )
            is_bad = is_bad or bad
            # The line that says what is wrong, else the last one that counts.
            if bad or (own and not is_bad):
                chosen = mark
        self.found.fields += [(name, str(count)) for name, count in counts.items()]
        self.found.status = "failed" if is_bad else "ok"
        self._take_line((chosen.start, chosen.stop))

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
        """Read an output without totals and without proof of a failure: its last words decide."""
        first = next(self._first_lines(), None)
        if first is None:
            return
        opening = self.text[first[0] : first[0] + 300]
        is_shell = self.verb in ("run", "test", "build", "other", "commit", "install", "deploy", "finish")
        if not is_shell and (_ERROR_OPENS.match(opening) or (errors and errors[0].start == first[0])):
            self.found.status = "failed"
            following = self._first_lines()
            lines = [next(following), next(following, first)]
            # "ERROR:" alone on its line says nothing; what went wrong is on the next one.
            self._take_line(
                lines[1]
                if opening.strip()[:8].strip().rstrip(":") in ("ERROR", "Error")
                and len(self.text[slice(*lines[0])].strip()) < 8
                else lines[0],
                is_error=True,
            )
            return
        if self.only_shows or self.verb in ("think", "plan"):
            self.found.status = "ok"
            return
        if self.verb in ("edit", "create", "delete", "move", "revert") or not is_shell:
            self._take_line(first)
            self.found.status = "ok"
            return
        last = next(self._last_lines(), first)
        if exit_code is None and errors and errors[-1].start == last[0]:
            self.found.status = "failed"
            self._take_line(last, is_error=True)
            return
        self._take_line(last)

    # --- JSON --------------------------------------------------------------------------------------------------------

    def _parse_json(self) -> object | None:
        if not self.spans or len(self.text) > JSON_CHARS_MAX:
            return None
        first = next(self._first_lines(), None)
        if first is None:
            return None
        start = first[0]
        stop = max(stop for _, stop in self.spans)
        if self.text[start : start + 1] not in ("{", "["):
            return None
        try:
            record: object = json.loads(self.text[start:stop], parse_float=str, parse_int=str)
        except (ValueError, RecursionError):
            return None
        return record

    def _read_record(self, record: object) -> None:
        """Read the fields of a record that say what happened."""
        record = _open_envelope(record)
        if isinstance(record, list):
            self.found.status = "ok"
            self.found.fields.append(("entries", str(len(record))))
            record = record[0] if len(record) == 1 else None
        if not isinstance(record, dict):
            if isinstance(record, str):
                self.found.text = record[:LINE_CHARS_MAX]
            return
        chosen = choose_fields(record, self.action)
        self.found.fields += chosen
        self.found.status = _judge_record(record)
        self.found.stop = len(self.text)
        self.found.text = ", ".join(f"{name}: {value}" for name, value in chosen[:FIELDS_MAX])
        if self.found.status == "failed":
            self.found.error = next(
                (value for name, value in chosen if _TELLING_KEYS[0][1].fullmatch(_last(name))), self.found.text
            )


def _choose_error(errors: Sequence[TellingLine]) -> tuple[int, int]:
    """Return the error that tells most: the last exception, else the first error of a compiler or a tool."""
    raised = [mark for mark in errors if mark.kind == "raised"]
    if raised:
        return raised[-1].start, raised[-1].stop
    plain = [mark for mark in errors if mark.kind in ("error", "place")]
    return (plain or errors)[0].start, (plain or errors)[0].stop


def _count(line: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for found in _COUNTED.finditer(line):
        number, name = found[1] or found[4] or found[5] or found[7], found[2] or found[3] or found[6] or "run"
        name = _COUNT_NAMES.get(name.lower(), name.lower())
        counts[name] = counts.get(name, 0) + int(number)
    return counts


def _open_envelope(record: object) -> object:
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
            try:
                record = json.loads(record, parse_float=str, parse_int=str)
            except (ValueError, RecursionError):
                return record
    return record


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _walk(record: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Return the short leaves of a record with their paths; of a list its last entry, which is the newest."""
    stack: list[tuple[str, object, int]] = [("", record, 0)]
    seen = 0
    while stack and seen < LEAVES_MAX:
        path, value, depth = stack.pop()
        seen += 1
        if isinstance(value, dict) and depth < 4:
            pairs = [(f"{path}.{key}" if path else str(key), inner, depth + 1) for key, inner in value.items()]
            stack += reversed(pairs[:LEAVES_MAX])
        elif isinstance(value, list) and value and depth < 4:
            stack.append((path, value[-1], depth + 1))
        elif isinstance(value, bool):
            yield path, "true" if value else "false"
        elif isinstance(value, str) and 0 < len(value) <= FIELD_CHARS_MAX:
            yield path, value


def choose_fields(record: Mapping[str, object], action: Action | None) -> list[tuple[str, str]]:
    """Return the fields of a result that say what happened, most telling kind first, at most ``FIELDS_MAX``.

    They are errors, statuses and messages, what the call itself asked for, ids, and amounts; other short fields fill
    what is left.
    """
    leaves = dict(_walk(record))
    asked = frozenset(action.targets) if action is not None else frozenset()
    words = action.text if action is not None else ""
    ranked: list[tuple[int, int, str]] = []
    for at, (path, value) in enumerate(leaves.items()):
        key, depth = _last(path), path.count(".")
        kind = next((rank for rank, (_, pattern) in enumerate(_TELLING_KEYS) if pattern.fullmatch(key)), 6)
        if kind > 1 and value in asked:
            kind = 2
        elif kind > 2 and depth == 0 and f"{key}=" in words:
            kind = 3
        ranked.append((kind + (2 if depth > 1 else 0), at, path))
    chosen = sorted(ranked)[:FIELDS_MAX]
    return [(path, leaves[path]) for _, _, path in chosen]


def _judge_record(record: Mapping[str, object]) -> Status:
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
