"""When the ledger fails, requests are still made to fit: compressed in memory, and the answer says so."""

import json

import pytest

from refold.errors import LedgerError
from refold.ledger.sqlite import SqliteLedger
from tests.server.running import make_body, make_dialog

WIRES = ["openai-chat", "openai-responses", "anthropic"]
SMALL = {"window": 8_000, "reserve": 1_000}
WRITES = ("append", "extend", "commit", "update_session", "add_event", "make_session", "add_usage", "take_lease")


class FailingLedger:
    """A ledger that can be read but not written, or not even read."""

    def __init__(self, ledger):
        self._ledger = ledger
        self.fails = ()

    def __getattr__(self, name):
        found = getattr(self._ledger, name)
        if callable(found) and (name in self.fails or "everything" in self.fails) and name != "close":
            raise LedgerError("the disk is full")
        return found


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fails", [WRITES, ("everything",)])
def test_a_session_goes_on_within_the_window_when_the_ledger_fails(start, tmp_path, wire, fails):
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    messages = []
    for at, turn in enumerate(make_dialog(30, end=False)):
        messages.append(turn)
        if turn["role"] != "user":
            continue
        ledger.fails = fails if at >= 20 else ()
        answer = rig.post(wire, make_body(wire, messages), x_refold_session="mine")
        assert answer.status_code == 200, (at, answer.text, answer.headers)
    assert answer.headers["x-refold-reason"].startswith("compressed-in-memory; error=LedgerError")
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert after < 7_000 < before
    assert len(rig.provider.requests) == 30


def test_edits_made_in_memory_are_kept_for_the_next_request(start, tmp_path):
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    rig.post("openai-chat", make_body("openai-chat", make_dialog(1)), x_refold_session="mine")
    ledger.fails = WRITES
    messages = make_dialog(30)
    rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="mine")
    first = json.loads(rig.provider.requests[-1].body)["messages"]
    longer = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    rig.post("openai-chat", make_body("openai-chat", longer), x_refold_session="mine")
    second = json.loads(rig.provider.requests[-1].body)["messages"]
    assert second[: len(first)] == first


def test_when_the_ledger_is_back_the_session_is_stored_whole(start, tmp_path):
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    ledger.fails = ("everything",)
    messages = make_dialog(30)
    failed = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="mine")
    assert failed.status_code == 200
    ledger.fails = ()
    longer = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    answer = rig.post("openai-chat", make_body("openai-chat", longer), x_refold_session="mine")
    assert not answer.headers["x-refold-reason"].startswith(("failed", "compressed-in-memory"))
    assert [json.loads(one.raw) for one in ledger.read_messages("mine")] == longer
