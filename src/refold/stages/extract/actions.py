"""Actions of an agent: every tool call with its files, command, exit status and error, read from arguments and results.

Calls and results pair by position: the newest open call with a result's id is the one it answers. Only rules are
used, for tools by name and for shells by command; what no rule knows is still listed as a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from refold.conversation.message import Message, Part, message_handle
from refold.memo import Memo
from refold.patterns import lazy_regex
from refold.reading.fields import read_json
from refold.reading.outputs import find_lines
from refold.stages.extract.layout import mark_cut
from refold.stages.gist import count_lines

Touch = Literal["read", "written", "deleted"]

ARGUMENTS_CHARS_MAX = 200_000
COMMAND_CHARS_MAX = 200
ERROR_CHARS_MAX = 240
# A list of more entries is counted.
BRIEF_ENTRIES_MAX = 5
_SCAN_CHARS = 60_000
# Calls and results are read once: what was read of each may take so much memory.
READ_BYTES_MAX = 4_000_000

_COMMAND_KEYS = ("command", "cmd", "script", "commands")
_PATH_KEYS = (
    "path",
    "file_path",
    "filepath",
    "filename",
    "file_name",
    "file",
    "target_file",
    "notebook_path",
    "uri",
    "source",
)
_SHELLS = lazy_regex(r"bash|shell|exec|terminal|command|run_|console|powershell", re.I)
_WRITES = lazy_regex(r"write|create|edit|replace|patch|insert|update|append|save|touch|echo|modify|mkdir", re.I)
_DELETES = lazy_regex(r"delete|remove|unlink|^rm", re.I)
_PATCHED = lazy_regex(r"^\*\*\* (Update|Add|Delete) File: (.{1,300})$", re.M)
_HEREDOC = lazy_regex(r"<<-?\s*+['\"]?(\w{1,40}+)['\"]?([^\n]{0,1000}+)\n.*?(?:^\1[ \t]*+$|\Z)", re.M | re.S)
_PATH = r"['\"]?((?:[\w.@+~-]|/){2,200}\w)['\"]?"
# Where a command begins, and its options. Possessive and within a line: a run of blank lines is read once.
_START = r"(?:^|[;&|\n])[^\S\n]*+"
_OPTIONS = r"(?:-\w++\s++)*+"
_QUOTED = r"(?:'[^'\n]{0,2000}'|\"[^\"\n]{0,2000}\"|\S{1,200})"
# A script for sed may have several lines, and quotes of its own.
_SCRIPT = r"(?:'(?:[^'\\]|\\[\s\S]|'\S){0,4000}+'|\"(?:[^\"\\]|\\[\s\S]){0,4000}+\"|\S{1,200})"
# The target of a redirection must look like a file: "a > b" also occurs in code.
_FILE = lazy_regex(r"[\w.@+~/-]*(?:/[A-Za-z_.]|[A-Za-z_-]\.[A-Za-z]|^\.[A-Za-z]|[A-Z]\w+file$)[\w.@+~/-]*")
_SHELL_TOUCHES: tuple[tuple[Touch, re.Pattern[str]], ...] = (
    ("deleted", lazy_regex(rf"{_START}(?:git\s++)?rm\s++{_OPTIONS}{_PATH}")),
    ("deleted", lazy_regex(rf"{_START}(?:git\s++)?mv\s++{_OPTIONS}{_PATH}\s")),
    ("written", lazy_regex(rf"{_START}(?:git\s++)?(?:mv|cp)\s++{_OPTIONS}\S++\s++{_PATH}")),
    ("written", lazy_regex(rf"(?<![0-9&<>=-])>{{1,2}}\s*{_PATH}")),
    ("written", lazy_regex(rf"{_START}(?:tee|touch)\s++{_OPTIONS}{_PATH}")),
    ("written", lazy_regex(rf"\bsed\s+(?:-[a-zA-Z]+\s+)*-i\S*\s+(?:''\s+|\"\"\s+)?(?:-e\s+)?{_SCRIPT}\s+{_PATH}")),
    ("read", lazy_regex(rf"{_START}(?:cat|head|tail|less|more|nl|bat|wc)\s++(?:-\w++\s++(?:\d++\s++)?)*+{_PATH}")),
    ("read", lazy_regex(rf"\bsed\s+-n\s+{_QUOTED}\s+{_PATH}")),
)
_EXIT = lazy_regex(
    r"<returncode>(-?\d{1,5})</returncode>|\"(?:exit_code|returncode|exitCode)\"\s*:\s*(-?\d{1,5})"
    r"|(?:exit(?:ed)?(?: with)?(?: code| status)|return ?code|Exit code|退出码)[:= ]+(-?\d{1,5})",
    re.I,
)
_ERROR = lazy_regex(
    r"^(?:E[ \t]{1,20}+)?(?:[\w.]{0,80}(?:Error|Exception|Warning: )\b.{0,200}"
    r"|.{0,60}\b(?:error|fatal|panic|FAILED|FAIL|denied|not found)\b[: ].{0,200}"
    r"|.{0,60}No such file or directory.{0,40}|.{0,40}(?:错误|失败|异常)[:：].{0,100})$",
    re.M,
)
_LOOK_TOOLS = lazy_regex(
    r"get|list|search|find|read|view|show|fetch|look|query|calculate|think|cat|ls|grep|glob|tree|open|str_replace_editor",
    re.I,
)
# Commands that only show something, and filters behind a pipe. A chain is a look if each of its commands is one.
_LOOK_COMMANDS = lazy_regex(
    r"(?:(?:get|list|search|find|read|view|show|fetch|look|query)(?:_\w{1,40})?|cd|pwd|cat|ls|ll|tree|stat|file|du|"
    r"e?grep|rg|head|tail|nl|less|more|wc|echo|open|goto|scroll_\w{1,10}|which|type|true|"
    r"sort|uniq|cut|awk|tr|column|jq|sed(?! -i)|xargs (?:-\S{1,20} )?(?:e?grep|cat|ls|head|wc)|"
    r"git (?:--no-pager )?(?:log|show|status|diff|grep|blame|branch|ls-files))(?![\w-])|\Z",
    re.I,
)
_CHAINED = lazy_regex(r"[;|\n]+|&&")
_STRING = lazy_regex(r"'[^']{0,400}'|\"[^\"]{0,400}\"")
# Frames that tools put around what they print, and what tells nothing by itself.
_RULE_SIGNS = " =-*#_~\t"
_LAYOUT = lazy_regex(
    r"</?\w{2,20}>|<returncode>0</returncode>|0|[\[\](){}=~_.*#-]*|\[?(?:Command finished|Python Interpreter).{0,120}|"
    r"(?:WARNING|DeprecationWarning|npm (?:notice|warn))\b.*|\[notice\].*|OBSERVATION:?|root@\S{0,120} ?#?|\s*"
)
_TAGS = lazy_regex(r"</?[a-z_]{2,20}>")
# Two lines that begin with a time.
_LOGGED = lazy_regex(r"\[?\d{2,4}[-/:]\d{2}[-/:]\d{2}[^\n]{0,400}\n\[?\d{2,4}[-/:]\d{2}[-/:]\d{2}")

# The first line of a table: NAME  READY  STATUS.
_COLUMNS = lazy_regex(
    # A name has single blanks at most: if it could hold what separates two names, a row could be read in many ways.
    r"[A-Z][A-Z_-]{1,30}(?:(?: {2,60}|\t)[A-Z][A-Z_-]{1,30}(?: [A-Z_-]{1,30}){0,4}){1,20} *\n"
)


@dataclass(slots=True)
class Action:
    """One tool call and what came of it. ``at`` is the index of the message that made the call."""

    at: int
    tool: str
    arguments: str
    call_handle: str
    raw: str = ""
    command: str = ""
    touched: list[tuple[Touch, str]] = field(default_factory=list)
    exit_status: int | None = None
    error: str = ""
    outcome: str = ""
    result_handle: str = ""
    is_answered: bool = False
    # The command has more than the line that is shown of it.
    is_long: bool = False

    @property
    def failed(self) -> bool:
        """True if the result says that it went wrong."""
        return bool(self.exit_status) or (self.exit_status is None and bool(self.error))

    @property
    def changes(self) -> list[tuple[Touch, str]]:
        """The files that it wrote or deleted."""
        return [(touch, path) for touch, path in self.touched if touch != "read"]

    @property
    def is_script(self) -> bool:
        """True if its first line only opens a script whose lines are not shown, as ``python3 -c '`` does."""
        return self.is_long and not self.changes and self.command.endswith(("'", '"', "EOF", "(", "{"))

    @property
    def is_look(self) -> bool:
        """True if it only read or listed something."""
        if self.changes:
            return False
        return _only_looks(self.command) if self.command else _LOOK_TOOLS.match(self.tool) is not None

    @property
    def brief_arguments(self) -> str:
        """The values of the arguments without their names."""
        return ", ".join(pair.partition("=")[2] or pair for pair in self.arguments.split(", "))


@lru_cache(maxsize=4_096)
def _only_looks(command: str) -> bool:
    """Return whether each command of a chain only shows something: ``cd app && pytest`` does more."""
    # A quote that is cut off, or one within a longer text, hides the rest of the line.
    bare = _STRING.sub(" ", command).partition("'")[0].partition('"')[0]
    return all(_LOOK_COMMANDS.match(piece.strip()) for piece in _CHAINED.split(bare))


def find_actions(messages: Iterable[Message]) -> list[Action]:
    """Return every tool call of these messages in order, each with its result if it came."""
    actions: list[Action] = []
    waiting: dict[str, list[Action]] = {}
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if part.kind == "call":
                action = read_call(at, part, message_handle(message, number))
                actions.append(action)
                waiting.setdefault(part.call_id, []).append(action)
            elif part.kind == "result" and waiting.get(part.call_id):
                read_result(waiting[part.call_id].pop(), part, message_handle(message, number))
    return actions


class _ReadCall(NamedTuple):
    """The content of a call's arguments: one line of them, the command, and the files that it touches."""

    arguments: str
    command: str = ""
    is_long: bool = False
    touched: tuple[tuple[Touch, str], ...] = ()


class _ReadResult(NamedTuple):
    """The content of a result: exit status, outcome of the call, last error line."""

    exit_status: int | None
    outcome: str
    error: str


def _measure_call(call: _ReadCall) -> int:
    return len(call.arguments) + len(call.command) + sum(200 + len(path) for _, path in call.touched)


_CALLS: Memo[_ReadCall] = Memo(READ_BYTES_MAX, _measure_call)
_RESULTS: Memo[_ReadResult] = Memo(READ_BYTES_MAX, lambda result: len(result.outcome) + len(result.error))


def read_call(at: int, part: Part, handle: str) -> Action:
    """Return what a call does, by its tool's name and its arguments."""
    read = _CALLS.recall(lambda: _read_call(part), part.text, part.name)
    return Action(
        at, part.name, read.arguments, handle, part.text, read.command, list(read.touched), is_long=read.is_long
    )


def _read_call(part: Part) -> _ReadCall:
    arguments = _parse_arguments(part.text)
    command = next((value for key in _COMMAND_KEYS if isinstance(value := arguments.get(key), str)), "")
    path = next((value for key in _PATH_KEYS if isinstance(value := arguments.get(key), str)), "")
    patch = next((value for value in arguments.values() if isinstance(value, str) and "*** " in value), "")
    read = _ReadCall(_write_arguments(arguments, part.text))
    touched: list[tuple[Touch, str]] = []
    if path and len(path) <= 300 and "\n" not in path:
        touched.append((_touch_of(part.name, command), path))
    elif command and (_SHELLS.search(part.name) or " " in command):
        is_long = "\n" in command.strip() or len(command) > COMMAND_CHARS_MAX
        read = read._replace(command=first_line(command, COMMAND_CHARS_MAX), is_long=is_long)
        touched += _shell_touches(command)
    for verb, name in _PATCHED.findall((patch or command)[:ARGUMENTS_CHARS_MAX]):
        touched.append(("deleted" if verb == "Delete" else "written", name.strip()))
    return read._replace(touched=tuple(touched))


def read_result(action: Action, part: Part, handle: str) -> None:
    """Add to an action what its result says: exit status, the last error line, what came of it."""
    action.is_answered = True
    action.result_handle = handle
    kind = action.is_look, bool(action.touched), bool(action.command)
    read = _RESULTS.recall(lambda: _read_result(action, part), part.text, part.is_error, *kind)
    action.exit_status, action.outcome, action.error = read


def _read_result(action: Action, part: Part) -> _ReadResult:
    """Read a result; of its action only whether it looks, runs a command or touches files may matter."""
    text, error = part.text, ""
    sample = text if len(text) <= 2 * _SCAN_CHARS else f"{text[:_SCAN_CHARS]}\n{text[-_SCAN_CHARS:]}"
    status = _find_exit(sample)
    # Source code that is read is full of the word error; only a call that failed, or a shell, may report one.
    may_fail = part.is_error or bool(status) or bool(action.command) or len(text) < 400
    if may_fail and (part.is_error or status or not (action.is_look and len(text) > 400)):
        errors = [match.group() for match in _bounded(_ERROR.finditer(sample), 200)]
        error = errors[-1].strip(_RULE_SIGNS)[:ERROR_CHARS_MAX] if errors else ""
    if part.is_error and not error:
        error = first_line(text, ERROR_CHARS_MAX)
    return _ReadResult(status, _find_outcome(action, sample), error)


def _find_exit(text: str) -> int | None:
    """Return the exit status that an output names at its beginning or its end."""
    for sample in (text[:2_000], text[-2_000:]):
        # Most outputs have none of these words: looking for them first is ten times as fast.
        lowered = sample.lower()
        if "exit" in lowered or "return" in lowered or "退出码" in sample:
            status = _EXIT.search(sample)
            if status:
                return int(next(group for group in status.groups() if group is not None))
    return None


# What git says of a commit: its branch, its hash, its subject.
_COMMIT = lazy_regex(r"^\[[\w./-]{1,80}(?: \([a-z -]{3,20}\))? [0-9a-f]{7,40}\] [^\n]{1,200}", re.M)


def _find_outcome(action: Action, text: str) -> str:
    """Return the line of a result that says most: how a run ended, what a call gave back; nothing for what was read."""
    if action.is_look and (action.touched or action.command):
        return ""
    if action.command and (commit := _COMMIT.search(text[:4_000])):
        return commit[0][:ERROR_CHARS_MAX]
    totals = [line for line in find_lines(text, 0, len(text)) if line.kind == "total" and line.stop - line.start <= 200]
    if totals:
        return text[totals[-1].start : totals[-1].stop].strip(_RULE_SIGNS)[:ERROR_CHARS_MAX]
    if action.command:
        lines = text[-4_000:].split("\n")
        said = (line for raw in reversed(lines) if not _LAYOUT.fullmatch(line := _TAGS.sub("", raw).strip()))
        return next(said, "")[:ERROR_CHARS_MAX]
    if text[:1] in ("{", "["):
        return _brief_record(text)
    if _LOGGED.match(text) or _COLUMNS.match(text):
        # One line of a log says nothing about the others, nor do the names of a table's columns.
        return f"[{count_lines(text)}]"
    return first_line(_TAGS.sub("", text[:4_000]), ERROR_CHARS_MAX)


def _brief_record(text: str) -> str:
    """Return the short fields of a JSON object, or how many entries a list has; nothing for text that is not JSON."""
    found = read_json(text, keep_numbers=True) if len(text) <= ARGUMENTS_CHARS_MAX else None
    if isinstance(found, list):
        return f"[{len(found)}]"
    if not isinstance(found, dict):
        return ""
    fields = ((key, _brief_value(value)) for key, value in found.items())
    return ", ".join(f"{key}: {value}" for key, value in fields if 0 < len(value) <= 60)[:ERROR_CHARS_MAX]


def _brief_value(value: object) -> str:
    """Return a value of a record in a few words: itself, the few entries of a list, else how many there are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, list):
        return value if isinstance(value, str) else ""
    entries = [list(one.values()) if isinstance(one, dict) else [one] for one in value[:BRIEF_ENTRIES_MAX]]
    brief = "; ".join(" ".join(part for part in entry if isinstance(part, str)) for entry in entries)
    return brief if brief and len(value) <= BRIEF_ENTRIES_MAX and len(brief) <= 60 else f"[{len(value)}]"


def first_line(text: str, chars_max: int) -> str:
    """Return the first line of a text that has words, cut at ``chars_max``."""
    return next((line.strip() for line in text[:8_000].splitlines() if line.strip()), "")[:chars_max]


def _bounded(matches: Iterator[re.Match[str]], most: int) -> list[re.Match[str]]:
    return [match for _, match in zip(range(most), matches, strict=False)]


def _parse_arguments(text: str) -> Mapping[str, object]:
    if len(text) > ARGUMENTS_CHARS_MAX:
        return {}
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"command": text} if text.startswith("*** ") else {}
    return parsed if isinstance(parsed, dict) else {}


def _write_arguments(arguments: Mapping[str, object], text: str) -> str:
    """Return the arguments as ``key=value`` pairs, each value verbatim, long ones left to the handle."""
    if not arguments:
        return "" if text in ("", "{}") else first_line(text, 80)
    shown = []
    for key, value in arguments.items():
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        is_short = len(written) <= 120 and "\n" not in written
        shown.append(f"{key}={written if is_short else mark_cut(len(written))}")
    return ", ".join(shown)


def _touch_of(tool: str, command: str) -> Touch:
    # An editor tool with sub-commands says in ``command`` what it does: view, create, str_replace, insert.
    verb = command if command and " " not in command else tool
    if _DELETES.search(verb):
        return "deleted"
    if _WRITES.search(verb):
        return "written"
    return "read"


def _shell_touches(command: str) -> list[tuple[Touch, str]]:
    bare = _HEREDOC.sub(r" \2 \n", command[:ARGUMENTS_CHARS_MAX])[:20_000]
    touched: list[tuple[Touch, str]] = []
    for touch, pattern in _SHELL_TOUCHES:
        for path in pattern.findall(bare)[:20]:
            if _FILE.match(path) and not path.startswith(("/dev/", "-")) and (touch, path) not in touched:
                touched.append((touch, path))
    return touched
