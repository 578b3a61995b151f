"""Sessions follow the ids that clients give their own conversations."""

import json

import pytest

from refold.server.request import Asked
from refold.server.session_lookup import Origin, find_origin, read_conversation
from refold.testing import say
from tests.rigs.server import make_body, make_dialog, start_rig

HELLO = [{"role": "user", "content": "fix the failing test"}]
CLIENTS = {
    "claude-code": ("anthropic", "claude-cli/2.1.197 (external, sdk-cli)", "x-claude-code-session-id"),
    "codex": ("openai-responses", "codex_exec/0.166.0 (Debian 12.0.0; x86_64) unknown", "session-id"),
    "opencode": ("openai-responses", "opencode/1.18.33 (linux; x64) ai-sdk/provider-utils/4.0.40", "x-session-id"),
}


def ask(rig, client, conversation, messages, tools=None, **headers):
    wire, agent, header = CLIENTS[client]
    body = make_body(wire, messages, **({"tools": tools} if tools else {}))
    answer = rig.post(wire, body, **{"user-agent": agent, header: conversation, **headers})
    assert answer.status_code == 200, answer.text
    return answer.headers["x-refold-session"]


def follow(messages, answer="ok", question="and now?"):
    return [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": question}]


def list_sessions(rig):
    return {one["session"]: one for one in rig.http.get("/api/sessions").json()["sessions"]}


@pytest.mark.parametrize("client", list(CLIENTS))
def test_two_conversations_with_the_same_first_words_are_apart_from_the_first_request(rig, client):
    first, second = ask(rig, client, "id-1", HELLO), ask(rig, client, "id-2", HELLO)
    assert first != second
    assert ask(rig, client, "id-1", follow(HELLO)) == first
    assert ask(rig, client, "id-2", follow(HELLO)) == second
    assert ask(rig, client, "id-1", follow(follow(HELLO))) == first
    assert {one["client"] for one in list_sessions(rig).values()} == {client}


@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_sub_agent_is_a_session_below_the_one_that_began_it(rig, client):
    main = ask(rig, client, "id-1", HELLO)
    helper = [{"role": "user", "content": "search the code for the parser"}]
    sub = ask(rig, client, "id-1", helper)
    assert sub != main
    assert ask(rig, client, "id-1", follow(HELLO)) == main
    assert ask(rig, client, "id-1", follow(helper)) == sub
    listed = list_sessions(rig)
    assert (listed[sub]["parent"], listed[main]["parent"]) == (main, "")
    assert listed[sub]["title"] == "search the code for the parser"


SUB_AGENTS = {
    "claude-code": {"x-claude-code-session-id": "id-1", "x-claude-code-agent-id": "a1"},
    "codex": {"session-id": "id-1", "thread-id": "id-2", "x-codex-parent-thread-id": "id-1"},
    "codex, without its parent": {"session-id": "id-1", "thread-id": "id-2"},
    "opencode": {"session-id": "id-2", "x-session-id": "id-2", "x-parent-session-id": "id-1"},
}


@pytest.mark.parametrize("shape", list(SUB_AGENTS))
def test_a_sub_agent_with_an_id_of_its_own_is_below_the_conversation_that_its_headers_name(rig, shape):
    client = shape.partition(",")[0]
    main = ask(rig, client, "id-1", HELLO)
    # It begins with the same words as its parent, so only its ids can tell them apart.
    sub = ask(rig, client, "id-1", HELLO, **SUB_AGENTS[shape])
    assert sub != main
    assert ask(rig, client, "id-1", follow(HELLO), **SUB_AGENTS[shape]) == sub
    assert ask(rig, client, "id-1", follow(HELLO)) == main
    listed = list_sessions(rig)
    assert (listed[sub]["parent"], listed[main]["parent"]) == (main, "")


def test_sub_agents_that_got_the_same_task_are_sessions_of_their_own(rig):
    main = ask(rig, "claude-code", "id-1", HELLO)
    task = [{"role": "user", "content": "search the code for the parser"}]
    subs = {ask(rig, "claude-code", "id-1", task, x_claude_code_agent_id=agent) for agent in ("a1", "a2", "a3")}
    assert len(subs) == 3
    assert {list_sessions(rig)[sub]["parent"] for sub in subs} == {main}


@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_title_that_is_asked_for_first_is_below_the_conversation_and_not_above_it(tmp_path, empty_home, client):
    title = [{"role": "user", "content": "Generate a title for: fix the failing test"}]
    tools = [{"type": "function", "name": "run", "parameters": {"type": "object"}}]
    if client == "claude-code":
        tools = [{"name": "run", "input_schema": {"type": "object"}}]
    with start_rig(tmp_path / "work", say("ok")) as rig:
        beside = ask(rig, client, "id-1", title)
        main = ask(rig, client, "id-1", HELLO, tools=tools)
        helper = ask(rig, client, "id-1", [{"role": "user", "content": "something else"}], tools=tools)
    with start_rig(tmp_path / "work", say("ok")) as rig:
        assert {name: one["parent"] for name, one in list_sessions(rig).items()} == {
            beside: main,
            main: "",
            helper: main,
        }
        assert ask(rig, client, "id-1", follow(HELLO), tools=tools) == main


@pytest.mark.parametrize("is_first", [True, False])
def test_a_title_that_codex_asks_for_in_a_thread_of_its_own_is_below_the_conversation(rig, is_first):
    def ask_title(number, words):
        text = f"Generate a concise, single-line task title. Do not answer the request.\n\nUser prompt:\n{words}"
        headers = {"thread-id": f"t-{number}", "x-codex-turn-metadata": '{"thread_source":"thread_title","model":"x"}'}
        return ask(rig, "codex", f"t-{number}", [{"role": "user", "content": text}], **headers)

    other = ask(rig, "codex", "id-0", [{"role": "user", "content": "write a poem"}])
    titles = [ask_title(1, HELLO[0]["content"])] if is_first else []
    main = ask(rig, "codex", "id-1", HELLO)
    titles += [] if is_first else [ask_title(1, HELLO[0]["content"])]
    assert ask(rig, "codex", "id-1", follow(HELLO)) == main
    titles.append(ask_title(2, "and now?"))
    assert {name: one["parent"] for name, one in list_sessions(rig).items()} == {
        **dict.fromkeys(titles, main),
        **dict.fromkeys((main, other), ""),
    }


def test_a_conversation_that_the_client_compacted_stays_linked(rig):
    messages = make_dialog(6)
    main = ask(rig, "claude-code", "id-1", messages)
    compacted = [{"role": "user", "content": "This session continues another one. Summary: six files are fine."}]
    after = ask(rig, "claude-code", "id-1", compacted)
    assert list_sessions(rig)[after]["parent"] == main
    assert ask(rig, "claude-code", "id-1", follow(compacted)) == after


def test_a_conversation_that_is_resumed_under_another_id_continues_with_its_session(rig):
    messages = make_dialog(6)
    main = ask(rig, "claude-code", "id-1", messages)
    assert ask(rig, "claude-code", "id-2", follow(messages)) == main
    assert ask(rig, "claude-code", "id-2", follow(follow(messages))) == main


def test_ids_are_known_again_after_a_restart(tmp_path, empty_home):
    with start_rig(tmp_path / "work", say("ok")) as rig:
        first, second = ask(rig, "codex", "id-1", HELLO), ask(rig, "codex", "id-2", HELLO)
    with start_rig(tmp_path / "work", say("ok")) as rig:
        assert ask(rig, "codex", "id-1", follow(HELLO)) == first
        assert ask(rig, "codex", "id-2", follow(HELLO)) == second
        sub = ask(rig, "codex", "id-2", [{"role": "user", "content": "something else"}])
        assert list_sessions(rig)[sub]["parent"] == second


def test_the_id_in_the_metadata_of_older_versions_counts_too(rig):
    def post(conversation, messages):
        user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": conversation})
        answer = rig.post("anthropic", make_body("anthropic", messages, metadata={"user_id": user}))
        return answer.headers["x-refold-session"]

    first, second = post("id-1", HELLO), post("id-2", HELLO)
    assert first != second
    messages = HELLO
    for _ in range(3):
        messages = follow(messages)
        assert (post("id-1", messages), post("id-2", messages)) == (first, second)


def test_one_tenants_conversation_is_not_a_parent_for_another_tenant(start):
    rig = start()
    keys = {name: rig.application.keys.add(name)[1] for name in ("alice", "bob")}
    ask(rig, "codex", "id-1", HELLO, x_refold_key=keys["alice"])
    ask(rig, "codex", "id-1", [{"role": "user", "content": "other"}], x_refold_key=keys["bob"])
    listed = rig.http.get("/api/sessions", headers={"x-refold-key": keys["bob"]}).json()["sessions"]
    assert [one["parent"] for one in listed] == [""]


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        ("claude-cli/2.1.197 (external, sdk-cli)", "claude-code"),
        ("codex_cli_rs/0.30.0", "codex"),
        ("QwenCode/0.15.10 (linux; x64)", "qwen-code"),
        ("OpenAI/Python 2.9.0", "openai"),
        ("Anthropic/JS 0.94.0", "anthropic"),
        ("", ""),
        ("\x01\x02", ""),
        ("x" * 5_000, "x" * 40),
    ],
)
def test_a_client_is_known_by_its_user_agent(agent, client):
    asked = Asked("POST", "/v1/messages", b"", [(b"user-agent", agent.encode("latin-1"))])
    assert find_origin(asked) == Origin(client)


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"user_id": '{"session_id":"abc"}'}, "abc"),
        ({"user_id": "user_1_account__session_0a1b2c3d-0000"}, "0a1b2c3d-0000"),
        ({"user_id": '{"session_id":3}'}, ""),
        ({"user_id": "{broken"}, ""),
        ({"user_id": "[" * 5_000}, ""),
        ({"user_id": "{}"}, ""),
        ({"user_id": 3}, ""),
        ("text", ""),
        (None, ""),
    ],
)
def test_whatever_metadata_holds_it_is_read_or_left(metadata, found):
    assert read_conversation({"metadata": metadata}) == found


def test_only_codex_names_its_conversation_by_the_key_of_the_cache():
    body = {"prompt_cache_key": "id-1"}
    assert (read_conversation(body, "codex"), read_conversation(body, "openai")) == ("id-1", "")
    assert read_conversation({"prompt_cache_key": 3}, "codex") == ""
