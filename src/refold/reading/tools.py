"""The table of tools and shell commands: what a call does, by the name of its tool or by its command.

The table is data, ``rules/tools.toml``, with examples for each rule. The first rule that fits decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from refold.patterns import lazy_regex
from refold.reading.events import Verb
from refold.reading.rules import find_rule
from refold.reading.shell import SimpleCommand

NAME_CHARS_MAX = 200
# ``mcp__github__create_issue``, ``functions.exec_command``, ``server:tool``: the tool is what comes last.
_SERVER = lazy_regex(r"\A(?:mcp__.{0,100}?__|functions[.:]|[\w-]{1,60}[.:/](?=\w))")
_PYTHON = lazy_regex(r"(?:python|pypy)[\d.]{0,5}(?:\.exe)?(?: |\Z)")
_HUMP = lazy_regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class ToolRule:
    """What tools of a name, or commands that begin so, do.

    ``acts`` maps a value of the argument ``by`` to a verb, for tools with sub-commands. ``targets`` are the names of
    the arguments that say to what; for a command they are ``paths``, ``words`` or ``none``.
    """

    pattern: re.Pattern[str]
    verb: Verb
    is_final: bool = False
    is_shell: bool = False
    # Its result is what a program printed.
    prints: bool = False
    targets: tuple[str, ...] = ()
    by: str = ""
    acts: tuple[tuple[str, Verb], ...] = ()


@cache
def load_rules(kind: str) -> tuple[ToolRule, ...]:
    """Return the rules of the table for a ``tool`` or a ``command``, in order."""
    return tuple(
        ToolRule(
            pattern=re.compile(rule["is"]),
            verb=rule["verb"],
            is_final=rule.get("final", False),
            is_shell=rule.get("shell", False),
            prints=rule.get("shell", False) or rule.get("prints", False),
            targets=tuple(rule.get("targets", ())),
            by=rule.get("by", ""),
            acts=tuple(rule.get("acts", {}).items()),
        )
        for rule in find_rule("tools", kind)
    )


def plain_name(name: str) -> str:
    """Return a tool's name without its server, in small letters with ``_`` between words."""
    bare = _SERVER.sub("", name[:NAME_CHARS_MAX], count=1)
    return _HUMP.sub("_", bare).replace("-", "_").replace(" ", "_").lower()


@lru_cache(maxsize=1_024)
def find_tool(name: str) -> ToolRule | None:
    """Return the rule for a tool by its name."""
    plain = plain_name(name)
    return next((rule for rule in load_rules("tool") if rule.pattern.fullmatch(plain)), None)


def prints_output(name: str) -> bool:
    """Return whether the result of a tool is what a program printed."""
    rule = find_tool(name)
    return rule is not None and (rule.prints or rule.verb in ("test", "build"))


def find_command(command: SimpleCommand) -> ToolRule | None:
    """Return the rule for a shell's command by its first words."""
    words = drop_runners(command.words)
    name = words[0].rpartition("/")[2] if words else ""
    return _find_command(" ".join((name, *words[1:40]))[:300])


def drop_runners(words: Sequence[str]) -> Sequence[str]:
    """Return a command without what finds its program: ``uv run -q pytest`` and ``python -m pytest`` are ``pytest``."""
    runners, valued = _load_runners()
    for _ in range(4):
        head = " ".join((words[0].rpartition("/")[2], *words[1:3])) if words else ""
        found = next((runner for runner in runners if f"{head} ".startswith(f"{runner} ")), None)
        if found:
            at = len(found.split(" "))
        elif _PYTHON.match(head) and "-m" in words[1:6]:
            at = words.index("-m") + 1
            return words[at:] if all(word.startswith("-") or len(word) < 8 for word in words[1:at]) else words
        else:
            break
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in valued else 1
        if at >= len(words):
            break
        words = words[at:]
    return words


@cache
def _load_runners() -> tuple[tuple[str, ...], frozenset[str]]:
    table = find_rule("tools", "runner")
    return tuple(map(str, table["words"])), frozenset(map(str, table["options"]))


@lru_cache(maxsize=4_096)
def _find_command(line: str) -> ToolRule | None:
    return next((rule for rule in load_rules("command") if rule.pattern.match(line)), None)
