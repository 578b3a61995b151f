"""Recall through the manager, as a library's user has it."""

from pathlib import Path

import pytest

from refold import ContextCompressionManager
from refold.errors import HandleUnknown

SAID = [
    {"role": "user", "content": "The staging host is db-stage-4.internal."},
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "Our key is zebraquux77secret, keep it to yourself."},
    {"role": "assistant", "content": "I will."},
]


def test_the_manager_recalls_expands_and_knows_facts(tmp_path: Path) -> None:
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        manager.append("s", SAID)
        found = manager.recall("s", "staging host", 1)
        assert [one.text for one in found] == [SAID[0]["content"]]
        assert manager.expand("s", found[0].handle) == SAID[0]["content"]
        assert all(fact.handles for fact in manager.facts("s"))
        assert manager.verify("s") == []


def test_what_the_manager_forgets_is_gone_from_the_index_too(tmp_path: Path) -> None:
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        manager.append("s", SAID)
        (found,) = manager.recall("s", "zebraquux77secret", 1)
        manager.forget("s", found.handle)
        assert not any("zebraquux" in one.text for one in manager.recall("s", "zebraquux77secret"))
        assert manager.verify("s") == []
        with pytest.raises(HandleUnknown):
            manager.forget("s", "m:ffffffff")
    for path in (tmp_path / ".refold").glob("ledger*"):
        assert b"zebraquux" not in path.read_bytes(), path.name


def test_a_deleted_session_leaves_no_word(tmp_path: Path) -> None:
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        manager.append("s", SAID)
        manager.recall("s", "staging")
        assert manager.delete_session("s")
        assert manager.verify() == []
    assert b"zebraquux" not in (tmp_path / ".refold" / "ledger.recall.db").read_bytes()


def test_folded_messages_are_found_and_offered_for_the_tail(tmp_path: Path) -> None:
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        chatter = [
            {"role": ("user", "assistant")[at % 2], "content": f"More talk about topic {at}. " * 30} for at in range(40)
        ]
        manager.append("s", [*SAID, *chatter])
        manager.compress("s")
        assert manager.recall("s", "staging host", 1)[0].text == SAID[0]["content"]
        hidden = [stored.id for stored in manager.ledger.read_messages("s") if stored.is_compressed]
        assert hidden
        injection = manager.find_injection("s", "What did I say earlier about our key?", hidden)
        assert [one.text for one in injection.snippets] == [SAID[2]["content"]]
