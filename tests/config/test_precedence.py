"""preset < user < project < environment < session < call; every value remembers who said it."""

from pathlib import Path

import pytest

from refold.config import CompressionConfig, explain, load_config
from refold.config.load import ALIASES, known_variables, project_file, user_file, variable_of
from refold.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in that is its own repository, with an empty home."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def load(home: Path, **environ: str) -> CompressionConfig:
    return load_config(environ={"HOME": str(home), **environ})


def write_user(home: Path, text: str) -> None:
    path = home / ".config" / "refold" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")


def test_each_layer_has_the_last_word_over_those_below(project: Path, empty_home: Path) -> None:
    environ = {"HOME": str(empty_home)}
    assert load_config(environ=environ).source("keep_recent") is None
    (project / "refold.yaml").write_text("preset: importance\n")
    assert load_config(environ=environ).keep_recent == 10
    (project / "refold.yaml").unlink()
    steps = []
    write_user(empty_home, "keep_recent: 1\n")
    steps.append(load_config(environ=environ))
    (project / "refold.yaml").write_text("keep_recent: 2\n")
    steps.append(load_config(environ=environ))
    environ["REFOLD_KEEP_RECENT"] = "3"
    steps.append(load_config(environ=environ))
    steps.append(load_config(environ=environ, session={"keepRecent": 4}))
    steps.append(load_config(environ=environ, session={"keepRecent": 4}, call={"keep_recent": 5}))
    assert [config.keep_recent for config in steps] == [1, 2, 3, 4, 5]
    sources = [source for config in steps if (source := config.source("keep_recent"))]
    assert [source.layer for source in sources] == ["user", "project", "environment", "session", "call"]
    assert [source.place for source in sources[:3]] == [
        "~/.config/refold/config.yaml:1",
        "refold.yaml:1",
        "REFOLD_KEEP_RECENT",
    ]


def test_a_higher_layer_silences_other_names_of_the_same_meaning(project: Path, empty_home: Path) -> None:
    (project / "refold.yaml").write_text("window: 100000\nretention_count: 9\n")
    config = load(empty_home, REFOLD_CONTEXT_WINDOW_TOKENS="50000", REFOLD_KEEP_LAST_TURNS="2")
    assert (config.window, config.context_window_tokens) == (50_000, 50_000)
    assert (config.fold.keep_messages, config.fold.keep_turns) == (None, 2)


def test_layers_add_options_to_one_block(project: Path, empty_home: Path) -> None:
    write_user(empty_home, "fold:\n  keep_turns: 3\n  role: assistant\n")
    (project / "refold.yaml").write_text("fold:\n  keep_turns: 4\n")
    fold = load(empty_home, REFOLD_FOLD_OPENING="[x]").fold
    assert (fold.keep_turns, fold.role, fold.opening) == (4, "assistant", "[x]")


def test_a_preset_may_be_named_in_any_layer_and_the_last_counts(project: Path, empty_home: Path) -> None:
    (project / "refold.yaml").write_text("preset: archive\nthreshold_rounds: 9\n")
    assert load(empty_home).retention_count == 50
    config = load(empty_home, REFOLD_PRESET="turns")
    assert (config.preset_name, config.retention_count, config.threshold_rounds) == ("turns", None, 9)


def test_the_project_file_is_found_from_a_folder_below(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "refold.yaml").write_text("keep_recent: 2\n")
    (project / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(project / "src" / "deep")
    assert project_file() == project / "refold.yaml"


def test_a_file_above_the_repository_is_not_ours(project: Path) -> None:
    (project.parent / "refold.yaml").write_text("keep_recent: 2\n")
    assert project_file() is None


def test_refold_yaml_wins_over_x_agent_yaml(project: Path) -> None:
    (project / "x-agent.yaml").write_text("compression:\n  threshold_rounds: 1\n")
    assert project_file() == project / "x-agent.yaml"
    (project / "refold.yaml").write_text("")
    assert project_file() == project / "refold.yaml"


def test_the_users_file_follows_the_xdg_rule() -> None:
    assert user_file({"HOME": "/h"}) == Path("/h/.config/refold/config.yaml")
    assert user_file({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/refold/config.yaml")
    assert user_file({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == Path("/h/.config/refold/config.yaml")
    assert user_file({}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("compression: [", ["refold.yaml:", "not valid YAML"]),
        ("a: b: c", ["refold.yaml:1", "not valid YAML"]),
        ("- 1\n- 2\n", ["refold.yaml:1", "name: value"]),
        ("just words", ["refold.yaml:1"]),
        ("compression: 3\n", ["refold.yaml:1", "must be a block"]),
        ("base: &base {compression: 3}\n<<: *base\n", ["refold.yaml", "must be a block"]),
        ("window: 8000\n\nretenton_count: 5\n", ["refold.yaml:3", "did you mean 'retention_count'?"]),
        ("compression:\n  fold:\n    keep_turn: 5\n", ["refold.yaml:3", "did you mean 'fold.keep_turns'?"]),
        ("compression:\n  window: 1\n  threshold_tokens: lots\n", ["refold.yaml:3", "threshold_tokens is 'lots'"]),
        ("fold:\n  summary_share: 9.5\n", ["refold.yaml:2", "fold.summary_share is 9.5"]),
        ("window: 1\nwindow: 2\n", ["refold.yaml:2", "set twice", "line 1"]),
        ("window: 1\ncompression:\n  window: 2\n", ["refold.yaml:1", "refold.yaml:3"]),
        ("window: 1\ncontextWindowTokens: 2\n", ["refold.yaml:1", "refold.yaml:2", "window", "context_window_tokens"]),
        ("window: 1\ntruncate: {chars_max: 3}\n", ["refold.yaml:2", "truncate.chars_max is 3"]),
        ("3: 4\n", ["refold.yaml", "unknown setting"]),
        ("? [a, b]\n: 4\n", ["refold.yaml"]),
        ("x: !!python/object/apply:os.system [echo]\n", ["refold.yaml:1", "not valid YAML"]),
    ],
)
def test_a_broken_file_is_reported_with_file_line_and_key(
    project: Path, empty_home: Path, text: str, words: list[str]
) -> None:
    (project / "refold.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(empty_home)
    for word in words:
        assert word in str(refused.value)


def test_a_file_that_is_not_text_is_reported(project: Path, empty_home: Path) -> None:
    (project / "refold.yaml").write_bytes(b"\xff\xfe\x00window")
    with pytest.raises(ConfigError, match=r"refold.yaml: not UTF-8"):
        load(empty_home)


def test_a_huge_file_is_not_read(project: Path, empty_home: Path) -> None:
    (project / "refold.yaml").write_text("#" * 1_000_001)
    with pytest.raises(ConfigError, match="not a settings file"):
        load(empty_home)


def test_an_empty_file_says_nothing(project: Path, empty_home: Path) -> None:
    (project / "refold.yaml").write_text("# nothing yet\ncompression:\n")
    assert load(empty_home) == CompressionConfig()


def test_a_misspelt_variable_is_reported_and_a_strange_one_is_left_alone(project: Path, empty_home: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'REFOLD_KEEP_RECENT'"):
        load(empty_home, REFOLD_KEEP_RECNT="3")
    assert load(empty_home, REFOLD_DEBUG="1", REFOLD_SOMETHING_ELSE="x", OTHER="y") == CompressionConfig()


def test_a_wrong_value_in_the_environment_names_the_variable(project: Path, empty_home: Path) -> None:
    with pytest.raises(ConfigError, match="REFOLD_KEEP_RECENT: keep_recent is 'few'"):
        load(empty_home, REFOLD_KEEP_RECENT="few")


def test_an_empty_variable_is_unset(project: Path, empty_home: Path) -> None:
    assert load(empty_home, REFOLD_KEEP_RECENT="  ") == CompressionConfig()


def test_variables_carry_lists_tables_shares_and_switches(project: Path, empty_home: Path) -> None:
    config = load(
        empty_home,
        REFOLD_LADDER="mask, fold",
        REFOLD_WINDOW='{"gpt-4o": 50000}',
        REFOLD_TRIGGER_RATIO="80%",
        REFOLD_AUTO="off",
        REFOLD_PRUNE_THINKING="no",
        REFOLD_THRESHOLD_TOKENS="64_000",
    )
    assert config.ladder == ("mask", "fold")
    assert config.window == {"gpt-4o": 50_000}
    assert (config.trigger_ratio, config.auto_compress, config.prune.thinking) == (0.8, False, False)
    assert config.threshold_tokens == 64_000


def test_every_setting_has_one_variable_of_its_own() -> None:
    known = CompressionConfig.known
    names = [*known.settings, *(f"{block}.{option}" for block, options in known.blocks.items() for option in options)]
    assert len({variable_of(name) for name in names}) == len(names)
    assert set(known_variables().values()) == set(names)
    assert {variable_of(name) for name in names} >= set(ALIASES.values())


def test_explain_has_a_row_for_every_setting_and_says_where_it_came_from(project: Path, empty_home: Path) -> None:
    (project / "refold.yaml").write_text("compression:\n  preset: archive\n\n  retentionCount: 7\n")
    rows = {row.name: row for row in explain(load(empty_home, REFOLD_WINDOW="9000"))}
    known = CompressionConfig.known
    names = [*known.settings, *(f"{block}.{option}" for block, options in known.blocks.items() for option in options)]
    assert set(rows) == set(names)
    assert (rows["retention_count"].value, rows["retention_count"].place) == (7, "refold.yaml:4")
    assert (rows["fold.keep_messages"].value, rows["fold.keep_messages"].place) == (
        7,
        "refold.yaml:4 (retention_count)",
    )
    assert (rows["threshold_rounds"].layer, rows["threshold_rounds"].place) == ("preset", "archive")
    assert (rows["window"].layer, rows["window"].place) == ("environment", "REFOLD_WINDOW")
    assert rows["mask.keep"].layer == "built in"


def test_nothing_but_the_call_counts_for_a_config_made_in_code(
    project: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "refold.yaml").write_text("keep_recent: 2\n")
    monkeypatch.setenv("REFOLD_KEEP_RECENT", "3")
    assert CompressionConfig().keep_recent is None


def test_an_unknown_preset_is_reported_with_the_line_or_the_variable_that_names_it(
    project: Path, empty_home: Path
) -> None:
    (project / "refold.yaml").write_text("window: 9000\npreset: archiv\n")
    with pytest.raises(ConfigError, match=r"^refold\.yaml:2: unknown preset 'archiv' \(did you mean 'archive'\?\)"):
        load(empty_home)
    with pytest.raises(ConfigError, match=r"^REFOLD_PRESET: unknown preset 'turn'"):
        load(empty_home, REFOLD_PRESET="turn")
