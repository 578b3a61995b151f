"""Keys and tenants: nobody comes in without one, nobody sees another's, and no credential is left lying about."""

import json
import logging
import os
import stat

import pytest

from refold.errors import ConfigError
from refold.llm.choose import GATEWAY
from refold.manager import ContextCompressionManager
from refold.server.app import Application
from refold.server.auth import KeyRing, belongs_to, find_tenant, hash_key
from refold.server.monitoring import JsonLines
from refold.server.serve import check_binding
from refold.server.settings import GatewaySettings
from tests.rigs.effort import first_of
from tests.rigs.server import PATHS, make_body, make_dialog, wait_for

SMALL = {"window": 8_000, "reserve": 1_000}


@pytest.fixture
def shared(start, tmp_path):
    """A gateway with two tenants; returns it with a key of each."""
    (tmp_path / "work").mkdir()
    ring = KeyRing(tmp_path / "work")
    alice, bob = ring.add("alice")[1], ring.add("bob")[1]
    return (
        start(config=SMALL, window=8_000, settings={"openai_key": "sk-held-openai", "anthropic_key": "sk-held-ant"}),
        alice,
        bob,
    )


def test_only_the_hash_of_a_key_is_stored_and_only_its_owner_reads_the_file(tmp_path):
    ring = KeyRing(tmp_path)
    stored, key = ring.add("alice")
    text = ring.path.read_text()
    assert key not in text
    assert hash_key(key) in text
    assert stored.id.startswith("k-")
    if os.name == "posix":
        assert stat.S_IMODE(ring.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("tenant", ["", "Alice", "a/b", "../x", "@a", "a" * 65, "a b", "ä"])
def test_a_tenants_name_cannot_be_anything_that_is_a_path_or_a_mark(tmp_path, tenant):
    with pytest.raises(ConfigError):
        KeyRing(tmp_path).add(tenant)


def test_a_revoked_key_stops_working_and_does_not_open_the_door(shared):
    rig, alice, bob = shared
    assert rig.http.get("/api/sessions", headers={"x-refold-key": alice}).status_code == 200
    rig.application.keys.revoke("alice")
    wait_for(lambda: rig.http.get("/api/sessions", headers={"x-refold-key": alice}).status_code == 401)
    rig.application.keys.revoke("bob")
    wait_for(lambda: rig.http.get("/api/sessions", headers={"x-refold-key": bob}).status_code == 401)
    assert rig.http.get("/api/sessions").status_code == 401


def test_a_file_of_keys_that_cannot_be_read_lets_nobody_in(shared):
    rig, alice, _ = shared
    rig.application.keys.path.write_text("{broken")
    wait_for(lambda: rig.http.get("/api/sessions", headers={"x-refold-key": alice}).status_code == 401)
    rig.application.keys.path.unlink()
    assert rig.http.get("/api/sessions").status_code == 401


@pytest.mark.parametrize("wire", list(PATHS))
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-other"}, {"x-api-key": "rk-wrong"}])
def test_without_a_key_nothing_goes_upstream(shared, wire, headers):
    rig, _, _ = shared
    answer = rig.http.post(PATHS[wire], json=make_body(wire, make_dialog(1)), headers=headers)
    assert answer.status_code == 401
    assert "error" in answer.json()
    assert rig.provider.requests == []


def test_the_held_key_goes_upstream_in_the_place_of_the_gateways(shared):
    rig, alice, _ = shared
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(1)), authorization=f"Bearer {alice}")
    assert answer.status_code == 200
    headers = rig.provider.requests[-1].headers
    assert headers["authorization"] == "Bearer sk-held-openai"
    rig.post("anthropic", make_body("anthropic", make_dialog(1)), x_api_key=alice)
    headers = rig.provider.requests[-1].headers
    assert headers["x-api-key"] == "sk-held-ant"
    assert "authorization" not in headers
    assert alice not in json.dumps(dict(headers))


def test_a_client_with_a_key_of_both_keeps_its_own_for_the_upstream(start, tmp_path):
    alice = KeyRing(tmp_path / "work").add("alice")[1]
    rig = start()
    body = make_body("openai-chat", make_dialog(1))
    rig.post("openai-chat", body, authorization="Bearer sk-own", x_refold_key=alice)
    headers = rig.provider.requests[-1].headers
    assert headers["authorization"] == "Bearer sk-own"
    assert "x-refold-key" not in headers


ROUTES = [
    ("GET", "/api/sessions/talk", None),
    ("GET", "/api/sessions/talk/view", None),
    ("GET", "/api/sessions/talk/originals", None),
    ("GET", "/api/sessions/talk/edits", None),
    ("GET", "/api/sessions/talk/events", None),
    ("GET", "/api/sessions/talk/summaries", None),
    ("GET", "/api/sessions/talk/stats", None),
    ("GET", "/api/sessions/talk/memory", None),
    ("GET", "/api/sessions/talk/state", None),
    ("GET", "/api/sessions/talk/recall?query=file_3.py", None),
    ("GET", "/api/sessions/talk/expand?handle={handle}", None),
    ("POST", "/api/sessions/talk/compress", {}),
    ("POST", "/api/sessions/talk/undo", {}),
    ("POST", "/api/sessions/talk/redo", {}),
    ("POST", "/api/sessions/talk/pin", {"handle": "{handle}"}),
    ("POST", "/api/sessions/talk/unpin", {"handle": "{handle}"}),
    ("POST", "/api/sessions/talk/forget", {"everything": True}),
    ("POST", "/v1/usage", {"session_id": "talk", "usage": {"input_tokens": 5}}),
    ("DELETE", "/api/sessions/talk", None),
]


def test_every_route_of_a_session_is_in_the_list_of_this_test(shared):
    rig, alice, _ = shared
    described = rig.http.get("/api/openapi.json", headers={"x-refold-key": alice}).json()["paths"]
    listed = {(method, path.split("?")[0].replace("talk", "{name}")) for method, path, _ in ROUTES}
    known = {(method.upper(), path) for path, methods in described.items() for method in methods if "{name}" in path}
    assert known <= listed


@pytest.mark.parametrize("name", first_of(["talk", "@alice/talk", "../alice/talk", "@alice%2Ftalk"], 2))
def test_no_route_shows_or_changes_another_tenants_session(shared, name):
    rig, alice, bob = shared
    body = make_body("openai-chat", make_dialog(30))
    rig.post("openai-chat", body, x_refold_key=alice, x_refold_session="talk")
    first = rig.http.get("/api/sessions/talk/originals?limit=1", headers={"x-refold-key": alice}).json()["messages"][0]
    for method, path, content in ROUTES:
        filled = path.replace("{handle}", first["handle"]).replace("/talk", f"/{name}")
        sent = json.loads(json.dumps(content).replace("{handle}", first["handle"])) if content is not None else None
        answer = rig.http.request(method, filled, json=sent, headers={"x-refold-key": bob})
        assert answer.status_code in (400, 404), (method, filled, answer.text)
        assert "file_" not in answer.text
    after = rig.http.get("/api/sessions/talk/originals?limit=1", headers={"x-refold-key": alice}).json()["messages"][0]
    assert after == first


def test_lists_streams_recall_and_statistics_show_a_tenants_own_only(shared):
    rig, alice, bob = shared
    rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), x_refold_key=alice, x_refold_session="talk")
    as_bob = {"x-refold-key": bob}
    assert rig.http.get("/api/sessions", headers=as_bob).json() == {"sessions": []}
    assert rig.http.get("/api/stats", headers=as_bob).json()["compressions"] == 0
    assert rig.http.get("/api/recall?query=file_3.py", headers=as_bob).json() == {"results": []}
    stream = rig.http.get("/api/events", params={"after": 0, "seconds": 0.3}, headers=as_bob)
    assert "event:" not in stream.text
    for path in ("/api/memory", "/api/memory/2026-01-01"):
        assert rig.http.get(path, headers=as_bob).status_code == 403
    assert rig.http.patch("/api/config", json={"window": 1}, headers=as_bob).status_code == 403
    listed = rig.http.get("/api/sessions", headers={"x-refold-key": alice}).json()["sessions"]
    assert [one["session"] for one in listed] == ["talk"]


def test_the_same_words_of_two_tenants_never_share_a_fold(shared):
    rig, alice, bob = shared
    body = make_body("openai-chat", make_dialog(30))
    first = rig.post("openai-chat", body, x_refold_key=alice)
    second = rig.post("openai-chat", body, x_refold_key=bob)
    assert first.headers["x-refold-session"] != second.headers["x-refold-session"]
    rows = {row.id.partition("/")[0] for row in rig.manager.ledger.list_sessions()}
    assert rows == {"@alice", "@bob"}


def test_probes_need_no_key_and_figures_do(shared):
    rig, alice, _ = shared
    assert rig.http.get("/livez").status_code == 200
    assert rig.http.get("/readyz").status_code == 200
    refused = rig.http.get("/metrics")
    assert (refused.status_code, "as bearer token" in refused.text) == (401, True), "the answer says how to give one"
    assert rig.http.get("/metrics", headers={"x-refold-key": alice}).status_code == 200


def test_binding_wider_than_this_machine_is_refused_without_keys(tmp_path):
    manager = ContextCompressionManager(None, tmp_path)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):  # noqa: S104
        with pytest.raises(ConfigError, match="refold key add"):
            check_binding(Application(manager, GatewaySettings(host=host)))
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        check_binding(Application(manager, GatewaySettings(host=host)))
    KeyRing(tmp_path).add("alice")
    check_binding(Application(manager, GatewaySettings(host="0.0.0.0")))  # noqa: S104


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "127.0.0.1.evil.example"},
    ],
)
def test_without_keys_a_web_page_cannot_reach_the_gateway(rig, headers):
    for path in ("/api/sessions", "/v1/models"):
        assert rig.http.get(path, headers=headers).status_code == 403
    assert rig.provider.requests == []
    assert rig.http.get("/api/sessions", headers={"origin": rig.url}).status_code == 200


PLANTED = [
    "sk-proj-PLANTEDopenaiKEY0123456789abcdef",
    "sk-ant-PLANTEDanthropicKEY0123456789abcdef",
    "PLANTEDquerySECRET",
    "PLANTEDcookieSECRET",
    "PLANTEDproxySECRET",
]


def test_no_credential_of_a_request_is_found_in_logs_events_errors_files_or_answers(start, tmp_path):
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(JsonLines().format(record))

    logger = logging.getLogger("refold.server")
    handler, level = Keep(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        rig = start(config=SMALL, window=8_000)
        headers = {
            "authorization": f"Bearer {PLANTED[0]}",
            "x_api_key": PLANTED[1],
            "cookie": f"session={PLANTED[3]}",
            "proxy_authorization": f"Basic {PLANTED[4]}",
        }
        answers = [
            rig.post(wire, make_body(wire, messages), **headers)
            for wire in PATHS
            for messages in (make_dialog(30), [{"role": "user", "content": "word " * 30_000}])
        ]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answers.append(rig.http.get(f"/v1/models?key={PLANTED[2]}", headers=named))
        answers.append(rig.http.get(f"/nowhere?key={PLANTED[2]}", headers=named))
        answers.append(rig.http.post("/api/chat/compress", json={"provider": "x"}, headers=named))
        events = [str(event) for event in rig.manager.ledger.read_events(None)]
        metrics = rig.http.get("/metrics").text
        rig.manager.close()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert any('"path":"/v1/messages"' in line for line in lines)
    told = "\n".join([*lines, *events, metrics, *(f"{answer.text}{answer.headers}" for answer in answers)])
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in PLANTED:
        assert secret not in told
        assert secret.encode() not in files
    assert PLANTED[0] in str(dict(rig.provider.requests[0].headers))


def test_content_of_a_conversation_is_not_in_the_log(start, caplog):
    caplog.set_level(logging.DEBUG, "refold.server")
    logging.getLogger("refold.server").propagate = True
    rig = start(config=SMALL, window=8_000)
    rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
    wait_for(lambda: caplog.records)
    told = "\n".join(JsonLines().format(record) for record in caplog.records)
    assert "tokens_before" in told
    assert "file_" not in told
    assert "Question" not in told


def test_a_held_key_does_not_show_in_a_representation():
    settings = GatewaySettings(openai_key="sk-held", anthropic_key="sk-held")
    assert "sk-held" not in repr(settings)


def test_a_tenant_at_its_storage_limit_is_served_without_being_stored(start):
    rig = start(config={"window": 8_000, "reserve": 1_000}, window=8_000, settings={"tenant_bytes": 20_000})
    alice, bob = (rig.application.keys.add(name)[1] for name in ("alice", "bob"))
    messages = make_dialog(30)
    first = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_key=alice, x_refold_session="one")
    assert not first.headers["x-refold-reason"].startswith("not-stored")
    rig.application.preparer.storage._known.clear()
    second = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_key=alice, x_refold_session="two")
    assert second.status_code == 200
    assert second.headers["x-refold-reason"] == "not-stored; limit=20000"
    before, after = map(int, second.headers["x-refold-tokens"].split("->"))
    assert after < 7_000 < before
    assert rig.manager.ledger.read_session("@alice/two") is None
    status = rig.http.get("/api/status", headers={"x-refold-key": alice}).json()["storage"]
    assert status["bytes"] > status["bytes_max"] == 20_000
    sidecar = {"model": "scripted-1", "messages": messages, "session_id": "three"}
    assert rig.http.post("/v1/compress", json=sidecar, headers={"x-refold-key": alice}).status_code == 507
    other = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_key=bob, x_refold_session="one")
    assert not other.headers["x-refold-reason"].startswith("not-stored")
    rig.http.delete("/api/sessions/one", headers={"x-refold-key": alice})
    rig.application.preparer.storage._known.clear()
    again = rig.post("openai-chat", make_body("openai-chat", make_dialog(2)), x_refold_key=alice)
    assert again.headers["x-refold-reason"] == "unchanged"


def test_a_models_name_without_end_does_not_fill_the_store_beside_the_messages(start):
    rig = start(settings={"tenant_bytes": 20_000})
    alice = rig.application.keys.add("alice")[1]
    hello = [{"role": "user", "content": "hello"}]
    for number in range(3):
        body = make_body("openai-chat", hello, model=f"{number}" * 100_000)
        assert rig.post("openai-chat", body, x_refold_key=alice).status_code == 200
        assert json.loads(rig.provider.requests[-1].body)["model"] == f"{number}" * 100_000
        rig.application.preparer.storage._known.clear()
    [row] = rig.manager.ledger.list_sessions()
    wait_for(lambda: len(rig.manager.ledger.read_usage(row.id, limit=9)) == 3)
    assert len(rig.manager.ledger.read_session(row.id).model) <= 200
    assert max(len(one.model) for one in rig.manager.ledger.read_usage(row.id, limit=9)) <= 200


def test_an_imported_session_that_claims_another_tenant_is_not_continued_by_that_tenant(start):
    rig = start()
    talk = make_dialog(2)
    alice, mallory = (rig.application.keys.add(name)[1] for name in ("alice", "mallory"))
    rig.post("openai-chat", make_body("openai-chat", talk), x_refold_key=mallory, x_refold_session="bait")
    wait_for(lambda: GATEWAY in rig.manager.ledger.read_session("@mallory/bait").settings)
    exported = rig.manager.export_session("@mallory/bait")
    exported["settings"][GATEWAY]["tenant"] = "alice"
    rig.manager.import_session(exported, "@mallory/copy")
    rig.manager.delete_session("@mallory/bait")
    restarted = start()
    later = [*talk, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "My secret is plum."}]
    answer = restarted.post("openai-chat", make_body("openai-chat", later), x_refold_key=alice)
    assert "mallory" not in answer.headers["x-refold-session"]
    seen = rig.http.get("/api/sessions/copy/originals", headers={"x-refold-key": mallory}).text
    assert "plum" not in seen


@pytest.mark.parametrize(
    ("session_id", "tenant"),
    [("@a/x", "a"), ("@a/x/y", "a"), ("@a", ""), ("@", ""), ("@/x", ""), ("x", ""), ("a/x", "")],
)
def test_the_tenant_of_a_session_is_the_one_that_may_see_it(session_id, tenant):
    assert find_tenant(session_id) == tenant
    assert belongs_to("a", session_id) == (tenant == "a")
