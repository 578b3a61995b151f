"""Whose conversation a stateless request continues; and that no other one ever suffers from it."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from refold.errors import FormatError
from refold.server.auth import belongs_to, make_id, name_session
from refold.server.body import read_request
from refold.server.session_lookup import Identities, check_name
from refold.server.wires import ANTHROPIC, CHAT, RESPONSES
from refold.testing import call_tool, drip, echo_prompt
from tests.rigs.server import make_body, make_dialog, start_rig

WIRES = {"openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic": ANTHROPIC}


def read(messages, wire="openai-chat", **fields):
    return read_request(WIRES[wire], json.dumps(make_body(wire, messages, **fields)).encode())


def user(text):
    return {"role": "user", "content": text}


def reply(text):
    return {"role": "assistant", "content": text}


TALK = [user("fix the bug"), reply("which one?"), user("the one in a.py"), reply("done"), user("thanks")]


def test_a_longer_history_continues_its_session():
    known = Identities()
    first = known.choose("", read(TALK[:1]))
    assert known.choose("", read(TALK[:3])) is first
    assert known.choose("", read(TALK)) is first
    assert len(known) == 1


def test_a_retry_is_the_same_session():
    known = Identities()
    first = known.choose("", read(TALK[:3]))
    first.in_flight = 1
    assert known.choose("", read(TALK[:3])) is first


def test_another_tenant_with_the_same_words_has_a_session_of_its_own():
    known = Identities()
    assert known.choose("alice", read(TALK)) is not known.choose("bob", read(TALK))


def test_another_wire_with_the_same_words_has_a_session_of_its_own():
    known = Identities()
    assert known.choose("", read(TALK)) is not known.choose("", read(TALK, "anthropic"))


def test_a_title_call_with_the_same_question_and_another_system_prompt_is_apart():
    known = Identities()
    main = known.choose("", read(TALK[:1], "anthropic", system="You are an agent."))
    title = known.choose("", read(TALK[:1], "anthropic", system="Write a title of three words."))
    assert title is not main
    assert known.choose("", read(TALK[:3], "anthropic", system="You are an agent.")) is main


def test_a_system_prompt_that_changes_with_the_time_does_not_split_a_session():
    known = Identities()
    first = known.choose("", read([{"role": "system", "content": "It is 10:00."}, *TALK[:3]]))
    assert known.choose("", read([{"role": "system", "content": "It is 10:05."}, *TALK])) is first


def test_cache_marks_that_move_do_not_split_a_session():
    known = Identities()
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = [{"role": "user", "content": [{"type": "text", "text": "fix the bug", **mark}]}]
    system = [{"type": "text", "text": "You are an agent.", **mark}]
    first = known.choose("", read(marked, "anthropic", system=system))
    bare = [{"type": "text", "text": "You are an agent."}]
    assert known.choose("", read(TALK[:3], "anthropic", system=bare)) is first


def test_an_edited_question_takes_the_session_along_when_nobody_uses_it():
    known = Identities()
    first = known.choose("", read(TALK))
    assert known.choose("", read([*TALK[:4], user("no, revert it")])) is first


@pytest.mark.parametrize("wire", WIRES)
def test_an_edited_question_stays_in_its_long_session_beside_one_that_only_began_alike(wire):
    known = Identities()
    long = [user("hi"), reply("Hello!")]
    for number in range(20):
        long += [user(f"question {number}"), reply(f"answer {number}")]
    talk = known.choose("", read([*long, user("the last question")], wire))
    begun = known.choose("", read(long[:1], wire))
    assert begun is not talk
    assert known.choose("", read([*long, user("the last question, edited")], wire)) is talk
    assert known.choose("", read([user("hi"), reply("Hi there!"), user("another topic")], wire)) is begun


def test_a_parallel_branch_gets_a_session_of_its_own():
    known = Identities()
    trunk = known.choose("", read(TALK[:3]))
    left = known.choose("", read([*TALK[:3], reply("a"), user("left")]))
    assert left is trunk
    left.in_flight = 1
    right = known.choose("", read([*TALK[:3], reply("a"), user("right")]))
    assert right is not left
    right.in_flight = 1
    assert known.choose("", read([*TALK[:3], reply("a"), user("left"), reply("b"), user("more")])) is left
    assert known.choose("", read([*TALK[:3], reply("a"), user("right"), reply("b"), user("more")])) is right


def test_a_talk_that_only_begins_alike_is_another_one():
    known = Identities()
    first = known.choose("", read([user("hi"), reply("Hello!"), user("my cat"), reply("…"), user("x"), reply("y")]))
    assert known.choose("", read([user("hi"), reply("Hello!"), user("my dog")])) is not first


def test_a_client_that_trims_its_oldest_messages_keeps_its_session():
    known = Identities()
    messages = make_dialog(10, words=3)
    first = known.choose("", read(messages))
    trimmed = [*messages[8:], reply("new"), user("next")]
    assert known.choose("", read(trimmed)) is first


def test_a_client_that_compacts_its_own_history_starts_a_new_session_and_harms_nothing():
    known = Identities()
    first = known.choose("", read(make_dialog(10, words=3)))
    fresh = known.choose("", read([user("Summary of the talk so far: all is well. Go on.")]))
    assert fresh is not first


def test_the_least_recently_used_sessions_are_forgotten_first():
    known = Identities(sessions_max=10)
    sessions = [known.choose("", read([user(f"talk {number}")])) for number in range(30)]
    assert len(known) == 10
    assert known.choose("", read([user("talk 29")])) is sessions[29]
    assert known.choose("", read([user("talk 0")])) is not sessions[0]


def test_names_of_one_tenant_never_reach_another():
    assert make_id("alice", "x") != make_id("bob", "x") != make_id("", "x")
    assert belongs_to("alice", make_id("alice", "x"))
    assert not belongs_to("alice", make_id("alice2", "x"))
    assert not belongs_to("ali", make_id("alice", "x"))
    assert name_session("alice", make_id("alice", "x")) == "x"
    for name in ("@alice/x", "", "x" * 129, "a\nb", "a\u202eb", "a\ud800", "a\x00b"):
        with pytest.raises(FormatError):
            check_name(name)


def test_an_invalid_name_is_refused_in_the_clients_own_shape(rig):
    answer = rig.post("anthropic", make_body("anthropic", TALK[:1]), x_refold_session="@alice/x")
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert rig.provider.requests == []


def test_a_named_session_is_the_one_the_client_names(rig):
    for messages in (TALK[:1], TALK[:3], TALK):
        answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="my-session")
        assert answer.headers["x-refold-session"] == "my-session"
    assert [row.id for row in rig.manager.ledger.list_sessions()] == ["my-session"]


def test_parallel_requests_of_many_talks_each_get_their_own_answer_and_session(start):
    rig = start(echo_prompt, config={"window": 6_000, "reserve": 500})
    lock = threading.Lock()
    sessions: dict[int, set[str]] = {}

    def talk(number):
        messages = [user(f"Talk {number} begins. " + f"n{number} " * 300)]
        for turn in range(6):
            answer = rig.post("openai-chat", make_body("openai-chat", messages))
            assert answer.status_code == 200, answer.text
            said = answer.json()["choices"][0]["message"]["content"]
            assert said == messages[-1]["content"]
            with lock:
                sessions.setdefault(number, set()).add(answer.headers["x-refold-session"])
            messages += [reply(said), user(f"Talk {number}, turn {turn}. " + f"n{number} " * 300)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(talk, range(8)))
    assert all(len(found) == 1 for found in sessions.values()), sessions
    assert len(set.union(*sessions.values())) == 8
    for request in rig.provider.requests:
        text = request.body.decode()
        assert len({number for number in range(8) if f"n{number} " in text}) == 1


def test_an_edited_question_of_a_folded_talk_is_not_folded_again_beside_a_talk_that_only_began_alike(start):
    rig = start(config={"window": 8_000, "reserve": 500}, window=8_000)

    def say(messages):
        answer = rig.post("openai-chat", make_body("openai-chat", messages))
        return answer.headers["x-refold-session"], answer.headers["x-refold-reason"]

    messages = [user("hi")]
    for number in range(30):
        messages += [reply(f"Answer {number} " + "word " * 120), user(f"Question {number} " + "term " * 120)]
        talk, _ = say(messages)
    begun, _ = say(messages[:1])
    assert begun != talk
    assert say([*messages[:-1], user("The last question, edited.")]) == (talk, "kept")
    assert say(messages) == (talk, "kept")
    assert say([user("hi"), reply("Hi there!"), user("Another topic.")])[0] == begun


def test_parallel_branches_of_one_talk_do_not_mix(start):
    rig = start(drip("fine", pause_s=0.001), config={"window": 6_000, "reserve": 500})
    trunk = make_dialog(4, words=120)

    def branch(number):
        messages = [*trunk[:-1], user(f"branch {number}")]
        for turn in range(3):
            answer = rig.post("openai-chat", make_body("openai-chat", messages))
            assert answer.status_code == 200
            messages += [reply(f"b{number} t{turn}"), user(f"branch {number} turn {turn} " + "word " * 400)]
        return answer.headers["x-refold-session"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(branch, range(4)))
    for request in rig.provider.requests:
        text = request.body.decode()
        assert sum(f'"branch {number}' in text for number in range(4)) == 1
    assert rig.manager.verify() == []


def test_sessions_are_found_again_after_a_restart(tmp_path, empty_home):
    config = {"window": 8_000, "reserve": 1_000}
    messages = make_dialog(30)
    with start_rig(tmp_path / "w", config=config, window=8_000) as rig:
        first = rig.post("anthropic", make_body("anthropic", messages))
        sent = json.loads(rig.provider.requests[-1].body)["messages"]
    longer = [*messages, reply("ok"), user("go on")]
    with start_rig(tmp_path / "w", config=config, window=8_000) as rig:
        second = rig.post("anthropic", make_body("anthropic", longer))
        assert second.headers["x-refold-session"] == first.headers["x-refold-session"]
        assert json.loads(rig.provider.requests[-1].body)["messages"][: len(sent)] == sent


def test_a_tool_loop_stays_one_session(start):
    rig = start(call_tool("run", {"cmd": "ls"}))
    messages = [user("list the files")]
    sessions = set()
    for turn in range(5):
        answer = rig.post("openai-chat", make_body("openai-chat", messages))
        sessions.add(answer.headers["x-refold-session"])
        message = answer.json()["choices"][0]["message"]
        messages += [
            {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]},
            {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": f"file_{turn}"},
        ]
    assert len(sessions) == 1


ASKED = user("What is the weather in Rome?")
IN_ANTHROPIC = [
    ASKED,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "21 C"}]},
]
IN_CHAT = [
    ASKED,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "t1", "content": "21 C"},
]


@pytest.mark.parametrize(
    ("first", "second"),
    [(("anthropic", IN_ANTHROPIC), ("openai-chat", IN_CHAT)), (("openai-chat", IN_CHAT), ("anthropic", IN_ANTHROPIC))],
    ids=["Anthropic first", "OpenAI first"],
)
def test_a_named_session_that_continues_in_another_wire_format_is_a_session_of_its_own(tmp_path, first, second):
    stored = {}
    for _ in range(2):  # The second time in another process, which knows the sessions from the ledger only.
        with start_rig(tmp_path) as rig:
            for wire, messages in (first, second, first):
                answer = rig.post(wire, make_body(wire, messages), x_refold_session="talk")
                assert answer.status_code == 200
                assert "failed-open" not in answer.headers["x-refold-reason"]
                name = answer.headers["x-refold-session"]
                raws = [json.loads(one.raw) for one in rig.manager.ledger.read_messages(name)]
                assert raws == messages
                stored.setdefault(name, set()).add(rig.manager.ledger.read_session(name).wire)
            assert rig.manager.ledger.verify() == []
    assert stored == {"talk": {first[0]}, f"talk.{second[0]}": {second[0]}}
