"""The gateway's recall tool: offered with the client's tools, answered by the gateway, never seen by the client."""

import contextlib
import json

import anthropic
import httpx2
import openai
import pytest

from refold.ledger.sqlite import SqliteLedger
from refold.server.recall_tool import NAME, make_recall_tool
from refold.server.wires import RESPONSES
from refold.testing import ScriptedCall, ScriptedReply, call_tool, fail, say
from tests.rigs.effort import each_once, first_of
from tests.rigs.server import PATHS, make_body, make_dialog, wait_for
from tests.server.raw_upstream import RawUpstream, play_chunks
from tests.server.test_fallback import WRITES, FailingLedger

SMALL = {"window": 8_000, "reserve": 1_000}
ON = {"recall_tool": True}
WIRES = ["openai-chat", "openai-responses", "anthropic"]
SCHEMA = {"type": "object", "properties": {}}
TOOLS = {
    "openai-chat": [{"type": "function", "function": {"name": "run", "parameters": SCHEMA}}],
    "openai-responses": [{"type": "function", "name": "run", "parameters": SCHEMA}],
    "anthropic": [{"name": "run", "description": "Run.", "input_schema": SCHEMA}],
}
RECALL = ScriptedCall(NAME, {"query": "file_2.py"}, id="call_recall_1")
RUN = ScriptedCall("run", {}, id="call_run_1")


class Ask:
    """One question through an official client, whole or streamed; ``text`` and ``calls`` are what the client sees."""

    def __init__(self, rig, wire, messages, *, is_streamed):
        self.text, self.calls = "", []
        ask = {"openai-chat": self._chat, "openai-responses": self._responses, "anthropic": self._anthropic}[wire]
        ask(rig, messages, TOOLS[wire], is_streamed)

    def _chat(self, rig, messages, tools, is_streamed):
        with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-client", max_retries=0) as client:
            asked = {"model": "scripted-1", "messages": messages, "tools": tools}
            if is_streamed:
                with client.chat.completions.stream(**asked) as stream:
                    message = stream.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**asked).choices[0].message
        self.text, self.calls = message.content or "", [one.function.name for one in message.tool_calls or ()]

    def _responses(self, rig, messages, tools, is_streamed):
        with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-client", max_retries=0) as client:
            asked = {"model": "scripted-1", "input": messages, "tools": tools}
            if is_streamed:
                with client.responses.stream(**asked) as stream:
                    response = stream.get_final_response()
            else:
                response = client.responses.create(**asked)
        self.text = response.output_text
        self.calls = [item.name for item in response.output if item.type == "function_call"]

    def _anthropic(self, rig, messages, tools, is_streamed):
        with anthropic.Anthropic(base_url=rig.url, api_key="sk-client", max_retries=0) as client:
            asked = {"model": "claude-scripted", "max_tokens": 100, "messages": messages, "tools": tools}
            if is_streamed:
                with client.messages.stream(**asked) as stream:
                    message = stream.get_final_message()
            else:
                message = client.messages.create(**asked)
        self.text = "".join(block.text for block in message.content if block.type == "text")
        self.calls = [block.name for block in message.content if block.type == "tool_use"]


def sent(rig, at):
    return json.loads(rig.provider.requests[at].body)


@pytest.mark.parametrize(("wire", "is_streamed"), each_once(WIRES, (False, True)))
def test_a_recall_is_answered_by_the_gateway_and_the_client_sees_the_final_answer(start, wire, is_streamed):
    script = [ScriptedReply("Let me look. ", calls=(RECALL,), id="a1"), ScriptedReply("It was fine.", id="a2")]
    rig = start(script, settings=ON)
    seen = Ask(rig, wire, make_dialog(4), is_streamed=is_streamed)
    assert seen.calls == []
    # Words before the call were streamed when they came; an answer that is not streamed is the last one alone.
    assert seen.text == ("Let me look. It was fine." if is_streamed else "It was fine.")
    assert len(rig.provider.requests) == 2
    first, second = (rig.provider.requests[at].body.decode() for at in (0, 1))
    assert NAME in first
    assert "file_2.py is fine" in second[len(first) - 200 :]


@pytest.mark.parametrize(("wire", "is_streamed"), each_once(WIRES, (False, True)))
def test_calls_of_other_tools_in_the_same_answer_are_repeated_after_the_recall(start, wire, is_streamed):
    script = [ScriptedReply("", calls=(RUN, RECALL)), ScriptedReply("", calls=(RUN,)), say("Done.")]
    rig = start(script, settings=ON)
    seen = Ask(rig, wire, make_dialog(4), is_streamed=is_streamed)
    assert seen.calls == ["run"]
    assert '"call_run_1"' not in rig.provider.requests[1].body.decode()


@pytest.mark.parametrize(("wire", "is_streamed"), each_once(WIRES, (False, True)))
def test_answers_without_a_recall_pass_unchanged(start, wire, is_streamed):
    rig = start([ScriptedReply("I run it. ", calls=(RUN,)), say("Done.")], settings=ON)
    seen = Ask(rig, wire, make_dialog(2), is_streamed=is_streamed)
    assert (seen.text, seen.calls) == ("I run it. ", ["run"])
    assert len(rig.provider.requests) == 1


@pytest.mark.parametrize("wire", WIRES)
def test_the_prefix_stays_the_same_from_request_to_request(start, wire):
    script = [say("one"), ScriptedReply("", calls=(RECALL,)), say("two"), say("three")]
    rig = start(script, settings=ON)
    messages = make_dialog(3)
    key = "input" if wire == "openai-responses" else "messages"
    for words in ("one", "two", "three"):
        assert Ask(rig, wire, messages, is_streamed=False).text == words
        messages = [*messages, {"role": "assistant", "content": words}, {"role": "user", "content": f"after {words}"}]
    first, second, recalled, third = (sent(rig, at) for at in range(4))
    assert first["tools"] == second["tools"] == recalled["tools"] == third["tools"]
    assert [tool.get("name") or tool["function"]["name"] for tool in first["tools"]] == ["run", NAME]
    assert second[key][: len(first[key])] == first[key]
    assert recalled[key][: len(second[key])] == second[key]
    assert third[key][: len(second[key])] == second[key]
    # One session, and what the ledger holds is what the client said.
    (row,) = rig.manager.ledger.list_sessions()
    wait_for(lambda: rig.manager.ledger.read_session(row.id).messages == len(third[key]))
    wait_for(lambda: len(rig.manager.ledger.read_usage(row.id, limit=9)) == 4)


@pytest.mark.parametrize("wire", first_of(reversed(WIRES), 1))
def test_an_agent_gets_back_what_was_folded_away(start, wire):
    handle = ScriptedCall(NAME, {"query": "port of the staging database"}, id="call_recall_1")
    rig = start([ScriptedReply("", calls=(handle,)), say("It is 6543.")], config=SMALL, settings=ON, window=8_000)
    told = {"role": "user", "content": "Remember: the port of the staging database is 6543."}
    messages = [told, {"role": "assistant", "content": "Noted."}, *make_dialog(30)]
    assert Ask(rig, wire, messages, is_streamed=True).text == "It is 6543."
    key = "input" if wire == "openai-responses" else "messages"
    first, second = sent(rig, 0)[key], sent(rig, 1)[key]
    assert "6543" in json.dumps(second[len(first) :])


@pytest.mark.parametrize(("wire", "is_streamed"), each_once(WIRES, (False, True)))
def test_recalls_are_bounded_per_turn(start, wire, is_streamed):
    rig = start([*[ScriptedReply("", calls=(RECALL,))] * 3, say("Enough.")], settings=ON)
    assert Ask(rig, wire, make_dialog(2), is_streamed=is_streamed).text == "Enough."
    assert len(rig.provider.requests) == 4
    assert sent(rig, 3)["tool_choice"] in ("none", {"type": "none"})


@pytest.mark.parametrize(("wire", "is_streamed"), each_once(WIRES, (False, True)))
def test_a_model_that_never_stops_does_not_show_the_call(start, wire, is_streamed):
    rig = start(ScriptedReply("", calls=(RECALL,)), settings=ON)
    body = make_body(wire, make_dialog(2), tools=TOOLS[wire], stream=is_streamed)
    if is_streamed:
        seen = b""
        with (
            contextlib.suppress(httpx2.RemoteProtocolError),
            rig.http.stream("POST", PATHS[wire], json=body) as answer,
        ):
            for piece in answer.iter_bytes():
                seen += piece
        assert NAME.encode() not in seen
        assert b"message_stop" not in seen
        assert b"DONE" not in seen
    else:
        answer = rig.post(wire, body)
        assert answer.status_code == 502
        assert NAME not in answer.text


def test_an_answer_that_only_a_lossless_parser_reads_is_sent_back_unchanged(start):
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": NAME, "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2lnbg=="}},
    }
    message = {"role": "assistant", "content": "half \ud83d", "seed": 10**22, "tool_calls": [call]}
    recall = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    final = '{"choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}}]}'
    answers = [recall.encode(), final.encode()]
    with RawUpstream(lambda line: play_chunks([answers.pop(0)], "application/json")(line)) as upstream:
        rig = start(upstream=upstream.url, settings=ON)
        body = make_body("openai-chat", [{"role": "user", "content": "go"}], tools=TOOLS["openai-chat"])
        answer = rig.post("openai-chat", body)
        assert answer.content == final.encode()
        said = json.loads(upstream.requests[1].partition(b"\r\n\r\n")[2])["messages"][-2]
    assert said["content"] == "half \ud83d"
    assert said["tool_calls"] == [call]


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_without_tools_is_sent_as_it_came(start, wire):
    rig = start(say("fine"), settings=ON)
    body = json.dumps(make_body(wire, make_dialog(2))).encode()
    assert rig.post(wire, body).status_code == 200
    assert rig.provider.requests[-1].body == body


def test_it_is_off_by_default(start):
    rig = start(call_tool("run"))
    body = json.dumps(make_body("openai-chat", make_dialog(2), tools=TOOLS["openai-chat"])).encode()
    assert rig.post("openai-chat", body).status_code == 200
    assert rig.provider.requests[-1].body == body


def test_a_chain_of_responses_continues_from_the_answer_after_a_recall(start):
    script = [
        ScriptedReply("Let me look. ", calls=(RECALL,), id="a1"),
        ScriptedReply("It was fine.", id="a2"),
        say("ok"),
    ]
    rig = start(script, settings=ON)
    with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-client", max_retries=0) as client:
        asked = {"model": "scripted-1", "tools": TOOLS["openai-responses"]}
        with client.responses.stream(input=make_dialog(2), **asked) as stream:
            first = stream.get_final_response()
        second = client.responses.create(input="And now?", previous_response_id=first.id, **asked)
    assert second.output_text == "ok"
    held = [json.loads(one.body).get("previous_response_id") for one in rig.provider.requests]
    assert held[:2] == [None, None]
    assert held[2] != first.id
    assert "a2" in held[2]


PORTS = "\n".join(f"row {n}: staging database {n} listens on port {6_000 + n}, owner team-{n % 7}" for n in range(400))
ASK_PORTS = {"query": "staging database port"}


def results_of(wire, request, before):
    """The results of recalls in a request that follows another one, as text."""
    key = "input" if wire == "openai-responses" else "messages"
    return json.dumps(request[key][len(before[key]) :], ensure_ascii=False)


@pytest.mark.parametrize(("wire", "is_streamed"), each_once(WIRES, (True, False), quick_max=1))
def test_results_fit_the_window_however_many_calls_an_answer_has(start, wire, is_streamed):
    calls = tuple(ScriptedCall(NAME, ASK_PORTS, id=f"call_{n}") for n in range(12))

    def script(request):
        return say("fine") if '"call_0"' in request.body.decode() else ScriptedReply("", calls=calls)

    rig = start(script, config=SMALL, settings=ON, window=8_000)
    messages = [{"role": "user", "content": f"Remember these.\n{PORTS}"}, {"role": "assistant", "content": "Noted."}]
    for n in range(10):
        messages.append({"role": "user", "content": f"Question {n}: " + " ".join(f"w{n}x{m}" for m in range(300))})
        assert Ask(rig, wire, messages, is_streamed=is_streamed).text == "fine"
        messages.append({"role": "assistant", "content": "fine"})
    assert len(rig.provider.requests) == 20, "none was refused as too long"
    shown = [results_of(wire, sent(rig, at + 1), sent(rig, at)) for at in range(0, 20, 2)]
    assert all("listens on port" in one or "no room" in one for one in shown)
    assert sum("listens on port" in one for one in shown) > 5


@pytest.mark.parametrize("wire", WIRES)
def test_the_model_reads_a_long_original_page_by_page(start, wire):
    state = {"offset": 0}

    def script(request):
        if request.body.decode().count(NAME) == 1:
            return ScriptedReply("", calls=(ScriptedCall(NAME, ASK_PORTS, id="c0"),))
        found = results_of(wire, json.loads(request.body), {"messages": [], "input": []})
        handle = found.split("⟨")[1].split("⟩")[0]
        if "offset=" in found and state["offset"]:
            return say("done")
        offset = int(found.split("offset=")[1].split("\\n")[0]) if "offset=" in found else 0
        state["offset"] = state["offset"] or offset
        arguments = {"handle": handle, "offset": offset}
        return ScriptedReply("", calls=(ScriptedCall(NAME, arguments, id=f"c{offset + 1}"),))

    rig = start(script, settings=ON)
    messages = [{"role": "user", "content": f"Remember these.\n{PORTS}"}, {"role": "assistant", "content": "Noted."}]
    assert Ask(rig, wire, [*messages, *make_dialog(2)], is_streamed=False).text == "done"
    told = rig.provider.requests[-1].body.decode()
    assert f"{NAME}(handle)" in told
    assert "context_expand" not in told, "that tool is not offered here"
    assert state["offset"] > 1_000


@pytest.mark.parametrize(("wire", "is_streamed"), each_once(WIRES, (False, True)))
def test_results_that_the_provider_refuses_are_left_out(start, wire, is_streamed):
    def script(request):
        body = request.body.decode()
        if '"call_recall_1"' not in body:
            return ScriptedReply("", calls=(RECALL,))
        return fail(400, "prompt is too long: 9000 tokens > 8000 maximum") if "passage" in body else say("Without it.")

    rig = start(script, settings=ON)
    assert Ask(rig, wire, make_dialog(4), is_streamed=is_streamed).text == "Without it."
    assert "no room" in rig.provider.requests[-1].body.decode()


def test_reasoning_that_led_to_a_dropped_call_is_dropped_too():
    def thought(name, **more):
        return {"type": "reasoning", "id": name, "summary": [], **more}

    def call(name, call_id):
        return {"type": "function_call", "name": name, "call_id": call_id, "arguments": "{}"}

    tool = make_recall_tool(RESPONSES)
    output = [thought("r1"), call(NAME, "c1"), thought("r2"), call("run", "c2")]
    kept = tool.write_exchange({"output": output}, {"c1": "found"})
    assert kept[:2] == output[:2]
    assert [item["type"] for item in kept] == ["reasoning", "function_call", "function_call_output"]
    unstored = {"output": [thought("r1"), thought("r3", encrypted_content="x"), call(NAME, "c1")], "store": False}
    assert [item.get("id") for item in tool.write_exchange(unstored, {"c1": "found"})][:1] == ["r3"]


@pytest.mark.parametrize(("fails", "is_streamed"), [(WRITES, False), (WRITES, True), (("everything",), False)])
def test_a_recall_in_a_session_that_could_not_be_stored_gets_an_answer(start, tmp_path, fails, is_streamed):
    ledger = FailingLedger(SqliteLedger(tmp_path / "ledger.db"))
    rig = start([ScriptedReply("", calls=(RECALL,)), say("I do not know.")], settings=ON, ledger=ledger)
    ledger.fails = fails
    assert Ask(rig, "openai-chat", make_dialog(4), is_streamed=is_streamed).text == "I do not know."
    assert len(rig.provider.requests) == 2
