"""Compression in the gateway: it fits, it is reported, it stays, and it is repeated if an upstream still refuses."""

import json
import re
import subprocess
import sys

import pytest

from refold.config import CompressionConfig
from refold.errors import LedgerError
from refold.ledger.sqlite import SqliteLedger
from refold.server.settings import settle_arrival
from refold.testing import ScriptedUsage, say
from tests.laws.test_growth import convert, grow_session
from tests.rigs.effort import each_once, first_of
from tests.rigs.server import PATHS, make_body, make_dialog, wait_for

WIRES = list(PATHS)
SMALL = {"window": 8_000, "reserve": 1_000}


def find_sent(rig, wire):
    body = json.loads(rig.provider.requests[-1].body)
    return body["input" if wire == "openai-responses" else "messages"]


@pytest.mark.parametrize(("wire", "stream"), each_once(WIRES, (False, True)))
def test_a_long_session_fits_the_window_and_the_headers_say_how(start, wire, stream):
    rig = start(config=SMALL, window=8_000)
    messages = make_dialog(30)
    answer = rig.post(wire, make_body(wire, messages, stream=stream))
    assert answer.status_code == 200, answer.text
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert before > 20_000
    assert after < 7_000
    assert int(answer.headers["x-refold-edits"]) > 0
    assert re.fullmatch(r"fold\.hard; tokens=\d{5}; limit=5600", answer.headers["x-refold-reason"])
    sent = find_sent(rig, wire)
    assert sent[-1] == messages[-1]
    assert len(sent) < len(messages)


@pytest.mark.parametrize("wire", WIRES)
def test_the_next_request_of_the_client_sends_the_same_prefix_again(start, wire):
    rig = start(config=SMALL, window=8_000)
    messages = make_dialog(30)
    first = rig.post(wire, make_body(wire, messages))
    sent = find_sent(rig, wire)
    longer = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    second = rig.post(wire, make_body(wire, longer))
    assert second.headers["x-refold-session"] == first.headers["x-refold-session"]
    assert second.headers["x-refold-reason"] == "kept"
    assert find_sent(rig, wire)[: len(sent)] == sent
    assert find_sent(rig, wire)[len(sent) :] == longer[-2:]


def test_every_original_is_in_the_ledger(start):
    rig = start(config=SMALL, window=8_000)
    messages = make_dialog(30)
    answer = rig.post("openai-chat", make_body("openai-chat", messages))
    stored = rig.manager.ledger.read_messages(answer.headers["x-refold-session"])
    assert [json.loads(one.raw) for one in stored] == messages


@pytest.mark.parametrize("wire", first_of(WIRES, 1))
def test_an_overflow_of_the_upstream_is_answered_with_a_smaller_request(start, wire):
    rig = start(config={"window": 100_000}, window=12_000)
    messages = make_dialog(30)
    answer = rig.post(wire, make_body(wire, messages))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-refold-reason"] == "overflow-retried"
    assert len(rig.provider.requests) == 2
    before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
    assert after < 12_000 < before


def test_an_upstream_that_states_no_limit_is_asked_again_with_less_each_time(start):
    rig = start(config={"window": 100_000}, window=6_000)
    answer = rig.post("openai-responses", make_body("openai-responses", make_dialog(30)))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-refold-reason"] == "overflow-retried"
    whole, first, second = [len(request.body) for request in rig.provider.requests]
    assert second < first < whole


def test_a_limit_that_an_upstream_stated_is_not_run_into_again(start):
    rig = start(config={"window": 100_000}, window=9_000)
    rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
    asked = len(rig.provider.requests)
    other = [{"role": "user", "content": "Another talk"}, *make_dialog(30)[1:]]
    answer = rig.post("openai-chat", make_body("openai-chat", other))
    assert answer.status_code == 200
    assert len(rig.provider.requests) == asked + 1


def test_an_overflow_that_cannot_be_helped_is_relayed_as_it_came(start):
    rig = start(config={"window": 100_000}, window=3_000)
    messages = [{"role": "user", "content": "word " * 20_000}]
    answer = rig.post("openai-chat", make_body("openai-chat", messages))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert len(rig.provider.requests) <= 2


def test_room_that_the_client_asks_for_its_answer_is_left_free_after_an_overflow(start):
    rig = start(config={"window": 20_000, "reserve": 500}, window=20_000)
    body = make_body("anthropic", make_dialog(20), max_tokens=8_000)
    answer = rig.post("anthropic", body)
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["x-refold-tokens"].split("->")[1]) <= 12_000


def test_the_forecast_of_a_session_has_the_room_that_its_requests_leave_for_the_answer(start):
    rig = start(window=20_000)
    history, forecasts, announced = [], [], 0
    for turn in range(60):
        history.append({"role": "user", "content": f"question {turn} " + "word " * 300})
        answer = rig.post("anthropic", make_body("anthropic", history, max_tokens=9_000))
        history.append({"role": "assistant", "content": "ok"})
        if answer.headers["x-refold-reason"].startswith("fold."):
            forecasts.append(announced)
        announced = rig.manager.status(answer.headers["x-refold-session"]).acts_at
    assert forecasts
    assert max(forecasts) <= 11_000


@pytest.mark.parametrize(("wire", "stream"), each_once(WIRES, (False, True)))
def test_usage_that_the_provider_reports_is_taken_in(start, wire, stream):
    rig = start()
    extra = {"stream_options": {"include_usage": True}} if wire == "openai-chat" and stream else {}
    answer = rig.post(wire, make_body(wire, make_dialog(2), stream=stream, **extra))
    session = answer.headers["x-refold-session"]
    wait_for(lambda: rig.manager.ledger.read_usage(session))
    usage = rig.manager.ledger.read_usage(session)[0]
    assert usage.input_tokens > 100
    assert usage.counted_tokens > 100
    assert usage.output_tokens >= 1


class FullDisk:
    """A ledger whose disk is full from some moment on."""

    def __init__(self, ledger):
        self._ledger = ledger
        self.is_full = False

    def __getattr__(self, name):
        if name in ("append", "extend") and self.is_full:
            raise LedgerError("the disk is full")
        return getattr(self._ledger, name)


def test_when_refold_fails_the_original_goes_through_and_says_so(start, tmp_path):
    ledger = FullDisk(SqliteLedger(tmp_path / "ledger.db"))
    rig = start(ledger=ledger)
    messages = make_dialog(1)
    first = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="mine")
    assert first.headers["x-refold-reason"] == "unchanged"
    ledger.is_full = True
    body = json.dumps(make_body("openai-chat", [*messages, *make_dialog(3)])).encode()
    answer = rig.post("openai-chat", body, x_refold_session="mine")
    assert answer.status_code == 200
    assert answer.headers["x-refold-reason"] == "failed-open; error=LedgerError"
    assert rig.provider.requests[-1].body == body
    wait_for(lambda: any(event.kind == "failed" for event in ledger.read_events("mine")))
    ledger.is_full = False
    again = rig.post("openai-chat", body, x_refold_session="mine")
    assert again.headers["x-refold-reason"] == "unchanged"


def test_a_request_whose_fixed_parts_alone_are_too_large_goes_through_as_it_came(start):
    rig = start(config={"window": 3_000, "reserve": 500})
    body = json.dumps(make_body("openai-chat", [{"role": "user", "content": "word " * 9_000}])).encode()
    answer = rig.post("openai-chat", body)
    assert answer.status_code == 200
    assert answer.headers["x-refold-reason"].startswith("over-budget; tokens=9")
    assert rig.provider.requests[-1].body == body


def test_tool_results_are_not_shortened_on_arrival(start):
    rig = start()
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "run it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "\n".join(f"line {n}" for n in range(5_000))},
    ]
    body = json.dumps(make_body("openai-chat", messages)).encode()
    assert rig.post("openai-chat", body).status_code == 200
    assert rig.provider.requests[-1].body == body


def test_arrival_stages_are_left_out_of_the_ladder_and_the_rest_stays():
    config = CompressionConfig()
    assert config.arrival_stages()
    plain = settle_arrival(config)
    assert plain.arrival_stages() == []
    assert {"mask", "fold"} <= set(plain.ladder)


def test_a_request_with_numbers_and_surrogates_that_json_libraries_change_keeps_them(start):
    rig = start(config=SMALL, window=8_000)
    messages = make_dialog(30)
    last = '{"role":"user","content":"\\ud800 lone","metadata":{"id":123456789012345678901234567890}}'
    text = json.dumps(make_body("openai-chat", messages))
    body = text[: text.rindex("]")] + "," + last + text[text.rindex("]") :]
    answer = rig.post("openai-chat", body.encode())
    assert answer.status_code == 200, answer.text
    assert b"123456789012345678901234567890" in rig.provider.requests[-1].body
    assert find_sent(rig, "openai-chat")[-1]["content"] == "\ud800 lone"
    assert answer.headers["x-refold-edits"] != "0"


def test_an_answer_cut_off_in_a_nearly_full_window_forces_a_compression(start):
    rig = start(
        [say("cut", usage=ScriptedUsage(7_900, 90), finish_reason="length"), "fine"],
        config={"window": 8_000, "reserve": 500},
    )
    messages = make_dialog(2)
    first = rig.post("openai-chat", make_body("openai-chat", messages))
    assert first.headers["x-refold-edits"] == "0"
    longer = [*messages, {"role": "assistant", "content": "cut"}, {"role": "user", "content": "go on"}]
    second = rig.post("openai-chat", make_body("openai-chat", longer))
    assert int(second.headers["x-refold-edits"]) > 0


ROOMY = {
    "anthropic": ("claude-sonnet-4-5", "max_tokens", 140_000, 2_250),
    "openai-chat": ("gpt-4o", "max_completion_tokens", 112_000, 2_100),
    "openai-responses": ("gpt-4o", "max_output_tokens", 112_000, 2_100),
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_for_a_short_answer_may_use_the_room_that_a_long_one_would_need(start, wire):
    model, limit, usual, words = ROOMY[wire]
    rig = start(config={"economic": False})
    messages, tokens = make_dialog(1, words), 0
    for turn in range(1, 7):
        answer = rig.post(wire, make_body(wire, messages, model, **{limit: 1_000}))
        tokens = int(answer.headers["x-refold-tokens"].split("->")[-1])
        assert find_sent(rig, wire) == messages, f"turn {turn}, {tokens} tokens, {answer.headers['x-refold-reason']}"
        messages += make_dialog(1, words + turn)
    assert tokens > usual
    status = rig.manager.status(answer.headers["x-refold-session"])
    assert usual < tokens < status.hard, "the gauge has the limit that held for the request"


@pytest.mark.parametrize(
    ("wire", "model"),
    [("anthropic", "claude-sonnet-4-5"), pytest.param("openai-responses", "gpt-5", marks=pytest.mark.slow)],
)
def test_a_session_that_grows_to_sixty_thousand_tokens_in_a_large_window_passes_unchanged(start, wire, model):
    rig = start(config={"window": 200_000})
    tokens = 0
    for history in grow_session(90):
        messages = convert(wire, history)[0]
        answer = rig.post(wire, make_body(wire, messages, model))
        counted = int(answer.headers["x-refold-tokens"].split("->")[-1])
        if counted > 60_000:
            break
        tokens = counted
        assert find_sent(rig, wire) == messages, f"compressed at {tokens:,} tokens"
    assert 57_000 < tokens <= 60_000


FIRST_FOLD = """
import json, sys
from pathlib import Path
from re import _compiler
from tests.rigs.server import make_body, make_dialog, start_rig

with start_rig(Path(sys.argv[1]), config={"window": 8_000, "reserve": 1_000}, window=8_000) as rig:
    rig.post("openai-chat", make_body("openai-chat", make_dialog(1)))
    assert rig.http.get("/readyz").status_code == 200
    modules, compiled, compile_one = set(sys.modules), [], _compiler.compile

    def note(pattern, flags=0):
        compiled.append(str(pattern))
        return compile_one(pattern, flags)

    _compiler.compile = note
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
    assert int(answer.headers["x-refold-edits"]) > 0
    print(json.dumps([sorted(set(sys.modules) - modules), compiled]))
"""


def test_a_gateway_that_is_ready_imports_and_compiles_nothing_in_its_first_fold(tmp_path, empty_home):
    command = [sys.executable, "-c", FIRST_FOLD, str(tmp_path / "work")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [[], []]
