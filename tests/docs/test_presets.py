"""The table of presets: each example session comes out as the page says."""

import re
from pathlib import Path

import pytest

from tests.rigs.cli import Shell

ROOT = Path(__file__).resolve().parents[2]
DRIFT = 0.1  # of a figure: a record may gain or lose a line
TABLE = [
    [cell.strip("` ") for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "reference" / "presets.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| (session|`\w+\.jsonl?`) \|", line)
]
NAMES, *ROWS = TABLE


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_preset_leaves_as_many_tokens_as_the_page_says(row: list[str], tmp_path: Path, empty_home: Path) -> None:
    stale = {}
    file = str(ROOT / "examples" / "sessions" / row[0])
    for preset, cell in zip(NAMES[2:], row[2:], strict=True):
        ran = Shell(tmp_path).refold("compress", file, "--budget", "12000", "--preset", preset, "--out", "small.json")
        before, after = re.findall(r"([\d,]+) → ([\d,]+) tokens", ran.err + ran.text)[0]
        assert before == row[1]
        said, left = (int(text.replace(",", "")) for text in (cell, after))
        if abs(said - left) > DRIFT * left:
            stale[preset] = after
    assert stale == {}
