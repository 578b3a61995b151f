"""Requests that try to reach what is not theirs, or to break the gateway: refused, and nothing leaks."""

import asyncio
import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from refold.ledger.sqlite import SqliteLedger
from tests.rigs.server import make_body, make_dialog, wait_for

HELLO = [{"role": "user", "content": "hello"}]
CREDENTIALS = ["authorization", "x-api-key", "api-key", "x-goog-api-key", "x-anything"]


def say_raw(rig, head):
    """Send a request byte by byte as given; return what comes back."""
    at = urlsplit(rig.url)
    with socket.create_connection((at.hostname, at.port), timeout=60) as connection:
        connection.sendall(head)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize("second", CREDENTIALS)
def test_a_key_of_the_gateway_never_reaches_the_provider_in_whichever_header(start, second):
    rig = start()
    key = rig.application.keys.add("alice")[1]
    other = rig.application.keys.add("bob")[1]
    for given in (key, f"Bearer {other}", f"token={key}; other"):
        answer = rig.post("openai-chat", make_body("openai-chat", HELLO), **{"x_refold_key": key, second: given})
        assert answer.status_code == 200
        sent = rig.provider.requests[-1].headers
        assert second not in sent
        assert "rk-" not in json.dumps(dict(sent))


def test_a_revoked_key_does_not_reach_the_provider_either(start):
    rig = start()
    stored, revoked = rig.application.keys.add("bob")
    key = rig.application.keys.add("alice")[1]
    rig.application.keys.revoke(stored.id)
    rig.post("openai-chat", make_body("openai-chat", HELLO), x_refold_key=key, authorization=f"Bearer {revoked}")
    assert "authorization" not in rig.provider.requests[-1].headers


def test_a_key_in_the_query_does_not_reach_the_provider(start):
    rig = start()
    key = rig.application.keys.add("alice")[1]
    rig.http.get(f"/v1/models?key={key}&limit=3", headers={"x-refold-key": key})
    assert rig.provider.requests[-1].path == "/v1/models?limit=3"


def test_a_key_in_another_spelling_or_in_the_path_does_not_reach_the_provider(start):
    rig = start()
    key = rig.application.keys.add("alice")[1]
    for spelt in (f"RK{key[2:]}", key.replace("-", "%2D", 1), f"%72{key[1:]}", f"%2572{key[1:]}"):
        rig.post("openai-chat", make_body("openai-chat", HELLO), x_refold_key=key, x_anything=spelt)
        assert "x-anything" not in rig.provider.requests[-1].headers
        rig.http.get(f"/v1/models?key={spelt}&limit=3", headers={"x-refold-key": key})
        assert rig.provider.requests[-1].path == "/v1/models?limit=3"
    rig.http.get("/v1/models", headers={"x-refold-key": key, f"x-{key}": "1"})
    assert f"x-{key}".lower() not in rig.provider.requests[-1].headers
    sent = len(rig.provider.requests)
    for path in (f"/v1/models/{key}", f"/v1/models/%72{key[1:]}"):
        assert rig.http.get(path, headers={"x-refold-key": key}).status_code == 403
    assert len(rig.provider.requests) == sent


def test_the_clients_own_provider_key_goes_through(start):
    rig = start()
    key = rig.application.keys.add("alice")[1]
    rig.post("openai-chat", make_body("openai-chat", HELLO), x_refold_key=key, authorization="Bearer sk-rk-mine")
    assert rig.provider.requests[-1].headers["authorization"] == "Bearer sk-rk-mine"


ACCOUNT_PATHS = [
    ("GET", "/v1/files"),
    ("GET", "/v1/files/file-1/content"),
    ("GET", "/v1/chat/completions"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/models/ft:gpt-4o:acme"),
    ("GET", "/v1/organization/users"),
    ("POST", "/v1/batches"),
    ("GET", "/v1/messages/batches"),
]


@pytest.mark.parametrize(("method", "path"), ACCOUNT_PATHS)
def test_tenants_that_share_the_operators_key_reach_completions_only(start, method, path):
    rig = start(settings={"openai_key": "sk-held", "anthropic_key": "sk-held"})
    key = rig.application.keys.add("alice")[1]
    answer = rig.http.request(method, path, headers={"x-refold-key": key})
    assert answer.status_code == 403
    assert "tenant_paths" in answer.text
    assert rig.provider.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/..%252ffiles",
        "/v1/models/..;/files",
        "/v1/models/x;y/files",
        "/v1/models/%5c..%5cfiles",
        "/v1/models/a%00b",
    ],
)
def test_a_path_that_another_server_could_read_as_a_different_one_is_not_for_tenants(start, path):
    rig = start(settings={"openai_key": "sk-held"})
    key = rig.application.keys.add("alice")[1]
    assert rig.http.get(path, headers={"x-refold-key": key}).status_code in (403, 404)
    assert rig.provider.requests == []
    for name in ("ft:gpt-4o:acme::abc", "meta-llama%2FLlama-3.1-8B", "qwen3@latest"):
        rig.http.get(f"/v1/models/{name}", headers={"x-refold-key": key})
        assert rig.provider.requests[-1].path == f"/v1/models/{name}"


STEERING = [
    "x-http-method-override",
    "x-original-url",
    "x-rewrite-url",
    "openai-organization",
    "openai-project",
    "cookie",
]


def test_a_tenant_with_the_operators_key_steers_neither_method_nor_path_nor_account(start):
    rig = start(settings={"openai_key": "sk-held"})
    key = rig.application.keys.add("alice")[1]
    steering = dict.fromkeys(STEERING, "evil")
    rig.http.get("/v1/models", headers={"x-refold-key": key, "x-trace": "kept", **steering})
    sent = rig.provider.requests[-1].headers
    assert not set(STEERING) & set(sent)
    assert sent["x-trace"] == "kept"


def test_a_client_with_its_own_provider_key_chooses_its_own_organisation(start):
    rig = start()
    rig.http.get("/v1/models", headers={"authorization": "Bearer sk-mine", "openai-organization": "org-mine"})
    assert rig.provider.requests[-1].headers["openai-organization"] == "org-mine"


def test_tenants_that_share_the_operators_key_still_complete_count_and_list_models(start):
    rig = start(settings={"openai_key": "sk-held", "anthropic_key": "sk-held"})
    key = rig.application.keys.add("alice")[1]
    for wire in ("openai-chat", "openai-responses", "anthropic"):
        assert rig.post(wire, make_body(wire, HELLO), x_refold_key=key).status_code == 200
    assert rig.http.get("/v1/models", headers={"x-refold-key": key}).status_code == 200
    assert rig.http.get("/v1/models/scripted-1", headers={"x-refold-key": key}).status_code == 200
    count = {"model": "scripted-1", "messages": HELLO}
    headers = {"x-refold-key": key, "anthropic-version": "2023-06-01"}
    assert rig.http.post("/v1/messages/count_tokens", json=count, headers=headers).status_code == 200


def test_an_operator_may_open_more_paths_to_tenants(start):
    rig = start(settings={"openai_key": "sk-held", "tenant_paths": "/v1/files, /v1/audio"})
    key = rig.application.keys.add("alice")[1]
    assert rig.http.get("/v1/files/f1", headers={"x-refold-key": key}).status_code == 404  # The provider's own answer.
    assert rig.http.get("/v1/filesystem", headers={"x-refold-key": key}).status_code == 403


def test_tenants_with_their_own_provider_keys_reach_every_path(start):
    rig = start()
    key = rig.application.keys.add("alice")[1]
    rig.http.get("/v1/files", headers={"x-refold-key": key, "authorization": "Bearer sk-alice"})
    assert rig.provider.requests[-1].path == "/v1/files"


@pytest.mark.parametrize("role", [["user"], {"a": 1}, 3, None, True, "", "u" * 10_000])
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_an_invalid_role_is_left_to_the_provider_to_refuse(rig, wire, role):
    answer = rig.post(wire, make_body(wire, [{"role": role, "content": "x"}, *HELLO]))
    assert answer.status_code == 400
    assert len(rig.provider.requests) == 1


@pytest.mark.parametrize("kind", [["message"], {"a": 1}, 3, True, "u" * 10_000])
@pytest.mark.parametrize("chained", [{}, {"previous_response_id": "resp_x"}])
def test_an_item_with_an_invalid_type_is_left_to_the_provider_to_refuse(rig, kind, chained):
    items = [{"type": kind, "role": "user", "content": "x"}, *HELLO]
    assert rig.post("openai-responses", make_body("openai-responses", items, **chained)).status_code < 500
    assert len(rig.provider.requests) == 1


@pytest.mark.parametrize("host", ["[evil", "[::1", "a]b", "evil.example", "127.0.0.1.evil.example", "[::g]:1"])
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/api/sessions"])
def test_a_request_to_another_or_a_malformed_name_is_refused(rig, host, path):
    heard = say_raw(rig, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert heard.startswith(b"HTTP/1.1 403"), heard[:200]
    assert rig.provider.requests == []


def test_a_page_on_another_local_port_cannot_post_without_a_key(rig):
    body = make_body("openai-chat", HELLO)
    port = urlsplit(rig.url).port
    for origin in (f"http://localhost:{port + 1}", "http://127.0.0.1:3000", "http://localhost", "null"):
        assert rig.post("openai-chat", body, origin=origin).status_code == 403
    assert rig.post("openai-chat", body, sec_fetch_site="cross-site").status_code == 403
    assert rig.post("openai-chat", body, origin=rig.url).status_code == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = rig.http.post("/v1/chat/completions", content=json.dumps(body), headers={"content-type": kind})
        assert answer.status_code == 403
        assert "application/json" in answer.text
    assert len(rig.provider.requests) == 1


@pytest.mark.parametrize(
    "path", ["/v1/..%2fadmin", "/v1/chat%2fcompletions", "/v1/files%2F..%2Fx", "/v1/models/..%2f..%2fkeys"]
)
def test_an_encoded_slash_does_not_reach_another_path(rig, path):
    heard = say_raw(rig, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    assert heard.startswith(b"HTTP/1.1 404"), heard[:200]
    assert rig.provider.requests == []


def test_a_model_whose_name_has_a_slash_can_be_looked_up(rig):
    rig.http.get("/v1/models/meta-llama%2FLlama-3")
    assert rig.provider.requests[-1].path == "/v1/models/meta-llama%2FLlama-3"


def test_one_tenant_cannot_take_all_the_places(start):
    from refold.testing import hang

    rig = start(hang(20.0), settings={"tenant_requests_max": 2})
    keys = {name: rig.application.keys.add(name)[1] for name in ("alice", "bob")}

    async def ask():
        import httpx2

        async with httpx2.AsyncClient(base_url=rig.url, timeout=120, trust_env=False) as http:

            def post(name):
                body = make_body("openai-chat", HELLO)
                return http.post("/v1/chat/completions", json=body, headers={"x-refold-key": keys[name]})

            held = [asyncio.ensure_future(post("alice")) for _ in range(2)]
            await asyncio.to_thread(wait_for, lambda: len(rig.provider.requests) == 2)
            refused = await post("alice")
            listed = await http.get("/api/sessions", headers={"x-refold-key": keys["alice"]})
            assert listed.status_code == 429, "the interface counts, too"
            other = asyncio.ensure_future(post("bob"))
            await asyncio.to_thread(wait_for, lambda: len(rig.provider.requests) == 3)
            for one in (*held, other):
                one.cancel()
            return refused

    refused = asyncio.run(ask())
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"


class HoldingLedger(SqliteLedger):
    """A ledger that does not open the sessions of one tenant before it is released."""

    def __init__(self, path):
        super().__init__(path)
        self.is_released = threading.Event()

    def open_session(self, session_id, now):
        if session_id.startswith("@alice/"):
            self.is_released.wait(60)
        return super().open_session(session_id, now)


def test_a_tenant_whose_requests_are_slow_to_prepare_leaves_threads_for_others(start, tmp_path):
    ledger = HoldingLedger(tmp_path / "ledger.db")
    rig = start(ledger=ledger, settings={"prepare_s_max": 30.0})
    keys = {name: rig.application.keys.add(name)[1] for name in ("alice", "bob")}

    def ask(name, number):
        body = make_body("openai-chat", [{"role": "user", "content": f"hello {number}"}])
        return rig.post("openai-chat", body, x_refold_key=keys[name]).headers["x-refold-reason"]

    with ThreadPoolExecutor(40) as pool:
        held = [pool.submit(ask, "alice", number) for number in range(36)]
        wait_for(lambda: rig.application.gateway.requests == 36)
        assert ask("bob", 0) == "unchanged"
        assert not any(one.done() for one in held)
        ledger.is_released.set()
        assert {one.result() for one in held} == {"unchanged"}


def test_head_of_the_root_says_that_somebody_is_there(rig):
    answer = rig.http.head("/")
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_websocket_is_declined_with_426_and_one_line_in_the_log(rig, caplog):
    caplog.set_level("INFO", "refold.server")
    ask = (
        "GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    heard = say_raw(rig, ask.encode())
    assert heard.startswith(b"HTTP/1.1 426"), heard[:200]
    assert sum(record.getMessage() == "declined a websocket" for record in caplog.records) == 1


def send_named(rig, name):
    """Send a request with these bytes as the session's name; return the answer's bytes."""
    body = json.dumps(make_body("openai-chat", HELLO)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    head += b"connection: close\r\nx-refold-session: %b\r\ncontent-length: %d\r\n\r\n" % (name, len(body))
    at = urlsplit(rig.url)
    with socket.create_connection((at.hostname, at.port), timeout=60) as connection:
        connection.sendall(head + body)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


REFUSED = {
    "another tenant's": b"@other/talk",
    "another tenant's, encoded": b"%40other/caf%C3%A9",
    "turns the reading direction": "a\u202eb".encode(),
    "turns the reading direction, encoded": b"a%E2%80%AEb",
    "no width": "a\u200bb".encode(),
    "a line break, encoded": b"caf%C3%A9%0Aset-cookie:x",
    "too long": "\u540d".encode() * 129,
}


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
def test_names_that_could_be_taken_for_another_session_are_refused(rig, name):
    assert send_named(rig, name).startswith(b"HTTP/1.1 400 ")
    assert rig.manager.ledger.list_sessions() == []


def test_a_session_may_have_a_name_in_any_language_however_the_client_writes_it(rig):
    spellings = ["客户".encode(), b"%E5%AE%A2%E6%88%B7"]
    spellings += [b"caf\xc3\xa9", b"cafe\xcc\x81", b"caf\xe9", b"caf%C3%A9", b"cafe%CC%81"]
    for spelling in spellings:
        answer = send_named(rig, spelling)
        assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]
        # The name in the answer can be sent as it is.
        told = re.search(rb"x-refold-session: (.*)\r\n", answer)[1]
        assert told in (b"%E5%AE%A2%E6%88%B7", b"caf%C3%A9")
        assert send_named(rig, told).startswith(b"HTTP/1.1 200 ")
    assert {row.id for row in rig.manager.ledger.list_sessions()} == {"客户", "café"}


def test_a_percent_sign_in_an_ascii_name_stays(rig):
    for name in (b"100%", b"a%20b", b"50%zz"):
        assert b"x-refold-session: %b\r\n" % name in send_named(rig, name)
    assert {row.id for row in rig.manager.ledger.list_sessions()} == {"100%", "a%20b", "50%zz"}


def test_divergent_histories_of_one_session_at_the_same_time_are_all_answered_and_leave_a_sound_ledger(start):
    rig = start(config={"window": 8_000, "reserve": 1_000}, window=8_000)

    def ask(number):
        talk = make_dialog(30 if number % 4 == 0 else 3 + number % 3)
        talk[-1] = {"role": "user", "content": f"branch {number}"}
        answer = rig.post("openai-chat", make_body("openai-chat", talk), x_refold_session="talk")
        assert answer.status_code == 200, answer.text
        return f"branch {number}"

    with ThreadPoolExecutor(6) as pool:
        asked = set(pool.map(ask, range(12)))
    assert {json.loads(one.body)["messages"][-1]["content"] for one in rig.provider.requests} == asked
    wait_for(lambda: rig.application.gateway.requests == 0)
    stored = {json.loads(one.raw)["content"] for one in rig.manager.ledger.list_messages("talk")}
    assert asked <= stored
    assert rig.manager.ledger.verify() == []
