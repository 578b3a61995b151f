"""Messages found in the bytes of a request: known again without parsing, copied without a change."""

import asyncio
import json
import random

import pytest

from refold.manager import ContextCompressionManager
from refold.server.body import count_shared_bytes, find_places, read_request
from refold.server.outgoing import Reporter
from refold.server.request_memory import RequestMemory
from refold.server.session_lookup import KnownSession
from refold.server.wires import WIRES
from refold.testing import echo_prompt
from tests.rigs.server import PATHS, make_body, make_dialog
from tests.server.test_fidelity import write_value

SMALL = {"window": 8_000, "reserve": 1_000}


def write_messages(dice, count, key="messages"):
    gap = dice.choice(["", " ", "\n "])
    messages = [f'{{"role":{gap}"user","content":{write_value(dice, 1)}}}' for _ in range(count)]
    head = f'{{{gap}"model":"m",{gap}"tools":[{{"{key}":[1,2]}}],{gap}"{key}"{gap}:{gap}[{gap}'
    return head, messages, f'{gap}]{gap},"rest":{write_value(dice)}}}', f"{gap},{gap}"


@pytest.mark.parametrize("seed", range(60))
def test_the_spans_are_the_messages_whatever_the_white_space(seed):
    dice = random.Random(seed)
    head, messages, rest, comma = write_messages(dice, dice.randrange(6))
    body = (head + comma.join(messages) + rest).encode("utf-8", "surrogatepass")
    places = find_places(body, "messages")
    assert places is not None
    found = [body[a:b].decode("utf-8", "surrogatepass") for a, b in places.spans]
    assert found == messages
    assert json.loads(places.write(list(range(len(messages))))) == json.loads(body)


@pytest.mark.parametrize("seed", range(60))
def test_what_follows_known_messages_is_found_and_cut_out(seed):
    dice = random.Random(seed)
    head, messages, rest, comma = write_messages(dice, 8)
    count = dice.randrange(1, 8)
    before = (head + comma.join(messages[:count]) + rest).encode("utf-8", "surrogatepass")
    after = (head + comma.join(messages) + rest).encode("utf-8", "surrogatepass")
    known = find_places(before, "messages")
    kept = known.count_shared(after)
    assert kept >= count
    assert find_places(after, "messages", known, kept) == find_places(after, "messages")
    small = json.loads(known.leave_out(after, kept))
    assert small["messages"] == json.loads(after)["messages"][kept:]
    assert small["rest"] == json.loads(after)["rest"] or small["rest"] != small["rest"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"messages": "text"}',
        b'{"other": []}',
        b'{"messages": [1 2]}',
        b'{"messages": [{"a": 1}], "messages": []}',
        b'{"x": {"messages": []}}',
        b'{"messages": [' + b"[" * 100_000,
    ],
)
def test_uncertain_facts_are_not_reported(body):
    assert find_places(body, "messages") is None


@pytest.mark.parametrize("seed", range(40))
def test_shared_bytes_are_counted_exactly(seed):
    dice = random.Random(seed)
    left = bytes(dice.randrange(3) for _ in range(10)) * dice.randrange(1, 30_000)
    at = dice.randrange(len(left))
    right = left[:at] + bytes([left[at] ^ 1]) + left[at + 1 :]
    assert count_shared_bytes(left, right, len(left)) == at
    assert count_shared_bytes(left, right, at // 2) == at // 2
    assert count_shared_bytes(left, left, len(left)) == len(left)


@pytest.mark.parametrize("wire", list(PATHS))
def test_untouched_messages_of_a_compressed_request_go_upstream_byte_for_byte(start, wire):
    rig = start(config=SMALL, window=8_000)
    messages = make_dialog(30)
    rig.post(wire, make_body(wire, messages))
    odd = '{"content" : "caf\\u00e9 \\u4f60",\n "role":"user", "metadata":{"n":1.50, "big":12345678901234567890123}}'
    text = json.dumps(make_body(wire, [*messages, {"role": "assistant", "content": "ok"}]))
    at = text.rindex('"ok"}') + len('"ok"}')
    answer = rig.post(wire, (text[:at] + " , " + odd + text[at:]).encode())
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-refold-reason"] == "kept"
    assert odd.encode() in rig.provider.requests[-1].body


def test_marks_that_move_from_message_to_message_stay_the_clients_own(start):
    rig = start(echo_prompt, config=SMALL, window=8_000)
    mark = {"cache_control": {"type": "ephemeral"}}
    history = make_dialog(30)

    def write(messages):
        last = {**messages[-1], "content": [{"type": "text", "text": messages[-1]["content"], **mark}]}
        return make_body("anthropic", [*messages[:-1], last], system=[{"type": "text", "text": "Be brief.", **mark}])

    sessions = set()
    for turn in range(6):
        answer = rig.post("anthropic", write(history))
        assert answer.status_code == 200, answer.text
        sessions.add(answer.headers["x-refold-session"])
        sent = rig.provider.requests[-1].body
        assert sent.count(b"cache_control") == 2, "one on the system prompt, one on the newest message"
        history += [{"role": "assistant", "content": f"a{turn}"}, {"role": "user", "content": f"q{turn}"}]
    assert len(sessions) == 1


def test_the_short_way_and_the_long_way_send_the_same(start, tmp_path):
    from tests.rigs.server import start_rig

    sent = {}
    for limit in (1, 64_000_000):
        with start_rig(tmp_path / str(limit), config=SMALL, window=8_000, settings={"memory_bytes_max": limit}) as rig:
            history = make_dialog(12)
            for turn in range(15):
                answer = rig.post("openai-chat", make_body("openai-chat", history), x_refold_session="s")
                assert answer.status_code == 200
                filler = f"q{turn} " * 200
                history += [{"role": "assistant", "content": f"a{turn}"}, {"role": "user", "content": filler}]
            sent[limit] = [request.json for request in rig.provider.requests]
            assert rig.manager.verify() == []
    assert sent[1] == sent[64_000_000]


def test_a_forgotten_message_does_not_come_back_from_the_clients_bytes(start):
    rig = start(config=SMALL, window=8_000)
    history = make_dialog(30)
    rig.post("openai-chat", make_body("openai-chat", history), x_refold_session="s")
    shown = next(one for one in rig.provider.requests[-1].messages if one in history)
    originals = rig.http.get("/api/sessions/s/originals", params={"limit": 100}).json()["messages"]
    handle = next(one["handle"] for one in originals if one["message"] == shown)
    assert rig.http.post("/api/sessions/s/forget", json={"handle": handle}).status_code == 200
    history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    answer = rig.post("openai-chat", make_body("openai-chat", history), x_refold_session="s")
    assert answer.status_code == 200, answer.text
    assert shown not in rig.provider.requests[-1].messages


def test_requests_of_no_more_sessions_are_remembered_than_the_gateway_knows(tmp_path):
    wire, reporter = WIRES["openai-chat"], Reporter(ContextCompressionManager(workspace_path=tmp_path))
    memory = RequestMemory(reporter, bytes_max=1_000_000, sessions_max=5)
    bodies = {
        f"s{number}": json.dumps(make_body("openai-chat", make_dialog(number + 1))).encode() for number in range(9)
    }
    for name, body in bodies.items():
        places = find_places(body, "messages")
        request = read_request(wire, body)
        memory.remember(KnownSession(name, "", wire.name, request.digests), request, places)
    assert list(memory._by_session) == list(bodies)[-5:]
    assert sum(map(len, memory._by_start.values())) == 5
    assert memory._bytes == sum(len(bodies[name]) for name in list(bodies)[-5:])


def user(text):
    return {"role": "user", "content": text}


def reply(text):
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize("asked", [0, 57, 119])
def test_a_conversation_is_recognised_among_many_of_the_same_client(tmp_path, asked):
    wire, reporter = WIRES["openai-chat"], Reporter(ContextCompressionManager(workspace_path=tmp_path))
    memory = RequestMemory(reporter, bytes_max=10_000_000, sessions_max=1_000)
    system = {"role": "system", "content": "You are a coding agent. " * 20}
    # All are of one length and end alike; three of them are earlier states of the same conversation.
    talks = [
        [system, user(f"task {number:03}"), reply("ok"), user("go on"), reply("ok"), user("go on")]
        for number in range(120)
    ]
    for number, talk in enumerate([*talks, talks[asked][:2], talks[asked][:4]]):
        body = json.dumps(make_body("openai-chat", talk)).encode()
        request = read_request(wire, body)
        memory.remember(
            KnownSession(f"s{number}", "", wire.name, request.digests), request, find_places(body, "messages")
        )
    longer = json.dumps(make_body("openai-chat", [*talks[asked], reply("ok"), user("and now?")])).encode()
    found = asyncio.run(memory.find("", wire, longer, ""))
    assert found is not None
    assert found.remembered.session.id == f"s{asked}"
    assert [one["content"] for one in found.request.messages] == ["ok", "and now?"]
    other = json.dumps(make_body("openai-chat", [system, user("task 500"), reply("ok"), user("go on")])).encode()
    assert asyncio.run(memory.find("", wire, other, "")) is None
