"""Every row of the design documents has a test that carries its name."""

from pathlib import Path

from tests.rigs.rows import ROWS, find_rows, tell_rows

TESTS = Path(__file__).resolve().parents[1]


def test_every_row_has_a_test_of_its_name() -> None:
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        found |= find_rows(path.name)
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.lstrip().startswith(("def test_s", "async def test_s")):
                found |= find_rows(line)
    assert sorted(set(ROWS) - found) == []


def test_a_run_is_reported_row_by_row() -> None:
    told = tell_rows(
        [
            ("tests/a.py::test_s0_1_one", "passed"),
            ("tests/a.py::test_s0_1_two", "passed"),
            ("tests/seeds/test_s0_11_documented.py::TestX::test_y", "passed"),
            ("tests/a.py::test_s1_10_z[archive]", "failed"),
            ("tests/a.py::test_s1_1_z", "skipped"),
            ("tests/a.py::test_s9_1_no_such_row", "failed"),
        ]
    )
    assert told[0].startswith("S0.1 ✓2  S0.2 ·")
    assert told[0].endswith("S0.11 ✓1")
    assert "S1.1 skipped" in told[1]
    assert "S1.10 FAILED 1" in told[1]
