"""Collects every reason that the code can give for a compression, an edit or a wait, by reading the code.

Whatever is handed on as a reason is followed to the texts it can be: a literal, a choice of two, a constant of the
module, what a function of the module returns. Values that are put into a text become the fillings below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "refold"
PLACES = ("budget", "ladder", "stages", "manager", "tuning", "recall/inject.py", "server/reporting.py")
# Where a reason stands among the arguments of those who take it by position.
POSITIONS = {"Trigger": 1, "Notice": 2, "Decision": 2, "missed": 1, "miss": 3, "_unchanged": 2, "Cause": 1}
NAMES = frozenset(("reason", "why", "stopped", "forced"))
FIGURES = frozenset(("misses",))
FIGURE, WORD, INNER = "7", "Xy", "says nothing"


def collect_reasons() -> dict[str, str]:
    """Return every reason, its values filled in, with the place where it is made."""
    paths = [SOURCE / place for place in PLACES]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    trees = {file: ast.parse(file.read_text("utf-8")) for file in files}
    constants = {name: text for tree in trees.values() for name, text in _list_constants(tree)}
    found: dict[str, str] = {}
    for file, tree in trees.items():
        for reason in _Module(tree, constants).list_reasons():
            found.setdefault(reason, str(file.relative_to(SOURCE)))
    return found


def collect_kinds() -> set[str]:
    """Return every kind of event that the code names where it makes one."""
    kinds = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Notice", "Event"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    kinds.add(first.value)
    return kinds


def _list_constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            yield node.targets[0].id, node.value


class _Module:
    """One module: what its names and functions may say."""

    def __init__(self, tree: ast.Module, constants: dict[str, ast.expr]) -> None:
        self.tree = tree
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.names: dict[str, list[ast.expr]] = {name: [value] for name, value in constants.items()}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.names.setdefault(target.id, []).append(node.value)

    def list_reasons(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            for expression in _find_given(node):
                yield from (text for text in self._spell(expression, 0) if text.strip())

    def _spell(self, node: ast.expr, depth: int) -> list[str]:
        """Return the texts that an expression can be, as far as this module knows."""
        if depth > 4:
            return []
        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.JoinedStr():
                pieces = [self._spell_piece(piece, depth) for piece in node.values]
                return ["".join(chosen) for chosen in product(*pieces)]
            case ast.IfExp():
                return [*self._spell(node.body, depth), *self._spell(node.orelse, depth)]
            case ast.BoolOp():
                return [text for value in node.values for text in self._spell(value, depth)]
            case ast.Name(id=name):
                return [text for value in self.names.get(name, ()) for text in self._spell(value, depth + 1)]
            case ast.Subscript():
                return self._spell(node.value, depth)
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                returns = [one for one in ast.walk(self.functions[name]) if isinstance(one, ast.Return)]
                return [text for one in returns if one.value for text in self._spell(one.value, depth + 1)]
        return []

    def _spell_piece(self, piece: ast.expr, depth: int) -> list[str]:
        if isinstance(piece, ast.Constant):
            return [str(piece.value)]
        assert isinstance(piece, ast.FormattedValue)
        names = {one.attr for one in ast.walk(piece.value) if isinstance(one, ast.Attribute)}
        if names & NAMES:
            return [INNER]
        spelled = self._spell(piece.value, depth + 1) if piece.format_spec is None else []
        is_figure = piece.format_spec is not None or names & FIGURES
        return spelled or [FIGURE if is_figure else WORD]


def _find_given(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a node hands on, or keeps, as a reason."""
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        position = POSITIONS.get(name)
        if position is not None and len(node.args) > position:
            yield node.args[position]
        yield from (one.value for one in node.keywords if one.arg in NAMES)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "reason":
                yield value
    elif isinstance(node, ast.Assign):
        if any(isinstance(target, ast.Name) and target.id in NAMES for target in node.targets):
            yield node.value
    elif isinstance(node, ast.FunctionDef) and "reason" in node.name.split("_"):
        yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None)
