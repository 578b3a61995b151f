"""The project's own files as the tidy tests see them: what is tracked, what parses, what belongs to the pure core."""

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "refold"
LINES_MAX, FUNCTION_LINES_MAX = 300, 70
CORE = ("conversation", "formats", "tokens", "budget", "stages", "ladder")


@cache
def list_modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted(SRC.rglob("*.py"))


def list_core_modules() -> list[Path]:
    return [path for path in list_modules() if path.relative_to(SRC).parts[0] in CORE]


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_module(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def cite(path: Path, node: ast.AST | int) -> str:
    """``file:line``, relative to the project's root."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 0)
    return f"{path.relative_to(ROOT)}:{line}"


def write_dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of names and attributes; an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = write_dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def list_tracked() -> list[Path]:
    """Files git tracks; a tree without git (an unpacked archive) skips the test that asks."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        pytest.skip("git is not installed, so what is tracked cannot be told")
    if listed.returncode != 0:
        pytest.skip("not a git work tree, so what is tracked cannot be told")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def describe_size(name: str, source: str) -> list[str]:
    """One line for the file and for each function in it that is over the size we aim at."""
    large = []
    if (lines := source.count("\n")) > LINES_MAX:
        large.append(f"{name} has {lines} lines")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            large.append(f"{name}:{node.lineno} {node.name} has {length} lines")
    return large


def list_large() -> list[str]:
    """All files and functions of the package over the sizes we aim at: listed after each run, never enforced."""
    return [
        line
        for path in list_modules()
        for line in describe_size(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
