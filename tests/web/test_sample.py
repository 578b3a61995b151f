"""The bundled sample is the example session, stops where its window is nearly full, and folds when it is played on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.server.api.interface import Access
from refold.server.auth import Caller
from refold.web import sample as sample_module
from refold.web.sample import (
    NAME,
    QUESTIONS,
    STOP_SHARE,
    SamplePlayer,
    SampleQuestion,
    can_play,
    is_sample_back,
    make_sample,
    reset_sample,
)
from tests.rigs.effort import first_of
from tests.web.stories import sample_messages


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the sample as it was made."""
    folder = tmp_path_factory.mktemp("sample")
    with ContextCompressionManager(CompressionConfig(), folder) as manager:
        assert make_sample(manager)
    return folder


@pytest.fixture
def manager(sample: Path, tmp_path: Path) -> Iterator[ContextCompressionManager]:
    shutil.copytree(sample, tmp_path, dirs_exist_ok=True)
    with ContextCompressionManager(CompressionConfig(), tmp_path) as made:
        yield made


def test_the_bundled_sample_is_the_example_of_a_coding_agent(project_root: Path) -> None:
    example = json.loads((project_root / "examples" / "sessions" / "coding_agent.json").read_text("utf-8"))
    assert sample_messages() == example["messages"]


def test_the_sample_was_folded_before_and_is_nearly_full(manager: ContextCompressionManager) -> None:
    assert manager.status(NAME).compression_count >= 3
    assert STOP_SHARE <= manager.status(NAME).share < 1, "its window is part of its settings"
    row = manager.ledger.read_session(NAME)
    assert row is not None
    assert can_play(row)


def test_compressing_the_sample_by_hand_saves_most_of_it(manager: ContextCompressionManager) -> None:
    tried = manager.compress(NAME, dry_run=True)
    assert tried.current_tokens < tried.previous_tokens / 2
    assert manager.compress(NAME).current_tokens < tried.previous_tokens / 2


def test_played_on_the_sample_folds_within_a_few_steps_and_ends(manager: ContextCompressionManager) -> None:
    player = SamplePlayer(manager)
    folded = []
    for number in range(100):
        step = player.play_step()
        assert step is not None
        if step.folded_from:
            assert step.folded_to < step.folded_from
            folded.append(number)
        if step.is_last:
            break
    assert folded, "it folds before their eyes"
    assert folded[0] < 12
    stored = manager.ledger.list_messages(NAME, limit=1_000)
    assert [json.loads(one.raw) for one in stored] == sample_messages()
    assert player.play_step() is None


def test_a_sample_that_somebody_went_on_with_is_not_played_over_their_words(manager: ContextCompressionManager) -> None:
    manager.append(NAME, [{"role": "user", "content": "What would you do next?"}])
    assert SamplePlayer(manager).play_step() is None
    manager.delete_session(NAME)
    assert SamplePlayer(manager).play_step() is None
    assert not make_sample(manager), "deleted is deleted"


def test_a_fold_of_the_sample_is_told_with_the_figures_that_are_stored(manager: ContextCompressionManager) -> None:
    player = SamplePlayer(manager)
    step = player.play_step()
    while step is not None and not step.folded_from:
        step = player.play_step()
    assert step is not None
    stored = manager.figures(NAME).folds[-1]
    assert (step.folded_from, step.folded_to) == (stored.tokens_before, stored.tokens_after)
    assert step.folded_to == manager.status(NAME).tokens, "the gauge shows the same, tools included"


def test_the_sample_asks_only_for_what_left_the_view(manager: ContextCompressionManager) -> None:
    player, number = SamplePlayer(manager), 0
    asked: list[str] = []
    while len(asked) < 2:
        view = " ".join(str(item.raw) for item in manager.read_view(NAME))
        question = player.find_question(number)
        assert question is not None
        assert question.value not in view
        assert player.ask(question), "recall finds it"
        asked.append(question.value)
        number = QUESTIONS.index(question) + 1
    assert len(set(asked)) == 2


@pytest.mark.parametrize("asked", first_of(QUESTIONS, 1))
def test_recall_puts_the_folded_value_into_the_request_of_each_question(
    manager: ContextCompressionManager, asked: SampleQuestion
) -> None:
    assert SamplePlayer(manager).ask(asked), asked.question
    question, answer = (str(item.raw) for item in manager.read_view(NAME)[-2:])
    assert asked.question in question
    assert "⟨m:" in question, "the passage is below the question, with its handle"
    assert asked.value in question
    assert asked.answer in answer


@pytest.mark.slow
def test_while_the_sample_starts_over_its_tabs_stay(
    manager: ContextCompressionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    application: Any = SimpleNamespace(manager=manager)
    access = Access(application, Caller(""))
    seen: list[tuple[bool, bool]] = []
    begin = sample_module._begin

    def look_and_begin(made: ContextCompressionManager) -> None:
        seen.append((made.ledger.read_session(NAME) is None, is_sample_back(access)))
        begin(made)

    monkeypatch.setattr(sample_module, "_begin", look_and_begin)
    reset_sample(manager)
    assert seen == [(True, True)], "for a moment the session is not there"
    assert is_sample_back(access)
    manager.delete_session(NAME)
    assert not is_sample_back(access), "one that somebody deleted does not come back"


def test_the_sample_starts_over_as_it_was_at_first(manager: ContextCompressionManager) -> None:
    first = manager.status(NAME)
    assert SamplePlayer(manager).ask(QUESTIONS[0])
    manager.compress(NAME)
    reset_sample(manager)
    again = manager.status(NAME)
    assert (again.messages, again.tokens, again.compression_count) == (
        first.messages,
        first.tokens,
        first.compression_count,
    )
    row = manager.ledger.read_session(NAME)
    assert row is not None
    assert can_play(row)
