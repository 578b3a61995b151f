"""Calls of tools, read into events: what a call does, which files it changes, what came of it.

A call is read by the table of tools (``tools``), a command of a shell by its simple commands (``shell``). Agents
without tool calls write a command into a fenced block of their text: ``read_fenced_call`` reads that. What came of a
call is read by ``outcomes``.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from refold.conversation.message import Part
from refold.patterns import lazy_regex
from refold.reading.changes import (
    content_keys,
    find_keys,
    find_patch,
    find_path,
    first_text,
    join_changes,
    list_paths,
    read_commands,
    read_edit,
    read_patch,
    read_python,
)
from refold.reading.events import Action, FileChange, PlanItem, ReadEvent, Verb, WorkPlan
from refold.reading.outcomes import read_result
from refold.reading.rules import find_words
from refold.reading.shell import SimpleCommand, split_commands
from refold.reading.tools import ToolRule, drop_runners, find_command, find_tool, plain_name

__all__ = ["read_call", "read_fenced_call", "read_result"]

TARGETS_MAX = 12
VALUE_CHARS_MAX = 160
ITEMS_MAX = 100

# Of the commands of one call the most telling decides what the call does.
_TELLING: tuple[Verb, ...] = get_args(Verb)
_CHANGING = frozenset(("edit", "create", "move", "delete", "revert"))
_TEST_FILE = lazy_regex(r"(?:.*/)?(?:tests?_\w[^/]{0,200}|[^/]{0,200}_tests?|[^/]{1,200}\.(?:test|spec))\.[a-z]{1,4}\Z")
_PATH_LIKE = lazy_regex(r"\.{1,2}\Z|~?[\w@+.-]*/[^\s]*|[\w@+-][\w@+.-]*\.[A-Za-z_]\w{0,9}(?:::\S*)?\Z|[A-Z]\w+file\Z")
_CHECKLIST = lazy_regex(r"^[ \t]*+(?:[-*+]|\d{1,3}[.)])[ \t]++\[([ xX~/-]?)\][ \t]*+(\S[^\n]{0,600})", re.M)
_FENCE = lazy_regex(r"^[ \t]{0,3}```([\w-]{0,40})[ \t]*+\n", re.M)
_MARKED = lazy_regex(
    r"<execute_bash>\n?|<function=([\w.-]{1,80})>|<invoke name=\"([\w.-]{1,80})\">|<tool_call>\s*+(?=\{)"
)
_PARAMETER = lazy_regex(r"<parameter(?:=([\w.-]{1,80})| name=\"([\w.-]{1,80})\")>\n?")
_SCRIPTED = lazy_regex(
    r"\b(?:cmd|command)[\"']?\s?:\s?(?:\"((?:[^\"\\]++|\\.)*+)\"|'((?:[^'\\]++|\\.)*+)'|`((?:[^`\\]++|\\.)*+)`)"
)
_ESCAPED = lazy_regex(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")
_QUOTED_SIGNS = lazy_regex(r"[^\w@%+=:,./-]")


def read_call(part: Part, index: int) -> tuple[ReadEvent, ...]:
    """Return what a call does: one action, the changes of its files, and its plan if it has one."""
    arguments = parse_arguments(part.text)
    rule = find_tool(part.name)
    command = _find_command_text(rule, arguments)
    if command:
        action, changes = _read_command(command, part)
    else:
        action, changes = _read_tool(rule, arguments, part)
    stop = len(part.text)
    events: list[ReadEvent] = [replace(action, part=index, stop=stop)]
    events += [replace(change, part=index, stop=stop, call_id=part.call_id) for change in changes]
    plan = _read_plan(arguments) if rule is not None and rule.verb == "plan" else ()
    if plan:
        text = "\n".join(item.text for item in plan)
        events.append(WorkPlan(part=index, stop=stop, text=text, items=plan))
    return tuple(events)


def read_fenced_call(text: str, index: int = 0) -> tuple[ReadEvent, ...]:
    """Return the call that an assistant's text makes by a protocol of text, or nothing.

    It is the last fenced block of a shell, or the last call in tags. Whether it was run is known by its answer.
    """
    found = _find_tagged(text) or _find_fenced(text)
    if found is None:
        return ()
    start, stop, name, arguments = found
    call = Part("call", json.dumps(arguments, ensure_ascii=False), name=name)
    return tuple(replace(event, part=index, start=start, stop=stop) for event in read_call(call, index))


def parse_arguments(text: str) -> Mapping[str, object]:
    """Return the arguments of a call. Text that is no JSON object is the one argument ``input``."""
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"input": text}
    if isinstance(parsed, str):
        return {"input": parsed}
    return parsed if isinstance(parsed, dict) else {"input": text}


def _find_command_text(rule: ToolRule | None, arguments: Mapping[str, object]) -> str:
    """Return the command line of a shell's call; nothing for other tools."""
    if rule is not None and not rule.is_shell:
        return ""
    keys = rule.targets if rule is not None else ("command", "cmd")
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return _join_words(value)
        if isinstance(value, str) and value.strip():
            if key == "input" and "tools." in value and (scripted := _read_scripted(value)):
                return scripted
            # An unknown tool may call anything "command"; a line of a shell has more than one word.
            return value if rule is not None or " " in value.strip() else ""
    return ""


def _join_words(words: Sequence[str]) -> str:
    """Return the command of an array: the script of ``bash -lc``, else the words, quoted where they need it."""
    if len(words) == 3 and words[1].lstrip("-") in ("c", "lc") and words[1] != words[1].lstrip("-"):
        return words[2]
    return " ".join(f"'{word}'" if not word or _QUOTED_SIGNS.search(word) else word for word in words)


def _read_scripted(program: str) -> str:
    """Return the commands that a program hands to its tools, each on a line of its own, or the patch."""
    start = program.find("*** Begin Patch")
    if start >= 0:
        stop = program.find("*** End Patch", start)
        patch = program[start : stop if stop >= 0 else len(program)]
        return patch if "\n" in patch else _ESCAPED.sub(_unescape, patch)
    found = ["".join(filter(None, match.groups())) for match in _SCRIPTED.finditer(program)]
    return "\n".join(_ESCAPED.sub(_unescape, one) for one in found)


def _unescape(found: re.Match[str]) -> str:
    code, sign = found[1], found[2]
    return chr(int(code, 16)) if code else {"n": "\n", "t": "\t", "r": "\r"}.get(sign, sign)


def _read_command(command: str, part: Part) -> tuple[Action, tuple[FileChange, ...]]:
    patch = command if command.lstrip().startswith("*** Begin Patch") else ""
    if patch:
        changes = join_changes(read_patch(patch))
        return _make_action(part, command, "edit", [change.path for change in changes]), changes
    commands = split_commands(command)
    changes = join_changes(read_commands(commands))
    rules = [(one, find_command(one)) for one in commands]
    verbs = [_find_verb(one, rule) for one, rule in rules]
    verb: Verb = min(verbs, key=_TELLING.index, default="run")
    if verb in ("read", "search", "other", "fetch") and changes:
        verb = "create" if changes[0].kind == "created" else "edit"
    is_final = any(rule is not None and rule.is_final for _, rule in rules)
    targets = [change.path for change in changes] if verb in _CHANGING else []
    for (one, rule), own in zip(rules, verbs, strict=True) if not targets else ():
        if own == verb:
            targets += _list_targets(one, rule)
    return _make_action(part, command, verb, targets, is_final=is_final), changes


def _find_verb(command: SimpleCommand, rule: ToolRule | None) -> Verb:
    words = drop_runners(command.words)
    if rule is None and any(_TEST_FILE.match(word) for word in words[:6]):
        return "test"
    if rule is None:
        return "run" if words else "create"
    return "other" if rule.verb in ("read", "search") and command.is_piped else rule.verb


def _list_targets(command: SimpleCommand, rule: ToolRule | None) -> list[str]:
    kind = rule.targets[0] if rule is not None and rule.targets else "paths"
    words = list_paths(drop_runners(command.words)[1:])
    if kind == "none":
        return []
    if command.name in find_words("tools", "shell", "scripted"):
        words = words[1:]
    return words if kind == "words" else [word for word in words if _PATH_LIKE.match(word)]


def _make_action(part: Part, text: str, verb: Verb, targets: Iterable[str], *, is_final: bool = False) -> Action:
    return Action(
        text=text,
        call_id=part.call_id,
        tool=part.name,
        verb=verb,
        targets=tuple(dict.fromkeys(targets))[:TARGETS_MAX],
        is_final=is_final,
    )


def _read_tool(
    rule: ToolRule | None, arguments: Mapping[str, object], part: Part
) -> tuple[Action, tuple[FileChange, ...]]:
    verb: Verb = rule.verb if rule is not None else "other"
    if rule is not None and rule.by:
        verb = dict(rule.acts).get(str(arguments.get(rule.by, "")), verb)
    if rule is None and (patch := find_patch(arguments)) and plain_name(part.name).startswith(("apply", "patch")):
        verb, changes = "edit", join_changes(read_patch(patch, find_path(arguments)))
    else:
        changes = join_changes(read_edit(verb, arguments)) if verb in _CHANGING else ()
        if verb == "run" and isinstance(code := arguments.get("code"), str):
            changes = join_changes(read_python(code))
    targets = [change.path for change in changes]
    for key in (*(rule.targets if rule is not None else ()), *find_keys("target")):
        targets += _list_values(arguments.get(key))
    if rule is None:
        targets += [text for key, value in arguments.items() if key.endswith("_id") for text in _list_values(value)]
    hidden = content_keys() if changes else ()
    text = write_arguments({key: value for key, value in arguments.items() if key not in hidden})
    text = text or ", ".join(change.path for change in changes)
    return _make_action(part, text, verb, targets, is_final=bool(rule and rule.is_final)), changes


def _list_values(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for one in value[:TARGETS_MAX] for text in _list_values(one) if not isinstance(one, list)]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return []
    text = str(value)
    return [text] if 0 < len(text) <= VALUE_CHARS_MAX and "\n" not in text else []


def write_arguments(arguments: Mapping[str, object]) -> str:
    """Return the short arguments as ``key=value``, each value verbatim; one long text stays alone."""
    shown = []
    for key, value in arguments.items():
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(written) <= VALUE_CHARS_MAX and "\n" not in written:
            shown.append(f"{key}={written}")
        elif len(arguments) == 1 and isinstance(value, str):
            shown.append(value)
    return ", ".join(shown)


def _read_plan(arguments: Mapping[str, object]) -> tuple[PlanItem, ...]:
    """Return the items of a plan: a list of texts or records, or a list of boxes to tick."""
    for key in (*find_keys("plan"), *arguments):
        value = arguments.get(key)
        if isinstance(value, list):
            items = tuple(_read_items(value[:ITEMS_MAX]))
            if items:
                return items
        elif isinstance(value, str) and (found := list(_CHECKLIST.finditer(value[:60_000]))):
            return tuple(
                PlanItem(one[2].strip(), "completed" if one[1] in "xX" and one[1] else "") for one in found[:ITEMS_MAX]
            )
    text = first_text(arguments, find_keys("item"))
    return (PlanItem(text, str(arguments.get("status", ""))),) if text else ()


def _read_items(items: Iterable[object]) -> Iterator[PlanItem]:
    for item in items:
        if isinstance(item, str):
            yield PlanItem(item)
        elif isinstance(item, dict):
            text = first_text(item, find_keys("item"))
            status = item.get("status", item.get("state", ""))
            if item.get("completed") is True or item.get("done") is True:
                status = "completed"
            if text:
                yield PlanItem(text, status if isinstance(status, str) else "")


def _find_fenced(text: str) -> tuple[int, int, str, dict[str, object]] | None:
    """Return the last fenced block of a shell; a block without a language only if it is the only one."""
    blocks: list[tuple[int, int, str]] = []
    at = 0
    while (opened := _FENCE.search(text, at)) is not None:
        closed = text.find("\n```", max(0, opened.end() - 1))
        stop = len(text) if closed < 0 else closed
        blocks.append((opened.end(), max(opened.end(), stop), opened[1].lower()))
        at = stop + 4
    shells = [block for block in blocks if block[2] in find_words("tools", "shell", "fences")]
    if not shells and len(blocks) == 1 and not blocks[0][2]:
        shells = blocks
    if not shells:
        return None
    start, stop, _ = shells[-1]
    return start, stop, "bash", {"command": text[start:stop]}


def _find_tagged(text: str) -> tuple[int, int, str, dict[str, object]] | None:
    marks = deque(_MARKED.finditer(text), maxlen=1)
    if not marks:
        return None
    found = marks[0]
    name = found[1] or found[2]
    if name:
        return _read_tags(text, found.start(), found.end(), name)
    if found[0].startswith("<execute_bash>"):
        stop = text.find("</execute_bash>", found.end())
        stop = len(text) if stop < 0 else stop
        return found.end(), stop, "bash", {"command": text[found.end() : stop]}
    stop = text.find("</tool_call>", found.end())
    stop = len(text) if stop < 0 else stop
    call = parse_arguments(text[found.end() : stop])
    arguments = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments)
    if isinstance(call.get("name"), str) and isinstance(arguments, Mapping):
        return found.end(), stop, str(call["name"]), dict(arguments)
    return None


def _read_tags(text: str, start: int, at: int, name: str) -> tuple[int, int, str, dict[str, object]]:
    arguments: dict[str, object] = {}
    while (opened := _PARAMETER.search(text, at)) is not None:
        stop = text.find("</parameter>", opened.end())
        stop = len(text) if stop < 0 else stop
        arguments[opened[1] or opened[2]] = text[opened.end() : stop].removesuffix("\n")
        at = stop
    return start, max(at, start), name, arguments
