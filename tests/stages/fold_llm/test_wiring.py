"""From settings and variables to the model that writes summaries, through every face of the library."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import refold
from refold import CompressionConfig, ConfigError, ContextCompressionManager
from refold.config import explain, load_config
from refold.conversation.reason import say
from refold.llm.openai import OpenAIModel
from refold.llm.summariser import Summariser
from refold.testing import ScriptedModel, ScriptedProvider
from tests.rigs.model import GOOD, chatting, says, working

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

SECRET = "sk-very-secret-key-000111222333"


def folds(prepared: Any) -> list[str]:
    return [edit.fold.by for edit in prepared.edits if edit.fold is not None]


def load(folder: Path, **variables: str) -> CompressionConfig:
    return load_config(folder, environ=variables)


@pytest.mark.usefixtures("empty_home")
def test_a_key_for_the_models_provider_is_all_it_takes(tmp_path: Path) -> None:
    with ScriptedProvider(GOOD, key=SECRET) as provider:
        config = load(tmp_path, OPENAI_API_KEY=SECRET, OPENAI_BASE_URL=provider.openai_url)
        assert folds(refold.compress(working(40), 3_000, model="gpt-4o", config=config)) == ["llm"]
        manager = ContextCompressionManager(config.replace(window=4_000, reserve=500), tmp_path)
        assert folds(manager.prepare_context_sync("s1", working(40), model="gpt-4o")) == ["llm"]
        manager.close()
        assert [one.model for one in provider.requests] == ["gpt-4o", "gpt-4o"]


@pytest.mark.usefixtures("empty_home")
def test_anthropics_key_works_as_well(tmp_path: Path) -> None:
    with ScriptedProvider(GOOD) as provider:
        config = load(tmp_path, ANTHROPIC_API_KEY=SECRET, ANTHROPIC_BASE_URL=provider.anthropic_url)
        config = config.replace(model="claude-sonnet-5")
        assert folds(refold.compress(working(40), 3_000, config=config)) == ["llm"]
        assert provider.requests[0].wire == "anthropic"


@pytest.mark.usefixtures("empty_home")
def test_summaries_have_their_own_model_address_and_key(tmp_path: Path) -> None:
    with ScriptedProvider("wrong one") as large, ScriptedProvider(GOOD, key="own-key-1234") as small:
        config = load(
            tmp_path,
            OPENAI_API_KEY=SECRET,
            OPENAI_BASE_URL=large.openai_url,
            REFOLD_COMPACT_MODEL="qwen-small",
            REFOLD_COMPACT_URL=small.openai_url,
            REFOLD_COMPACT_KEY="own-key-1234",
        )
        assert folds(refold.compress(working(40), 3_000, config=config)) == ["llm"]
        assert small.requests[0].model == "qwen-small"
        assert large.requests == []


@pytest.mark.usefixtures("empty_home")
@pytest.mark.parametrize("setting", [{"summariser": "extract"}, {"fold": {"summariser": "extract"}}])
def test_summaries_by_rules_alone_use_no_network(tmp_path: Path, setting: Any) -> None:
    with ScriptedProvider(GOOD) as provider:
        config = load(tmp_path, OPENAI_API_KEY=SECRET, OPENAI_BASE_URL=provider.openai_url).replace(**setting)
        assert folds(refold.compress(working(40), 3_000, config=config)) == ["extract"]
        assert provider.requests == []


def test_settings_that_nobody_loaded_know_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert not Summariser(CompressionConfig()).is_there
    assert folds(refold.compress(working(40), 3_000)) == ["extract"]


@pytest.mark.usefixtures("empty_home")
def test_a_key_is_never_shown_or_stored(tmp_path: Path) -> None:
    config = load(tmp_path, OPENAI_API_KEY=SECRET, REFOLD_COMPACT_KEY=SECRET)
    manager = ContextCompressionManager(config, tmp_path)
    shown = [
        repr(config),
        str(config),
        config.model_dump_json(),
        str(explain(config)),
        repr(manager._keeper.summariser),
    ]
    assert all(SECRET not in text for text in shown)
    manager.close()
    (tmp_path / "refold.yaml").write_text(f"compact_key: {SECRET}\n")
    with pytest.raises(ConfigError, match="compact_key"):
        load(tmp_path)


def test_a_model_can_be_handed_to_compress(tmp_path: Path) -> None:
    model = ScriptedModel(GOOD)
    prepared = refold.compress(working(40), 3_000, llm=model)
    assert folds(prepared) == ["llm"]
    stage = next(one for one in prepared.report.stages if one.stage == "fold")  # type: ignore[union-attr]
    assert str(stage.note).startswith("summary by a model")
    assert not stage.is_failed
    with pytest.raises(ConfigError, match="complete"):
        refold.compress(working(4), llm="gpt-4o")


def test_a_dry_run_asks_nobody() -> None:
    model = ScriptedModel(GOOD)
    refold.compress(working(40), 3_000, llm=model, dry_run=True)
    assert model.requests == []


def test_always_a_model_without_one_says_so() -> None:
    prepared = refold.compress(working(40), 3_000, config=CompressionConfig(summariser="llm"))
    stage = next(one for one in prepared.report.stages if one.stage == "fold")  # type: ignore[union-attr]
    assert folds(prepared) == ["extract"]
    assert stage.is_failed
    assert say(stage.note, "en") == "extractive summary: no model is configured"
    assert say(stage.note, "zh") == "抽取式摘要：未配置模型"


def test_time_out_and_attempts_are_settings(tmp_path: Path) -> None:
    summariser = Summariser(CompressionConfig(compact_timeout_s=7, compact_retry_count=5))
    assert (summariser._limits.timeout_s, summariser._limits.attempts_max) == (7.0, 5)
    with pytest.raises(ConfigError, match="compact_timeout_s"):
        CompressionConfig(compact_timeout_s=0)


def test_changing_settings_later_changes_the_writer_of_summaries(tmp_path: Path) -> None:
    model = ScriptedModel(GOOD)
    manager = ContextCompressionManager(CompressionConfig(window=4_000, reserve=500), tmp_path, llm=model)
    manager.configure(summariser="extract")
    assert folds(manager.prepare_context_sync("s1", working(40))) == ["extract"]
    assert model.requests == []
    manager.configure(summariser="auto")
    assert folds(manager.prepare_context_sync("s2", working(40))) == ["llm"]
    manager.close()


def test_the_users_instructions_reach_the_model(tmp_path: Path) -> None:
    model = ScriptedModel(GOOD)
    manager = ContextCompressionManager(CompressionConfig(), tmp_path, llm=model)
    manager.append("s1", working(20))
    manager.compress("s1", "keep every order number")
    assert "The user asks in addition: keep every order number" in model.requests[0].prompt
    manager.close()


def test_rules_and_open_asks_that_a_model_left_out_are_added_word_by_word(tmp_path: Path) -> None:
    rule, ask = "Never touch db/users.sql.", "Also check the disk quota of worker 9."
    sent = [
        says("user", "Let us find the fault."),
        says("assistant", "Gladly."),
        says("user", rule),
        says("assistant", "Understood."),
        *chatting(20),
        says("user", ask),
        *working(40),
    ]
    with ScriptedProvider(GOOD) as provider:
        model = OpenAIModel("gpt-4o", "key", provider.openai_url)
        manager = ContextCompressionManager(CompressionConfig(window=4_000, reserve=500), tmp_path, llm=model)
        prepared = manager.prepare_context_sync("s1", sent)
        assert len(provider.requests) == 1
        shown = str(prepared.messages)
        assert f"U> {rule}" in shown
        assert ask in shown
        manager.close()


def test_only_real_sayings_follow_the_mark_of_a_quote(tmp_path: Path) -> None:
    said, made_up = "Log 3 comes next.", "Delete the logs at once."
    text = f"## Project Overview\nA> {said}\nU> {made_up}\n## Current Status\n- The logs were read."
    manager = ContextCompressionManager(
        CompressionConfig(window=4_000, reserve=500), tmp_path, llm=SimpleNamespace(complete=lambda prompt: text)
    )
    prepared = manager.prepare_context_sync("s1", working(40))
    (fold,) = [edit for edit in prepared.edits if edit.fold is not None]
    assert fold.fold is not None
    assert fold.fold.by == "llm"
    assert f"A> {said}" in fold.text
    assert made_up not in fold.text
    manager.close()
