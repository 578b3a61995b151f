"""The page of requirements is current, and a row number in code, tests or documents leads to it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.rigs.rows import ROWS

ROOT = Path(__file__).resolve().parents[2]
_CITED = re.compile(r"\bS\d\.\d+\b")


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_requirements", ROOT / "docs" / "make_requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_every_requirement_and_names_tests_that_exist(made: ModuleType) -> None:
    """A new test need not be listed at once; one that is gone must not be."""
    page = made.PAGE.read_text(encoding="utf-8").splitlines()
    written = made.write_page().splitlines()
    assert [line for line in page if line[:2] != "- "] == [line for line in written if line[:2] != "- "], (
        "make reference"
    )
    known = {path: set(names) for files in made.find_tests().values() for path, names in files.items()}
    for line in page:
        if line.startswith("- ["):
            path = line[3:].partition("]")[0]
            source = (ROOT / path).read_text(encoding="utf-8")
            assert path in known
            assert [name for name in re.findall(r"`(test_\w+)`", line) if f"def {name}(" not in source] == []


def test_every_row_that_code_or_a_test_cites_is_a_requirement(made: ModuleType) -> None:
    rows = set(made.list_rows())
    assert rows == set(ROWS)
    unknown = {
        f"{path.relative_to(ROOT)}: {cited}"
        for folder in ("src", "tests", "docs", "examples", "benchmarks")
        for suffix in ("*.py", "*.yaml", "*.md")
        for path in (ROOT / folder).rglob(suffix)
        if path.name not in ("test_rows.py", "test_requirements.py")
        for cited in _CITED.findall(path.read_text(encoding="utf-8"))
        if cited not in rows
    }
    assert sorted(unknown) == []


def test_every_requirement_has_a_test(made: ModuleType) -> None:
    tests = made.find_tests()
    assert [row for row in made.list_rows() if not any(tests.get(row, {}).values()) and row != "S0.11"] == []
    assert tests["S0.11"]


def test_no_page_for_users_shows_a_row_number() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "requirements.md"]
    assert [str(path) for path in [*pages, ROOT / "README.md"] if _CITED.search(path.read_text(encoding="utf-8"))] == []
