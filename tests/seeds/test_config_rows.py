"""The rows of the design documents that are settings: S0.1, S1.1, S2.2, S2.3, S3.4, S3.5, S4.1, S4.2."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from refold import ContextCompressionManager, compress
from refold.agent.context_tools import ContextTools
from refold.cli.config import _show_rows
from refold.cli.repl.commands import run_config as show_config
from refold.config import CompressionConfig, explain, load_config
from refold.config.layers import PRESETS
from refold.config.values import find_row
from refold.errors import ConfigError
from refold.testing import ScriptedProvider
from refold.tokens import counter_for, model_info
from refold.web.pages.settings import read_settings
from tests.rigs.cli import Shell
from tests.rigs.growing import work
from tests.seeds.test_agent_rows import make_chat, make_screen

SYNAPSE = {
    "COMPACT_TRIGGER_THRESHOLD": ("compact_trigger_threshold", "12000", 12_000),
    "COMPACT_TARGET_TOKENS": ("compact_target_tokens", "6000", 6_000),
    "COMPACT_PRESERVE_COUNT": ("compact_preserve_count", "7", 7),
    "COMPACT_MODEL": ("compact_model", "small-1", "small-1"),
    "COMPACT_RETRY_COUNT": ("compact_retry_count", "4", 4),
}


@pytest.fixture
def workspace(tmp_path: Path, empty_home: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / ".git").mkdir(parents=True)
    return folder


def load(workspace: Path, **environ: str) -> CompressionConfig:
    return load_config(workspace, environ=environ)


def chat(count: int, words: int = 1) -> list[dict[str, object]]:
    return [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"消息内容{at} " + "word " * words}
        for at in range(count)
    ]


def test_s0_1_the_archive_preset_has_the_documents_values_and_default_leaves_them_unset() -> None:
    archive, default = CompressionConfig.preset("archive"), CompressionConfig()
    assert (archive.threshold_rounds, archive.threshold_tokens, archive.retention_count) == (100, 4000, 50)
    assert (default.threshold_rounds, default.threshold_tokens, default.retention_count) == (None, None, None)


@pytest.mark.parametrize("name", ["refold.yaml", "x-agent.yaml"])
def test_s0_1_the_compression_block_of_the_workspace_file_is_read(workspace: Path, name: str) -> None:
    (workspace / name).write_text(
        "compression:\n  threshold_rounds: 12\n  threshold_tokens: 900\n  retention_count: 3\n", encoding="utf-8"
    )
    config = load(workspace)
    assert (config.threshold_rounds, config.threshold_tokens, config.retention_count) == (12, 900, 3)


def test_s0_1_other_content_of_x_agent_yaml_is_ignored(workspace: Path) -> None:
    (workspace / "x-agent.yaml").write_text(
        "llm:\n  provider: openai\nlogging: debug\ncompression:\n  retention_count: 3\n", encoding="utf-8"
    )
    assert load(workspace).retention_count == 3


def test_s0_1_x_agent_yaml_is_read_only_where_there_is_no_refold_yaml(workspace: Path) -> None:
    (workspace / "x-agent.yaml").write_text("compression: {retention_count: 3}\n", encoding="utf-8")
    (workspace / "refold.yaml").write_text("compression: {threshold_rounds: 8}\n", encoding="utf-8")
    assert load(workspace).retention_count is None


def test_s0_1_set_on_default_the_documents_fields_do_what_the_document_says() -> None:
    messages = chat(11)
    config = CompressionConfig(threshold_rounds=10, threshold_tokens=100_000, retention_count=5)
    prepared = compress(messages, config=config)
    assert prepared.summary is not None
    assert len(prepared.messages) == 6
    assert all(out is given for out, given in zip(prepared.messages[1:], messages[-5:], strict=True))


@pytest.mark.parametrize(("count", "acts"), [(9, False), (10, True), (11, True)])
def test_s0_3_the_threshold_is_reached_not_passed(count: int, acts: bool) -> None:
    config = CompressionConfig(threshold_rounds=10, retention_count=5)
    assert (compress(chat(count), config=config).summary is not None) is acts


def test_s0_1_fewer_messages_than_the_retention_are_left_alone() -> None:
    messages = chat(5)
    prepared = compress(messages, config=CompressionConfig(threshold_rounds=2, retention_count=5))
    assert prepared.messages == messages


def test_s1_1_the_importance_preset_has_the_documents_values() -> None:
    config = CompressionConfig.preset("importance")
    assert config.max_turns == 50
    assert config.keep_recent == 10
    assert config.max_tool_output == 3000
    assert config.summary_max_chars == 500
    assert config.auto_compress is True
    assert config.importance_threshold == 0.3


def test_s1_1_camel_case_is_accepted_as_json_has_it() -> None:
    config = CompressionConfig(
        maxTurns=20, keepRecent=4, maxToolOutput=2000, summaryMaxChars=300, autoCompress=False, importanceThreshold=0.4
    )
    assert (config.max_turns, config.keep_recent, config.max_tool_output) == (20, 4, 2000)
    assert (config.summary_max_chars, config.auto_compress, config.importance_threshold) == (300, False, 0.4)


def test_s1_1_the_fields_reach_the_stages_that_do_it() -> None:
    config = CompressionConfig.preset("importance")
    assert (config.fold.keep_rounds, config.fold.rounds_max) == (10, 50)
    assert config.fold.importance_threshold == 0.3
    assert config.fold.summary_chars_max == 500
    assert config.truncate.chars_max == 3000
    assert config.thresholds().turns == 50


def test_s1_1_more_turns_than_max_turns_trigger() -> None:
    config = CompressionConfig(max_turns=3, keep_recent=1)
    assert compress(chat(6), config=config).summary is None
    assert compress(chat(8), config=config).summary is not None


def test_s1_1_auto_off_is_honoured_until_it_would_not_fit() -> None:
    config = CompressionConfig(auto="off", threshold_rounds=2, retention_count=1)
    assert compress(chat(12), config=config).summary is None
    small = config.replace(window=1000, reserve=0)
    assert compress(chat(40, words=50), config=small).total_tokens <= 1000


def test_s1_3_nothing_happens_up_to_twice_as_many_messages_as_recent_turns() -> None:
    assert CompressionConfig.preset("importance").fold.min_messages == 20
    assert CompressionConfig(preset="importance", keep_recent=3).fold.min_messages == 6


def test_s2_2_the_context_threshold_is_three_quarters_of_the_window() -> None:
    config = CompressionConfig(preset="offload", window=200_000)
    assert config.context_threshold == 0.75
    assert config.budget(model_info(None)).soft == 150_000
    assert (
        CompressionConfig(preset="offload", window=200_000, context_threshold=0.5).budget(model_info(None)).soft
        == 100_000
    )


def test_s2_2_folding_waits_if_offloading_freed_enough() -> None:
    assert CompressionConfig.preset("offload").fold.offload_freed_min == 15_000
    assert CompressionConfig(preset="offload", compact_trigger_threshold=9_000).fold.offload_freed_min == 9_000
    assert [stage.name for stage in CompressionConfig.preset("offload").stages()][:2] == ["offload", "fold"]


def test_s2_3_the_offload_preset_has_the_documents_parameters() -> None:
    config = CompressionConfig.preset("offload")
    assert config.compact_trigger_threshold == 15_000
    assert config.compact_target_tokens == 8_000
    assert config.compact_preserve_count == 5
    assert config.compact_model is None
    assert config.compact_retry_count == 3
    assert config.fold.summary_tokens_max == 8_000
    assert config.fold.keep_messages == 5


def test_s2_3_the_target_of_the_summary_that_somebody_sets_counts_in_every_preset() -> None:
    for preset in PRESETS:
        assert CompressionConfig(preset=preset, compact_target_tokens=7_000).fold.summary_tokens_max == 7_000


@pytest.mark.parametrize("prefix", ["REFOLD_", "SYNAPSE_"])
@pytest.mark.parametrize("name", SYNAPSE)
def test_s2_3_every_parameter_has_its_variable_and_its_alias(workspace: Path, prefix: str, name: str) -> None:
    field, text, value = SYNAPSE[name]
    config = load(workspace, **{f"{prefix}{name}": text})
    assert getattr(config, field) == value
    source = config.source(field)
    assert source is not None
    assert source.place == f"{prefix}{name}"


def test_s2_3_a_variable_and_its_alias_that_differ_are_refused_by_both_names(workspace: Path) -> None:
    with pytest.raises(ConfigError, match=r"REFOLD_COMPACT_MODEL.*SYNAPSE_COMPACT_MODEL"):
        load(workspace, REFOLD_COMPACT_MODEL="a", SYNAPSE_COMPACT_MODEL="b")
    assert load(workspace, REFOLD_COMPACT_MODEL="a", SYNAPSE_COMPACT_MODEL="a").compact_model == "a"


def test_s3_4_reported_usage_triggers_at_four_fifths_of_the_window() -> None:
    config = CompressionConfig.preset("hybrid")
    assert config.context_compression_enabled is True
    assert config.context_compression_threshold == 0.8
    assert config.thresholds().reported_ratio == 0.8
    assert config.replace(window=100_000).budget(model_info(None)).soft == 80_000


def test_s3_4_the_switch_of_the_chat_application_is_the_switch() -> None:
    assert CompressionConfig(preset="hybrid", contextCompressionEnabled=False).auto_compress is False
    assert CompressionConfig.preset("hybrid").auto_compress is True


def test_s3_5_the_last_six_stay_and_up_to_seven_nothing_happens() -> None:
    config = CompressionConfig.preset("hybrid")
    assert (config.keep_last, config.fold.keep_messages, config.fold.min_messages) == (6, 6, 7)
    assert (config.fold.tool_chars_max, config.fold.prompt_chars_max) == (500, 12_000)


def test_s4_1_the_turns_preset_has_the_documents_values() -> None:
    config = CompressionConfig.preset("turns")
    assert config.context_window_tokens == 64_000
    assert (config.compact_trigger, config.compact_target) == (0.75, 0.5)
    assert config.keep_last_turns == 6
    assert config.max_compaction_attempts == 2
    budget = config.budget(model_info("gpt-4o"))
    assert (budget.window, budget.soft, budget.target) == (64_000, 48_000, 32_000)
    assert (config.fold.keep_turns, config.window_stage.keep_turns) == (6, 6)


def test_s4_1_the_names_are_variables_too(workspace: Path) -> None:
    config = load(
        workspace,
        REFOLD_CONTEXT_WINDOW_TOKENS="32000",
        REFOLD_COMPACT_TRIGGER="60%",
        REFOLD_COMPACT_TARGET="0.3",
        REFOLD_KEEP_LAST_TURNS="4",
        REFOLD_MAX_COMPACTION_ATTEMPTS="3",
    )
    budget = config.budget(model_info(None))
    assert (budget.window, budget.soft, budget.target) == (32_000, 19_200, 9_600)
    assert (config.fold.keep_turns, config.max_compaction_attempts) == (4, 3)


def test_s4_1_trigger_and_target_may_be_tokens() -> None:
    config = CompressionConfig(preset="turns", compact_trigger=40_000, compact_target=20_000)
    budget = config.budget(model_info(None))
    assert (budget.soft, budget.target) == (40_000, 20_000)


def test_s4_1_two_settings_of_one_meaning_that_differ_are_refused_by_both_names(workspace: Path) -> None:
    with pytest.raises(ConfigError, match=r"window = 1000 .*context_window_tokens = 2000"):
        CompressionConfig(window=1000, context_window_tokens=2000)
    with pytest.raises(ConfigError, match=r"REFOLD_WINDOW.*REFOLD_CONTEXT_WINDOW_TOKENS"):
        load(workspace, REFOLD_WINDOW="1000", REFOLD_CONTEXT_WINDOW_TOKENS="2000")
    (workspace / "refold.yaml").write_text("trigger_ratio: 0.9\ncompact_trigger: 75%\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"trigger_ratio = 0.9 .*refold.yaml:1.*compact_trigger = '75%' .*refold.yaml:2"
    ):
        load(workspace)


def test_s4_2_characters_by_four_can_be_chosen_and_is_the_default_of_no_preset() -> None:
    assert CompressionConfig(tokenizer="chars/4").tokenizer == "chars/4"
    assert counter_for(None, "chars/4").count_text("x" * 400) == 100
    assert CompressionConfig.preset("turns").tokenizer is None
    prepared = compress(chat(3), 1000, config=CompressionConfig(tokenizer="chars/4"))
    assert prepared.report is not None
    assert prepared.report.counter == "chars/4"


def test_s4_2_an_unknown_tokenizer_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="chars/5"):
        compress(chat(3), 1000, config=CompressionConfig(tokenizer="chars/5"))


@pytest.mark.parametrize(
    ("preset", "name", "shown"),
    [
        ("hybrid", "context_compression_threshold", "80%"),
        ("offload", "context_threshold", "75%"),
        ("turns", "compact_trigger", "75%"),
        ("default", "trigger_ratio", "98%"),
    ],
)
def test_s3_9_the_settings_show_the_threshold_as_a_percentage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], preset: str, name: str, shown: str
) -> None:
    config = CompressionConfig.preset(preset)
    row = find_row({row.name: row for row in explain(config)}, "trigger_ratio")
    assert (row.name, row.share) == (name, shown)
    assert CompressionConfig(preset=preset, **{name: shown}) == config, "what is shown can be typed"
    _show_rows([row])
    assert shown in capsys.readouterr().out
    (tmp_path / "refold.yaml").write_text(f"preset: {preset}\n")
    with ContextCompressionManager(load_config(tmp_path, environ={}), tmp_path) as manager:
        settings = read_settings(SimpleNamespace(manager=manager, tenant=""))  # type: ignore[arg-type]
        assert settings[name].typed == shown
        screen, console = make_screen()
        with ScriptedProvider("fine") as provider:
            show_config(make_chat(provider, manager), screen, "")
        assert any(name in line and shown in line for line in console.export_text().splitlines())


def test_s1_6_explain_names_the_folder_whose_settings_act(tmp_path: Path) -> None:
    """An agent changes a setting while it works; the command says where the value comes from."""
    with ContextCompressionManager(CompressionConfig.preset("importance"), tmp_path) as manager:
        for history in work(turns=2, steps=6):
            manager.prepare_context_sync("s1", history)
        assert "keepRecent: 4" in ContextTools(manager, "s1").context_config(keepRecent=4)
        for history in work(turns=3, steps=6):
            manager.prepare_context_sync("s1", history)
    (tmp_path / "refold.yaml").write_text("preset: importance\nkeep_recent: 7\n", encoding="utf-8")
    shell = Shell(tmp_path)
    for environment, value, place in (
        ({}, 4, ".compression/config.json"),
        ({"REFOLD_KEEP_RECENT": "9"}, 9, "REFOLD_KEEP_RECENT"),
    ):
        (row,) = json.loads(shell.refold("config", "explain", "keep_recent", "--json", **environment).out)
        assert (row["value"], row["place"]) == (value, place)
