"""The table of integrations is written row by row, so a run that was interrupted can be finished."""

from pathlib import Path

import pytest

from tests.integrations import matrix


def test_a_row_replaces_its_older_one_and_keeps_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "index.md"
    page.write_text(f"before\n{matrix.BEGIN}\n{matrix.END}\nafter\n")
    monkeypatch.setattr(matrix, "PAGE", page)
    newest, oldest, other = (
        "| litellm | newest | 2.0 | 20 | 1 | 0 |",
        "| litellm | oldest | 1.80.0",
        "| langchain | newest | 1.4",
    )
    for row in (newest, f"{oldest} | 1 | 1 | 9 |", f"{other} | 38 | 2 | 0 |", f"{oldest} | 20 | 1 | 0 |"):
        matrix.write_row(row)
    rows = ["before", matrix.BEGIN, *matrix.HEAD, f"{other} | 38 | 2 | 0 |", f"{oldest} | 20 | 1 | 0 |", newest]
    assert page.read_text().splitlines() == [*rows, matrix.END, "after"]


def test_an_unknown_framework_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["langchian"]) == 2
    assert "langchian" in capsys.readouterr().err
    assert matrix.main(["--fast"]) == 2


def test_every_adapter_is_in_the_table_and_has_a_page(project_root: Path) -> None:
    modules = {path.stem for path in (project_root / "src" / "refold" / "integrations").glob("*.py")}
    adapters = modules - {"__init__", "parts", "streamed", "wrap", "options", "agents_models", "langchain_model"}
    assert {framework.name for framework in matrix.FRAMEWORKS if framework.oldest} == adapters
    index = (project_root / "docs" / "integrations" / "index.md").read_text()
    for name in (framework.name for framework in matrix.FRAMEWORKS):
        assert f"({name}.md)" in index
