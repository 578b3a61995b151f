"""The rows of the five design documents (docs/requirements.toml), and what a run of the tests says of each.

A test belongs to a row by its name (``test_s1_3_…``) or by the name of its file (``test_s0_11_documented.py``).
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

DOCUMENTS = tomllib.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "requirements.toml").read_text(encoding="utf-8")
)
ROWS = tuple(f"{document}.{row}" for document, said in DOCUMENTS.items() for row in said["rows"])
_NAME = re.compile(r"(?:\btest|_test|_and)_s(\d)_(\d+)_")


def find_rows(node: str) -> set[str]:
    """Return the rows that a test covers."""
    return {f"S{document}.{row}" for document, row in _NAME.findall(node)} & set(ROWS)


def tell_rows(outcomes: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line per document: each row with its state, and the number of tests that say so."""
    counts: dict[str, Counter[str]] = {row: Counter() for row in ROWS}
    for node, outcome in outcomes:
        for row in find_rows(node):
            counts[row][outcome] += 1
    lines = []
    for document in DOCUMENTS:
        own = [row for row in ROWS if row.startswith(f"{document}.")]
        lines.append("  ".join(f"{row} {_tell(counts[row])}" for row in own))
    return lines


def _tell(count: Counter[str]) -> str:
    if count["failed"] or count["error"]:
        return f"FAILED {count['failed'] + count['error']}"
    if count["passed"]:
        return f"✓{count['passed']}"
    return "skipped" if count["skipped"] else "·"
