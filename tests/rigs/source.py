"""The project's own files as the tidy tests see them: what is tracked, what parses, what belongs to the pure core."""

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "refold"
CORE = ("conversation", "formats", "tokens", "budget", "reading", "stages", "ladder")


@cache
def list_modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted(SRC.rglob("*.py"))


def list_core_modules() -> list[Path]:
    return [path for path in list_modules() if path.relative_to(SRC).parts[0] in CORE]


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def walk_module(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module."""
    return tuple(ast.walk(parse_module(path)))


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
