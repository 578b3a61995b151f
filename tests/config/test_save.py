"""Settings changed by a program: tried before they are written, written where ``load`` reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold.config import load_config
from refold.config.save import change_text, save_settings, try_settings
from refold.errors import ConfigError


def test_a_saved_setting_is_what_the_next_load_reads(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    config = save_settings(tmp_path, {"trigger_ratio": 0.7, "fold.keep_turns": 4})
    assert (config.trigger_ratio, config.fold.keep_turns) == (0.7, 4)
    again = load_config(tmp_path, environ={})
    assert (again.trigger_ratio, again.fold.keep_turns) == (0.7, 4)
    assert str(again.source("trigger_ratio")).startswith("project: ")


def test_comments_order_and_other_blocks_stay_when_a_setting_changes() -> None:
    text = "# ours\npreset: hybrid  # since May\n\nfold:\n  keep_turns: 4\n  prompt: hi\n\ngateway:\n  port: 7000\n"
    assert change_text(text, {"preset": "default", "fold.keep_turns": 9}) == text.replace("hybrid", "default").replace(
        ": 4", ": 9"
    )


def test_taking_a_setting_out_takes_its_empty_block_with_it() -> None:
    assert change_text("model: a\nfold:\n  prompt: x\nreserve: 9\n", {"fold.prompt": None}) == "model: a\nreserve: 9\n"
    assert change_text("fold:\n  prompt: x\n", {"fold.prompt": None}) == ""


def test_a_file_in_flow_style_is_rewritten_with_the_same_content() -> None:
    text = change_text("compression:\n  fold: {keep_rounds: 3}\ngateway:\n  port: 1\n", {"fold.prompt": "a\nb: c"})
    assert "port: 1" in text
    assert "keep_rounds: 3" in text
    assert "prompt: |-\n      a\n      b: c\n" in text


def test_a_new_name_for_one_meaning_takes_the_old_name_out() -> None:
    assert change_text("keepRecent: 5\n", {"fold.keep_messages": 7}) == "fold:\n  keep_messages: 7\n"


def test_a_file_of_another_program_gets_its_compression_block_changed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "x-agent.yaml").write_text("name: mine  # kept\ncompression:\n  compact_trigger: 0.5\n")
    save_settings(tmp_path, {"compact_trigger": 0.6, "model": "gpt-5"})
    assert (tmp_path / "x-agent.yaml").read_text().startswith("name: mine  # kept\ncompression:\n")
    assert not (tmp_path / "refold.yaml").exists()
    assert load_config(tmp_path, environ={}).compact_trigger == 0.6


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"trigger_ratio": 7}, "trigger_ratio is 7"),
        ({"model": "gpt-5", "window": 1_000, "reserve": 5_000}, "lower reserve"),
        ({"preset": "nope"}, "unknown preset 'nope'"),
        ({"fold.keep_turns": -3}, "fold.keep_turns"),
    ],
)
def test_what_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path, changes: dict, told: str) -> None:
    (tmp_path / ".git").mkdir()
    with pytest.raises(ConfigError, match=told):
        try_settings(tmp_path, changes)
    with pytest.raises(ConfigError, match=told):
        save_settings(tmp_path, changes)
    assert not (tmp_path / "refold.yaml").exists()


def test_resetting_a_setting_brings_back_what_the_preset_says(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    save_settings(tmp_path, {"trigger_ratio": 0.5, "target_ratio": 0.2})
    config = save_settings(tmp_path, {"trigger_ratio": None})
    assert config.trigger_ratio == load_config(tmp_path / "none", environ={}).trigger_ratio
    assert config.target_ratio == 0.2


def test_the_command_lines_word_stays_above_the_file(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert try_settings(tmp_path, {"preset": "turns"}, preset="hybrid").preset_name == "hybrid"
