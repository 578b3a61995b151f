"""The interface: sessions and what can be done with them, over HTTP, in the words of the manager."""

import json
import threading

import pytest

from tests.rigs.server import make_body, make_dialog, wait_for

SMALL = {"window": 8_000, "reserve": 1_000}


@pytest.fixture
def folded(start):
    """A gateway with one session that was compressed."""
    rig = start(config=SMALL, window=8_000)
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), x_refold_session="talk")
    assert int(answer.headers["x-refold-edits"]) > 0
    return rig


def get(rig, path, **params):
    answer = rig.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(rig, path, body=None):
    answer = rig.http.post(path, json={} if body is None else body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_sessions_are_listed_with_their_figures(folded):
    (session,) = get(folded, "/api/sessions")["sessions"]
    assert session["session"] == "talk"
    assert session["wire"] == "openai-chat"
    assert session["messages"] == 61
    assert session["compressions"] == 1


def test_a_session_shows_its_status(folded):
    status = get(folded, "/api/sessions/talk")
    assert status["session_id"] == "talk"
    assert status["tokens"] < status["tokens_original"]
    assert status["window"] == 8_000


def test_the_view_is_what_went_upstream(folded):
    view = get(folded, "/api/sessions/talk/view")
    assert view["messages"] == json.loads(folded.provider.requests[-1].body)["messages"]


def test_originals_come_in_pages_as_they_arrived(folded):
    messages, after = [], 0
    while page := get(folded, "/api/sessions/talk/originals", after=after, limit=25)["messages"]:
        messages += page
        after = page[-1]["seq"]
    assert [one["message"] for one in messages] == make_dialog(30)
    assert any(one["compressed"] for one in messages)


def test_what_is_hidden_is_expanded_by_its_handle(folded):
    first = get(folded, "/api/sessions/talk/originals", limit=1)["messages"][0]
    page = get(folded, "/api/sessions/talk/expand", handle=first["handle"], limit=50)
    assert page["text"] == first["message"]["content"][:50]
    assert page["more"] is True
    rest = get(folded, "/api/sessions/talk/expand", handle=first["handle"], offset=50, limit=100_000)
    assert page["text"] + rest["text"] == first["message"]["content"]


def test_an_unknown_handle_ends_the_search(folded):
    answer = folded.http.get("/api/sessions/talk/expand", params={"handle": "m:00000000"})
    assert answer.status_code == 404
    assert answer.json()["error"]["kind"] == "HandleUnknown"


def test_edits_events_and_summaries_report_what_was_done(folded):
    edits = get(folded, "/api/sessions/talk/edits")
    assert edits["edits"]
    assert edits["compressions"][0]["tokens_after"] < edits["compressions"][0]["tokens_before"]
    events = get(folded, "/api/sessions/talk/events")["events"]
    kinds = [event["kind"] for event in events]
    reason = next(event["reason"] for event in events if event["kind"] == "compressed")
    assert reason["code"] == "fold.hard"
    tokens, limit = reason["values"]["tokens"], reason["values"]["limit"]
    assert reason["text"] == f"{tokens:,} tokens are over the limit of {limit:,}"
    assert edits["compressions"][0]["reason"] == reason
    assert all(edit["reason"]["text"] for edit in edits["edits"])
    assert "compressed" in kinds
    assert isinstance(get(folded, "/api/sessions/talk/summaries")["summaries"], list)
    assert get(folded, "/api/sessions/talk/stats")["compressions"] == 1
    assert get(folded, "/api/stats")["compressions"] == 1


def test_undo_and_redo_switch_the_last_compression(folded):
    before = get(folded, "/api/sessions/talk/view")
    undone = post(folded, "/api/sessions/talk/undo")
    assert undone["tokens_after"] > undone["tokens_before"]
    assert get(folded, "/api/sessions/talk/view")["messages"] == make_dialog(30)
    post(folded, "/api/sessions/talk/redo")
    assert get(folded, "/api/sessions/talk/view") == before
    assert folded.http.post("/api/sessions/talk/redo").status_code == 404


def test_a_dry_run_says_what_would_go_and_changes_nothing(start):
    rig = start(config={"window": 100_000})
    rig.post("openai-chat", make_body("openai-chat", make_dialog(20)), x_refold_session="talk")
    tried = post(rig, "/api/sessions/talk/compress", {"dry_run": True})
    assert tried["is_dry_run"]
    assert get(rig, "/api/sessions/talk/view")["messages"] == make_dialog(20)
    done = post(rig, "/api/sessions/talk/compress", {"instructions": "keep the file names"})
    assert done["current_tokens"] <= done["previous_tokens"]
    assert not done["is_dry_run"]


def test_pin_and_unpin_name_messages_by_handle(folded):
    first = get(folded, "/api/sessions/talk/originals", limit=1)["messages"][0]
    assert post(folded, "/api/sessions/talk/pin", {"handle": first["handle"]})["pinned"] == [first["id"]]
    assert post(folded, "/api/sessions/talk/unpin", {"handle": first["handle"]})["pinned"] == []


def test_recall_finds_what_left_the_view(folded):
    results = get(folded, "/api/sessions/talk/recall", query="file_3.py")["results"]
    assert any("file_3.py" in one["text"] for one in results)
    assert get(folded, "/api/recall", query="file_3.py")["results"][0]["session_id"] == "talk"


def test_forgetting_needs_to_say_what_and_then_erases(folded):
    assert folded.http.post("/api/sessions/talk/forget", json={}).status_code == 400
    assert folded.http.post("/api/sessions/talk/forget", json={"handle": "m:1", "everything": True}).status_code == 400
    first = get(folded, "/api/sessions/talk/originals", limit=1)["messages"][0]
    assert post(folded, "/api/sessions/talk/forget", {"handle": first["handle"]})["messages"] == 1
    assert get(folded, "/api/sessions/talk/originals", limit=1)["messages"][0]["message"] is None
    post(folded, "/api/sessions/talk/forget", {"everything": True})
    assert folded.http.get("/api/sessions/talk").status_code == 404


def test_a_deleted_session_starts_again_when_its_client_comes_back(folded):
    assert folded.http.delete("/api/sessions/talk").json() == {"deleted": True}
    assert folded.http.delete("/api/sessions/talk").status_code == 404
    answer = folded.post("openai-chat", make_body("openai-chat", make_dialog(1)), x_refold_session="talk")
    assert answer.headers["x-refold-reason"] == "unchanged"


def test_settings_are_shown_with_where_they_came_from_and_changed(folded):
    settings = {row["name"]: row for row in get(folded, "/api/config")["settings"]}
    assert settings["window"]["value"] == 8_000
    changed = folded.http.patch("/api/config", json={"window": 9_000})
    assert changed.json() == {"changed": ["window"]}
    assert get(folded, "/api/sessions/talk")["window"] == 9_000
    assert folded.http.patch("/api/config", json={"windo": 1}).status_code == 422


def test_memory_pages_and_facts_are_read(folded):
    dates = get(folded, "/api/memory")["dates"]
    assert dates
    assert "talk" in get(folded, f"/api/memory/{dates[0]}")["text"]
    assert folded.http.get("/api/memory/1999-01-01").status_code == 404
    assert isinstance(get(folded, "/api/sessions/talk/memory")["facts"], list)


def test_the_status_of_the_gateway_names_its_upstreams(folded):
    status = get(folded, "/api/status")
    assert status["openai_upstream"].startswith("http://127.0.0.1")
    assert status["keys"] is False


def test_events_are_streamed_as_they_happen_and_can_be_taken_up_again(start, monkeypatch):
    monkeypatch.setattr("refold.server.api.workspace.POLL_S", 0.05)
    rig = start(config=SMALL, window=8_000)
    got = []

    def listen():
        with rig.http.stream("GET", "/api/events", params={"after": 0, "seconds": 60}) as stream:
            for line in stream.iter_lines():
                if line.startswith(("event:", "id:", "data:")):
                    got.append(line)
                if line == "event: compressed":
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), x_refold_session="talk")
    listener.join(60)
    assert "event: compressed" in got
    last = next(line for line in got if line.startswith("id:")).partition(": ")[2]
    answer = rig.http.get("/api/events", params={"seconds": 0.2}, headers={"last-event-id": "999999"})
    assert "event:" not in answer.text
    again = rig.http.get("/api/events", params={"seconds": 0.2}, headers={"last-event-id": str(int(last) - 1)})
    assert "event: compressed" in again.text


def test_a_session_with_any_name_is_reached(rig):
    rig.manager.append("a/b c?%", [{"role": "user", "content": "hi"}])
    rig.manager.append("会话", [{"role": "user", "content": "hi"}])
    assert get(rig, "/api/sessions/a%2Fb%20c%3F%25")["messages"] == 1
    assert get(rig, "/api/sessions/%E4%BC%9A%E8%AF%9D/view")["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/sessions/x/compress", b"{"),
        ("POST", "/api/sessions/x/compress", b'{"instructions": 3}'),
        ("POST", "/api/sessions/x/compress", b'{"unknown": 3}'),
        ("POST", "/api/sessions/x/pin", b'{"handle": "\\ud800"}'),
        ("GET", "/api/sessions?limit=0", b""),
        ("GET", "/api/sessions?limit=x", b""),
        ("POST", "/v1/compress", b"[]"),
        ("POST", "/v1/compress", b'{"model": "m"}'),
        ("POST", "/v1/usage", b"{}"),
    ],
)
def test_a_request_that_is_wrong_gets_400_and_is_not_quoted(rig, method, path, body):
    answer = rig.http.request(method, path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert "unknown" not in answer.json()["error"]["message"] or "extra" in answer.json()["error"]["message"].lower()


def test_the_description_names_every_route(rig):
    described = rig.http.get("/api/openapi.json").json()
    assert {"/api/sessions", "/api/chat/compress", "/v1/compress", "/v1/usage", "/api/events"} <= set(
        described["paths"]
    )


def test_probes_answer_and_figures_are_counted(folded):
    assert folded.http.get("/livez").status_code == 200
    assert folded.http.get("/readyz").status_code == 200

    def figures():
        text = folded.http.get("/metrics").text
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    wait_for(lambda: figures().get('refold_requests_total{status="2xx",wire="openai-chat"}') == "1.0")
    assert float(figures()["refold_tokens_before_total"]) > float(figures()["refold_tokens_after_total"]) > 0
    assert figures()["refold_compressions_total"] == "1.0"
    assert figures()['refold_reasons_total{code="fold.hard"}'] == "1.0"


def test_the_sidecar_compresses_once_without_storing_anything(rig):
    body = {"model": "gpt-4o", "messages": make_dialog(20), "config": {"budget": 6_000, "fancy": True}}
    result = post(rig, "/v1/compress", body)
    assert result["tokens_after"] <= 6_000 < result["tokens_before"]
    assert result["tokens_saved"] == result["tokens_before"] - result["tokens_after"]
    assert result["compression_ratio"] == round(result["tokens_after"] / result["tokens_before"], 4)
    assert result["transforms_applied"]
    assert result["ignored"] == ["fancy"]
    assert result["messages"][-1] == make_dialog(20)[-1]
    assert rig.manager.ledger.list_sessions() == []


def test_the_sidecar_takes_a_budget_as_people_write_it_and_says_what_it_ignored(rig):
    body = {"model": "gpt-4o", "messages": make_dialog(20)}
    assert post(rig, "/v1/compress", {**body, "config": {"budget": "6k"}})["tokens_after"] <= 6_000
    assert post(rig, "/v1/compress", {**body, "budget": "6k", "budgett": 1})["ignored"] == ["budget", "budgett"]
    wrong = rig.http.post("/v1/compress", json={**body, "config": {"budget": "many"}})
    assert wrong.status_code == 422
    assert "'many'" in wrong.json()["error"]["message"]


def test_the_sidecar_keeps_folds_in_a_session_and_takes_usage(start):
    rig = start(config=SMALL)
    first = post(rig, "/v1/compress", {"model": "gpt-4o", "messages": make_dialog(30, words=200), "session_id": "s"})
    longer = [*make_dialog(30, words=200), {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    second = post(rig, "/v1/compress", {"model": "gpt-4o", "messages": longer, "session_id": "s"})
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert post(rig, "/v1/usage", {"session_id": "s", "usage": {"prompt_tokens": 4_000}}) == {"ok": True}
    assert rig.manager.ledger.read_usage("s")[0].input_tokens == 4_000
    assert rig.http.post("/v1/usage", json={"session_id": "none", "usage": {}}).status_code == 404


def test_usage_is_compared_with_what_the_sidecar_counted_also_under_a_budget_of_its_own(rig):
    wish = {"model": "gpt-4o", "messages": make_dialog(20), "session_id": "s", "config": {"budget": 6_000}}
    result = post(rig, "/v1/compress", wish)
    assert result["tokens_after"] <= 6_000 < result["tokens_before"]
    post(rig, "/v1/usage", {"session_id": "s", "usage": {"prompt_tokens": 5_000}})
    assert rig.manager.ledger.read_usage("s")[0].counted_tokens == result["tokens_after"]


@pytest.mark.parametrize("given", ["a bare question", [{"role": "user", "content": "an item"}]])
def test_the_sidecar_takes_responses_input(rig, given):
    assert post(rig, "/v1/compress", {"model": "gpt-4o", "input": given})["input"] == given


def test_the_sidecar_says_when_it_cannot_shrink(rig):
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "word " * 9_000}], "config": {"budget": 500}}
    answer = rig.http.post("/v1/compress", json=body)
    assert answer.status_code == 413
    assert answer.json()["error"]["kind"] == "BudgetTooSmall"


def test_the_state_of_the_work_comes_with_its_page(folded):
    found = get(folded, "/api/sessions/talk/state")
    assert found["messages"] > 0
    assert found["page"].strip()
    assert "pending" not in found
