"""The protocol around a request: heads without end, silent connections, offers of other protocols, codings."""

import asyncio
import gzip
import json
import socket
import time

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from refold.server.serve import HEAD_BYTES_MAX, GatewayProtocol, JoinedWrites
from tests.rigs.effort import each_once
from tests.rigs.server import PATHS, make_body, make_dialog, pack, start_rig

BODY = json.dumps(make_body("openai-chat", make_dialog(1, words=3))).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


def say(rig, *pieces: bytes) -> bytes:
    """Send raw bytes; return all that comes until the gateway closes the connection."""
    host, port = rig.url.removeprefix("http://").split(":")
    heard = b""
    with socket.create_connection((host, int(port)), timeout=60) as line:
        try:
            for piece in pieces:
                line.sendall(piece)
            while chunk := line.recv(65_536):
                heard += chunk
        except ConnectionError:
            pass  # It was closed while we were speaking.
    return heard


def test_the_installed_uvicorn_has_every_name_that_the_protocol_overrides_or_uses():
    own = {name for name, value in vars(GatewayProtocol).items() if callable(value) and not name.startswith("__")}
    helpers = {"_decline_offer", "_give_up", "_is_declined", "_start_timer", "_stop_timer"}
    used = {"_should_upgrade", "_unset_keepalive_if_required", "handle_websocket_upgrade", "send_400_response"}
    missing = [name for name in sorted(own - helpers | used) if not hasattr(HttpToolsProtocol, name)]
    assert missing == []


@pytest.mark.parametrize("said", [b"", b"POST /v1/chat", HEAD + b"x-more: "], ids=["nothing", "a line", "a head"])
def test_a_connection_that_says_nothing_whole_is_closed(start, said):
    rig = start(settings={"client_stall_s": 0.3})
    assert say(rig, said) == b""


def test_a_second_request_that_stops_in_its_head_is_closed(start):
    rig = start(settings={"client_stall_s": 0.3})
    heard = say(rig, b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"GET /livez HTTP/1.1\r\nho")
    assert heard.count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("begun", [HEAD + b"x-refold-session: ", b"POST /"], ids=["header", "path"])
def test_a_head_without_end_is_refused_before_it_fills_the_memory(start, begun):
    rig = start()
    heard = say(rig, begun, *[b"a" * 65_536] * (4 * HEAD_BYTES_MAX // 65_536))
    assert b"200 OK" not in heard
    assert rig.provider.requests == []
    assert rig.http.get("/livez").status_code == 200


def test_a_request_that_stops_in_its_body_gets_an_error_and_its_connection_ends(start):
    rig = start(settings={"client_stall_s": 0.3})
    heard = say(rig, HEAD + b"content-length: 100000\r\n\r\n" + BODY)
    assert heard.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in heard


@pytest.mark.parametrize("key", [b"", b"x-refold-key: %b\r\n"], ids=["a stranger", "a tenant"])
def test_a_body_that_drips_on_after_its_answer_does_not_hold_the_connection(start, key):
    rig = start(settings={"client_stall_s": 0.5, "request_s_max": 1.0})
    made = rig.application.keys.add("alice")[1].encode()
    head = HEAD + (key % made if key else b"") + b"content-length: 100000\r\n\r\n"
    host, port = rig.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(head)
        line.settimeout(0.1)
        heard, until = b"", time.monotonic() + 20
        while time.monotonic() < until:
            try:
                line.sendall(b"x")
                if not (chunk := line.recv(65_536)):
                    break
                heard += chunk
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() < until, "it was still open"
    assert heard.startswith((b"HTTP/1.1 401", b"HTTP/1.1 504"))


@pytest.mark.slow
def test_a_client_that_finishes_its_body_after_the_answer_keeps_its_connection(start):
    rig = start(settings={"client_stall_s": 1.5})
    rig.application.keys.add("alice")
    host, port = rig.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(BODY))
        assert line.recv(65_536).startswith(b"HTTP/1.1 401")
        line.sendall(BODY)
        time.sleep(2)
        line.sendall(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert line.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_a_body_that_comes_slowly_behind_another_request_is_waited_for(start):
    rig = start(settings={"client_stall_s": 1.5})
    host, port = rig.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        first = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        line.sendall(first + HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY))
        size = len(BODY) // 10 + 1
        for at in range(0, len(BODY), size):
            line.sendall(BODY[at : at + size])
            time.sleep(0.25)
        heard = b""
        while chunk := line.recv(65_536):
            heard += chunk
    assert heard.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("connection", [b"Upgrade, HTTP2-Settings", b"Upgrade", b"close, Upgrade"])
def test_a_client_that_offers_http2_in_the_clear_is_served_with_its_body(start, connection, is_split):
    rig = start()
    offer = b"upgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\nconnection: " + connection + b"\r\n"
    head = HEAD + offer + b"content-length: %d\r\n\r\n" % len(BODY)
    last = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    heard = say(rig, *((head, BODY, last) if is_split else (head + BODY, last)))
    assert heard.startswith(b"HTTP/1.1 200 OK")
    sent = rig.provider.requests[-1]
    assert sent.body == BODY
    assert not {"upgrade", "http2-settings", "connection"} & set(sent.headers)
    assert (heard.count(b"HTTP/1.1 200") == 2) is not connection.startswith(b"close")


def test_the_gateway_is_not_a_proxy(start):
    heard = say(start(), b"CONNECT example.org:443 HTTP/1.1\r\nhost: example.org:443\r\n\r\n")
    assert heard.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(("wire", "coding"), each_once(PATHS, ("gzip", "deflate", "GZIP", "br", "zstd")))
def test_a_compressed_request_is_forwarded_unchanged_or_made_smaller(start, wire, coding):
    rig = start(config={"window": 8_000, "reserve": 1_000}, window=8_000)
    small = pack(coding, json.dumps(make_body(wire, make_dialog(1, words=3))).encode())
    answer = rig.post(wire, small, content_encoding=coding)
    sent = rig.provider.requests[-1]
    assert (sent.body, sent.headers["content-encoding"]) == (small, coding)
    assert answer.headers["x-refold-session"]
    long = make_body(wire, make_dialog(30))
    answer = rig.post(wire, pack(coding, json.dumps(long).encode()), content_encoding=coding)
    assert answer.status_code == 200
    sent = rig.provider.requests[-1]
    assert "content-encoding" not in sent.headers
    assert len(json.loads(sent.body)["input" if wire == "openai-responses" else "messages"]) < 61


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (BODY, "gzip"),
        (gzip.compress(BODY)[:-9], "gzip"),
        (gzip.compress(BODY) * 2, "gzip"),
        (BODY, "br"),
        (pack("br", BODY)[:-3], "br"),
        (BODY, "zstd"),
        (pack("zstd", BODY)[:-3], "zstd"),
        (pack("zstd", BODY) * 2, "zstd"),
        (BODY, "compress"),
        (b"", "gzip"),
        (b"", "zstd"),
    ],
)
def test_a_coding_that_cannot_be_read_is_the_upstreams_business(start, body, coding):
    rig = start()
    rig.post("openai-chat", body, content_encoding=coding)
    sent = rig.provider.requests[-1]
    assert (sent.body, sent.headers["content-encoding"]) == (body, coding)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_small_body_that_unpacks_without_end_is_413(start, coding):
    rig = start(settings={"body_bytes_max": 100_000})
    answer = rig.post("openai-chat", pack(coding, b" " * 10_000_000), content_encoding=coding)
    assert answer.status_code == 413
    assert rig.provider.requests == []


def test_a_client_that_trims_its_oldest_messages_is_known_again_after_a_restart(tmp_path, empty_home):
    messages = make_dialog(10, words=5)
    with start_rig(tmp_path / "w") as rig:
        first = rig.post("anthropic", make_body("anthropic", messages)).headers["x-refold-session"]
    more = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    with start_rig(tmp_path / "w") as rig:
        trimmed = rig.post("anthropic", make_body("anthropic", [*messages[8:], *more]))
        assert trimmed.headers["x-refold-session"] == first
        other = make_dialog(10, words=6)
        assert rig.post("anthropic", make_body("anthropic", other)).headers["x-refold-session"] != first


class Written(asyncio.Transport):
    """A transport that notes what is written together."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def writelines(self, list_of_data) -> None:
        self.pieces.append(b"".join(list_of_data))

    def close(self) -> None:
        self.pieces.append(b"closed")


async def let_loop_turn(count: int = 2) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_head_and_a_body_that_follows_at_once_are_written_together():
    async def answer() -> list[bytes]:
        line = Written()
        joined = JoinedWrites(line, asyncio.get_running_loop())
        for piece in (b"head ", b"body", b"more"):
            joined.write(piece)
        await let_loop_turn()
        return line.pieces

    assert asyncio.run(answer()) == [b"head body", b"more"]


def test_a_head_does_not_wait_for_a_body_that_takes_its_time():
    async def answer() -> list[bytes]:
        line = Written()
        joined = JoinedWrites(line, asyncio.get_running_loop())
        joined.write(b"head")
        await let_loop_turn()
        early = list(line.pieces)
        joined.write(b"body")
        return [*early, *line.pieces[1:]]

    assert asyncio.run(answer()) == [b"head", b"body"]


def test_a_head_without_a_body_is_written_before_the_connection_is_closed():
    async def answer() -> list[bytes]:
        line = Written()
        joined = JoinedWrites(line, asyncio.get_running_loop())
        joined.write(b"head")
        joined.close()
        await let_loop_turn()
        return line.pieces

    assert asyncio.run(answer()) == [b"head", b"closed"]
