"""A request that needs no compression passes through byte for byte, both ways."""

import json

import pytest

from refold.testing import fail, say
from tests.rigs.server import PATHS, make_body

WIRES = list(PATHS)
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_that_fits_goes_upstream_as_the_very_bytes_that_came(rig, wire):
    body = b'{ "model":"scripted-1",\n "max_tokens": 16, "unknown_field":{"a":[1,2.50,1e3]},'
    key = b'"input"' if wire == "openai-responses" else b'"messages"'
    body += key + b':[{"role":"user", "content":"h\\u00e9llo \\ud83d\\ude00 \xe4\xbd\xa0"}] }'
    if wire == "openai-responses":
        body = body.replace(b"max_tokens", b"max_output_tokens")
    answer = rig.post(wire, body)
    assert answer.status_code == 200, answer.text
    assert rig.provider.requests[-1].body == body
    assert answer.headers["x-refold-reason"] == "unchanged"
    assert answer.headers["x-refold-session"].startswith("g-")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_is_the_one_that_the_provider_gives(rig, wire, stream):
    body = make_body(wire, HELLO, stream=stream)
    through = rig.post(wire, body)
    direct = rig.http.post(f"{rig.provider.url}{PATHS[wire]}", json=body, headers={"anthropic-version": "2023-06-01"})
    assert through.content == direct.content
    assert through.status_code == direct.status_code
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert through.headers["x-request-id"] == direct.headers["x-request-id"]


def test_headers_that_matter_go_upstream_and_ours_do_not(rig):
    rig.post(
        "anthropic",
        make_body("anthropic", HELLO),
        anthropic_beta="a-beta,another",
        idempotency_key="idem-1",
        x_api_key="sk-client",
        x_refold_session="mine",
        openai_organization="org-1",
        connection="keep-alive, x-private",
        x_private="for the gateway only",
    )
    headers = rig.provider.requests[-1].headers
    assert headers["anthropic-beta"] == "a-beta,another"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["idempotency-key"] == "idem-1"
    assert headers["x-api-key"] == "sk-client"
    assert headers["openai-organization"] == "org-1"
    assert "x-private" not in headers
    assert not [name for name in headers if name.startswith("x-refold")]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 529])
def test_an_error_of_the_upstream_comes_with_its_status_body_and_headers(start, wire, status):
    rig = start(fail(status, "no, not now", retry_after=7))
    answer = rig.post(wire, make_body(wire, HELLO))
    direct = rig.http.post(
        f"{rig.provider.url}{PATHS[wire]}", json=make_body(wire, HELLO), headers={"anthropic-version": "2023-06-01"}
    )
    assert (answer.status_code, answer.content) == (status, direct.content)
    assert answer.headers["retry-after"] == "7"


def test_models_and_count_tokens_pass_through(rig):
    assert rig.http.get("/v1/models").json()["data"][0]["id"] == "scripted-1"
    body = make_body("anthropic", HELLO)
    counted = rig.http.post("/v1/messages/count_tokens", json=body, headers={"anthropic-version": "2023-06-01"})
    assert counted.json()["input_tokens"] > 0
    assert "x-refold-session" not in counted.headers


def test_a_client_whose_base_url_lacks_v1_is_served_too(rig):
    answer = rig.http.post("/chat/completions", json=make_body("openai-chat", HELLO))
    assert answer.json()["choices"][0]["message"]["content"] == "ok"


def test_anthropic_clients_with_a_base_url_without_v1_are_served(rig):
    answer = rig.http.post("/messages", json=make_body("anthropic", HELLO), headers={"anthropic-version": "2023-06-01"})
    assert answer.status_code == 200
    assert rig.provider.requests[-1].path == "/v1/messages"


@pytest.mark.parametrize(
    "path", ["/", "/v2/messages", "/v1/../admin", "/v1/%2e%2e/admin", "/v1//models", "/v1/a\\b", "/admin"]
)
def test_an_unknown_path_is_not_forwarded(rig, path):
    answer = rig.http.build_request("GET", rig.url + "/")
    answer = rig.http.send(_with_raw_path(answer, path))
    assert answer.status_code == 404
    assert rig.provider.requests == []


def _with_raw_path(request, path):
    request.url = request.url.copy_with(raw_path=path.encode())
    return request


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"null", b'{"messages": 3}', b"\xff\xfe", b"[" * 5000])
@pytest.mark.parametrize("wire", WIRES)
def test_what_cannot_be_read_is_left_to_the_upstream_to_refuse(rig, wire, body):
    answer = rig.post(wire, body)
    assert answer.status_code == 400
    assert rig.provider.requests[-1].body == body
    assert answer.headers["x-refold-reason"]


def test_bypass_passes_through_and_stores_nothing(rig):
    answer = rig.post("openai-chat", make_body("openai-chat", HELLO), x_refold_bypass="1")
    assert answer.headers["x-refold-reason"] == "bypass"
    assert "x-refold-session" not in answer.headers
    assert rig.manager.ledger.list_sessions() == []


@pytest.mark.parametrize(
    ("wire", "fields", "reason"),
    [
        ("openai-responses", {"previous_response_id": "resp_1"}, "previous-response-id"),
        ("openai-responses", {"conversation": "conv_1"}, "conversation"),
        ("openai-responses", {"context_management": [{"type": "compaction"}]}, "provider-compaction"),
        ("anthropic", {"context_management": {"edits": [{"type": "compact_20260112"}]}}, "provider-compaction"),
    ],
)
def test_what_the_provider_manages_itself_is_stored_and_left_alone_and_the_answer_says_so(rig, wire, fields, reason):
    answer = rig.post(wire, make_body(wire, HELLO, **fields))
    assert answer.headers["x-refold-reason"] == reason
    assert json.loads(rig.provider.requests[-1].body) == make_body(wire, HELLO, **fields)
    (row,) = rig.manager.ledger.list_sessions()
    assert (row.id, row.compression_count) == (answer.headers["x-refold-session"], 0)
    stored = rig.manager.ledger.read_messages(row.id)[: len(HELLO)]
    assert [json.loads(one.raw) for one in stored] == HELLO


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_a_request_that_bypasses_is_not_stored_either(rig, fields):
    rig.post("openai-responses", make_body("openai-responses", HELLO, **fields), x_refold_bypass="1")
    assert rig.manager.ledger.list_sessions() == []


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ("openai-responses", {"type": "compaction", "id": "cmp_1", "encrypted_content": "xyz"}),
        ("anthropic", {"role": "assistant", "content": [{"type": "compaction", "content": "earlier"}]}),
    ],
)
def test_a_conversation_that_the_provider_compacted_passes_through(rig, wire, message):
    answer = rig.post(wire, make_body(wire, [*HELLO, message, *HELLO]))
    assert answer.headers["x-refold-reason"] == "provider-compaction"


def test_a_request_that_refers_to_an_item_that_was_not_seen_passes_through(rig):
    reference = {"type": "item_reference", "id": "msg_1"}
    answer = rig.post("openai-responses", make_body("openai-responses", [*HELLO, reference, *HELLO]))
    assert answer.headers["x-refold-reason"] == "previous-response-id"


def test_an_answer_in_gzip_passes_through_compressed(start):
    rig = start(say("a long answer " * 100))
    body = make_body("openai-chat", HELLO)
    answer = rig.post("openai-chat", body, accept_encoding="compress, gzip;q=0.9, x-odd")
    assert answer.status_code == 200
    assert rig.provider.requests[-1].headers["accept-encoding"] == "gzip;q=0.9"
