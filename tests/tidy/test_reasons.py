"""Reasons are codes: no module makes one from a sentence, or decides anything by the words of one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.rigs.source import cite, list_modules, parse_module

NAMES = frozenset(("reason", "why", "note", "stopped", "forced", "told"))
MATCHERS = frozenset(("startswith", "endswith", "partition", "rpartition", "split", "find", "removeprefix"))
# Where a reason is among the arguments of those who take it by position.
POSITIONS = {"Trigger": 1, "Notice": 2, "Decision": 2, "Outgoing": 1, "Rejected": 1, "Injection": 1, "Cause": 0}


def is_sentence(node: ast.AST) -> bool:
    """Tell whether a node is a text of several words."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_reason(node: ast.AST) -> bool:
    """Tell whether a node is called as reasons are: ``event.reason``, ``why``, ``str(brake.why)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        node = node.args[0]
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in NAMES


def find_wrong(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield where words of a reason are matched or compared, and where a reason is made of words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(is_reason(side) for side in sides) and any(is_sentence(side) for side in sides):
                yield node
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in MATCHERS and is_reason(node.func.value):
            yield node
        if ast.unparse(node.func) in ("str(error).startswith", "str(error).partition", "str(error).split"):
            yield node
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("match", "fullmatch", "search", "sub"):
            yield from (one for one in node.args if is_reason(one))
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        at = POSITIONS.get(name)
        if at is not None and at < len(node.args) and is_text(node.args[at]):
            yield node
        yield from (one.value for one in node.keywords if one.arg == "reason" and is_text(one.value))
        yield from (one for one in ast.walk(node) if isinstance(one, ast.Dict) and _has_text_reason(one))


def _has_text_reason(node: ast.Dict) -> bool:
    return any(
        isinstance(key, ast.Constant) and key.value == "reason" and is_text(value)
        for key, value in zip(node.keys, node.values, strict=True)
    )


def test_nothing_is_decided_by_the_words_of_a_reason_and_none_is_made_of_words() -> None:
    assert [cite(path, node) for path in list_modules() for node in find_wrong(parse_module(path))] == []


def test_such_code_would_be_found() -> None:
    wrong = (
        'Trigger("soft", f"{tokens} are too many")',
        'Made("held", reason="another process is at it")',
        'reason.startswith("waited")',
        'key = str(notice.why).partition(":")[0]',
        'if settings.forced == "the provider refused it": pass',
        'is_off = "is off" in status.stopped',
        'setting = str(error).partition(" ")[0]',
        "FIGURE.sub('…', event.reason)",
        'add(Event("failed", 1.0, {"reason": f"failed: {error}"}))',
    )
    assert [code for code in wrong if not list(find_wrong(ast.parse(code)))] == []
    right = 'Trigger("soft", because.MANUAL()); reason.is_a(because.WAIT); finish.reason == "stop"'
    assert list(find_wrong(ast.parse(right))) == []
