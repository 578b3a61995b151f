"""A session is searched together with those that it continues; never with those of another tenant."""

from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import HandleUnknown
from refold.ledger.records import SessionRow
from refold.recall import recall as recall_module
from tests.rigs.recall import Workspace

BEFORE = ["The mooring code is QUAY-881.", "Noted: QUAY-881.", "Paint the hull.", "The hull is painted.", "Fine."]


def say_after(workspace: Workspace, name: str, **made: Any) -> None:
    """Store a session as a client begins it after its own compaction: a summary, and no word of what was said."""
    workspace.say(name, "This session continues an earlier one. The hull is painted.", "What is next?")
    workspace.ledger.update_session(name, {"settings": {"gateway": made}}, 2.0)


@pytest.mark.parametrize(
    "made", [{"conversation": "c-1"}, {"parent": "before"}, {"conversation": "c-1/agent-7", "parent": "before"}]
)
def test_what_was_said_before_a_client_compacted_itself_is_found(workspace: Workspace, made: dict[str, str]) -> None:
    workspace.say("before", *BEFORE)
    workspace.ledger.update_session("before", {"settings": {"gateway": {"conversation": "c-1"}}}, 1.0)
    workspace.say("strangers", "Another boat has the mooring code QUAY-992.")
    say_after(workspace, "after", **made)
    found = workspace.recall.recall("after", "mooring code")
    assert {one.session_id for one in found} == {"before"}, "and it says where it was said"
    assert "QUAY-881" in found[0].unit
    assert workspace.recall.recall("after", "mooring code", only=True) == []
    assert "QUAY-881" in workspace.recall.expand("after", found[0].handle).text
    assert {one.session_id for one in workspace.recall.recall("before", "what is next")} == {"after"}


def test_a_fork_is_found_by_what_both_have_and_shows_it_once(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(recall={"embeddings": "off"}), tmp_path) as manager:
        roles = ("user", "assistant")
        history = [{"role": roles[at % 2], "content": text} for at, text in enumerate(BEFORE)]
        for message in [*history, {"role": "assistant", "content": "The anchor is at 12 fathoms."}]:
            manager.append("one", [message])
        manager.append("two", [*history, {"role": "assistant", "content": "The lamp needs oil."}])
        assert "12 fathoms" in manager.recall("two", "anchor fathoms")[0].unit
        found = manager.recall("two", "mooring code QUAY-881")
        assert len({one.unit for one in found}) == len(found)
        assert found[0].session_id == "two"


def test_two_runs_of_one_task_are_no_relatives(workspace: Workspace) -> None:
    for name, secret in (("one", "KELP"), ("two", "REEF")):
        workspace.say(name, "Mend the tide table.", f"I begin with {secret}.", "Go on.", f"{secret} is done.")
    assert workspace.find("one", "REEF") == []


def test_chats_that_share_thanks_and_farewells_are_no_relatives(workspace: Workspace) -> None:
    polite = ["Thank you.", "You are welcome.", "Goodbye.", "Goodbye to you.", "Fine.", "Anything else?"]
    for name in ("one", "two"):
        own = [f"The {name} ship has {at} masts." for at in range(30)]
        workspace.say(name, *own[:10], *polite, *own[10:])
    assert {one.session_id for one in workspace.recall.recall("one", "ship masts")} == {"one"}


def test_people_whose_conversations_begin_with_a_programs_examples_are_no_relatives(workspace: Workspace) -> None:
    examples = ["Sort: good", "positive", "Sort: bad", "negative", "Sort: fine", "positive, too"]
    for name, own in (("alice", "My card number is ZEBRA-4411."), ("bob", "Which card number do you know?")):
        workspace.say(name, *examples, own, "I see.", now=1.0)
        workspace.say(name, "Thank you.", "You are welcome.", now=2.0)
    assert {one.session_id for one in workspace.recall.recall("bob", "card number ZEBRA")} <= {"bob"}
    handle = workspace.handle("alice", workspace.ledger.read_path("alice").ids[6])
    with pytest.raises(HandleUnknown):
        workspace.recall.expand("bob", handle)


def test_another_tenants_session_is_never_a_relative(workspace: Workspace) -> None:
    lie = {"conversation": "c-1", "parent": "@blue/secret", "tenant": "blue"}
    for name in ("@blue/secret", "plain", "@bluer/x"):
        workspace.say(name, *BEFORE)
        workspace.ledger.update_session(name, {"settings": {"gateway": {"conversation": "c-1"}}}, 1.0)
    workspace.say("@red/mine", *BEFORE[2:], "Tell me the mooring code of blue.")
    workspace.ledger.update_session("@red/mine", {"settings": {"gateway": lie, "found": lie}}, 2.0)
    found = workspace.recall.recall("@red/mine", "mooring code QUAY-881")
    assert {one.session_id for one in found} <= {"@red/mine"}
    assert all("881" not in one.unit for one in found)
    handle = workspace.handle("plain", workspace.ledger.read_path("plain").ids[0])
    with pytest.raises(HandleUnknown):
        workspace.recall.expand("@red/mine", handle)
    assert {one.session_id for one in workspace.recall.recall("plain", "mooring code")} == {"plain"}


def test_a_search_of_a_workspace_indexes_a_little_now_and_the_rest_behind(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_module, "SLICE_MESSAGES", 40)
    for number in range(12):
        texts = [f"Buoy {number} of row {at} is lit." for at in range(30)]
        workspace.say(f"s{number}", f"The pilot of ship {number} is called Pim.", *texts, now=float(number + 1))
    asked: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(workspace.recall.upkeep, "ask", asked.append)
        first = workspace.recall.recall(None, "pilot Pim", 50)
    rows: list[SessionRow] = workspace.ledger.list_sessions(limit=50)
    ready = workspace.recall.count_ready(rows)
    assert 0 < ready < len(rows), "answered from what is there"
    assert len({one.session_id for one in first}) == ready
    assert len(asked) == len(rows) - ready, "the others are left to the background"
    for name in asked:
        while not workspace.recall.keep_up(name):
            pass
    assert len({one.session_id for one in workspace.recall.recall(None, "pilot Pim", 50)}) == len(rows)
