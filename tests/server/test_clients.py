"""The official clients through the gateway: sync, async, streaming, tools, images, thinking, Responses."""

import base64

import anthropic
import openai
import pytest

from refold.testing import ScriptedCall, ScriptedReply, call_tool, echo_prompt, say
from tests.rigs.server import make_dialog

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 60).decode()
SMALL = {"window": 8_000, "reserve": 1_000}
CHAT_TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]
CLAUDE_TOOLS = [{"name": "run", "description": "Run.", "input_schema": {"type": "object", "properties": {}}}]


@pytest.fixture
def clients():
    """Makes official clients of a gateway, closed with the test."""
    made = []

    def make(rig, kind=openai.OpenAI, **options):
        url = rig.url if "nthropic" in kind.__name__ else f"{rig.url}/v1"
        made.append(kind(base_url=url, api_key="sk-client", max_retries=0, **options))
        return made[-1]

    yield make
    for client in made:
        if not kind_is_async(client):
            client.close()


def kind_is_async(client):
    return type(client).__name__.startswith("Async")


@pytest.mark.parametrize("is_long", [False, True])
def test_openai_chat_whole_and_streamed(start, clients, is_long):
    rig = start(say("All is well."), config=SMALL, window=8_000)
    messages = make_dialog(30 if is_long else 1)
    client = clients(rig)
    whole = client.chat.completions.create(model="scripted-1", messages=messages)
    assert whole.choices[0].message.content == "All is well."
    stream = client.chat.completions.create(model="scripted-1", messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "All is well."
    raw = client.chat.completions.with_raw_response.create(model="scripted-1", messages=messages)
    assert "->" in raw.headers["x-refold-tokens"]
    assert raw.headers["x-refold-session"].startswith("g-")


async def test_openai_async_chat_whole_and_streamed(start, clients):
    rig = start(say("All is well."), config=SMALL, window=8_000)
    async with clients(rig, openai.AsyncOpenAI) as client:
        whole = await client.chat.completions.create(model="scripted-1", messages=make_dialog(30))
        assert whole.choices[0].message.content == "All is well."
        stream = await client.chat.completions.create(model="scripted-1", messages=make_dialog(30), stream=True)
        said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(said) == "All is well."


@pytest.mark.parametrize("is_long", [False, True])
def test_anthropic_whole_and_streamed(start, clients, is_long):
    rig = start(say("All is well."), config=SMALL, window=8_000)
    messages = make_dialog(30 if is_long else 1)
    client = clients(rig, anthropic.Anthropic)
    asked = {"model": "claude-scripted", "max_tokens": 100, "messages": messages, "system": "Be brief."}
    assert client.messages.create(**asked).content[0].text == "All is well."
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == "All is well."
        assert stream.get_final_message().usage.output_tokens >= 1
    counted = client.messages.count_tokens(model="claude-scripted", messages=messages)
    assert counted.input_tokens > 0


async def test_anthropic_async_whole_and_streamed(start, clients):
    rig = start(say("All is well."), config=SMALL, window=8_000)
    async with clients(rig, anthropic.AsyncAnthropic) as client:
        asked = {"model": "claude-scripted", "max_tokens": 100, "messages": make_dialog(30)}
        assert (await client.messages.create(**asked)).content[0].text == "All is well."
        async with client.messages.stream(**asked) as stream:
            assert "".join([text async for text in stream.text_stream]) == "All is well."


@pytest.mark.parametrize("is_long", [False, True])
def test_responses_whole_and_streamed(start, clients, is_long):
    rig = start(say("All is well."), config=SMALL, window=8_000)
    items = make_dialog(30 if is_long else 1)
    client = clients(rig)
    assert client.responses.create(model="scripted-1", input=items).output_text == "All is well."
    kinds, said = [], ""
    for event in client.responses.create(model="scripted-1", input=items, stream=True, instructions="Be brief."):
        kinds.append(event.type)
        said += event.delta if event.type == "response.output_text.delta" else ""
    assert said == "All is well."
    assert kinds[-1] == "response.completed"
    assert client.responses.create(model="scripted-1", input="just text").output_text == "All is well."


def test_models_are_listed_by_both_clients(rig, clients):
    assert [model.id for model in clients(rig).models.list()] == ["scripted-1"]
    assert [model.id for model in clients(rig, anthropic.Anthropic).models.list()] == ["scripted-1"]


def test_an_openai_agent_with_parallel_tools_runs_for_long_and_stays_valid(start, clients):
    calls = (ScriptedCall("run", {"n": 1}, "call_a"), ScriptedCall("run", {"n": 2}, "call_b"))
    rig = start(ScriptedReply("", calls=calls), config=SMALL, window=8_000)
    client = clients(rig)
    messages = [{"role": "system", "content": "You run things."}, {"role": "user", "content": "Run all."}]
    for step in range(25):
        answer = client.chat.completions.create(model="scripted-1", messages=messages, tools=CHAT_TOOLS)
        message = answer.choices[0].message
        assert len(message.tool_calls) == 2
        messages.append(message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"step {step}: " + f"out{step} " * 150}
            for call in message.tool_calls
        ]
    sent = [len(request.messages) for request in rig.provider.requests]
    assert sent[-1] < len(messages) - 3, "it was folded on the way"
    assert len(rig.manager.ledger.list_sessions()) == 1


def test_an_anthropic_agent_with_thinking_and_tools_runs_for_long_and_stays_valid(start, clients):
    reply = ScriptedReply("Let me see.", calls=(ScriptedCall("run", {"n": 1}),), thinking="What would help?")
    rig = start(reply, config=SMALL, window=8_000)
    client = clients(rig, anthropic.Anthropic)
    messages = [{"role": "user", "content": "Run all."}]
    for step in range(25):
        with client.messages.stream(
            model="claude-scripted",
            max_tokens=100,
            messages=messages,
            tools=CLAUDE_TOOLS,
            thinking={"type": "enabled", "budget_tokens": 1024},
        ) as stream:
            message = stream.get_final_message()
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        assert blocks[0]["type"] == "thinking"
        call = next(block for block in blocks if block["type"] == "tool_use")
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"step {step}: " + f"out{step} " * 200}
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    assert len(rig.provider.requests[-1].messages) < len(messages) - 3
    for request in rig.provider.requests:
        for block in (b for m in request.messages if isinstance(m["content"], list) for b in m["content"]):
            if block["type"] == "thinking":
                assert block["signature"], "signatures stay whole"


def test_a_responses_agent_with_tools_runs_for_long_and_stays_valid(start, clients):
    rig = start(call_tool("run", {"n": 1}), config=SMALL, window=8_000)
    client = clients(rig)
    tools = [{"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}}]
    items = [{"role": "user", "content": "Run all."}]
    for step in range(25):
        answer = client.responses.create(model="scripted-1", input=items, tools=tools)
        call = next(item for item in answer.output if item.type == "function_call")
        items.append({"type": "function_call", "call_id": call.call_id, "name": "run", "arguments": call.arguments})
        output = f"step {step}: " + f"out{step} " * 200
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    assert len(rig.provider.requests[-1].messages) < len(items) - 3


def test_images_go_through_and_old_ones_may_be_compressed(start, clients):
    rig = start(echo_prompt, config=SMALL, window=8_000)
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    seen = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}
    answer = clients(rig).chat.completions.create(model="gpt-4o", messages=[seen])
    assert answer.choices[0].message.content == "What is this?"
    assert rig.provider.requests[-1].json["messages"] == [seen]
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    picture = {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "And this?"}]}
    client = clients(rig, anthropic.Anthropic)
    client.messages.create(model="claude-scripted", max_tokens=10, messages=[picture])
    assert rig.provider.requests[-1].json["messages"] == [picture]


def test_errors_reach_the_clients_as_their_own_exceptions(start, clients):
    rig = start(window=100)
    long = [{"role": "user", "content": "word " * 500}]
    with pytest.raises(openai.BadRequestError) as told:
        clients(rig).chat.completions.create(model="scripted-1", messages=long)
    assert told.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="too long"):
        clients(rig, anthropic.Anthropic).messages.create(model="claude-x", max_tokens=5, messages=long)


@pytest.mark.parametrize("lead", ["system", pytest.param("developer", marks=pytest.mark.slow)])
def test_responses_input_without_types_that_begins_with_a_system_item_is_compressed(start, clients, lead):
    rig = start(say("fine"), config=SMALL, window=8_000)
    client = clients(rig)
    history = [{"role": lead, "content": "Answer in one word."}]
    for turn in make_dialog(30, end=False):
        history.append(turn)
        if turn["role"] == "user":
            raw = client.responses.with_raw_response.create(model="scripted-1", input=history)
            assert not raw.headers["x-refold-reason"].startswith("failed-open")
            assert raw.parse().output_text == "fine"
    before, after = map(int, raw.headers["x-refold-tokens"].split("->"))
    assert after < 7_000 < before
    row = rig.manager.ledger.read_session(raw.headers["x-refold-session"])
    assert row.wire == "openai-responses"
    assert row.messages == len(history) - 1
