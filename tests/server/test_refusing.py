"""An overflow that an upstream reports inside a stream that began with status 200."""

import gzip
import json

import pytest

from tests.rigs.effort import each_once
from tests.rigs.server import make_body, make_dialog, wait_for
from tests.server.raw_upstream import RawUpstream, play_bytes, play_chunks

TOO_LONG = "prompt is too long: 30000 tokens > 9000 maximum"
ERRORS = {
    "openai-chat": [{"error": {"message": TOO_LONG, "type": "invalid_request_error", "code": None}}],
    "openai-responses": [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "error": None}},
        {"type": "response.failed", "response": {"id": "r", "error": {"code": "x", "message": TOO_LONG}}},
    ],
    "anthropic": [{"type": "error", "error": {"type": "invalid_request_error", "message": TOO_LONG}}],
}
ANSWERS = {
    "openai-chat": [{"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}],
    "openai-responses": [{"type": "response.output_text.delta", "delta": "hi"}],
    "anthropic": [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}],
}


def write_events(events):
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def take_turns(*plays):
    """Return a play that does another thing at each request, the last one for ever."""
    left = list(plays)

    def play(connection):
        (left.pop(0) if len(left) > 1 else left[0])(connection)

    return play


def read_messages(request, wire):
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    return body["input" if wire == "openai-responses" else "messages"]


@pytest.mark.parametrize(("wire", "step"), each_once(ERRORS, (1, 7, 10_000)))
def test_a_refusal_in_the_first_event_is_answered_with_a_smaller_request(start, wire, step):
    refusal = write_events(ERRORS[wire])
    pieces = [refusal[at : at + step] for at in range(0, len(refusal), step)]
    answer_bytes = write_events(ANSWERS[wire])
    with RawUpstream(take_turns(play_chunks(pieces), play_chunks([answer_bytes]))) as upstream:
        rig = start(upstream=upstream.url, config={"window": 200_000})
        messages = make_dialog(30)
        answer = rig.post(wire, make_body(wire, messages, stream=True))
        assert answer.status_code == 200
        assert answer.content == answer_bytes
        assert answer.headers["x-refold-reason"] == "overflow-retried"
        assert len(upstream.requests) == 2
        assert len(read_messages(upstream.requests[0], wire)) == len(messages)
        assert len(upstream.requests[1]) < len(upstream.requests[0]) / 2


def test_a_refusal_that_is_compressed_is_read_as_well(start):
    body = gzip.compress(write_events(ERRORS["openai-chat"]))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
    refusal = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    answer_bytes = write_events(ANSWERS["openai-chat"])
    with RawUpstream(take_turns(play_bytes(refusal), play_chunks([answer_bytes]))) as upstream:
        rig = start(upstream=upstream.url, config={"window": 200_000})
        answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30), stream=True))
        assert answer.content == answer_bytes


def test_a_refusal_of_the_smallest_context_is_relayed_as_it_came(start):
    refusal = write_events(ERRORS["anthropic"])
    with RawUpstream(play_chunks([refusal])) as upstream:
        rig = start(upstream=upstream.url, config={"window": 200_000})
        answer = rig.post("anthropic", make_body("anthropic", make_dialog(30), stream=True))
        assert (answer.status_code, answer.content) == (200, refusal)
        sizes = [len(request) for request in upstream.requests]
        assert len(sizes) <= 4
        assert sizes == sorted(sizes, reverse=True)


def test_a_refusal_after_the_answer_began_makes_the_next_request_smaller(start):
    begun = write_events(ANSWERS["openai-chat"]) + write_events(ERRORS["openai-chat"])
    with RawUpstream(play_chunks([write_events(ANSWERS["openai-chat"]), write_events(ERRORS["openai-chat"])])) as up:
        rig = start(upstream=up.url, config={"window": 200_000})
        messages = make_dialog(30)
        answer = rig.post("openai-chat", make_body("openai-chat", messages, stream=True))
        assert answer.content == begun
        session = answer.headers["x-refold-session"]
        wait_for(lambda: rig.manager.ledger.read_session(session).settings.get("forced"))
        longer = [*messages, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "go on"}]
        rig.post("openai-chat", make_body("openai-chat", longer, stream=True))
        assert len(read_messages(up.requests[-1], "openai-chat")) < len(messages)


def test_a_stream_that_says_nothing_at_first_is_handed_on(start, monkeypatch):
    monkeypatch.setattr("refold.server.upstream.FIRST_EVENT_S", 0.1)
    answer_bytes = [b"data: ", b'{"choices": []}', b"\n\n"]
    with RawUpstream(play_chunks(answer_bytes, pause_s=0.3)) as upstream:
        rig = start(upstream=upstream.url)
        answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(2), stream=True))
        assert answer.content == b"".join(answer_bytes)
