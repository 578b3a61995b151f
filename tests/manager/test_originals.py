"""Nothing is lost: expand pages through any original, pins hold, and only ``forget`` erases."""

import json
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager, HandleUnknown
from refold.conversation.message import find_marks
from refold.testing.provider_rules import find_violations
from tests.rigs.manager import SMALL, agent, chat, steps

COUNTED = CompressionConfig(threshold_rounds=10, retention_count=4)
SECRET = "sk-live-8842-the-key-that-leaked"


def test_every_handle_in_a_view_opens_an_original(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    history = agent(40)
    prepared = manager.prepare_context_sync("s1", history)
    handles = set(find_marks(json.dumps(prepared.messages, ensure_ascii=False)))
    assert handles
    later = ContextCompressionManager(SMALL, tmp_path)
    for handle in handles:
        assert later.expand("s1", handle) == prepared.expand(handle)
    for message in history:
        if message["role"] == "tool" and message not in prepared.messages:
            assert any(message["content"] in later.expand("s1", handle) for handle in handles)


def test_expand_pages_through_a_long_original(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    prepared = manager.prepare_context_sync("s1", chat(12))
    handle = next(edit.fold.handle for edit in prepared.edits if edit.fold)
    whole = manager.expand("s1", handle)
    pages = [manager.expand("s1", handle, offset, 50) for offset in range(0, len(whole), 50)]
    assert "".join(pages) == whole
    assert manager.expand("s1", handle, len(whole) + 5, 10) == ""
    assert manager.expand("s1", handle, -5, -1) == ""


@pytest.mark.parametrize("handle", ["m:00000000", "f:00000000", "nonsense", "", "../../etc/passwd", "m:" + "f" * 99])
def test_a_handle_that_is_not_there_ends_the_search(tmp_path: Path, handle: str) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.append("s1", chat(3))
    with pytest.raises(HandleUnknown):
        manager.expand("s1", handle)


def test_a_handle_of_another_session_does_not_open_here(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.prepare_context_sync("s1", chat(12))
    manager.append("s2", chat(3, "other words {}"))
    handle = next(one.edit.fold.handle for one in manager.ledger.read_edits("s1") if one.edit.fold)
    with pytest.raises(HandleUnknown):
        manager.expand("s2", handle)


def test_a_pinned_message_stays_as_it_is(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    history = chat(8)
    manager.append("s1", history)
    digest = manager.ledger.read_path("s1").digests[2]
    assert len(manager.pin("s1", f"m:{digest[:8]}")) == 1
    history += chat(6, "later {}")
    assert history[2] in manager.prepare_context_sync("s1", history).messages
    assert manager.unpin("s1", f"⟨m:{digest[:8]}⟩") == ()
    history += chat(12, "much later {}")
    assert history[2] not in manager.prepare_context_sync("s1", history).messages


def test_pinning_a_folded_message_brings_it_back_into_view_and_keeps_it_there(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    history = [{"role": "user", "content": "Run the checks."}, *steps(14)]
    before = manager.prepare_context_sync("s1", history)
    gone = next(at for at, one in enumerate(history) if one["role"] == "tool" and one not in before.messages)
    digest = manager.ledger.read_path("s1").digests[gone]
    manager.pin("s1", f"m:{digest[:8]}")
    after = manager.prepare_context_sync("s1", history)
    assert history[gone] in after.messages
    assert history[gone - 1] in after.messages, "a result comes with its call"
    assert [one for one in after.messages if one not in history] == [
        one for one in before.messages if one not in history
    ], "the record stays as it was"
    assert manager.status("s1").compression_count == 1, "to pin is no compression"
    history += steps(14, start=14)
    assert history[gone] in manager.prepare_context_sync("s1", history).messages
    assert not manager.verify("s1")
    while manager.status("s1").compression_count and any(item.is_fold for item in manager.read_view("s1")):
        manager.undo("s1")
    assert [item.raw for item in manager.read_view("s1")] == history, "undo restores the view without the folds"


def test_pinning_all_that_a_fold_hides_leaves_no_fold(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    history = chat(12)
    before = manager.prepare_context_sync("s1", history)
    path = manager.ledger.read_path("s1")
    for one, digest in zip(history, path.digests, strict=True):
        if one not in before.messages:
            manager.pin("s1", f"m:{digest[:8]}")
    assert [item.raw for item in manager.read_view("s1")] == history
    assert not manager.verify("s1")


def make_leak(tmp_path: Path, config: CompressionConfig) -> tuple[ContextCompressionManager, str]:
    """A session in which a tool result shows a key, which is then folded, offloaded and written to a page."""
    manager = ContextCompressionManager(config, tmp_path)
    history = [{"role": "user", "content": "Show me the settings."}, *steps(1)]
    history[2]["content"] = f"token = {SECRET}\n" + "x = 1\n" * 40
    history.append({"role": "user", "content": f"My key is {SECRET}, use it."})
    history += steps(20, start=1)
    manager.prepare_context_sync("s1", history)
    digest = manager.ledger.read_path("s1").digests[2]
    return manager, f"m:{digest[:8]}"


def read_everything(workspace: Path) -> bytes:
    return b"".join(path.read_bytes() for path in workspace.rglob("*") if path.is_file())


def test_forget_erases_ledger_files_and_pages_for_good(tmp_path: Path) -> None:
    manager, handle = make_leak(tmp_path, SMALL)
    assert SECRET.encode() in read_everything(tmp_path)
    assert manager.forget("s1", handle).messages == 1
    spoken = manager.ledger.read_path("s1").digests[3]
    forgotten = manager.forget("s1", f"m:{spoken[:8]}")
    assert forgotten.warnings == ()
    manager.close()
    assert SECRET.encode() not in read_everything(tmp_path)
    assert manager.verify() == []


def test_after_forget_the_view_is_still_a_request_that_the_provider_accepts(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    history = agent(3)
    manager.append("s1", history)
    for digest in manager.ledger.read_path("s1").digests[1:3]:
        manager.forget("s1", f"m:{digest[:8]}")
    shown = manager.prepare_context_sync("s1").messages
    assert find_violations("openai-chat", shown) == []
    assert len(shown) == len(history)
    assert "logs/0.log" not in json.dumps(shown)
    assert "[forgotten]" in json.dumps(shown)
    with pytest.raises(HandleUnknown, match="was forgotten on request"):
        manager.expand("s1", f"m:{manager.ledger.read_path('s1').digests[2][:8]}")
    # A client that still has the text does not bring it back into the view.
    assert manager.prepare_context_sync("s1", history).messages == shown


def test_forgetting_a_message_is_logged_once(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    manager.append("s1", agent(3))
    manager.forget("s1", f"m:{manager.ledger.read_path('s1').digests[2][:8]}")
    logged = [event.fields for event in manager.ledger.read_events("s1") if event.kind == "forgotten"]
    assert logged == [{"messages": 1, "edits": 0}]


def test_a_session_with_a_forgotten_message_is_still_compressed(tmp_path: Path) -> None:
    manager = ContextCompressionManager(SMALL, tmp_path)
    manager.append("s1", agent(4))
    manager.forget("s1", f"m:{manager.ledger.read_path('s1').digests[2][:8]}")
    prepared = manager.prepare_context_sync("s1", agent(40))
    assert prepared.report.stages
    assert prepared.total_tokens <= prepared.report.budget.hard
    assert find_violations("openai-chat", prepared.messages) == []
    assert manager.compress("s1").success
    assert manager.verify() == []


def test_forgetting_a_session_erases_its_pages_too(tmp_path: Path) -> None:
    manager, _ = make_leak(tmp_path, SMALL)
    manager.prepare_context_sync("other", agent(40))
    assert manager.forget("s1").sections == 1
    manager.close()
    assert SECRET.encode() not in read_everything(tmp_path)
    (page,) = (tmp_path / "memory").glob("*.md")
    assert page.read_text(encoding="utf-8").count("## Session ") == 1


def test_deleting_a_session_leaves_its_pages(tmp_path: Path) -> None:
    manager = ContextCompressionManager(COUNTED, tmp_path)
    manager.prepare_context_sync("s1", chat(12))
    assert manager.delete_session("s1")
    assert not manager.delete_session("s1")
    assert manager.ledger.list_sessions() == []
    assert manager.compression_folder.read_summaries("s1") == []
    assert list((tmp_path / "memory").glob("*.md"))
    assert manager.prepare_context_sync("s1", chat(2)).messages == chat(2)
