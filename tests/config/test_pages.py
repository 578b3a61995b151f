"""The pages on settings, presets and commands name everything there is, and nothing that is not."""

import re
from pathlib import Path

from refold.cli.app import EXIT_CODES
from refold.cli.main import app
from refold.config import PRESETS, CompressionConfig, explain
from refold.config.layers import MEANINGS
from refold.config.load import ALIASES

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"


APPENDIX = "Appendix: names from the documents"


def read_rows(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading: first cell, without marks, and the other cells."""
    section = (DOCS / page).read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:1] == "|"]
    return {cells[0].strip("` "): cells[1:] for cells in rows[2:]}


def test_every_setting_has_its_row_with_the_value_of_default() -> None:
    from refold.cli.config import format_row

    tables = [read_rows("configuration.md", heading) for heading in ("Settings", "More settings", APPENDIX)]
    is_row = re.compile(r"[a-z]\w+").fullmatch
    shown = {
        name: (cells[0], cells[1])
        for table in tables
        for name, cells in table.items()
        if len(cells) == 2 and is_row(name) and name != "setting"
    }
    rows = explain(CompressionConfig())
    assert shown == {row.name: (format_row(row), row.means) for row in rows if "." not in row.name}


def test_people_see_twenty_settings_first_and_the_names_of_documents_last() -> None:
    first, last = (set(read_rows("configuration.md", heading)) for heading in ("Settings", APPENDIX))
    assert len(first) == 20
    assert {"preset", "model", "window", "auto_compress", "summariser", "ledger"} <= first
    others = {name for meaning in MEANINGS for name in meaning.names[1:]} - {"retention_count", "keep_recent"}
    assert others - {"max_tool_output"} <= last


def test_every_option_of_every_stage_is_named() -> None:
    shown = {
        block: set(re.findall(r"`(\w+)`", cells[0]))
        for block, cells in read_rows("configuration.md", "Options of the stages").items()
    }
    assert shown == {block: set(options) for block, options in CompressionConfig.known.blocks.items()}


def test_every_name_of_a_meaning_and_every_alias_is_on_the_page() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for meaning in MEANINGS:
        for name in meaning.names:
            assert f"`{name}`" in page
    for alias in ALIASES:
        assert f"`{alias}`" in page


def test_every_preset_has_its_section_and_its_ladder() -> None:
    page = (DOCS / "presets.md").read_text(encoding="utf-8")
    for name in PRESETS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        assert row.rstrip(" |").endswith(f"| {', '.join(CompressionConfig.preset(name).ladder)}")
        assert f"\n## {name}\n" in page


def test_every_command_option_and_exit_code_is_on_the_page() -> None:
    import typer.main

    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert f"refold {name}" in page
        for inner in [command, *getattr(command, "commands", {}).values()]:
            for option in inner.params:
                for written in option.opts:
                    assert not written.startswith("--") or written == "--help" or f"`{written}`" in page
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page
