"""The figures of README and docs are those that benchmarks measured; what can be measured again still comes out so."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT.parent / "shared" / "data" / "long_dev.jsonl.gz"
DRIFT = 0.05  # of a figure


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_figures", ROOT / "docs" / "make_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_number(cell: str) -> float:
    found = re.match(r"[\d,.]+", cell)
    assert found is not None, cell
    return float(found[0].replace(",", ""))


def bench(script: str, *words: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *words]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)


def test_pages_and_pictures_have_the_kept_figures(made: ModuleType) -> None:
    stale = [path.name for path, text in made.list_outputs() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: make figures"


def test_every_page_shows_figures_in_its_language(made: ModuleType) -> None:
    blocks = {page.name: made.BLOCK.findall(page.read_text(encoding="utf-8")) for page in made.PAGES}
    assert all(blocks.values()), "a page without a block of figures need not be listed"
    assert "全部账单" in (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    assert "全部账单" not in (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_the_readme_says_of_trials_is_what_was_measured(made: ModuleType) -> None:
    solved = {row[0]: row[1].split("/") for row in made.read_figures()["trial"]["rows"]}
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    ours, tasks = solved["default"]
    assert (
        f"solves {ours} of the {tasks} tasks of `refold trial` behind refold, {solved['trim'][0]} with trimmed" in text
    )
    assert solved["last-n"][0] == "0"


@pytest.mark.slow
def test_trials_come_out_as_the_pages_say(made: ModuleType, tmp_path: Path) -> None:
    kept = made.read_figures()["trial"]
    bench("bench_trial.py", "--window", str(kept["window"]), "--figures", str(tmp_path / "figures.json"))
    again = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["trial"]["table"]
    for before, now in zip(kept["rows"], again["rows"], strict=True):
        assert before[:2] == now[:2]
        assert read_number(now[5]) == pytest.approx(read_number(before[5]), rel=DRIFT), before[0]


@pytest.mark.slow
@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded sessions are not part of the repository")
def test_the_first_recorded_session_costs_and_keeps_what_the_pages_say(made: ModuleType, tmp_path: Path) -> None:
    kept = made.read_figures()["window 128000"]
    words = ("--peers", "--sessions", "1", "--windows", "128000", "--figures", str(tmp_path / "figures.json"))
    bench("peers/run.py", *words)
    again = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["window 128000"]["table"]
    for column in ("fits %", "bill ÷ raw", "whole bill ÷ raw", "copied text in view %", "far values in view %"):
        place = kept["head"].index(column)
        before, now = read_number(kept["first"][place]), read_number(again["first"][place])
        assert now == pytest.approx(before, rel=DRIFT), column
