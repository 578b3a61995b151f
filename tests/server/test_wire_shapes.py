"""Every client's own way of writing a conversation, played step by step through the gateway with a strict provider."""

import json

import pytest

from tests.rigs.server import PATHS, make_dialog, start_rig
from tests.server.shapes import SHAPES

STEPS = 14
WINDOW = 12_000


def play(rig, shape, steps=STEPS):
    """Play a conversation of so many steps; return the client's last messages and the answers."""
    messages, answers = shape.start("Please run all the steps, one after the other."), []
    for number in range(1, steps + 1):
        body = json.dumps(shape.wrap(messages)).encode()
        headers = {"user-agent": shape.agent, "content-type": "application/json", **shape.headers}
        if shape.wire == "anthropic":
            headers["anthropic-version"] = "2023-06-01"
        answers.append(rig.http.post(PATHS[shape.wire] + shape.query, content=body, headers=headers))
        assert answers[-1].status_code == 200, (number, answers[-1].text)
        if number < steps:
            output = "\n".join(f"step {number} line {line}: value_{number}_{line} = {line * 7}" for line in range(80))
            messages = [*messages, *shape.step(number, output)]
    return messages, answers


@pytest.fixture(scope="module", params=list(SHAPES))
def played(request, tmp_path_factory):
    """A client's conversation of many steps: its shape, the gateway, the last messages and the answers."""
    shape = SHAPES[request.param]
    config = {"window": WINDOW, "reserve": 1_000}
    with start_rig(tmp_path_factory.mktemp("played"), config=config, window=WINDOW) as rig:
        yield shape, rig, *play(rig, shape)


def test_a_long_task_of_a_client_is_never_refused_and_never_over_the_window(played):
    shape, rig, messages, answers = played
    assert len(rig.provider.requests) == STEPS
    assert len({answer.headers["x-refold-session"] for answer in answers}) == 1
    before, after = map(int, answers[-1].headers["x-refold-tokens"].split("->"))
    assert after <= WINDOW - 1_000 < before
    session = answers[-1].headers["x-refold-session"]
    stored = [json.loads(one.raw) for one in rig.manager.ledger.read_messages(session)]
    assert len(stored) == len(messages)
    listed = rig.http.get("/api/sessions").json()["sessions"]
    assert [(one["client"], one["title"]) for one in listed] == [(shape.client, shape.title)]


def test_fields_headers_and_order_of_a_client_reach_the_provider(played):
    shape, rig, messages, _ = played
    sent = rig.provider.requests[-1]
    meant = shape.wrap(messages)
    key = "input" if shape.wire == "openai-responses" else "messages"
    assert list(sent.json) == list(meant)
    assert {name: value for name, value in sent.json.items() if name != key} == {
        name: value for name, value in meant.items() if name != key
    }
    assert sent.json[key][-1] == meant[key][-1]
    assert sent.path == PATHS[shape.wire] + shape.query
    assert all(sent.headers[name] == value for name, value in shape.headers.items())


def test_between_two_compressions_a_request_begins_with_the_one_before_it(played):
    shape, rig, _, answers = played
    key = "input" if shape.wire == "openai-responses" else "messages"
    kept = 0
    for at in range(1, STEPS):
        if answers[at].headers["x-refold-reason"] not in ("unchanged", "kept"):
            continue
        before, now = (drop_marks(rig.provider.requests[index].json[key]) for index in (at - 1, at))
        assert now[: len(before)] == before, at
        kept += 1
    assert kept >= STEPS // 2


def drop_marks(value):
    """Return a request without the marks of the prompt cache: a client moves them on at each step."""
    if isinstance(value, dict):
        return {key: drop_marks(one) for key, one in value.items() if key != "cache_control"}
    return [drop_marks(one) for one in value] if isinstance(value, list) else value


def test_a_client_that_asks_for_a_title_beside_its_task_does_not_disturb_it(start):
    shape = SHAPES["opencode"]
    rig = start(config={"window": WINDOW, "reserve": 1_000}, window=WINDOW)
    headers = {"user-agent": shape.agent, **shape.headers}
    title = {"model": "gpt-5-nano", "input": [{"role": "developer", "content": "Make a title."}, *make_dialog(0)]}
    first = rig.http.post("/v1/responses", json=shape.wrap(shape.start("Fix the parser.")), headers=headers)
    beside = rig.http.post("/v1/responses", json=title, headers=headers)
    assert beside.status_code == 200
    longer = [*shape.start("Fix the parser."), *shape.step(1, "fine")]
    second = rig.http.post("/v1/responses", json=shape.wrap(longer), headers=headers)
    assert second.headers["x-refold-session"] == first.headers["x-refold-session"]
    assert beside.headers["x-refold-session"] != first.headers["x-refold-session"]


def test_system_messages_among_those_of_claude_code_are_where_the_provider_accepts_them(start):
    # Newer models get reminders as system messages: after a user message, before a reply or at the end.
    rig = start(window=12_000)
    messages = [
        {"role": "user", "content": "Please run all the steps."},
        {"role": "system", "content": "Agents: none."},
    ]
    reasons, edits = [], 0
    for number in range(30):
        output = " ".join(f"s{number}w{word}" for word in range(150))
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": {"command": f"step {number}"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        if number % 4 == 3:
            messages.append({"role": "system", "content": f"Reminder {number}: the list of tasks is empty."})
        body = {"model": "claude-opus-5-5", "max_tokens": 500, "messages": messages}
        answer = rig.post("anthropic", body, x_claude_code_session_id="id-1")
        assert answer.status_code == 200, answer.text
        if int(answer.headers["x-refold-edits"]) != edits:
            reasons.append(answer.headers["x-refold-reason"])
        edits = int(answer.headers["x-refold-edits"])
    assert edits > 0
    assert len(reasons) > 1
    assert not any(reason.startswith("kept") for reason in reasons), "the request that compresses says why"
    sent = rig.provider.requests[-1].body.decode()
    assert "Agents: none." in sent
    assert "Reminder 27:" in sent
    assert "Reminder 3:" in sent, "its number may be a name"
