"""L7: undo gives back the exact view, also what was made from it; redo puts it in force again."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import CompressionConfig, ContextCompressionManager, HandleUnknown
from tests.rigs.effort import up_to
from tests.rigs.manager import SMALL, agent, chat, steps
from tests.rigs.strategies import Talk, talks


def view_of(manager: ContextCompressionManager, session_id: str = "s1") -> str:
    """The view as it is, read again from the ledger, without preparing anything."""
    with manager._keeper.sessions.held(session_id) as session:
        session.drop()
        return json.dumps(manager._keeper.open(session).raws())


def test_undo_takes_the_last_compression_back(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    history = agent(30)
    manager.prepare_context_sync("s1", history)
    switched = manager.undo("s1")
    assert json.loads(view_of(manager)) == history
    assert switched.tokens_after > switched.tokens_before
    assert manager.ledger.read_session("s1").compression_count >= 1
    assert [event.kind for event in manager.ledger.read_events("s1")][-1] == "undone"


def test_redo_puts_what_was_undone_in_force_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    manager.prepare_context_sync("s1", agent(30))
    folded = view_of(manager)
    manager.undo("s1")
    assert manager.statistics("s1").undone == 1
    manager.redo("s1")
    assert manager.statistics("s1").undone == 0
    assert view_of(manager) == folded
    with pytest.raises(HandleUnknown, match="can be redone"):
        manager.redo("s1")


def test_undoing_an_edit_undoes_what_was_made_from_it(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(threshold_rounds=10, retention_count=4), tmp_path)
    history = chat(10)
    manager.prepare_context_sync("s1", history)
    first = next(one.edit for one in manager.ledger.read_edits("s1"))
    history += chat(10)
    manager.prepare_context_sync("s1", history)
    second = [one.edit for one in manager.ledger.read_edits("s1") if one.edit.id != first.id]
    assert any(first.id in edit.made_from for edit in second)
    switched = manager.undo("s1", first.id)
    assert set(switched.edits) == {first.id, *(edit.id for edit in second)}
    assert json.loads(view_of(manager)) == history


def test_undo_by_the_handle_that_a_placeholder_names(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(threshold_rounds=10, retention_count=4), tmp_path)
    manager.prepare_context_sync("s1", chat(10))
    fold = manager.ledger.read_edits("s1")[0].edit.fold
    assert fold is not None
    manager.undo("s1", f"⟨{fold.handle}⟩")
    assert json.loads(view_of(manager)) == chat(10)


def test_an_impossible_undo_is_reported(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    manager.append("s1", chat(2))
    with pytest.raises(HandleUnknown, match="no compression"):
        manager.undo("s1")
    with pytest.raises(HandleUnknown, match="has no edit 'nonsense' in force"):
        manager.undo("s1", "nonsense")


def test_an_undone_span_is_not_folded_again_by_itself_before_hard(tmp_path: Path) -> None:
    config = CompressionConfig(threshold_rounds=10, retention_count=4, window=3_000, reserve=500)
    manager = ContextCompressionManager(config, tmp_path)
    history = chat(10)
    manager.prepare_context_sync("s1", history)
    covered = manager.ledger.read_edits("s1")[0].edit.covers
    manager.undo("s1")
    for turn in range(8):
        history += chat(2, f"turn {turn} part {{}}")
        shown = manager.prepare_context_sync("s1", history).messages
        assert shown[: len(covered)] == history[: len(covered)]
    # Where it would not fit, it goes all the same (L1).
    history += steps(12)
    prepared = manager.prepare_context_sync("s1", history)
    assert prepared.report is not None
    assert prepared.total_tokens <= prepared.report.budget.hard
    assert prepared.messages[: len(covered)] != history[: len(covered)]


def test_a_person_may_fold_an_undone_span_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(threshold_rounds=10, retention_count=4), tmp_path)
    manager.prepare_context_sync("s1", chat(10))
    manager.undo("s1")
    assert manager.compress("s1").messages != chat(10)


# Settings under which a short conversation is compressed again and again.
BITING = CompressionConfig(
    threshold_rounds=4, retention_count=2, window=50_000, reserve=500, max_compaction_attempts=20
)


@settings(max_examples=up_to(25, quick=5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(talk=talks(), cuts=st.lists(st.integers(1, 4), min_size=1, max_size=6), data=st.data())
def test_undo_after_any_number_of_compressions_gives_back_the_exact_view(
    tmp_path_factory: pytest.TempPathFactory, talk: Talk, cuts: list[int], data: st.DataObject
) -> None:
    manager = ContextCompressionManager(BITING, tmp_path_factory.mktemp("undo"))
    views: list[str] = []
    at = 0
    for cut in cuts:
        new = talk.messages[at : at + cut]
        at += cut
        manager.append("s1", new, format=talk.wire)
        views.append(view_of(manager))
        before = manager.ledger.read_session("s1").compression_count
        if data.draw(st.booleans()):
            manager.compress("s1")
        else:
            manager.prepare_context_sync("s1")
        if manager.ledger.read_session("s1").compression_count == before:
            views.pop()
        else:
            folded = view_of(manager)
            manager.undo("s1")
            assert view_of(manager) == views[-1]
            if data.draw(st.booleans()):
                manager.redo("s1")
                assert view_of(manager) == folded
            else:
                views.pop()
    assert manager.verify() == []
    while any(batch.is_active for batch in manager.ledger.read_batches("s1")):
        manager.undo("s1")
    while arrived := manager.ledger.read_edits("s1"):
        manager.undo("s1", arrived[0].edit.id)
    assert json.loads(view_of(manager)) == talk.messages[:at]
    manager.close()


@settings(max_examples=up_to(15, quick=3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(talk=talks())
def test_undoing_one_compression_after_the_other_walks_back_through_every_view(
    tmp_path_factory: pytest.TempPathFactory, talk: Talk
) -> None:
    manager = ContextCompressionManager(BITING, tmp_path_factory.mktemp("walk"))
    manager.append("s1", talk.messages, format=talk.wire)
    views = [view_of(manager)]
    for kept in (8, 5, 3, 1):
        manager.configure(retention_count=kept)
        manager.compress("s1")
        if view_of(manager) != views[-1]:
            views.append(view_of(manager))
    for view in reversed(views[:-1]):
        manager.undo("s1")
        assert view_of(manager) == view
    for view in views[1:]:
        manager.redo("s1")
        assert view_of(manager) == view
    manager.close()


@settings(max_examples=up_to(15, quick=3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(talk=talks())
def test_what_is_in_memory_is_what_the_ledger_gives_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, talk: Talk
) -> None:
    workspace = tmp_path_factory.mktemp("replay")
    manager = ContextCompressionManager(BITING, workspace)
    shown: list[Any] = []
    for stop in range(1, len(talk.messages) + 1):
        shown = manager.prepare_context_sync("s1", talk.messages[:stop], format=talk.wire).messages
    assert json.dumps(shown) == view_of(ContextCompressionManager(BITING, workspace))
    manager.close()
