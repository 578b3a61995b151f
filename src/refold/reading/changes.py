"""Changes of files by a call, verbatim: arguments of editing tools, patches, and the commands of a shell.

A call has one change for each file; several places of a file follow each other in it. Whether a change took place is
not known here. Nothing is simulated: where a command changes a file in a way that its text does not show, the change
has neither removed nor added lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from refold.patterns import lazy_regex
from refold.reading.events import ChangeKind, FileChange, Verb
from refold.reading.rules import find_words
from refold.reading.shell import SimpleCommand
from refold.reading.tools import drop_runners

PATH_CHARS_MAX = 400
CHANGES_MAX = 100
SCRIPT_CHARS_MAX = 200_000
# The whole working tree, as ``git stash`` and ``git reset --hard`` revert it.
WHOLE_TREE = "."

_PATCH = lazy_regex(
    r"^(?:\*\*\* (?:Begin Patch|Update File|Add File|Delete File)|diff --git |--- \S|<{5,9} SEARCH|-{5,9} SEARCH)", re.M
)
_ENVELOPE = lazy_regex(r"\*\*\* (Update|Add|Delete) File: (.{1,400})")
_HUNK = lazy_regex(r"@@ -\d{1,7}(?:,\d{1,7})? \+\d{1,7}")
_LITERAL = (
    r"[rbuRBU]{0,2}(?:\"\"\"((?:[^\"\\]++|\\[\s\S]|\"(?!\"\"))*+)\"\"\"|'''((?:[^'\\]++|\\[\s\S]|'(?!''))*+)'''"
    r"|\"((?:[^\"\\\n]++|\\.)*+)\"|'((?:[^'\\\n]++|\\.)*+)')"
)
_STRING = lazy_regex(_LITERAL)
_BOUND = lazy_regex(rf"^[ \t]*+([A-Za-z_]\w{{0,60}})\s?=\s?(?:pathlib\.)?(?:Path\(\s?)?{_LITERAL}", re.M)
_WRITTEN = lazy_regex(
    rf"(?:\bopen\(\s*+(?:([A-Za-z_]\w{{0,60}})|{_LITERAL})\s*+,\s*+(?:mode=)?['\"]([wax])[bt+]{{0,2}}['\"]"
    rf"|(?:\bPath\(\s*+{_LITERAL}\s*+\)|\b([A-Za-z_]\w{{0,60}}))\.write_(?:text|bytes)\()"
)
_REPLACED = lazy_regex(r"(?:\.replace|\bre\.sub)\(\s*+")
_NEXT_ARGUMENT = lazy_regex(r"\s*+,\s*+(?:#[^\n]{0,200}\n\s*+)?")
_ESCAPE = lazy_regex(r"\\([nt\\'\"])")
_SED_ADDRESS = lazy_regex(
    r"(?:\d{1,8}|\$|/(?:[^/\\\n]++|\\.)*+/I?)(?:\s?[,~+]\s?[+~]?(?:\d{1,8}|\$|/(?:[^/\\\n]++|\\.)*+/I?))?\s?!?[ \t]*+"
)
_FILE_NAME = lazy_regex(r"[^\s*?{}$<>|;&'\"`]{1,400}")
_HAS_EXTENSION = lazy_regex(r".*\w\.[A-Za-z]\w{0,9}\Z|.*/\.\w|\.\w")


def find_keys(kind: str) -> tuple[str, ...]:
    """Return the names of arguments that hold something of a kind."""
    return find_words("tools", "arguments", kind)


@cache
def content_keys() -> frozenset[str]:
    """Return the arguments that are the content of a change, which is an event of its own."""
    return frozenset(key for kind in ("old", "new", "whole", "edits", "patch", "other") for key in find_keys(kind))


class _PatchedFile:
    """The changes of one file, in order, as they are collected."""

    def __init__(self, path: str, kind: ChangeKind) -> None:
        self.path, self.kind, self.source = path, kind, ""
        self.removed: list[str] = []
        self.added: list[str] = []

    def finish(self) -> FileChange:
        return change(self.path, self.kind, "\n".join(self.removed), "\n".join(self.added), source=self.source)


def change(path: str, kind: ChangeKind, removed: str = "", added: str = "", *, source: str = "") -> FileChange:
    """Return the change of one file; its call and its place are filled in by the reader of the call."""
    return FileChange(text=path, path=path, kind=kind, removed=removed, added=added, source=source)


def join_changes(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Return one change for each file: places that are edited by one call follow each other."""
    joined: dict[tuple[str, ChangeKind], FileChange] = {}
    for one in changes:
        key = one.path, one.kind
        before = joined.pop(key, None)
        if before is None and one.kind == "edited":
            # A file that is written and then edited by the same call was created by it.
            key = one.path, "created"
            before = joined.pop(key, None) if one.added and not one.removed else None
            key = key if before else (one.path, one.kind)
        if before is not None:
            removed = "\n".join(filter(None, (before.removed, one.removed)))
            is_rewritten = one.kind == "created"
            added = one.added if is_rewritten else "\n".join(filter(None, (before.added, one.added)))
            text = one.text if before.text == before.path else f"{before.text}\n{one.text}"
            one = replace(one, kind=key[1], removed=removed, added=added, source=one.source or before.source, text=text)
        joined[key] = one
        if len(joined) >= CHANGES_MAX:
            break
    return tuple(joined.values())


def find_patch(arguments: Mapping[str, object]) -> str:
    """Return the argument of a call that is a patch, or nothing."""
    for key in (*find_keys("patch"), *arguments):
        value = arguments.get(key)
        if isinstance(value, str) and _PATCH.search(value[:4_000]):
            return value
    return ""


def read_patch(text: str, path: str = "") -> Iterator[FileChange]:
    """Return the changes of a patch: in the envelope of ``apply_patch``, a unified diff, or blocks to search."""
    piece: _PatchedFile | None = _PatchedFile(path, "edited") if path else None
    old = ""
    is_search = is_replace = in_hunk = False
    for line in text.split("\n"):
        if found := _ENVELOPE.match(line):
            if piece is not None and (piece.path != path or piece.removed or piece.added):
                yield piece.finish()
            kinds: dict[str, ChangeKind] = {"Update": "edited", "Add": "created", "Delete": "deleted"}
            piece, in_hunk = _PatchedFile(found[2].strip(), kinds[found[1]]), True
        elif line.startswith("*** Move to: ") and piece is not None:
            piece.source, piece.path, piece.kind = piece.path, line[13:].strip(), "moved"
        elif line.startswith("*** "):
            continue
        elif line.endswith(" SEARCH") and line[:5] in ("<<<<<", "-----"):
            is_search = True
        elif is_search and line.startswith("=====") and not line.strip("="):
            is_search, is_replace = False, True
        elif is_replace and line.endswith(" REPLACE") and line[:5] in (">>>>>", "+++++"):
            is_replace = False
        elif (is_search or is_replace) and piece is not None:
            (piece.removed if is_search else piece.added).append(line)
        elif line.startswith("diff --git ") or (line.startswith("--- ") and not in_hunk):
            in_hunk = False
            if line.startswith("--- "):
                old = _strip_side(line[4:])
        elif line.startswith("+++ ") and not in_hunk:
            if piece is not None and (piece.removed or piece.added or piece.path != path):
                yield piece.finish()
            new = _strip_side(line[4:])
            kind: ChangeKind = "created" if not old else "edited" if new else "deleted"
            piece = _PatchedFile(new or old or path, kind)
        elif _HUNK.match(line):
            in_hunk = True
        elif in_hunk and piece is not None and line[:1] in ("+", "-"):
            (piece.added if line[0] == "+" else piece.removed).append(line[1:])
    if piece is not None and (piece.path != path or piece.removed or piece.added):
        yield piece.finish()


def _strip_side(name: str) -> str:
    bare = name.split("\t")[0].strip()
    if bare == "/dev/null":
        return ""
    return bare[2:] if bare[:2] in ("a/", "b/") else bare


def find_path(arguments: Mapping[str, object]) -> str:
    """Return the file that the arguments of a tool name."""
    for key in find_keys("path"):
        value = arguments.get(key)
        if isinstance(value, str) and 0 < len(value) <= PATH_CHARS_MAX and "\n" not in value:
            return value
    return ""


def read_edit(verb: Verb, arguments: Mapping[str, object]) -> Iterator[FileChange]:
    """Return the changes that the arguments of a file tool make."""
    path = find_path(arguments)
    if patch := find_patch(arguments) if verb == "edit" else "":
        yield from read_patch(patch, path)
        return
    for key in find_keys("edits"):
        edits = arguments.get(key)
        if verb == "edit" and isinstance(edits, list):
            for edit in edits[:CHANGES_MAX]:
                if isinstance(edit, dict) and (name := find_path(edit) or path):
                    yield change(name, "edited", first_text(edit, find_keys("old")), first_text(edit, find_keys("new")))
            return
    if verb == "move":
        source, target = first_text(arguments, ("source", "from", "old_path", "src")), ""
        target = first_text(arguments, ("destination", "to", "new_path", "dest", "new_name"))
        if target:
            yield change(target, "moved", source=source)
    elif not path:
        return
    elif verb == "edit":
        removed, added = first_text(arguments, find_keys("old")), first_text(arguments, find_keys("new"))
        yield change(path, "edited" if removed or not _is_new(arguments) else "created", removed, added)
    elif verb == "create":
        yield change(path, "created", added=first_text(arguments, find_keys("whole")))
    elif verb == "delete":
        yield change(path, "deleted")
    elif verb == "revert":
        yield change(path, "reverted")


def _is_new(arguments: Mapping[str, object]) -> bool:
    """Return whether an edit has an empty text to replace, which creates a file."""
    return any(arguments.get(key) == "" for key in find_keys("old"))


def first_text(arguments: Mapping[str, object], keys: Sequence[str]) -> str:
    """Return the first of some arguments that is a text."""
    return next((value for key in keys if isinstance(value := arguments.get(key), str) and value), "")


def read_commands(commands: Sequence[SimpleCommand]) -> Iterator[FileChange]:
    """Return the changes that the commands of a shell make, as far as their text shows them."""
    before: SimpleCommand | None = None
    written: dict[str, str] = {}
    for at, command in enumerate(commands):
        fed = command.fed
        if command.is_piped and before is not None and not fed:
            fed = _read_echo(before) or before.fed
        # A script that was written by the same call is known.
        script = next((written[word] for word in command.words[1:3] if word in written), "")
        yield from _read_command(command, fed or script, commands[at + 1 :])
        for one in _read_redirects(command, fed):
            written[one.path] = one.added
            yield one
        before = command


def _read_redirects(command: SimpleCommand, fed: str) -> Iterator[FileChange]:
    for operator, path in command.redirects:
        if operator[:1] == ">" and _is_file(path):
            text = fed if command.name in ("cat", "tee") or not command.words else _read_echo(command)
            yield change(path, "edited" if operator == ">>" else "created", added=text)


def _read_command(command: SimpleCommand, fed: str, later: Sequence[SimpleCommand]) -> Iterator[FileChange]:
    name, words = command.name, command.words
    if name == "git" and fed and "apply" in words[1:4]:
        yield from read_patch(fed)
    elif name == "git":
        yield from _read_git(words, later)
    elif name in ("rm", "unlink", "trash"):
        yield from (change(path, "deleted") for path in list_paths(words[1:]))
    elif name in ("mv", "cp") and len(paths := list_paths(words[1:])) >= 2:
        kind: ChangeKind = "moved" if name == "mv" else "created"
        yield from (change(paths[-1], kind, source=path) for path in paths[:-1][:CHANGES_MAX])
    elif name == "touch":
        yield from (change(path, "created") for path in list_paths(words[1:]))
    elif name == "tee":
        kind = "edited" if {"-a", "--append"} & set(words) else "created"
        yield from (change(path, kind, added=fed) for path in list_paths(words[1:]) if _is_file(path))
    elif name == "sed" and any(_is_in_place(word) for word in words[1:]):
        yield from _read_sed(words[1:])
    elif name == "perl" and any(word[:1] == "-" and word[1:2] != "-" and "i" in word[1:5] for word in words[1:4]):
        script = next((words[at + 1] for at, word in enumerate(words[:-1]) if word[:1] == "-" and word[-1:] == "e"), "")
        removed, added = read_script(script)
        yield from (change(path, "edited", removed, added) for path in list_paths(words[2:]) if path != script)
    elif name in ("apply_patch", "applypatch", "patch"):
        patch = fed or next((word for word in words[1:] if _PATCH.search(word[:4_000])), "")
        yield from read_patch(patch)
    elif name in ("create", "str_replace", "edit"):
        yield from _read_agent_command(words, fed)
    else:
        yield from _read_program(words, fed)


def _is_in_place(word: str) -> bool:
    return word.startswith("--in-place") or (word[:1] == "-" and word[1:2] != "-" and "i" in word[1:4])


def _read_agent_command(words: Sequence[str], fed: str) -> Iterator[FileChange]:
    """Read the commands of agents that type their tools into a shell: ``create FILE``, ``str_replace FILE …``."""
    paths = list_paths(words[1:2])
    if paths and _HAS_EXTENSION.match(paths[0]):
        yield change(paths[0], "created" if words[0] == "create" else "edited", added=fed)


def _read_program(words: Sequence[str], fed: str) -> Iterator[FileChange]:
    bare = drop_runners(words)
    if not bare or not bare[0].rpartition("/")[2].startswith(("python", "pypy")):
        return
    script = next((bare[at + 1] for at, word in enumerate(bare[:-1]) if word == "-c"), "")
    if script or fed:
        yield from read_python(script or fed)


def _read_git(words: Sequence[str], later: Sequence[SimpleCommand]) -> Iterator[FileChange]:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-C", "-c") else 1
    if at >= len(words):
        return
    verb, rest = words[at], list(words[at + 1 :])
    paths = list_paths(rest)
    if verb == "rm" and "--cached" not in rest:
        yield from (change(path, "deleted") for path in paths)
    elif verb == "mv" and len(paths) >= 2:
        yield from (change(paths[-1], "moved", source=path) for path in paths[:-1][:CHANGES_MAX])
    elif verb == "checkout" and not {"-b", "-B", "--orphan"} & set(rest):
        named = list_paths(rest[rest.index("--") + 1 :]) if "--" in rest else [one for one in paths if _names_file(one)]
        yield from (change(path, "reverted") for path in named)
    elif verb == "restore" and not ({"--staged", "-S"} & set(rest) and not {"--worktree", "-W"} & set(rest)):
        yield from (change(path, "reverted") for path in paths)
    elif verb == "reset" and "--hard" in rest:
        yield change(WHOLE_TREE, "reverted")
    elif verb == "stash":
        yield from _read_stash(rest, paths, later)
    elif verb == "apply" and not {"--check", "--stat"} & set(rest):
        yield from (change(path, "edited") for path in paths if not path.endswith((".patch", ".diff")))


def _read_stash(rest: Sequence[str], paths: Sequence[str], later: Sequence[SimpleCommand]) -> Iterator[FileChange]:
    act = next((word for word in rest if not word.startswith("-")), "push")
    if act in ("pop", "apply"):
        yield change(WHOLE_TREE, "restored")
    elif act in ("push", "save") or not rest:
        # What is put away and taken back in one call has not changed.
        is_taken_back = any(
            one.words[:2] == ["git", "stash"] and one.words[2:3] in (["pop"], ["apply"]) for one in later
        )
        named = [path for path in paths if path not in ("push", "save") and _names_file(path)]
        if not is_taken_back:
            yield from (change(path, "reverted") for path in named or (WHOLE_TREE,))


def _names_file(word: str) -> bool:
    return word == "." or _HAS_EXTENSION.match(word) is not None or word.endswith("/")


def _is_file(path: str) -> bool:
    return (
        bool(path) and not path.startswith(("/dev/", "&", "-")) and not path.isdecimal() and len(path) <= PATH_CHARS_MAX
    )


def list_paths(words: Iterable[str]) -> list[str]:
    """Return the words that may be files: no options, no line breaks."""
    return [word for word in words if word and word[0] != "-" and len(word) <= PATH_CHARS_MAX and "\n" not in word][
        :CHANGES_MAX
    ]


def _read_echo(command: SimpleCommand) -> str:
    """Return what ``echo`` or ``printf`` writes."""
    if command.name not in ("echo", "printf"):
        return ""
    words = [word for word in command.words[1:] if word not in ("-e", "-n", "-ne", "-en", "-E", "--")]
    text = " ".join(words)
    return text.replace("\\n", "\n") if command.name == "printf" else text


def _read_sed(words: Sequence[str]) -> Iterator[FileChange]:
    scripts: list[str] = []
    paths: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("-e", "--expression") and at + 1 < len(words):
            scripts.append(words[at + 1])
            at += 1
        elif word in ("-f", "-l") or (word == "-i" and words[at + 1 : at + 2] == [""]):
            at += 1
        elif word[:1] != "-":
            (paths if scripts else scripts).append(word)
        at += 1
    script = "\n".join(scripts)
    removed, added = read_script(script)
    # A script may remove lines that it does not name: it is the text of the change.
    yield from (replace(change(path, "edited", removed, added), text=script) for path in list_paths(paths))


def read_script(script: str) -> tuple[str, str]:
    """Return the texts that a script of sed removes and adds, as it writes them."""
    removed: list[str] = []
    added: list[str] = []
    at, script = 0, script[:SCRIPT_CHARS_MAX]
    while at < len(script):
        if script[at] in " \t\n;{}":
            at += 1
            continue
        address = _SED_ADDRESS.match(script, at)
        at = address.end() if address else at
        sign = script[at : at + 1]
        if sign in ("s", "y") and script[at + 1 : at + 2].strip():
            old, at = _read_until(script, at + 2, script[at + 1])
            new, at = _read_until(script, at, script[at - 1 : at] or "/")
            removed.append(old)
            added.append(new.replace("\\n", "\n"))
        elif sign and sign in "aic":
            text, at = _read_inserted(script, at + 1)
            added.append(text)
            continue
        borders = [border for mark in ";\n" if (border := script.find(mark, at)) >= 0]
        at = min(borders, default=len(script)) + 1
    return "\n".join(filter(None, removed)), "\n".join(filter(None, added))


def _read_until(script: str, at: int, mark: str) -> tuple[str, int]:
    """Return the text up to an unescaped sign, and the place behind it."""
    start = at
    while at < len(script) and script[at] != mark:
        at += 2 if script[at] == "\\" else 1
    return script[start:at].replace(f"\\{mark}", mark), min(len(script), at + 1)


def _read_inserted(script: str, at: int) -> tuple[str, int]:
    """Return the lines that ``a``, ``i`` or ``c`` write: up to a line that does not end with a backslash."""
    lines: list[str] = []
    while at < len(script):
        border = script.find("\n", at)
        stop = len(script) if border < 0 else border
        line = script[at:stop]
        at = stop + 1
        lines.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            break
    lines[:1] = [lines[0].lstrip(" \t").removeprefix("\\")] if lines else []
    return "\n".join(lines if not lines or lines[0] else lines[1:]).replace("\\n", "\n"), at


def read_python(script: str) -> Iterator[FileChange]:
    """Return the files that a short script writes by name, with the texts that it replaces in them."""
    script = script[:SCRIPT_CHARS_MAX]
    if "write" not in script:
        return
    bound = {found[1]: next(filter(None, found.groups()[1:]), "") for found in _BOUND.finditer(script)}
    paths: dict[str, ChangeKind] = {}
    for found in _WRITTEN.finditer(script):
        groups = found.groups()
        name = groups[0] or groups[-1]
        literal = next(filter(None, (*groups[1:5], *groups[6:10])), "")
        path = literal or bound.get(name or "", "")
        if path and len(path) <= PATH_CHARS_MAX and "\n" not in path:
            paths[path] = "edited" if groups[5] == "a" else "created"
    removed, added = _read_replacements(script, bound) if len(paths) == 1 else ("", "")
    for path, kind in list(paths.items())[:CHANGES_MAX]:
        is_edit = bool(removed or added) or f"open({path}" in script or ".read" in script
        yield change(path, "edited" if is_edit else kind, removed, added)


def _read_replacements(script: str, bound: Mapping[str, str]) -> tuple[str, str]:
    removed: list[str] = []
    added: list[str] = []
    for found in _REPLACED.finditer(script):
        old, at = _read_argument(script, found.end(), bound)
        comma = _NEXT_ARGUMENT.match(script, at) if old else None
        new, _ = _read_argument(script, comma.end(), bound) if comma else ("", 0)
        if comma:
            removed.append(old)
            added.append(new)
    return "\n".join(removed), "\n".join(added)


def _read_argument(script: str, at: int, bound: Mapping[str, str]) -> tuple[str, int]:
    literal = _STRING.match(script, at)
    if literal:
        text = next(filter(None, literal.groups()), "")
        return _ESCAPE.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text), literal.end()
    name = _FILE_NAME.match(script, at, at + 80)
    word = name[0].rstrip("),") if name else ""
    return bound.get(word, ""), at + len(word)
