"""Our own records that come back as history: a client that replaces what it has by what it was given."""

from pathlib import Path
from typing import Any

import pytest

from refold import ContextCompressionManager, compress
from refold.testing import find_violations
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.manager import SMALL, agent, steps


def convert(wire: str, messages: list[Any]) -> list[Any]:
    if wire == "anthropic":
        return list(to_anthropic(messages)["messages"])
    return list(to_responses(messages)["input"]) if wire == "openai-responses" else messages


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
def test_a_client_that_keeps_only_the_view_has_the_session_of_one_that_keeps_everything(
    wire: str, tmp_path: Path
) -> None:
    whole, lossy = (ContextCompressionManager(SMALL, tmp_path / name) for name in ("whole", "lossy"))
    history = convert(wire, agent(3))
    kept = list(history)
    for start in range(3, 33, 3):
        ours = whole.prepare_context_sync("s1", history, format=wire)
        theirs = lossy.prepare_context_sync("s1", kept, format=wire)
        assert theirs.messages == ours.messages
        assert find_violations(wire, theirs.messages) == []
        new = convert(wire, steps(3, start=start))
        history = [*history, *new]
        kept = [*theirs.messages, *new]
    assert lossy.status("s1").compression_count == whole.status("s1").compression_count > 1
    stored = [one.raw for one in lossy.ledger.read_messages("s1")]
    assert stored == [one.raw for one in whole.ledger.read_messages("s1")]
    assert any(source.kind == "fold" for source in theirs.sources)
    covered = [at for source in theirs.sources for at in source.positions]
    assert sorted(set(covered)) == list(range(len(kept) - len(new)))


def test_after_an_undo_the_originals_replace_the_record(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    history = agent(6)
    manager.prepare_context_sync("s1", history)
    assert manager.compress("s1").success
    view = manager.prepare_context_sync("s1", history).messages
    assert view != history
    manager.undo("s1")
    restored = manager.prepare_context_sync("s1", view)
    assert restored.messages == history
    assert {source.kind for source in restored.sources} == {"whole", "restored"}
    assert restored.messages[-1] is view[-1]


def test_a_record_of_another_session_is_not_the_task(tmp_path: Path) -> None:
    elsewhere = ContextCompressionManager(SMALL, tmp_path / "a").prepare_context_sync("s1", agent(30))
    record = next(m for m, s in zip(elsewhere.messages, elsewhere.sources, strict=True) if s.kind == "fold")
    assert record["role"] == "user"
    task = {"role": "user", "content": "The task: find out why release 4.17.2 fails."}
    history = [task, record, *steps(40)]
    done = compress(history, 2_500)
    assert done.messages[0] is task
    assert record not in done.messages, "the record is protected as if it were the newest words of a person"
