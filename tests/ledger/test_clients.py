"""Changes that real clients make to a history between two requests: known messages stay known."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import ContextCompressionManager
from refold.formats import make_format
from refold.formats.canonical import digest_message
from refold.ledger.align import chain_path
from refold.ledger.codec import dump_json, load_json
from refold.ledger.records import Splice, StoredMessage
from refold.ledger.sqlite import SqliteLedger
from refold.testing import find_violations
from tests.rigs.formats import chat_step, claude_step, responses_step
from tests.rigs.recorded import read_records
from tests.rigs.transfers import OFFLOADING, make_step

Raw = dict[str, Any]
Change = Callable[[list[Raw]], list[Raw]]

HISTORIES: dict[str, list[Raw]] = {
    "openai-chat": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is the weather?"},
        *chat_step("c1", "c2"),
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "And now?"},
    ],
    "anthropic": [
        {"role": "user", "content": "List the files."},
        *claude_step("t1", "t2"),
        {"role": "assistant", "content": [{"type": "text", "text": "Two files."}]},
        {"role": "user", "content": "Thanks."},
    ],
    "openai-responses": [
        {"role": "user", "content": "Run it."},
        *responses_step("r1", "r2"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
        {"role": "user", "content": "Again."},
    ],
}


class Client:
    """A stateless client in front of a ledger: sends whole histories, counts what is new."""

    def __init__(self, wire: str, ledger: SqliteLedger) -> None:
        self.wire, self.ledger = make_format(wire), ledger
        ledger.open_session("s", 1.0)

    def send(self, raws: list[Raw]) -> list[int]:
        """Store a history; return the places of the messages that were not on the path."""
        path = self.ledger.read_path("s")
        messages = [self.wire.parse(raw) for raw in raws]
        chained = chain_path(path, [message.digest for message in messages])
        stored = [
            StoredMessage(link.id, link.parent, messages[link.at].digest, messages[link.at].role,
                          dump_json(raws[link.at]), 1, 1.0)
            for link in chained.new
        ]  # fmt: skip
        assert self.ledger.append("s", stored, chained.splices, version=path.version, now=1.0) is not None
        assert self.ledger.read_path("s").ids == chained.ids
        return [link.at for link in chained.new]


@pytest.fixture(params=sorted(HISTORIES))
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    yield ledger
    assert ledger.verify() == []
    ledger.close()


def resend(history: list[Raw]) -> list[Raw]:
    return json.loads(json.dumps(history))  # type: ignore[no-any-return]


def cache_last(history: list[Raw]) -> list[Raw]:
    """Move the mark of the prompt cache to the newest message, as clients do on every request."""
    changed = copy.deepcopy(history)
    for raw in changed:
        for block in raw["content"] if isinstance(raw.get("content"), list) else []:
            block.pop("cache_control", None)
    content = changed[-1]["content"]
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    blocks[-1]["cache_control"] = {"type": "ephemeral"}
    changed[-1]["content"] = blocks
    return changed


def write_parts(history: list[Raw]) -> list[Raw]:
    """Turn every text of a user into parts."""
    changed = copy.deepcopy(history)
    for raw in changed:
        if raw.get("role") == "user" and isinstance(raw.get("content"), str):
            raw["content"] = [{"type": "text", "text": raw["content"]}]
    return changed


def write_arguments_anew(history: list[Raw]) -> list[Raw]:
    """Parse and write the arguments of calls, with other spaces."""
    changed = copy.deepcopy(history)
    for raw in changed:
        holders = [call["function"] for call in raw.get("tool_calls", ())] + [raw]
        for holder in holders:
            if isinstance(holder.get("arguments"), str):
                holder["arguments"] = json.dumps(json.loads(holder["arguments"]), indent=1, ensure_ascii=True)
    return changed


def sort_keys(history: list[Raw]) -> list[Raw]:
    return json.loads(json.dumps(history, sort_keys=True))  # type: ignore[no-any-return]


@pytest.mark.parametrize("change", [resend, cache_last, write_parts, write_arguments_anew, sort_keys])
def test_a_history_that_says_the_same_is_known_whole(wire: str, ledger: SqliteLedger, change: Change) -> None:
    history = HISTORIES[wire]
    if change is cache_last and wire == "openai-responses":
        pytest.skip("this format has no mark for the prompt cache")
    client = Client(wire, ledger)
    assert client.send(history) == list(range(len(history)))
    assert client.send(change(history)) == []
    more = [*history, {"role": "user", "content": "One more."}]
    assert client.send(change(more)) == [len(history)]
    assert client.send(more) == []


def test_editing_the_last_message_makes_one_new(wire: str, ledger: SqliteLedger) -> None:
    client, history = Client(wire, ledger), HISTORIES[wire]
    client.send(history)
    assert client.send([*history[:-1], {"role": "user", "content": "Rather this."}]) == [len(history) - 1]


def test_trimming_the_oldest_messages_makes_no_message_new(wire: str, ledger: SqliteLedger) -> None:
    client, history = Client(wire, ledger), HISTORIES[wire]
    client.send(history)
    assert client.send(history[2:]) == []
    assert client.send(history[3:]) == []
    assert client.send(history) == [0, 1, 2]
    assert len(ledger.list_messages("s")) == len(history)


def test_a_reminder_that_comes_moves_and_goes_leaves_the_rest_known(wire: str, ledger: SqliteLedger) -> None:
    client, history = Client(wire, ledger), HISTORIES[wire]
    reminder = {"role": "user", "content": "<system-reminder>The todo list is empty.</system-reminder>"}
    client.send(history)
    assert client.send([history[0], reminder, *history[1:]]) == [1]
    assert client.send([*history[:-1], reminder, history[-1]]) == [len(history) - 1]
    assert client.send(history) == []


def test_two_requests_at_once_leave_both_answers_stored(wire: str, ledger: SqliteLedger) -> None:
    client, history = Client(wire, ledger), HISTORIES[wire]
    client.send(history)
    left, right = ([*history, {"role": "assistant", "content": text}] for text in ("left", "right"))
    assert client.send(left) == [len(history)]
    assert client.send(right) == [len(history)]
    assert client.send(left) == [len(history)]
    assert len(ledger.list_messages("s")) == len(history) + 2


def test_verify_recomputes_digests_from_the_raw_bytes(wire: str, ledger: SqliteLedger) -> None:
    Client(wire, ledger).send(HISTORIES[wire])
    assert ledger.verify(digest=digest_message) == []  # type: ignore[arg-type]
    assert len(ledger.verify(digest=lambda raw: "00" * 16)) == len(HISTORIES[wire])


@pytest.mark.parametrize("name", ["agent_long", "zh_dialogues", "agent_native_misc"])
def test_recorded_sessions_come_back_equal_whatever_the_client_did(
    name: str, ledger: SqliteLedger, shared_data: Path
) -> None:
    record = next(record for record in read_records(shared_data, name) if len(record["messages"]) >= 6)
    raws = record["messages"][:400]
    client = Client("openai-chat", ledger)
    middle = len(raws) // 2
    client.send(raws[:middle])
    client.send(raws[3:])
    client.send(raws)
    assert [load_json(message.raw) for message in ledger.read_messages("s")] == raws
    assert len(ledger.list_messages("s")) <= len(raws) + 3


def test_a_path_on_which_messages_that_were_changed_and_then_folded_swap_is_shown(tmp_path: Path) -> None:
    history: list[Raw] = [{"role": "user", "content": "Look at all of it."}]
    for number in range(30):
        history += make_step(number)
    with ContextCompressionManager(OFFLOADING, tmp_path) as manager:
        for stop in range(1, 62, 2):
            manager.prepare_context_sync("s1", history[:stop])
        edits = [one.edit for one in manager.ledger.read_edits("s1")]
        folded = {covered for edit in edits if edit.kind == "fold" for covered in edit.covers}
        assert any(edit.kind == "replace" and edit.covers[0] in folded for edit in edits)
        path = manager.ledger.read_path("s1")
        swap = Splice(1, 5, (*path.ids[3:5], *path.ids[1:3]))
        assert manager.ledger.append("s1", [], [swap], version=path.version, now=1.0)
    with ContextCompressionManager(OFFLOADING, tmp_path) as manager:
        shown = [item.raw for item in manager.read_view("s1")]
        assert find_violations("openai-chat", shown) == []
        manager.verify("s1", repair=True)
        assert manager.verify() == []
