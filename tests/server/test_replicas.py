"""Several gateways on one PostgreSQL ledger, behind a balancer that knows nothing: one session, one view, one fold."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.postgres import empty_database, server_url
from tests.server.running import Rig, make_body, make_dialog, start_rig, wait_for

SMALL = {"window": 8_000, "reserve": 1_000}


@pytest.fixture
def rigs(tmp_path: Path, empty_home: Path) -> Iterator[list[Rig]]:
    with empty_database(server_url()) as url, ExitStack() as stack:
        yield [
            stack.enter_context(start_rig(tmp_path / name, config={**SMALL, "ledger": url}, window=8_000))
            for name in ("one", "two", "three")
        ]


def find_sent(rig: Rig) -> list[object]:
    sent: list[object] = json.loads(rig.provider.requests[-1].body)["messages"]
    return sent


def test_a_session_that_goes_from_replica_to_replica_keeps_its_prefix_and_is_folded_once(rigs: list[Rig]) -> None:
    messages = make_dialog(30)
    first = rigs[0].post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
    assert first.status_code == 200, first.text
    assert int(first.headers["x-refold-edits"]) > 0
    sent = find_sent(rigs[0])
    for turn in range(4):
        messages = [
            *messages,
            {"role": "assistant", "content": f"ok {turn}"},
            {"role": "user", "content": f"go {turn}"},
        ]
        rig = rigs[(turn + 1) % 3]
        answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-refold-reason"] == "kept"
        assert find_sent(rig)[: len(sent)] == sent
        sent = find_sent(rig)
    ledger = rigs[1].manager.ledger
    row = ledger.read_session(first.headers["x-refold-session"])
    assert row is not None
    assert row.compression_count == 1
    stored = [json.loads(one.raw) for one in ledger.read_messages(row.id)]
    assert [one for one in stored if one["role"] == "user"] == [one for one in messages if one["role"] == "user"]
    assert ledger.verify() == []


def test_a_client_that_names_no_session_is_known_by_every_replica(rigs: list[Rig]) -> None:
    messages = make_dialog(30)
    names = set()
    for turn in range(4):
        answer = rigs[turn % 3].post("openai-chat", make_body("openai-chat", messages))
        assert answer.status_code == 200, answer.text
        names.add(answer.headers["x-refold-session"])
        messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": f"go {turn}"}]
    assert len(names) == 1
    row = rigs[0].manager.ledger.read_session(names.pop())
    assert row is not None
    assert row.compression_count == 1


def test_the_interface_of_every_replica_shows_the_same_sessions_and_no_password(rigs: list[Rig]) -> None:
    rigs[0].post("openai-chat", make_body("openai-chat", make_dialog(2)), x_refold_session="talk")
    # What an answer cost is stored a moment after the answer.
    wait_for(lambda: len({rig.http.get("/api/sessions").text for rig in rigs}) == 1)
    assert "talk" in rigs[2].http.get("/api/sessions").text
    rows = {row["name"]: row["value"] for row in rigs[1].http.get("/api/config").json()["settings"]}
    assert rows["ledger"] == str(rigs[1].manager.config.ledger)
