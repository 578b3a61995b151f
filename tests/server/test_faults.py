"""Slow, vanishing and hostile peers on both sides: every wait ends, nothing is left open, nothing half is whole."""

import http.client
import json
import os
import socket
import threading
import time

import httpx2
import pytest

from refold.server.fallback import WorkClock
from refold.server.worker import read_process_time
from refold.testing import drip, drop, empty_body, half_json, hang, html_page, never_end
from refold.testing.postgres import find_port
from tests.rigs.server import PATHS, make_body, make_dialog, wait_for
from tests.server.raw_upstream import RawUpstream, play_bytes, play_chunks, reset

HELLO = make_dialog(1, words=3)
WIRES = list(PATHS)


def is_idle(rig):
    known = rig.application.identities._known.values()
    return rig.application.gateway.requests == 0 and all(one.in_flight == 0 for one in known)


@pytest.mark.parametrize("wire", WIRES)
def test_an_upstream_that_cannot_be_reached_is_503_in_the_clients_shape(start, wire):
    rig = start(upstream=f"http://127.0.0.1:{find_port()}")
    answer = rig.post(wire, make_body(wire, HELLO))
    assert answer.status_code == 503
    assert "upstream" in answer.json()["error"]["message"]


def test_an_upstream_that_never_answers_is_504(start):
    rig = start(hang(30), settings={"upstream_stall_s": 0.3})
    answer = rig.post("openai-chat", make_body("openai-chat", HELLO))
    assert answer.status_code == 504
    wait_for(lambda: is_idle(rig))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(start, wire, stream):
    rig = start(drop("a long answer that is cut in the middle of it", after=2))
    try:
        answer = rig.post(wire, make_body(wire, HELLO, stream=stream))
    except httpx2.TransportError:
        pass
    else:  # Nothing of it was relayed yet.
        assert (answer.status_code, stream) == (502, True)
    wait_for(lambda: is_idle(rig))


def test_a_stream_that_stalls_before_it_says_anything_is_an_error_the_client_reads(start):
    rig = start(drip("slow " * 50, pause_s=5), settings={"upstream_stall_s": 0.3})
    answer = rig.post("anthropic", make_body("anthropic", HELLO, stream=True))
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "api_error"
    wait_for(lambda: is_idle(rig))


def test_a_stream_that_stalls_is_cut(start):
    with RawUpstream(play_chunks([b"data: {}\n\n", b"data: {}\n\n"], pause_s=5)) as upstream:
        # Long enough for the first chunk on a busy machine: before it the answer would be an error.
        rig = start(upstream=upstream.url, settings={"upstream_stall_s": 2})
        with pytest.raises(httpx2.TransportError):
            rig.post("anthropic", make_body("anthropic", HELLO, stream=True))
        wait_for(lambda: is_idle(rig))


@pytest.mark.slow
def test_a_stream_that_never_ends_is_ended_by_the_limit(start):
    rig = start(never_end(pause_s=0.01), settings={"request_s_max": 3}, seconds_max=600)
    with pytest.raises(httpx2.TransportError):
        rig.post("openai-chat", make_body("openai-chat", HELLO, stream=True))
    wait_for(lambda: is_idle(rig))


@pytest.mark.parametrize("fault", [html_page(), empty_body(), half_json()])
@pytest.mark.parametrize("wire", WIRES)
def test_nonsense_of_an_upstream_passes_through_as_it_is(start, wire, fault):
    rig = start(fault)
    answer = rig.post(wire, make_body(wire, HELLO))
    assert answer.status_code == 200
    wait_for(lambda: is_idle(rig))


@pytest.mark.parametrize(
    "play",
    [
        reset,
        play_bytes(b"not http at all\r\n\r\n"),
        play_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
        play_bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        play_bytes(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"),
        play_bytes(b""),
    ],
)
def test_an_upstream_that_breaks_the_protocol_is_an_error_and_leaves_nothing_open(start, play):
    with RawUpstream(play) as upstream:
        rig = start(upstream=upstream.url)
        try:
            answer = rig.post("openai-chat", make_body("openai-chat", HELLO))
            assert answer.status_code in (502, 503)
        except httpx2.TransportError:
            pass
        wait_for(lambda: is_idle(rig) and upstream.open == 0)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"not http at all\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n", "malformed"),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nanything", "101"),
    ],
)
def test_an_answer_that_is_not_http_is_502_with_its_reason(start, said, told):
    with RawUpstream(play_bytes(said)) as upstream:
        rig = start(upstream=upstream.url)
        answer = rig.post("openai-chat", make_body("openai-chat", HELLO))
        assert answer.status_code == 502
        assert told in answer.json()["error"]["message"]
        wait_for(lambda: is_idle(rig) and upstream.open == 0)


@pytest.mark.parametrize("path", ["/v1/compressX", "/v1/compress/more", "/v1/usages", "/v1/usage/today"])
def test_a_path_that_begins_like_one_of_ours_goes_upstream(start, path):
    rig = start()
    rig.http.post(path, json={"messages": []})
    assert [one.path for one in rig.provider.requests] == [path]


def test_a_redirect_is_relayed_and_never_followed(start):
    with RawUpstream(lambda connection: None) as elsewhere:
        location = f"{elsewhere.url}/v1/chat/completions".encode()
        moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
        with RawUpstream(play_bytes(moved)) as upstream:
            rig = start(upstream=upstream.url)
            answer = rig.post("openai-chat", make_body("openai-chat", HELLO), authorization="Bearer sk-secret")
            assert answer.status_code == 307
        assert elsewhere.requests == []


def test_cookies_of_an_upstream_do_not_pass_from_one_client_to_another(start):
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: who=alice\r\nContent-Length: 2\r\n\r\n{}"

    def play(connection):
        connection.sendall(answer)

    with RawUpstream(play) as upstream:
        rig = start(upstream=upstream.url)
        first = rig.http.get("/v1/models")
        assert first.headers["set-cookie"] == "who=alice"
        httpx2.get(f"{rig.url}/v1/models", trust_env=False, timeout=60)
        assert b"who=alice" not in upstream.requests[-1]


def test_a_client_that_vanishes_ends_the_request_upstream(start):
    rig = start(drip("word " * 2_000, pause_s=0.02), seconds_max=60)
    host, port = rig.url.removeprefix("http://").split(":")
    body = json.dumps(make_body("anthropic", HELLO, stream=True)).encode()
    for _ in range(5):
        client = http.client.HTTPConnection(host, int(port))
        client.request("POST", "/v1/messages", body, {"anthropic-version": "x", "content-type": "application/json"})
        assert client.getresponse().read(10)
        client.sock.close() if client.sock else client.close()
        client.close()
    wait_for(lambda: is_idle(rig))


def test_a_client_that_vanishes_before_the_answer_begins_leaves_nothing_behind(start):
    rig = start(hang(30))
    host, port = rig.url.removeprefix("http://").split(":")
    body = json.dumps(make_body("openai-chat", HELLO)).encode()
    for _ in range(5):
        with socket.create_connection((host, int(port))) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            time.sleep(0.05)
    wait_for(lambda: is_idle(rig))


def test_a_client_that_sends_its_body_too_slowly_is_let_go(start):
    rig = start(settings={"client_stall_s": 0.3})
    host, port = rig.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in client.recv(4_096)
    wait_for(lambda: is_idle(rig))


def test_a_client_that_reads_nothing_is_let_go_and_costs_little(start):
    def flood(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"data: " + b"x" * 60_000 + b"\n\n"
        for _ in range(2_000):
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    with RawUpstream(flood) as upstream:
        rig = start(upstream=upstream.url, settings={"client_stall_s": 0.5})
        host, port = rig.url.removeprefix("http://").split(":")
        body = json.dumps(make_body("openai-chat", HELLO, stream=True)).encode()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            client.connect((host, int(port)))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            wait_for(lambda: upstream.requests)
            wait_for(lambda: is_idle(rig) and upstream.open == 0)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/compress"])
def test_a_body_that_is_too_large_is_413_and_goes_nowhere(start, path, stated):
    rig = start(settings={"body_bytes_max": 10_000})
    content = b"x" * 20_000 if stated else iter([b"x" * 5_000] * 4)
    try:
        answer = rig.http.post(path, content=content)
        assert answer.status_code == 413
    except httpx2.TransportError:
        assert not stated
    assert rig.provider.requests == []


def test_more_requests_than_the_gateway_takes_are_told_to_come_back(start):
    refused = threading.Event()
    rig = start(drip("slow " * 40, pause_s=0.01, until=refused), settings={"requests_max": 2})
    statuses = []

    def ask(number):
        with httpx2.Client(base_url=rig.url, trust_env=False, timeout=60) as client:
            body = make_body("openai-chat", [{"role": "user", "content": f"talk {number}"}], stream=True)
            answer = client.post(PATHS["openai-chat"], json=body)
            statuses.append((answer.status_code, answer.headers.get("retry-after")))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(rig.provider.requests) == 2)
    for number in range(4):
        ask(number)
    assert statuses == [(503, "1")] * 4
    refused.set()
    for thread in threads:
        thread.join()
    assert [status for status, _ in statuses].count(200) == 2
    wait_for(lambda: is_idle(rig))


def test_preparing_that_takes_too_long_fails_open(start):
    rig = start(settings={"prepare_s_max": 0.2})
    hello = make_body("openai-chat", HELLO)
    # On a busy machine the first try may take too long as well.
    wait_for(lambda: rig.post("openai-chat", hello, x_refold_session="s").headers["x-refold-reason"] == "unchanged")
    is_late = threading.Event()
    rig.manager.on("before_compress", lambda notice: is_late.wait(60))
    rig.manager.observe_usage("s", 0, is_overflow=True)
    longer = make_dialog(20)
    answer = rig.post("openai-chat", make_body("openai-chat", longer), x_refold_session="s")
    is_late.set()
    assert answer.headers["x-refold-reason"] == "failed-open; error=timeout"
    assert json.loads(rig.provider.requests[-1].body)["messages"] == longer


@pytest.mark.parametrize(
    ("used", "spent"),
    [
        pytest.param(0.1, 1.0, id="alone on the machine"),
        pytest.param(0.025, 0.25, id="a quarter of the processor"),
        pytest.param(0.0, 1.0, id="waiting"),
        pytest.param(0.4, 1.0, id="other requests compute as well"),
    ],
)
def test_time_that_other_programs_take_does_not_count_as_preparing(used, spent):
    cpu = iter(at * used for at in range(100))
    clock = WorkClock(lambda: next(cpu))
    for _ in range(10):
        clock.count(0.1)
    assert clock.spent == pytest.approx(spent)


def test_a_process_tells_its_processor_time():
    before = read_process_time(os.getpid())
    sum(at * at for at in range(2_000_000))
    assert read_process_time(os.getpid()) > before


def test_stopping_finishes_streams_first(start, tmp_path):
    from tests.rigs.server import start_rig

    got: list[bytes] = []
    with start_rig(tmp_path / "w2", drip("word " * 40, pause_s=0.02), settings={"shutdown_s": 60}) as rig:
        whole = threading.Event()

        def ask():
            with httpx2.Client(base_url=rig.url, trust_env=False, timeout=60) as client:
                answer = client.post(PATHS["openai-chat"], json=make_body("openai-chat", HELLO, stream=True))
                got.append(answer.content)
                whole.set()

        thread = threading.Thread(target=ask)
        thread.start()
        wait_for(lambda: rig.provider.requests)
        time.sleep(0.1)
        rig.application.is_stopping = True
        assert rig.http.get("/readyz").status_code == 503
    thread.join(60)
    assert got
    assert got[0].endswith(b"data: [DONE]\n\n")
