"""The page of requirements is current, and a row number in code, tests or documents leads to it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.seeds.rows import ROWS

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


def test_the_page_is_what_the_list_and_the_tests_say(made: ModuleType) -> None:
    assert made.PAGE.read_text(encoding="utf-8") == made.write_page(), "run 'make reference'"


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
