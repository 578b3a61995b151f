"""When the ledger fails, requests are still made to fit: compressed in memory, and the answer says so."""

import contextlib
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from refold.config import CompressionConfig
from refold.conversation.reason import read_reason
from refold.errors import ChangeRefused, LedgerError, SessionBusy
from refold.ledger.sqlite import SqliteLedger
from refold.manager import ContextCompressionManager, batch
from refold.server import app
from refold.server.auth import KeyRing, make_id
from tests.rigs.effort import first_of
from tests.rigs.postgres import empty_database, server_url
from tests.rigs.server import make_body, make_dialog, wait_for

WIRES = ["openai-chat", "openai-responses", "anthropic"]
SMALL = {"window": 8_000, "reserve": 1_000}
WRITES = (
    "check_write",
    "append",
    "extend",
    "commit",
    "update_session",
    "add_event",
    "make_session",
    "add_usage",
    "take_lease",
)


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


@pytest.mark.parametrize("wire", first_of(WIRES, 1))
@pytest.mark.parametrize("fails", first_of([WRITES, ("everything",)], 1))
def test_a_session_continues_within_the_window_when_the_ledger_fails(start, tmp_path, wire, fails):
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


def test_a_compression_in_memory_keeps_most_of_the_room(start, tmp_path):
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    ledger.fails = ("everything",)
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(60)), x_refold_session="mine")
    assert answer.headers["x-refold-reason"].startswith("compressed-in-memory")
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert 3_800 < after <= 7_000 < before


def test_a_compression_in_memory_that_takes_too_much_processor_time_still_fits(start, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "CPU_S_MAX", -1.0)
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    ledger.fails = ("everything",)
    messages = make_dialog(60)
    answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="mine")
    assert answer.headers["x-refold-reason"].startswith("compressed-in-memory")
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert 3_800 < after <= 7_000 < before
    sent = json.loads(rig.provider.requests[-1].body)["messages"]
    assert sent[-5:] == messages[-5:]
    assert "U> " not in str(sent), "there was no time for a record"


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


def test_header_log_event_and_status_say_that_it_was_compressed_in_memory(start, tmp_path, caplog):
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    logging.getLogger("refold.server").propagate = True
    rig.post("openai-chat", make_body("openai-chat", make_dialog(1)), x_refold_session="mine")
    assert rig.http.get("/api/status").json()["ledger"] == {"writable": True}
    ledger.fails = WRITES
    messages = make_dialog(30)
    answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="mine")
    assert answer.headers["x-refold-reason"].startswith("compressed-in-memory; error=LedgerError")
    assert "compressed-in-memory" in [record.getMessage() for record in caplog.records]
    assert "failed-open" not in caplog.text
    status = rig.http.get("/api/status").json()["ledger"]
    assert (status["writable"], status["error"]) == (False, "the disk is full")
    ledger.fails = ()
    rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="mine")
    wait_for(lambda: [event for event in ledger.read_events("mine") if event.kind == "failed"])
    (event,) = [event for event in ledger.read_events("mine") if event.kind == "failed"]
    assert read_reason(event.fields["reason"]).code == "compressed-in-memory"
    assert rig.http.get("/api/status").json()["ledger"] == {"writable": True}


def damage(folder):
    """Overwrite the head of every page of a ledger but the first."""
    file = folder / ".refold" / "ledger.db"
    content = bytearray(file.read_bytes())
    for page in range(4_096, len(content), 4_096):
        content[page : page + 64] = bytes(range(64))
    file.write_bytes(content)
    for beside in file.parent.glob("ledger*-*"):
        beside.unlink()


READS = ["", "/s", "/s/messages", "/s/events", "/s/memory", "/s/view", "/s/edits", "/s/recall?query=file", "/s/export"]
CHANGES = {"compress": {}, "undo": {}, "redo": {}, "pin": {"handle": "m:12345678"}, "forget": {"everything": True}}


@pytest.mark.parametrize("tenant", ["", "alice"])
def test_over_a_damaged_ledger_every_route_names_the_remedy_and_no_file_to_a_tenant(start, tmp_path, tenant):
    key = {"x-refold-key": KeyRing(tmp_path / "work").add(tenant)[1]} if tenant else {}
    with contextlib.closing(ContextCompressionManager(CompressionConfig(**SMALL), tmp_path / "work")) as manager:
        manager.prepare_context_sync(make_id(tenant, "s"), make_dialog(12))
    damage(tmp_path / "work")
    rig = start(config=SMALL, window=8_000)
    routes = [("GET", path, None) for path in READS] + [("POST", f"/s/{name}", body) for name, body in CHANGES.items()]
    for method, path, body in routes:
        answer = rig.http.request(method, f"/api/sessions{path}", json=body, headers=key)
        assert answer.status_code == 503, (method, path, answer.text)
        assert answer.json()["error"]["kind"] == "LedgerError"
        told = answer.json()["error"]["message"]
        assert "the operator of this gateway has to look" in told if tenant else "refold verify --repair" in told
        assert not tenant or str(tmp_path) not in answer.text
    wish = {"session_id": "s", "messages": make_dialog(30), "model": "scripted-1"}
    answer = rig.http.post("/v1/compress", json=wish, headers=key)
    assert answer.status_code == 200
    assert not answer.json()["stored"]
    assert answer.json()["tokens_after"] < 7_000


def test_a_gateway_whose_ledger_cannot_be_written_is_alive_but_not_ready(start, tmp_path, monkeypatch):
    monkeypatch.setattr("refold.server.app.CHECK_S", 0.05)
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(ledger=ledger)
    assert rig.http.get("/readyz").status_code == 200
    ledger.fails = ("check_write",)
    wait_for(lambda: rig.http.get("/readyz").status_code == 503)
    assert rig.http.get("/readyz").json() == {"status": "the ledger cannot be written (LedgerError)"}
    assert rig.http.get("/livez").status_code == 200
    ledger.fails = ()
    assert rig.http.get("/readyz").status_code == 200


def test_a_gateway_that_starts_before_its_ledger_can_be_read_is_ready_when_it_can(start, tmp_path, monkeypatch):
    monkeypatch.setattr(app, "LOAD_S", 0.05)
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    ledger.fails = ("everything",)
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    assert rig.http.get("/readyz").json() == {"status": "the ledger cannot be read"}
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
    assert answer.headers["x-refold-reason"].startswith("compressed-in-memory")
    ledger.fails = ()
    wait_for(lambda: rig.http.get("/readyz").status_code == 200)


def make_steps(wire, steps):
    """Return an agent's conversation of one question and many steps, each with two calls at once."""
    messages = [{"role": "user", "content": "Read every file."}]
    for step in range(steps):
        outputs = [(f"call_{step}_{at}", f"file {step} {at}: " + f"word{step} " * 150) for at in range(2)]
        if wire == "anthropic":
            calls = [{"type": "tool_use", "id": call, "name": "read", "input": {"at": step}} for call, _ in outputs]
            results = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in outputs]
            messages += [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
        elif wire == "openai-chat":
            function = {"name": "read", "arguments": json.dumps({"at": step})}
            calls = [{"id": call, "type": "function", "function": function} for call, _ in outputs]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages += [{"role": "tool", "tool_call_id": call, "content": text} for call, text in outputs]
        else:
            messages.append({"type": "reasoning", "id": f"rs_{step}", "summary": [], "encrypted_content": "e" * 900})
            for call, _ in outputs:
                messages.append({"type": "function_call", "call_id": call, "name": "read", "arguments": "{}"})
            messages += [{"type": "function_call_output", "call_id": call, "output": text} for call, text in outputs]
    return messages


@pytest.mark.parametrize("wire", first_of(reversed(WIRES), 1))
def test_when_there_is_no_time_to_compress_only_the_newest_steps_are_sent_and_they_are_valid(start, wire):
    rig = start(config=SMALL, window=8_000, settings={"prepare_s_max": 0.0001})
    for steps in (1, 20, 21, 40):
        body = make_body(wire, make_steps(wire, steps))
        answer = rig.post(wire, body, x_refold_session="mine")
        assert answer.status_code == 200, answer.text
        sent = json.loads(rig.provider.requests[-1].body)
        if steps == 1:
            assert sent == body
            continue
        assert answer.headers["x-refold-reason"].startswith("trimmed; error=timeout")
        key = "input" if wire == "openai-responses" else "messages"
        assert sent[key][0] == body[key][0]
        assert sent[key][-3:] == body[key][-3:]
        before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
        assert after <= 7_000 < before
    assert len(rig.provider.requests) == 4


def test_a_permanent_failure_to_write_is_not_a_503():
    assert (LedgerError.http_status, SessionBusy.http_status, ChangeRefused.http_status) == (503, 503, 500)


class HangingLedger(FailingLedger):
    """A ledger whose test write does not come back until it is let go."""

    def __init__(self, ledger):
        super().__init__(ledger)
        self.tests, self.let_go = 0, threading.Event()

    def check_write(self):
        self.tests += 1
        self.let_go.wait(60)


def test_asking_over_and_over_whether_it_is_ready_takes_one_thread_while_the_ledger_hangs(start, tmp_path, monkeypatch):
    monkeypatch.setattr(app, "CHECK_S", 0.0)
    ledger = HangingLedger(SqliteLedger(tmp_path / "ledger.db"))
    ledger.let_go.set()
    rig = start(config=SMALL, window=8_000, ledger=ledger)
    assert rig.http.get("/readyz").status_code == 200
    ledger.let_go.clear()
    ledger.fails = WRITES
    before = ledger.tests
    with ThreadPoolExecutor(40) as threads:
        asked = [threads.submit(rig.http.get, "/readyz") for _ in range(40)]
        wait_for(lambda: ledger.tests > before)
        assert rig.http.get("/livez").status_code == 200
        answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
        assert answer.headers["x-refold-reason"].startswith("compressed-in-memory")
        assert ledger.tests == before + 1
        ledger.let_go.set()
        assert {one.result().status_code for one in asked} <= {200, 503}


@pytest.mark.parametrize(
    ("harm", "mend"),
    [
        ("ALTER TABLE refold.message RENAME TO elsewhere", "ALTER TABLE refold.elsewhere RENAME TO message"),
        (
            "ALTER TABLE refold.message ADD CONSTRAINT full_disk CHECK (false) NOT VALID",
            "ALTER TABLE refold.message DROP CONSTRAINT full_disk",
        ),
    ],
)
def test_a_gateway_that_cannot_store_messages_answers_is_not_ready_and_recovers_without_a_restart(
    start, monkeypatch, harm, mend
):
    monkeypatch.setattr(app, "CHECK_S", 0.05)
    with empty_database(server_url()) as url, psycopg.connect(url, autocommit=True) as database:
        rig = start(config={**SMALL, "ledger": url}, window=8_000)
        messages = make_dialog(30)
        assert rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk").status_code == 200
        assert rig.http.get("/readyz").status_code == 200
        database.execute(harm)
        wait_for(lambda: rig.http.get("/readyz").status_code == 503)
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Said while it was broken."}]
        answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
        assert answer.status_code == 200
        assert "LedgerError" in answer.headers["x-refold-reason"]
        database.execute(mend)
        wait_for(lambda: rig.http.get("/readyz").status_code == 200)
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And after it."}]

        def list_missing():
            answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
            stored = rig.manager.ledger.read_messages(answer.headers["x-refold-session"])
            texts = {json.loads(one.raw)["content"] for one in stored}
            return [one["content"] for one in messages if one["content"] not in texts]

        # Another request may still find the ledger as it was a moment ago.
        wait_for(lambda: list_missing() == [])
        assert rig.manager.ledger.verify() == []
