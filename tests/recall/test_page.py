"""The page on recall names every option of its block, with its default."""

from dataclasses import fields
from pathlib import Path

from refold.recall.options import EmbeddingService, RecallOptions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "recall.md"


def test_every_option_has_its_row_with_its_default() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Settings\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"
    ]
    shown = {cells[0]: cells[1] for cells in rows[2:]}
    assert shown == {option.name: str(option.default) for option in fields(RecallOptions)}
    for option in fields(EmbeddingService):
        assert f"`{option.name}`" in section
