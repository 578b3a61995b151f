"""``refold config`` and ``refold presets``: the values in force, and their sources."""

import json

import pytest

from refold.config import PRESETS, CompressionConfig
from tests.rigs.cli import Shell


def test_explain_all_prints_every_value_and_where_it_came_from(shell: Shell) -> None:
    shell.write("refold.yaml", "compression:\n  preset: turns\n  keep_last_turns: 3\n")
    ran = shell.refold("config", "explain", "--all", REFOLD_WINDOW="9000", COLUMNS="120")
    assert ran.code == 0, ran.err
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in ran.text.splitlines() if line.strip()}
    assert rows["keep_last_turns"] == "3 project refold.yaml:3"
    assert rows["window"] == "9000 environment REFOLD_WINDOW"
    assert rows["compact_trigger"] == "75% preset turns"
    assert rows["fold.keep_turns"] == "3 project refold.yaml:3 (keep_last_turns)"
    assert rows["mask.keep"].endswith("built in")
    assert CompressionConfig.known.settings <= set(rows)


def test_names_from_the_documents_come_last_under_a_heading_of_their_own(shell: Shell) -> None:
    settings, _, appendix = shell.refold("config", "explain", "--all").text.partition("Appendix")
    assert "compact_trigger " not in settings
    assert "compact_trigger " in appendix
    assert "trigger_ratio " in settings


def test_explain_in_eighty_columns_hides_nothing(shell: Shell) -> None:
    told = shell.refold("config", "explain", "ladder", COLUMNS="80").text
    assert max(map(len, told.splitlines())) <= 80
    for stage in CompressionConfig().ladder:
        assert stage in told


def test_explain_takes_names_of_settings_and_of_stages(shell: Shell) -> None:
    rows = json.loads(shell.refold("config", "explain", "fold", "keepRecent", "--json").out)
    names = [row["name"] for row in rows]
    assert "keep_recent" in names
    assert "fold.keep_turns" in names
    assert all(name == "keep_recent" or name.startswith("fold.") for name in names)


def test_explain_of_an_unknown_setting_suggests_one(shell: Shell) -> None:
    ran = shell.refold("config", "explain", "keep_recnt")
    assert ran.code == 3
    assert "did you mean 'keep_recent'?" in ran.err


def test_explain_shows_what_is_set_and_how_to_see_the_rest(shell: Shell) -> None:
    assert shell.refold("config", "explain").text == (
        "Nothing is set: every value comes from the preset default.\n"
        "'refold config explain --all' shows every setting.\n"
    )
    assert json.loads(shell.refold("config", "explain", "--json").out) == []
    shell.write("refold.yaml", "preset: turns\nfold:\n  keep_turns: 7\n")
    rows = json.loads(shell.refold("config", "explain", "--json").out)
    assert {row["name"]: row["value"] for row in rows} == {"preset": "turns", "fold.keep_turns": 7}


def test_path_names_the_files_whether_they_are_there_or_not(shell: Shell) -> None:
    before = json.loads(shell.refold("config", "path", "--json").out)
    assert before["project"] is None
    assert before["user"] == {"path": str(shell.folder / "home/.config/refold/config.yaml"), "exists": False}
    path = shell.write("refold.yaml", "")
    assert str(path) in shell.refold("config", "path").text
    assert before["folder"] == {"path": str(shell.folder / ".compression/config.json"), "exists": False}


def test_s1_6_a_folder_s_file_with_a_typing_error_is_reported_and_kept(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    shell.write(".compression/config.json", '{"keepRecent": 4')
    shell.refold("config", "explain")
    assert "config.json cannot be read; it is now config.json.unreadable" in caplog.text
    assert (shell.folder / ".compression/config.json.unreadable").read_text() == '{"keepRecent": 4'


def test_presets_lists_each_with_its_ladder(shell: Shell) -> None:
    told = shell.refold("presets").text
    for name in PRESETS:
        assert name in told
    listed = {preset["name"]: preset["settings"] for preset in json.loads(shell.refold("presets", "--json").out)}
    assert listed["archive"]["retention_count"] == 50
    assert listed["turns"]["ladder"] == ["fold", "prune", "window", "clamp"]


def test_settings_of_the_project_reach_compact(shell: Shell, session: list[dict[str, object]]) -> None:
    shell.write("refold.yaml", "threshold_rounds: 10\nretention_count: 5\n")
    ran = shell.refold("compact", "session.json", "--json", "--out", "small.json")
    assert ran.code == 0, ran.err
    reason = json.loads(ran.out)["reason"]
    assert (reason["code"], reason["values"]["limit"]) == ("trigger.rounds", 10)
    assert "threshold_rounds 10" in reason["text"]
    assert json.loads((shell.folder / "small.json").read_bytes())[-1] == session[-1]
