"""Conversations that a client continues by ``previous_response_id``: stored, and compressed when they must be."""

import asyncio
import contextlib
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.formats.streamed import ResponseAnswer
from refold.ledger.sqlite import SqliteLedger
from refold.manager.session_state import RESPONSES
from refold.server.chains import Chains, read_response
from refold.testing import RecordedRequest, ScriptedCall, ScriptedReply
from tests.rigs.effort import first_of
from tests.rigs.postgres import ON_POSTGRES, empty_database
from tests.rigs.server import make_body, start_rig, wait_for

SMALL = {"window": 8_000, "reserve": 1_000}


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def stored(request):
    """The setting of a store that outlives a gateway: the workspace's file, or a database on a server."""
    if request.param == "sqlite":
        yield {}
    else:
        with empty_database() as url:
            yield {"ledger": url}


def answer_by_id():
    """Return a script whose answers have ids of their own, as a provider's do."""
    numbers = itertools.count(1)

    def answer(_: RecordedRequest) -> ScriptedReply:
        number = next(numbers)
        return ScriptedReply(f"Answer {number}.", id=f"resp_{number}")

    return answer


def words(number):
    return f"Question {number}: please look at file_{number}.py. " + " ".join(f"w{number}x{at}" for at in range(200))


def test_a_chain_is_forwarded_unchanged_while_it_fits_and_is_stored_whole(start):
    rig = start(answer_by_id())
    with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-x", max_retries=0) as client:
        before = None
        for number in range(4):
            chained = {"previous_response_id": before} if before else {}
            raw = client.responses.with_raw_response.create(model="scripted-1", input=words(number), **chained)
            before = raw.parse().id
    sent = [json.loads(one.body) for one in rig.provider.requests]
    assert [one.get("previous_response_id") for one in sent] == [None, "resp_1", "resp_2", "resp_3"]
    assert sent[3]["input"] == words(3)
    stored = [json.loads(one.raw) for one in rig.manager.ledger.read_messages(raw.headers["x-refold-session"])]
    assert [item["role"] for item in stored] == ["user", "assistant"] * 3 + ["user"]
    assert len(rig.manager.ledger.list_sessions()) == 1


@pytest.mark.parametrize("stream", first_of([True, False], 1))
def test_a_chain_that_outgrows_the_window_continues_without_the_chain(start, stream):
    rig = start(answer_by_id(), config=SMALL, window=8_000)
    before = ""
    for number in range(20):
        chained = {"previous_response_id": before} if before else {}
        body = {"model": "scripted-1", "input": words(number), "stream": stream, **chained}
        answer = rig.post("openai-responses", body)
        assert answer.status_code == 200, answer.text
        before = f"resp_{number + 1}"
    tokens, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert after < 7_000 < tokens
    sent = json.loads(rig.provider.requests[-1].body)
    assert "previous_response_id" not in sent
    assert sent["input"][-1] == {"role": "user", "content": words(19)}
    assert len(rig.manager.ledger.list_sessions()) == 1


def test_a_chain_that_was_not_seen_from_its_beginning_is_left_alone_with_one_warning(start, caplog):
    rig = start(answer_by_id(), config=SMALL)
    for _ in range(3):
        body = {"model": "scripted-1", "input": words(1), "previous_response_id": "resp_of_yesterday"}
        answer = rig.post("openai-responses", body)
        assert answer.headers["x-refold-reason"] == "previous-response-id"
        assert json.loads(rig.provider.requests[-1].body) == body
    assert sum("the provider holds part of them" in record.getMessage() for record in caplog.records) == 1


def test_a_chain_that_holds_results_of_the_providers_own_tools_is_never_replayed(start):
    rig = start(answer_by_id(), config=SMALL)
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    first = [{"role": "user", "content": words(0)}, search, {"role": "assistant", "content": "found"}]
    rig.post("openai-responses", make_body("openai-responses", [*first, {"role": "user", "content": "go on"}]))
    for number in range(1, 12):
        body = {"model": "scripted-1", "input": words(number), "previous_response_id": f"resp_{number}"}
        rig.post("openai-responses", body)
        assert json.loads(rig.provider.requests[-1].body) == body


def test_a_tenant_cannot_unroll_the_chain_of_another(start):
    rig = start(answer_by_id())
    keys = {name: rig.application.keys.add(name)[1] for name in ("alice", "bob")}
    rig.post("openai-responses", {"model": "scripted-1", "input": "a secret"}, x_refold_key=keys["alice"])
    body = {"model": "scripted-1", "input": "tell me", "previous_response_id": "resp_1"}
    answer = rig.post("openai-responses", body, x_refold_key=keys["bob"])
    assert answer.headers["x-refold-reason"] == "previous-response-id"


@pytest.mark.parametrize("given", [3, None, [], {"a": 1}, ""])
def test_a_chain_id_that_makes_no_sense_is_left_to_the_provider(start, given):
    rig = start(answer_by_id())
    body = {"model": "scripted-1", "input": "hi", "previous_response_id": given}
    rig.post("openai-responses", body)
    assert json.loads(rig.provider.requests[-1].body) == body


def test_a_response_that_the_provider_does_not_hold_is_not_kept(start):
    rig = start(answer_by_id())
    rig.post("openai-responses", {"model": "scripted-1", "store": False, "input": "hello"})
    rig.post("openai-responses", {"model": "scripted-1", "input": "hello"})
    for before, reason in (("resp_1", "previous-response-id"), ("resp_2", "unchanged")):
        body = {"model": "scripted-1", "input": "and now?", "previous_response_id": before}
        assert rig.post("openai-responses", body).headers["x-refold-reason"] == reason


def test_what_is_kept_of_chains_is_bounded():
    chains = Chains(bytes_max=100_000)
    for number in range(100):
        whole = json.dumps({"input": "x" * 9_000}).encode()
        answer = ResponseAnswer()
        output = [{"type": "message", "role": "assistant"}]
        answer.add_whole({"id": f"r{number}", "status": "completed", "output": output})
        chains.remember("", whole, answer)
    asked = [json.dumps({"input": "go on", "previous_response_id": f"r{number}"}).encode() for number in (0, 99)]
    assert [asyncio.run(chains.unroll("", body)).is_partial for body in asked] == [True, False]


def chain(rig, numbers, before=""):
    """Continue a chain by an SDK, one question for each number; return the last raw answer."""
    with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-x", max_retries=0) as client:
        for number in numbers:
            chained = {"previous_response_id": before} if before else {}
            raw = client.responses.with_raw_response.create(model="scripted-1", input=words(number), **chained)
            before = raw.parse().id
    return raw, before


def test_a_restarted_gateway_continues_a_chain_and_compresses_it_when_it_must(tmp_path, empty_home, stored):
    script, config = answer_by_id(), SMALL | stored
    with start_rig(tmp_path / "work", script, config=config, window=8_000) as rig:
        first, before = chain(rig, range(4))
    with start_rig(tmp_path / "work", script, config=config, window=8_000) as rig:
        second, before = chain(rig, [4], before)
        name = second.headers["x-refold-session"]
        assert name == first.headers["x-refold-session"]
        assert json.loads(rig.provider.requests[-1].body)["previous_response_id"] == "resp_4"
        items = [json.loads(one.raw) for one in rig.manager.ledger.read_messages(name)]
        assert [item["role"] for item in items] == ["user", "assistant"] * 4 + ["user"]
        last, _ = chain(rig, range(5, 20), before)
        tokens, after = map(int, last.headers["x-refold-tokens"].split("->"))
        assert after < 7_000 < tokens
        assert "previous_response_id" not in json.loads(rig.provider.requests[-1].body)
        assert [row.id for row in rig.manager.ledger.list_sessions()] == [name]


def test_two_gateways_on_one_ledger_continue_the_same_chain(tmp_path, empty_home, stored):
    script = answer_by_id()
    with (
        start_rig(tmp_path / "work", script, config=stored) as one,
        start_rig(tmp_path / ("other" if stored else "work"), script, config=stored) as other,
    ):
        before, names = "", set()
        for number in range(6):
            raw, before = chain(other if number % 2 else one, [number], before)
            names.add(raw.headers["x-refold-session"])
            assert raw.headers["x-refold-reason"] == "unchanged"
        assert len(names) == 1
        assert len(one.manager.ledger.read_messages(names.pop())) == 11


def test_what_was_forgotten_does_not_come_back_with_a_chain(tmp_path, empty_home, stored):
    script = answer_by_id()
    with start_rig(tmp_path / "work", script, config=stored) as rig:
        raw, _ = chain(rig, range(2))
        name = raw.headers["x-refold-session"]
        wait_for(lambda: len(rig.manager.ledger.read_session(name).settings.get(RESPONSES, ())) == 2)
        first = rig.manager.ledger.read_messages(name)[0]
        rig.manager.forget(name, f"m:{first.digest[:8]}")
        assert RESPONSES not in rig.manager.ledger.read_session(name).settings


def test_an_unseen_chain_is_stored_as_far_as_it_was_seen_and_the_session_says_why_it_passes_through(start):
    rig = start(answer_by_id(), config=SMALL)
    raw, _ = chain(rig, range(12), "resp_of_yesterday")
    name = raw.headers["x-refold-session"]
    assert raw.headers["x-refold-reason"] == "previous-response-id"
    assert [row.id for row in rig.manager.ledger.list_sessions()] == [name]
    assert len(rig.manager.ledger.read_messages(name)) == 23
    assert rig.manager.ledger.read_session(name).compression_count == 0
    events = [event for event in rig.manager.ledger.read_events(name) if event.kind == "skipped"]
    assert len(events) == 1
    sent = [json.loads(request.body) for request in rig.provider.requests]
    assert all(one["previous_response_id"] for one in sent)


@pytest.mark.parametrize("shape", [lambda name: name, lambda name: {"id": name}])
def test_a_conversation_at_the_provider_is_stored_under_its_name_across_a_restart(tmp_path, empty_home, shape, stored):
    script, bodies = answer_by_id(), []
    for numbers in (range(3), range(3, 5)):
        with start_rig(tmp_path / "work", script, config=SMALL | stored) as rig:
            with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-x", max_retries=0) as client:
                for number in numbers:
                    raw = client.responses.with_raw_response.create(
                        model="scripted-1", input=words(number), conversation=shape("conv_1")
                    )
                    assert raw.headers["x-refold-session"] == "conv_1"
                    assert raw.headers["x-refold-reason"] == "conversation"
            bodies += [json.loads(request.body) for request in rig.provider.requests]
    assert [body["input"] for body in bodies] == [words(number) for number in range(5)]
    with ContextCompressionManager(CompressionConfig(**stored), tmp_path / "work") as manager:
        assert [row.id for row in manager.ledger.list_sessions()] == ["conv_1"]
        items = [json.loads(one.raw) for one in manager.ledger.read_messages("conv_1")]
        assert [item["role"] for item in items] == ["user", "assistant"] * 5
        assert sum(event.kind == "skipped" for event in manager.ledger.read_events("conv_1")) == 1


def test_an_answer_of_a_conversation_is_stored_before_the_next_question(start, monkeypatch):
    rig = start(answer_by_id(), config=SMALL)
    append = rig.manager.append

    def append_late(session, messages, **options):
        if messages[0]["role"] == "assistant":
            time.sleep(0.1)  # As on a busy machine: the next question is there before the thread gets its turn.
        return append(session, messages, **options)

    monkeypatch.setattr(rig.manager, "append", append_late)
    for number in range(4):
        body = {"model": "scripted-1", "input": words(number), "conversation": "conv_1"}
        assert rig.post("openai-responses", body).status_code == 200
    wait_for(lambda: len(rig.manager.ledger.read_messages("conv_1")) == 8)
    items = [json.loads(one.raw) for one in rig.manager.ledger.read_messages("conv_1")]
    assert [item["role"] for item in items] == ["user", "assistant"] * 4


def test_what_every_answer_of_a_conversation_cost_is_stored(start):
    rig = start(answer_by_id(), config=SMALL)
    for number in range(4):
        body = {"model": "scripted-1", "input": words(number), "conversation": "conv_1"}
        assert rig.post("openai-responses", body).status_code == 200
    wait_for(lambda: len(rig.manager.ledger.read_usage("conv_1", limit=10)) == 4)


class Together:
    """A clock that is asked just before responses are stored: lets two that are being stored wait for each other."""

    def __init__(self):
        self._both = threading.Barrier(2)

    def time(self):
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(0.3)
        return time.time()


def read_names(rig, session):
    row = rig.manager.ledger.read_session(session)
    return {one["id"] for one in row.settings.get("responses", [])}


def test_an_answer_with_two_names_is_stored_under_both(start, monkeypatch):
    rig = start(answer_by_id(), config=SMALL)
    monkeypatch.setattr("refold.server.chains.time", Together())
    raw, conversation = converse(rig, range(1))
    session = raw.headers["x-refold-session"]
    wait_for(lambda: read_names(rig, session) == {conversation, "resp_1"})


def test_two_answers_of_one_session_at_the_same_time_are_both_stored(start, monkeypatch):
    rig = start(answer_by_id(), config=SMALL)
    monkeypatch.setattr("refold.server.chains.time", Together())
    with ThreadPoolExecutor(2) as pool:
        bodies = [{"model": "scripted-1", "input": words(number)} for number in range(2)]
        list(pool.map(lambda body: rig.post("openai-responses", body, x_refold_session="talk"), bodies))
    wait_for(lambda: read_names(rig, "talk") == {"resp_1", "resp_2"})


def test_two_answers_of_one_session_through_two_gateways_are_both_stored(tmp_path, empty_home, stored, monkeypatch):
    script = answer_by_id()
    with (
        start_rig(tmp_path / "work", script, config=SMALL | stored) as one,
        start_rig(tmp_path / ("other" if stored else "work"), script, config=SMALL | stored) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        monkeypatch.setattr("refold.server.chains.time", Together())
        asked = [pool.submit(ask_named, rig, number) for number, rig in enumerate((one, other))]
        ids = {answer.result() for answer in asked}
        wait_for(lambda: read_names(one, "talk") == ids)


def ask_named(rig, number):
    """Ask in a session of a given name; return the id of the response."""
    body = {"model": "scripted-1", "input": words(number)}
    return rig.post("openai-responses", body, x_refold_session="talk").json()["id"]


FORGED = [7, "x", [7], [{}], [{"id": "resp_x"}], [{"id": ["resp_x"], "count": 1, "last": "", "output": "[]"}]]


@pytest.mark.parametrize("forged", [*FORGED, [{"id": "resp_x", "count": 1, "last": "LAST", "output": "{"}]])
def test_forged_responses_of_an_imported_session_do_not_fail_a_chain(start, forged):
    rig = start()
    rig.post("openai-responses", {"model": "scripted-1", "input": "hello"}, x_refold_session="talk")
    if isinstance(forged, list) and forged[0] and isinstance(forged[0], dict) and forged[0].get("last") == "LAST":
        forged = [{**forged[0], "last": rig.manager.ledger.read_path("talk").digests[0]}]
    rig.manager.ledger.update_session("talk", {"settings": {RESPONSES: forged}}, 1.0)
    chained = {"model": "scripted-1", "input": "more", "previous_response_id": "resp_x"}
    assert rig.post("openai-responses", chained).status_code != 500
    assert json.loads(rig.provider.requests[-1].body) == chained
    assert rig.post("openai-responses", {"model": "scripted-1", "input": "a"}, x_refold_session="talk").is_success


def converse(rig, numbers, conversation="", **fields):
    """Ask in a conversation that the provider holds, which begins here unless it is named."""
    with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-x", max_retries=0) as client:
        conversation = conversation or client.conversations.create().id
        for number in numbers:
            raw = client.responses.with_raw_response.create(
                model="scripted-1", input=words(number), conversation=conversation, **fields
            )
            assert raw.parse()
    return raw, conversation


def test_a_conversation_that_outgrows_the_window_continues_without_the_providers_copy(start, caplog):
    rig = start(answer_by_id(), config=SMALL, window=8_000)
    raw, name = converse(rig, range(3))
    assert raw.headers["x-refold-session"] == name
    sent = [json.loads(one.body) for one in rig.provider.requests if one.wire == "openai-responses"]
    assert [(one["conversation"], one["input"]) for one in sent] == [(name, words(number)) for number in range(3)]
    raw, _ = converse(rig, range(3, 20), name)
    tokens, after = map(int, raw.headers["x-refold-tokens"].split("->"))
    assert after < 7_000 < tokens
    last = json.loads(rig.provider.requests[-1].body)
    assert "conversation" not in last
    assert last["input"][-1] == {"role": "user", "content": words(19)}
    assert "continues without the provider's copy" in caplog.text
    (row,) = rig.manager.ledger.list_sessions()
    items = [json.loads(one.raw) for one in rig.manager.ledger.read_messages(row.id)]
    assert [item["role"] for item in items] == ["user", "assistant"] * 19 + ["user"]
    assert [item["content"] for item in items[::2]] == [words(number) for number in range(20)]


def test_a_detached_conversation_never_goes_back_to_the_providers_copy(tmp_path, empty_home, stored):
    script, config = answer_by_id(), SMALL | stored
    with start_rig(tmp_path / "work", script, config=config, window=8_000) as rig:
        _, name = converse(rig, range(16))
        assert "conversation" not in json.loads(rig.provider.requests[-1].body)
        wait_for(lambda: rig.manager.ledger.read_session(name).settings.get(RESPONSES))
    with start_rig(tmp_path / "work", script, config={"window": 200_000} | stored, window=200_000) as rig:
        while edits := rig.manager.ledger.read_edits(name):
            rig.manager.undo(name, edits[-1].edit.id)
        converse(rig, [16], name)
        sent = json.loads(rig.provider.requests[-1].body)
        assert "conversation" not in sent
        assert [item["content"] for item in sent["input"] if item["role"] == "user"] == [words(at) for at in range(17)]


def test_a_conversation_that_was_changed_elsewhere_is_left_to_the_provider(start):
    rig = start(answer_by_id(), config=SMALL)
    _, name = converse(rig, range(2))
    with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-x", max_retries=0) as client:
        client.conversations.items.create(name, items=[{"role": "user", "content": "by the way"}])
    raw, _ = converse(rig, range(2, 20), name)
    assert raw.headers["x-refold-session"] == name
    assert raw.headers["x-refold-reason"] == "conversation"
    assert json.loads(rig.provider.requests[-1].body)["conversation"] == name
    assert sum(event.kind == "skipped" for event in rig.manager.ledger.read_events(name)) == 1


def refer(number):
    """Return how the Vercel AI SDK resends a step: reasoning by its id, the call itself, and its result."""
    call = {"type": "function_call", "call_id": f"call_{number}", "name": "run", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": f"call_{number}", "output": words(number)}
    return [{"type": "item_reference", "id": f"rs_resp_{number}"}, call, output]


def think_and_call():
    numbers = itertools.count(1)

    def answer(_: RecordedRequest) -> ScriptedReply:
        number = next(numbers)
        return ScriptedReply("", (ScriptedCall("run", {}, f"call_{number}"),), "Hm.", id=f"resp_{number}")

    return answer


def test_a_client_that_refers_to_items_by_their_ids_is_compressed_when_it_must_be(start):
    rig = start(think_and_call(), config=SMALL, window=8_000)
    items = [{"role": "user", "content": "Run all."}]
    for number in range(1, 25):
        body = make_body("openai-responses", items)
        answer = rig.post("openai-responses", body)
        assert answer.status_code == 200, answer.text
        if number == 3:
            assert json.loads(rig.provider.requests[-1].body) == body
            assert answer.headers["x-refold-reason"] == "unchanged"
        items += refer(number)
    tokens, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert after < 7_000 < tokens
    assert "item_reference" not in rig.provider.requests[-1].body.decode()
    assert len(rig.manager.ledger.list_sessions()) == 1


def test_an_item_that_was_never_seen_is_left_to_the_provider(start):
    rig = start(think_and_call(), config=SMALL)
    body = make_body("openai-responses", [{"role": "user", "content": "Run all."}, *refer(7)])
    assert rig.post("openai-responses", body).headers["x-refold-reason"] == "previous-response-id"
    assert json.loads(rig.provider.requests[-1].body) == body


class CountingLedger(SqliteLedger):
    """A ledger that counts the sessions it returns."""

    returned = 0

    def list_sessions(self, **which):
        found = super().list_sessions(**which)
        self.returned += len(found)
        return found


def test_looking_for_a_response_reads_no_session_but_its_own(tmp_path, empty_home):
    ledger = CountingLedger(tmp_path / "ledger.db")
    with start_rig(tmp_path / "one", answer_by_id(), ledger=ledger) as rig:
        for number in range(30):
            body = make_body("openai-responses", [{"role": "user", "content": f"Question {number}"}])
            last = rig.post("openai-responses", body).json()["id"]
        wait_for(lambda: read_response(ledger, "", last, 100) is not None)
    with start_rig(tmp_path / "two", ledger=ledger) as rig:
        ledger.returned = 0
        new = [{"role": "user", "content": "And now?"}]
        for known, count in ((last, 1), ("resp_unknown", 0), ("r" * 5_000, 0)):
            rig.post("openai-responses", make_body("openai-responses", new, previous_response_id=known))
            assert ledger.returned <= count + 1
            ledger.returned = 0
