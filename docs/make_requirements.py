"""Write requirements.md from requirements.toml and the tests that carry a row's number. ``make reference`` runs it.

A test belongs to a row by its name (``test_s1_3_…``), by the name of its file (``test_s0_11_…``), or because the first
docstring of its file cites the row (``S1.3``).
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parent
TESTS = DOCS.parent / "tests"
PAGE = DOCS / "requirements.md"
_IN_NAME = re.compile(r"_s(\d)_(\d+)(?![^\W_])")
_CITED = re.compile(r"\bS(\d)\.(\d+)\b")
INTRODUCTION = """# Requirements

refold does what five design documents ask for, each as a [preset](reference/presets.md). This page numbers their
demands in our own words, so that code and tests can cite them (`S2.6`), and lists the tests that prove each. A test is
named after its row, or the file it is in cites the row. [Documents](documents.md) maps the names in each document to
refold's.

Written by `make reference` from `requirements.toml` and the tests."""


def read_requirements() -> dict[str, dict[str, object]]:
    """Return the documents by number: title, preset, and rows by number."""
    return tomllib.loads((DOCS / "requirements.toml").read_text(encoding="utf-8"))


def list_rows() -> list[str]:
    """Return every row number in order."""
    return [f"{document}.{row}" for document, said in read_requirements().items() for row in said["rows"]]  # type: ignore[attr-defined]


@cache
def find_tests(root: Path = TESTS) -> dict[str, dict[str, list[str]]]:
    """Return row → test file → names of its tests; a file that cites a row as a whole has no names."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(root.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if not (_CITED.search(text) or _IN_NAME.search(text) or _IN_NAME.search(path.stem)):
            continue
        tree = ast.parse(text)
        name = path.relative_to(root.parent).as_posix()
        cited = _CITED.findall(ast.get_docstring(tree) or "")
        for document, row in {*cited, *_IN_NAME.findall(path.stem)}:
            found.setdefault(f"S{document}.{row}", {}).setdefault(name, [])
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_s"):
                for document, row in _IN_NAME.findall(node.name):
                    found.setdefault(f"S{document}.{row}", {}).setdefault(name, []).append(node.name)
    return found


def write_page() -> str:
    """Return the page."""
    lines = [INTRODUCTION]
    tests = find_tests()
    for number, (document, said) in enumerate(read_requirements().items(), 1):
        lines += ["", f"## {document}: {said['title']}", ""]
        lines += [f"Document {number}, preset [`{said['preset']}`](reference/presets.md#{said['preset']})."]
        for row, text in said["rows"].items():  # type: ignore[attr-defined]
            lines += ["", f"### {document}.{row}", "", text, ""]
            for path, names in tests.get(f"{document}.{row}", {}).items():
                listed = ": " + ", ".join(f"`{name}`" for name in sorted(set(names))) if names else ""
                lines.append(f"- [{path}](../{path}){listed}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = write_page()
    PAGE.write_text(text, encoding="utf-8")
    sys.stderr.write(f"{PAGE.name}: {len(list_rows())} requirements\n")
