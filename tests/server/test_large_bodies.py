"""Large bodies are read and prepared in a worker process: other requests are answered meanwhile, and they still fit."""

import json
import multiprocessing.process
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import orjson
import pytest

from refold.config import CompressionConfig
from refold.errors import ContextOverflow
from refold.ledger.sqlite import SqliteLedger
from refold.server import worker
from refold.server.body import VALUES_MAX
from refold.server.fallback import PrepareJob, WorkerFailed, choose_by_size, shorten, trim
from refold.server.overflow import NO_LIMITS, LimitKey
from refold.server.wires import CHAT, RESPONSES
from refold.server.worker import BodyWorkers
from refold.testing import find_violations
from tests.rigs.effort import first_of
from tests.rigs.patterns import find_growth
from tests.rigs.server import make_body, make_dialog, start_rig, wait_for

LARGE_BYTES = 200_000
LARGE = {"worker_bytes_min": LARGE_BYTES, "prepare_s_max": 120.0}
SMALL = {"window": 20_000}
WIRES = ["openai-chat", "openai-responses", "anthropic"]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Wait for a worker as long as it takes to start on a busy machine."""
    monkeypatch.setattr(worker, "READ_S_MAX", 120.0)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A gateway for all tests that need a worker and leave it alive: one takes a second to start."""
    with start_rig(tmp_path_factory.mktemp("large"), config=SMALL, window=20_000, settings=LARGE) as rig:
        yield rig


def make_large(size: int = LARGE_BYTES) -> list[dict[str, object]]:
    """Return a conversation of ordinary turns, larger than the limit."""
    talk, words = [], "the build of module seven printed a warning about line endings and went on. " * 12
    while len(talk) * len(words) < size * 1.1:
        at = len(talk)
        talk += [
            {"role": "user", "content": f"question {at}: {words}"},
            {"role": "assistant", "content": f"answer {at}: {words}"},
        ]
    return [*talk, {"role": "user", "content": "what was question 4?"}]


@pytest.mark.parametrize("wire", first_of(WIRES, 1))
def test_a_large_request_is_stored_and_fits_and_later_ones_keep_their_prefix(large, wire):
    rig, name = large, f"mine-{wire}"
    messages = make_large()
    answer = rig.post(wire, make_body(wire, messages), x_refold_session=name)
    assert answer.status_code == 200, answer.text
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert after < 20_000 < before
    assert rig.application.preparer.workers.started >= 1
    assert rig.manager.ledger.read_session(name).messages == len(messages)
    key = "input" if wire == "openai-responses" else "messages"
    first = json.loads(rig.provider.requests[-1].body)[key]
    longer = [
        *messages,
        {"role": "assistant", "content": "it was about line endings"},
        {"role": "user", "content": "thanks"},
    ]
    # The first request shows as much as fits of what no model has seen; the next one comes down to the target.
    sent = [first]
    for turn in range(2):
        longer = [*longer, {"role": "assistant", "content": f"right {turn}"}, {"role": "user", "content": "thanks"}]
        again = rig.post(wire, make_body(wire, longer), x_refold_session=name)
        assert again.status_code == 200
        sent.append(json.loads(rig.provider.requests[-1].body)[key])
    assert sent[2][: len(sent[1])] == sent[1]
    assert rig.http.get(f"/api/sessions/{name}/recall", params={"query": "question 4"}).json()["results"]


HOSTILE = {
    "escapes": lambda: '\\u0000[{"' * 60_000,
    "values": lambda: json.dumps([[]] * 300_000),
    "newlines": lambda: "\n" * 600_000,
    "blocks": lambda: [{"type": "text", "text": "a,"} for _ in range(20_000)],
}


@pytest.mark.parametrize("kind", first_of(HOSTILE, 1))
def test_the_upstream_accepts_what_is_left_of_a_hostile_large_request(large, kind):
    rig = large
    messages = [
        {"role": "user", "content": HOSTILE[kind]()},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "now?"},
    ]
    answer = rig.post("openai-chat", make_body("openai-chat", messages))
    assert answer.status_code == 200, answer.headers
    sent = json.loads(rig.provider.requests[-1].body)["messages"]
    assert sent[-1]["content"] == "now?"


VALUES = {
    "messages": lambda many: {"messages": [{"role": "user", "content": ""}] * (many // 8)},
    "blocks": lambda many: {"messages": [{"role": "user", "content": [{}] * many}]},
    "elsewhere": lambda many: {"messages": [{"role": "user", "content": "now?"}], "metadata": [{}] * many},
}


@pytest.mark.parametrize("where", first_of(reversed(VALUES), 1))
def test_a_body_of_countless_small_values_is_cut_and_neither_hashed_nor_stored(start, where):
    rig, write = start(config=SMALL, window=20_000), VALUES[where]
    body = {"model": "scripted-1", **write(VALUES_MAX + 8)}
    answer = rig.post("openai-chat", json.dumps(body, separators=(",", ":")).encode())
    assert "too many values" in answer.headers["x-refold-reason"]
    assert rig.http.get("/api/sessions").json()["sessions"] == []
    body = {"model": "scripted-1", **write(VALUES_MAX // 100)}
    assert "too many" not in rig.post("openai-chat", body).headers["x-refold-reason"]


def test_the_gateway_answers_others_while_a_large_body_is_read(large):
    rig = large
    body = make_body("openai-chat", make_large())
    rig.post("openai-chat", body)
    (process,) = rig.application.preparer.workers._all
    os.kill(process._process.pid, signal.SIGSTOP)
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(rig.post("openai-chat", body).status_code))
    thread.start()
    wait_for(lambda: rig.application.gateway.requests)
    with httpx2.Client(base_url=rig.url, trust_env=False, timeout=60) as client:
        for _ in range(20):
            assert client.get("/livez").status_code == 200
    assert statuses == []  # The worker alone reads the body.
    os.kill(process._process.pid, signal.SIGCONT)
    thread.join()
    assert statuses == [200]


@pytest.mark.slow  # test_where_workers_stall shows one that is given up.
def test_a_worker_that_takes_too_long_is_killed_and_the_request_is_cut_down(start, monkeypatch):
    rig = start(config=SMALL, window=20_000, settings=LARGE)
    rig.post("openai-chat", make_body("openai-chat", make_large()))
    (process,) = rig.application.preparer.workers._all
    os.kill(process._process.pid, signal.SIGSTOP)  # It no longer answers; not even the body is taken from it.
    monkeypatch.setattr(worker, "READ_S_MAX", 0.2)
    answer = rig.post("openai-chat", make_body("openai-chat", make_large()))
    assert answer.status_code == 200
    assert answer.headers["x-refold-reason"] == "compressed-in-memory; error=timeout"
    assert len(rig.provider.requests[-1].body) < LARGE_BYTES
    assert rig.application.preparer.workers.started == 2


def test_where_no_process_can_be_started_a_large_request_is_trimmed_and_not_failed(start, monkeypatch):
    rig = start(window=8_000, settings={"worker_bytes_min": 50_000}, config={"window": 8_000, "reserve": 1_000})
    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", refuse_to_start)
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(120)))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-refold-reason"].startswith("trimmed")
    sent = json.loads(rig.provider.requests[-1].body)["messages"]
    assert sent[-1] == make_dialog(120)[-1]


def test_where_workers_stall_and_no_further_one_can_be_started_a_large_request_is_trimmed(start, monkeypatch):
    settings = {"worker_bytes_min": 50_000, "prepare_s_max": 0.3}
    rig = start(window=8_000, settings=settings, config={"window": 8_000, "reserve": 1_000})
    monkeypatch.setattr(worker, "READ_S_MAX", 0.3)
    begin, begun = multiprocessing.process.BaseProcess.start, []

    def start_stalled(process):
        if len(begun) == 2:
            refuse_to_start(process)
        begin(process)
        begun.append(process)
        os.kill(process.pid, signal.SIGSTOP)

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", start_stalled)
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(120)))
    assert len(begun) == 2
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-refold-reason"].startswith("trimmed")
    assert json.loads(rig.provider.requests[-1].body)["messages"][-1] == make_dialog(120)[-1]


def refuse_to_start(process):
    raise OSError(11, "Resource temporarily unavailable")


def test_a_cut_by_size_begins_with_a_user_message_and_never_with_a_tool_result():
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    steps = [
        one
        for at in range(50)
        for one in (
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": f"{at} " * 500},
        )
    ]
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "go"}, *steps]
    kept = choose_by_size(messages, 20_000)
    assert [one["role"] for one in kept[:3]] == ["system", "user", "assistant"]
    assert kept[-1] == messages[-1]
    assert len(json.dumps(kept)) < 25_000


def test_a_cut_by_size_keeps_the_first_question_and_the_newest_messages():
    messages = make_large()
    kept = choose_by_size(messages, 50_000)
    assert kept[0] == messages[0]
    assert kept[1:] == messages[-len(kept) + 1 :]
    assert 40_000 < len(json.dumps(kept)) <= 52_000


@pytest.mark.slow  # tests/server/test_fallback.py shows it for small ones.
def test_where_the_ledger_is_an_object_of_this_process_a_large_request_is_compressed_in_memory_to_most_of_the_room(
    start, tmp_path
):
    rig = start(config=SMALL, window=20_000, settings=LARGE, ledger=SqliteLedger(tmp_path / "own.db"))
    answer = rig.post("openai-chat", make_body("openai-chat", make_large()), x_refold_session="mine")
    assert answer.status_code == 200
    assert answer.headers["x-refold-reason"].startswith("compressed-in-memory"), answer.headers
    assert 10_000 < int(answer.headers["x-refold-tokens"].partition("->")[2]) <= 14_000
    assert json.loads(rig.provider.requests[-1].body)["messages"][-1] == make_large()[-1]


def test_shortening_keeps_both_ends_and_says_how_much_is_missing():
    made = shorten({"role": "user", "content": "a" * 50_000 + "b" * 50_000}, 2_000)["content"]
    assert made.startswith("aaa")
    assert made.endswith("bbb")
    assert "98,000 characters left out" in made


def test_a_cut_by_size_never_splits_a_step_and_never_breaks_what_must_stay_whole():
    wire, picture = RESPONSES, "iVBOR" * 400
    look = {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{picture}"}]}
    items = [{"role": "user", "content": "Read every file."}]
    for step in range(12):
        items.append({"type": "reasoning", "id": f"rs_{step}", "summary": [], "encrypted_content": "e" * 900})
        calls = [f"call_{step}_{at}" for at in range(3)]
        long = json.dumps({"text": "x" * 500 * (step % 3)})
        items += [{"type": "function_call", "call_id": one, "name": "write", "arguments": long} for one in calls]
        items += [{"type": "function_call_output", "call_id": one, "output": f"out {step} " * 90} for one in calls]
    body = json.dumps({"model": "gpt-4o", "input": [*items, look]}).encode()
    for tokens_max in range(1_500, 9_000, 130):
        kept = json.loads(trim(wire, body, CompressionConfig(), tokens_max=tokens_max).written)["input"]
        assert find_violations(wire.name, kept) == []
        assert kept[-1] == look
        for at, item in enumerate(kept):
            if item.get("type") == "function_call":
                assert json.loads(item["arguments"])
                assert kept[at - 1]["type"] in ("reasoning", "function_call"), "a call stays with its reasoning"


MALFORMED = {
    "lists in lists": lambda size: [{"role": "user", "content": [[1] * 300] * (size // 600)}],
    "objects in objects": lambda size: [
        {"role": "user", "content": {str(at): {"a": [at]} for at in range(size // 15)}}
    ],
    "empty messages": lambda size: [{}] * (size // 3),
    "numbers": lambda size: [1] * (size // 2),
}


@pytest.mark.parametrize("kind", first_of(MALFORMED, 2))
def test_trimming_a_malformed_request_is_linear_and_makes_it_fit(kind):
    newest = {"role": "user", "content": "now?"}

    def trim_it(size):
        body = json.dumps({"model": "gpt-4", "messages": [*MALFORMED[kind](size), newest]}).encode()
        return trim(CHAT, body, CompressionConfig(), tokens_max=6_000)

    made = trim_it(400_000)
    assert made.tokens <= 6_000 < made.tokens_before
    assert json.loads(made.written)["messages"][-1] == newest
    assert find_growth(lambda size: trim_it(len(size)), lambda chars: "x" * (40 * chars)) == ""


@pytest.mark.slow
def test_a_request_that_cannot_be_compressed_is_trimmed_beside_the_event_loop(start):
    rig = start(config=SMALL, settings={"prepare_s_max": 60.0})
    messages = [{"role": "user", "content": [[1] * 900] * 900}, {"role": "user", "content": "now?"}]
    body = orjson.dumps(make_body("openai-chat", messages))
    slowest = 0.0
    with ThreadPoolExecutor(1) as pool, httpx2.Client(base_url=rig.url, trust_env=False, timeout=60) as client:
        started = time.monotonic()
        waiting = pool.submit(rig.post, "openai-chat", body)
        while not waiting.done():
            began = time.monotonic()
            assert client.get("/livez").status_code == 200
            slowest = max(slowest, time.monotonic() - began)
        assert waiting.result().headers["x-refold-reason"].startswith("trimmed")
    assert len(rig.provider.requests[-1].body) < 100_000
    # Blocked by the work, the loop would answer after all of it; on a busy machine all takes longer.
    assert slowest < max(5.0, (time.monotonic() - started) / 2)


def test_small_dialogs_start_no_process(start):
    rig = start()
    assert rig.post("openai-chat", make_body("openai-chat", make_dialog(3))).status_code == 200
    assert rig.application.preparer.workers.started == 0


@pytest.mark.slow
def test_a_large_request_of_the_sidecar_is_compressed_in_a_worker_process(start):
    rig = start(config=SMALL, settings=LARGE)
    messages = make_large()
    wish = {"model": "gpt-4o", "messages": messages, "session_id": "mine"}
    answer = rig.http.post("/v1/compress", json=wish, timeout=120)
    assert answer.status_code == 200, answer.text[:300]
    assert rig.application.preparer.workers.started == 1
    made = answer.json()
    assert made["tokens_after"] < 20_000 < made["tokens_before"]
    assert made["messages"][-1]["content"].startswith("what was question 4?")
    assert rig.manager.ledger.read_session("mine").messages == len(messages)
    limit = made["tokens_after"] - 1_000
    refused = ContextOverflow("too long", tokens_max=limit)
    rig.application.limits.note_refused(LimitKey("", "openai", "gpt-4o"), 15_000, refused)
    made = rig.http.post("/v1/compress", json={**wish, "session_id": "other"}, timeout=120).json()
    assert made["tokens_after"] < limit


def test_a_large_malformed_request_of_the_sidecar_is_refused(large):
    rig = large
    malformed = {
        "no JSON": b"[" + b" " * LARGE_BYTES,
        "no objects": json.dumps({"messages": ["x"] * LARGE_BYTES}).encode(),
        "no messages": json.dumps({"model": "m", "config": {"a": "x" * LARGE_BYTES}}).encode(),
    }
    for name, body in malformed.items():
        answer = rig.http.post("/v1/compress", content=body, headers={"content-type": "application/json"}, timeout=120)
        assert answer.status_code == 400, name
        assert answer.json()["error"]["kind"] == "FormatError", name
        assert "xxxx" not in answer.text, name


def test_other_routes_of_the_interface_take_no_large_body(start):
    rig = start()
    assert rig.http.patch("/api/config", json={"changes": "x" * 1_100_000}).status_code == 413
    assert rig.http.post("/v1/usage", json={"session_id": "x" * 1_100_000}).status_code == 413


def test_a_chat_with_large_pictures_can_be_summarised(start):
    rig = start()
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 1_100_000}"}}
    said = [{"type": "text", "text": "Why was the invoice wrong?"}, picture]
    body = {"provider": "openai", "messages": [{"role": "user", "content": said}], "config": {"model": "gpt-4o"}}
    answer = rig.http.post("/api/chat/compress", json=body, headers={"authorization": "Bearer sk-own"})
    assert answer.status_code == 200
    assert answer.json()["summary"]


def test_a_long_tail_and_a_long_chain_are_read_in_threads(start, monkeypatch):
    from refold.server import chains, request_memory

    readers = []
    read, join = request_memory.read_request, chains._join

    def note_read(*given, **named):
        readers.append(threading.current_thread().name)
        return read(*given, **named)

    def note_join(*given):
        readers.append(threading.current_thread().name)
        return join(*given)

    rig = start()
    monkeypatch.setattr(request_memory, "read_request", note_read)
    monkeypatch.setattr(chains, "_join", note_join)
    talk = make_dialog(3)
    rig.post("openai-chat", make_body("openai-chat", talk), x_refold_session="tail")
    longer = [*talk, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "word " * 20_000}]
    assert rig.post("openai-chat", make_body("openai-chat", longer), x_refold_session="tail").status_code == 200
    first = rig.post("openai-responses", make_body("openai-responses", longer)).json()
    chained = {"model": "gpt-4o", "previous_response_id": first["id"], "input": "more"}
    assert rig.post("openai-responses", chained).status_code == 200
    assert len(readers) == 2
    assert all(re.fullmatch(r"refold-thread_\d+", name) for name in readers), readers  # Threads of the executor.


@pytest.mark.slow  # test_where_workers_stall is trimmed after its time, too.
async def test_trimming_has_a_time_of_its_own_when_the_time_to_prepare_is_over():
    workers = BodyWorkers(0.001)
    job = PrepareJob("", CompressionConfig(), "", None, NO_LIMITS)
    body = json.dumps({"messages": [{"role": "user", "content": "now?"}]}).encode()
    try:
        with pytest.raises(WorkerFailed):
            await workers.run("cut", "", CHAT, body, job=job)
        assert (await workers.run("trim", "", CHAT, body, job=job)).written is None
    finally:
        workers.close()
