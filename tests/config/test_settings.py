"""Values that CompressionConfig accepts, and values that it refuses in one sentence."""

import math

import pytest

from refold.budget import window_budget
from refold.config import CompressionConfig
from refold.errors import ConfigError
from refold.stages.fold import Fold
from refold.tokens import ModelInfo, model_info


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threshold_round": 3}, ["'threshold_round'", "did you mean 'threshold_rounds'?"]),
        ({"fold": {"keep_turn": 2}}, ["'fold.keep_turn'", "did you mean 'fold.keep_turns'?"]),
        ({"fold": {"zzz": 2}}, ["'fold.zzz'", "keep_messages"]),
        ({"nothing like it": 1}, ["nothing like it", "refold config explain"]),
        ({"fold": 3}, ["fold must be a block"]),
        ({"fold": [1]}, ["fold must be a block"]),
        ({"preset": "archve"}, ["unknown preset 'archve'", "did you mean 'archive'?"]),
        ({"preset": 7}, ["preset must be a name"]),
        ({"ladder": ["fld"]}, ["unknown stage 'fld'", "did you mean 'fold'?"]),
        ({"ladder": ["fold", "fold"]}, ["'fold' twice"]),
        ({"ladder": "fold"}, ["ladder is 'fold'", "list"]),
        ({"ladder": {"fold", "mask"}}, ["ladder is", "list"]),
        ({"keep_recent": "9" * 5_000}, ["keep_recent is", "smaller"]),
        ({"keep_last": "9" * 5_000}, ["keep_last is"]),
        ({"score": {"user": True}}, ["score.user is True"]),
        ({"score": {"short": -7}}, ["score.short is -7"]),
        ({"score": {"rich_chars_min": 10**30}}, ["score.rich_chars_min is", "1,000,000,000"]),
        ({"recall": {"limit": True}}, ["recall.limit is True"]),
        ({"threshold_rounds": "many"}, ["threshold_rounds is 'many'", "whole number"]),
        ({"threshold_rounds": 2.5}, ["threshold_rounds is 2.5", "whole number"]),
        ({"threshold_rounds": 0}, ["threshold_rounds is 0", "1 or more"]),
        ({"threshold_tokens": -4}, ["threshold_tokens is -4"]),
        ({"threshold_tokens": 10**30}, ["threshold_tokens is", "1,000,000,000 or less"]),
        ({"retention_count": True}, ["retention_count is True", "number"]),
        ({"retention_count": [5]}, ["retention_count is [5]"]),
        ({"trigger_ratio": 1.5}, ["trigger_ratio is 1.5"]),
        ({"trigger_ratio": 0}, ["trigger_ratio is 0"]),
        ({"trigger_ratio": math.nan}, ["trigger_ratio is nan"]),
        ({"trigger_ratio": "lots%"}, ["trigger_ratio is 'lots%'", "0.75 or 75%"]),
        ({"compact_trigger": 75}, ["could be tokens or percent"]),
        ({"compact_trigger": "x"}, ["compact_trigger is 'x'"]),
        ({"window": 0}, ["window is 0"]),
        ({"window": {"gpt-4o": -1}}, ["window is {'gpt-4o': -1}"]),
        ({"window": "64q"}, ["window is '64q'"]),
        ({"window": 1000, "reserve": 2000}, ["reserve is 2,000", "window is 1,000"]),
        ({"auto": "maybe"}, ["auto_compress is 'maybe'", "on or off"]),
        ({"language": "fr"}, ["language is 'fr'", "'en' or 'zh'"]),
        ({"compact_retry_count": 1000}, ["compact_retry_count is 1000", "20 or less"]),
        ({"target_ratio": 0.9, "trigger_ratio": 0.5}, ["target_ratio is 0.9", "trigger_ratio"]),
        ({"fold": {"role": "king"}}, ["fold.role is 'king'"]),
        ({"fold": {"keep_turns": True}}, ["fold.keep_turns is True"]),
        ({"mask": {"keep": -1}}, ["mask.keep is -1"]),
        ({"fold": {"summary_share": 7.0}}, ["fold.summary_share is 7.0"]),
        ({"offload": {"folder": "../../etc"}}, ["offload.folder"]),
        ({"truncate": {"chars_max": 3}}, ["truncate.chars_max is 3"]),
    ],
)
def test_a_wrong_setting_is_a_config_error_that_names_it(settings: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        CompressionConfig(**settings)
    for word in words:
        assert word in str(refused.value)


def test_an_error_never_repeats_a_long_value() -> None:
    with pytest.raises(ConfigError) as refused:
        CompressionConfig(language="x" * 1_000_000)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"window": 1000, "context_window_tokens": 2000}, ("window", "context_window_tokens")),
        ({"trigger_ratio": 0.9, "context_threshold": 0.75}, ("trigger_ratio", "context_threshold")),
        ({"compact_trigger": 0.9, "context_compression_threshold": 0.8}, ("compact_trigger", "context_compression")),
        ({"target_ratio": 0.3, "compact_target": "40%"}, ("target_ratio", "compact_target")),
        ({"retention_count": 3, "keep_last": 4}, ("retention_count", "keep_last")),
        ({"retention_count": 3, "fold": {"keep_messages": 4}}, ("retention_count", "fold.keep_messages")),
        ({"keep_recent": 3, "fold": {"keep_rounds": 4}}, ("keep_recent", "fold.keep_rounds")),
        (
            {"auto_compress": True, "context_compression_enabled": False},
            ("auto_compress", "context_compression_enabled"),
        ),
        ({"max_tool_output": 900, "truncate": {"chars_max": 800}}, ("max_tool_output", "truncate.chars_max")),
        ({"keep_recent": 3, "keepRecent": 4}, ("keep_recent", "keepRecent")),
    ],
)
def test_two_settings_of_one_meaning_that_differ_are_refused_by_both_names(
    settings: dict[str, object], names: tuple[str, str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        CompressionConfig(**settings)
    for name in names:
        assert name in str(refused.value)


def test_two_settings_of_one_meaning_may_agree() -> None:
    config = CompressionConfig(window=64_000, context_window_tokens=64_000, trigger_ratio=0.75, compact_trigger="75%")
    assert config.budget(model_info(None)).soft == 48_000


def test_camel_case_upper_case_and_dashes_are_the_same_setting() -> None:
    for spelling in ("keep_recent", "keepRecent", "KEEP_RECENT", "keep-recent"):
        assert CompressionConfig(**{spelling: 4}).keep_recent == 4


def test_a_ready_stage_is_accepted_as_its_block() -> None:
    assert CompressionConfig(fold=Fold(keep_turns=2, role="assistant")).fold.role == "assistant"


def test_a_config_cannot_be_changed_only_replaced() -> None:
    config = CompressionConfig(keep_recent=3)
    with pytest.raises(ValueError, match="frozen"):
        config.keep_recent = 4  # type: ignore[misc]
    changed = config.replace(keep_recent=4)
    assert (config.fold.keep_rounds, changed.fold.keep_rounds) == (3, 4)


def test_replacing_the_preset_keeps_what_was_set_on_top() -> None:
    config = CompressionConfig(threshold_rounds=7).replace(preset="archive")
    assert (config.threshold_rounds, config.retention_count) == (7, 50)


def test_equal_settings_are_equal_wherever_they_came_from() -> None:
    assert CompressionConfig() == CompressionConfig.preset("default")
    assert hash(CompressionConfig(keep_recent=3)) == hash(CompressionConfig().replace(keepRecent=3))
    assert CompressionConfig(keep_recent=3) != CompressionConfig(keep_recent=4)


def test_a_new_word_on_how_much_to_keep_replaces_a_presets_word_in_any_unit() -> None:
    assert (
        CompressionConfig(preset="turns", retention_count=5).fold
        == CompressionConfig(preset="turns", retention_count=5, fold={"keep_turns": None}).fold
    )
    config = CompressionConfig(preset="archive", keep_recent=2)
    assert (config.fold.keep_messages, config.fold.keep_rounds) == (None, 2)


def test_a_new_window_replaces_a_presets_window_under_another_name() -> None:
    assert CompressionConfig(preset="turns", window=32_000).budget(model_info("gpt-4o")).window == 32_000


def test_a_table_of_windows_is_asked_by_model() -> None:
    config = CompressionConfig(window={"gpt-4o": 50_000, "gpt-4o-mini": 20_000, "*": 10_000})
    windows = [config.budget(model_info(name)).window for name in ("gpt-4o", "gpt-4o-mini-2024", "llama")]
    assert windows == [50_000, 20_000, 10_000]


def test_a_model_that_the_table_leaves_out_has_its_own_window() -> None:
    assert CompressionConfig(window={"gpt-4o": 50_000}).budget(model_info("nobody-1")).window == 128_000


@pytest.mark.parametrize("window", [1, 2, 50, 1_000, 8_000, 128_000, 2_000_000])
@pytest.mark.parametrize("preset", ["default", "archive", "importance", "offload", "hybrid", "turns"])
def test_every_preset_has_a_legal_budget_for_every_window(preset: str, window: int) -> None:
    model = ModelInfo(name="m", window=window, output_reserve=32_000)
    for config in (CompressionConfig.preset(preset), CompressionConfig(preset=preset, window=window)):
        for margin in (0.0, 0.1, 1.0):
            budget = config.budget(model, margin)
            assert 0 < budget.target <= budget.soft <= budget.hard <= budget.window


def test_a_reserve_that_was_asked_for_is_kept_free() -> None:
    assert CompressionConfig(window=10_000, reserve=3_000).budget(model_info(None)).hard == 7_000


def test_a_trigger_below_a_presets_target_keeps_a_distance_between_two_cuts() -> None:
    budget = CompressionConfig(window=100_000, reserve=0, trigger_ratio=0.1).budget(model_info(None))
    assert (budget.soft, budget.target) == (10_000, 5_000)


def test_the_default_acts_late_and_comes_down_deep() -> None:
    tiers = CompressionConfig().tiers()
    assert tiers.soft >= 0.9
    assert 0.1 <= tiers.target <= 0.5


def test_the_rungs_that_make_it_fit_are_on_every_ladder() -> None:
    assert [stage.name for stage in CompressionConfig(ladder=["mask"]).stages()] == ["mask", "window", "clamp"]


def test_a_view_never_names_files_unless_somebody_writes_them() -> None:
    assert "offload" not in [stage.name for stage in CompressionConfig().stages()]
    assert "offload" in [stage.name for stage in CompressionConfig(write_files=True).stages()]


def test_stages_of_arrival_are_those_that_render_a_message_once() -> None:
    assert {stage.name for stage in CompressionConfig().arrival_stages()} <= {"truncate", "densify"}
    assert "truncate" not in [stage.name for stage in CompressionConfig().arrival_stages()], "it is sent whole first"
    cut = CompressionConfig(max_tool_output=3_000)
    assert "truncate" in [stage.name for stage in cut.arrival_stages()], "a limit that somebody set holds at once"


def test_depth_moves_what_a_compression_leaves_in_a_large_window() -> None:
    targets = [
        window_budget(80_000, 0, CompressionConfig(depth=depth).tiers()).target
        for depth in ("thrifty", "balanced", "generous")
    ]
    assert targets == [9_000, 12_000, 25_000]
    assert window_budget(80_000, 0, CompressionConfig().tiers()).target == 12_000
    assert window_budget(80_000, 0, CompressionConfig(target_tokens=7_000, depth="generous").tiers()).target == 7_000


def test_a_share_of_your_own_applies_without_the_depth_of_the_preset() -> None:
    assert window_budget(80_000, 0, CompressionConfig(target_ratio=0.5).tiers()).target == 40_000
    both = CompressionConfig(target_ratio=0.5, depth="thrifty")
    assert window_budget(80_000, 0, both.tiers()).target == 9_000, "both were asked for, and the smaller binds"


def test_in_a_small_window_the_depth_makes_no_difference() -> None:
    for depth in ("thrifty", "generous"):
        assert window_budget(8_000, 0, CompressionConfig(depth=depth).tiers()).target == 3_200
