"""Messages of a request are in the ledger before its answer begins, whatever else happens to the ledger."""

import copy
import json
import pickle
import threading

import apsw
import pytest

from refold.errors import LedgerError, SessionNotFound
from refold.ledger.sqlite import SqliteLedger
from refold.manager import ContextCompressionManager
from refold.server.api.interface import show_error
from refold.server.outgoing import Reporter
from tests.rigs.server import PATHS, make_body, make_dialog, wait_for
from tests.server.test_commands import ScriptedProvider, httpx2, run_gateway, wait_ready

SMALL = {"window": 8_000, "reserve": 1_000}


def user(text):
    return {"role": "user", "content": text}


def reply(text):
    return {"role": "assistant", "content": text}


def talk(rig, messages, turns, wire="openai-chat"):
    """Go on with a conversation for some turns; return its answers."""
    answers = []
    for turn in range(turns):
        messages += [reply(f"answer {turn}"), user(f"and then {turn}?")]
        answers.append(rig.post(wire, make_body(wire, messages)))
        assert answers[-1].status_code == 200
    return answers


def read_stored(ledger, session):
    return [json.loads(one.raw) for one in ledger.read_messages(session)]


@pytest.mark.parametrize("wire", list(PATHS))
def test_each_answer_finds_its_question_stored(start, wire):
    rig = start()
    messages = make_dialog(1)
    session = rig.post(wire, make_body(wire, messages)).headers["x-refold-session"]
    for _ in range(5):
        talk(rig, messages, 1, wire)
        assert read_stored(rig.manager.ledger, session) == messages
    assert rig.manager.verify() == []


def test_what_another_process_folded_meanwhile_is_seen_and_nothing_is_lost(start, tmp_path):
    rig = start(config={"window": 40_000})
    messages = make_dialog(8)
    session = rig.post("openai-chat", make_body("openai-chat", messages)).headers["x-refold-session"]
    talk(rig, messages, 2)
    with ContextCompressionManager(rig.manager.config, tmp_path / "work") as other:
        assert other.compress(session).freed_tokens > 0
    talk(rig, messages, 1)
    assert read_stored(rig.manager.ledger, session) == messages
    last = talk(rig, messages, 1)[0]
    assert last.headers["x-refold-session"] == session
    assert last.headers["x-refold-reason"] == "kept"
    assert len(json.loads(rig.provider.requests[-1].body)["messages"]) < len(messages)
    assert rig.manager.verify() == []


def test_another_writer_makes_a_request_wait_and_fail_nothing(start, tmp_path):
    rig = start()
    messages = make_dialog(1)
    session = rig.post("openai-chat", make_body("openai-chat", messages)).headers["x-refold-session"]
    talk(rig, messages, 1)
    # The same SQLite library as the ledger's: locks are per process, so another copy of it would not be kept out.
    held = apsw.Connection(str(tmp_path / "work" / ".refold" / "ledger.db"))
    held.execute("BEGIN IMMEDIATE")
    released = threading.Event()

    def release() -> None:
        released.set()
        held.execute("ROLLBACK")

    timer = threading.Timer(0.5, release)
    timer.start()
    answer = talk(rig, messages, 1)[0]
    assert released.is_set(), "it did not wait until its question was stored"
    timer.join()
    held.close()
    assert answer.headers["x-refold-reason"] == "unchanged"
    assert read_stored(rig.manager.ledger, session) == messages


def test_requests_under_way_together_are_stored_each_in_its_own_session(start):
    rig = start()
    talks = [[user(f"talk {number}"), reply("yes"), user("go on")] for number in range(12)]
    sessions = [rig.post("openai-chat", make_body("openai-chat", one)).headers["x-refold-session"] for one in talks]
    assert len(set(sessions)) == len(talks)
    threads = [threading.Thread(target=talk, args=(rig, one, 4)) for one in talks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session, messages in zip(sessions, talks, strict=True):
        assert read_stored(rig.manager.ledger, session) == messages
    assert rig.manager.verify() == []


def test_what_an_answer_cost_is_stored_with_the_next_request_or_soon_after(start):
    rig = start()
    messages = make_dialog(1)
    session = rig.post("openai-chat", make_body("openai-chat", messages)).headers["x-refold-session"]
    talk(rig, messages, 3)
    wait_for(lambda: len(rig.manager.ledger.read_usage(session, limit=10)) == 4)
    assert all(usage.input_tokens > 0 for usage in rig.manager.ledger.read_usage(session, limit=10))


@pytest.mark.slow
def test_a_gateway_that_is_killed_has_stored_all_that_it_answered(tmp_path):
    messages = make_dialog(1, words=5)
    with ScriptedProvider("Answer.") as provider:
        for turn in range(3):
            with run_gateway(tmp_path, "--quiet", "--openai-upstream", provider.openai_url) as (url, process):
                wait_ready(url)
                for step in range(4):
                    answer = httpx2.post(
                        f"{url}/v1/chat/completions",
                        json=make_body("openai-chat", messages),
                        trust_env=False,
                        timeout=60,
                        headers={"x-refold-session": "mine"},
                    )
                    assert answer.status_code == 200
                    asked = list(messages)
                    messages += [reply(f"answer {turn} {step}"), user(f"question {turn} {step}")]
                process.kill()
                process.wait()
            ledger = SqliteLedger(tmp_path / ".refold" / "ledger.db")
            assert read_stored(ledger, "mine") == asked
            assert ledger.verify() == []
            ledger.close()


def test_a_session_that_another_process_deletes_starts_again_with_the_next_request(start):
    rig = start(window=8_000)
    history = make_dialog(2)
    for turn in range(4):
        answer = rig.post("openai-chat", make_body("openai-chat", history), x_refold_session="talk")
        assert answer.headers["x-refold-reason"] == "unchanged"
        assert len(rig.manager.ledger.read_path("talk").ids) == len(history)
        assert rig.http.get("/readyz").status_code == 200
        if turn in (1, 2):
            assert rig.manager.ledger.delete_session("talk")
        history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": f"go {turn}"}]
    assert rig.manager.verify() == []


def test_a_missing_session_does_not_count_as_a_fault_of_the_ledger(tmp_path):
    reporter = Reporter(ContextCompressionManager(workspace_path=tmp_path))
    reporter.note_written(SessionNotFound("talk"))
    assert reporter.problem is None
    reporter.note_written(LedgerError("the disk is full"))
    assert reporter.problem is not None
    assert "no session" in show_error(SessionNotFound("@alice/talk"), "alice")


def test_a_copy_of_a_missing_session_error_says_the_same():
    error = SessionNotFound("talk")
    for copied in (copy.copy(error), pickle.loads(pickle.dumps(error)), type(error)(show_error(error, "alice"))):
        assert type(copied) is SessionNotFound
        assert str(copied) == str(error)
        assert copied.values == {"session": "talk"}
