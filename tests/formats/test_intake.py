"""Input of callers: objects of the real SDKs, generators, bodies, messages of a framework; and the results."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from refold import CompressionConfig, ContextCompressionManager, FormatError, compress
from refold.formats import MessageSource
from refold.formats.intake import read_tools
from refold.testing import find_violations

SMALL = CompressionConfig(window=4_000, reserve=500)
LONG = "The sensor on line {n} reported {n}17 units; nothing else changed in the hall. " * 12


def make_chat(steps: int) -> list[Any]:
    """Return a chat as the OpenAI SDK's users grow it: their dicts, the SDK's answers."""
    messages: list[Any] = [{"role": "system", "content": "You read sensors."}]
    messages.append({"role": "user", "content": "Read every sensor and report."})
    for n in range(steps):
        call = {"id": f"call_{n}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {n}}}'}}
        answer = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call]}
        messages.append(ChatCompletionMessage.model_validate(answer))
        messages.append({"role": "tool", "tool_call_id": f"call_{n}", "content": LONG.format(n=n)})
    return messages


def make_claude(steps: int) -> list[Any]:
    """Return a chat as the Anthropic SDK's users grow it: lists of its blocks inside their dicts."""
    messages: list[Any] = [{"role": "user", "content": "Read every sensor and report."}]
    for n in range(steps):
        blocks = [
            ThinkingBlock(type="thinking", thinking=f"Sensor {n} is next.", signature=f"c2lnbmF0dXJl{n}"),
            TextBlock(type="text", text=f"Reading sensor {n}.", citations=None),
            ToolUseBlock(type="tool_use", id=f"toolu_{n}", name="read", input={"n": n}),
        ]
        messages.append({"role": "assistant", "content": blocks})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": LONG.format(n=n)}
        messages.append({"role": "user", "content": [result]})
    return messages


def dump(messages: list[Any]) -> list[Any]:
    """Return messages as a provider would get them."""
    from refold.formats.intake import to_plain

    return [to_plain(message) for message in messages]


@pytest.mark.parametrize(("make", "wire"), [(make_chat, "openai-chat"), (make_claude, "anthropic")])
def test_objects_of_an_sdk_are_messages_and_untouched_ones_come_back_as_they_are(make: Any, wire: str) -> None:
    history = make(12)
    done = compress(history, 1_500)
    assert done.total_tokens <= 1_500
    assert find_violations(wire, dump(done.messages)) == []
    whole = [(message, source) for message, source in zip(done.messages, done.sources, strict=True)]
    kept = [(message, source) for message, source in whole if source.kind == "whole"]
    assert kept
    assert all(message is history[source.positions[0]] for message, source in kept)
    assert any(source.kind == "fold" and len(source.positions) > 4 for source in done.sources)


@pytest.mark.parametrize(("make", "wire"), [(make_chat, "openai-chat"), (make_claude, "anthropic")])
def test_a_session_grown_with_objects_is_the_one_grown_with_dicts(make: Any, wire: str, tmp_path: Path) -> None:
    objects, dicts = (ContextCompressionManager(SMALL, tmp_path / name) for name in ("objects", "dicts"))
    history = make(20)
    for stop in range(3, len(history) + 1, 4):
        ours = objects.prepare_context_sync("s1", history[:stop])
        theirs = dicts.prepare_context_sync("s1", dump(history[:stop]))
        assert dump(ours.messages) == theirs.messages
        assert find_violations(wire, theirs.messages) == []
        assert [one.kind for one in ours.sources] == [one.kind for one in theirs.sources]
    assert objects.status("s1").compression_count == dicts.status("s1").compression_count > 0
    covered = sorted(at for source in ours.sources for at in source.positions)
    assert covered == list(range(len(history[:stop])))


def test_items_of_the_responses_interface_are_messages(tmp_path: Path) -> None:
    history: list[Any] = [{"role": "user", "content": "Read every sensor."}]
    for n in range(20):
        text = ResponseOutputText(type="output_text", text=f"Reading {n}.", annotations=[])
        history.append(
            ResponseOutputMessage(id=f"msg_{n}", type="message", role="assistant", status="completed", content=[text])
        )
        history.append(
            ResponseFunctionToolCall(type="function_call", call_id=f"c{n}", name="read", arguments=f'{{"n": {n}}}')
        )
        history.append({"type": "function_call_output", "call_id": f"c{n}", "output": LONG.format(n=n)})
    prepared = ContextCompressionManager(SMALL, tmp_path).prepare_context_sync("s1", history)
    assert find_violations("openai-responses", dump(prepared.messages)) == []
    assert prepared.messages[-2] is history[-2]
    assert any(source.kind == "fold" for source in prepared.sources)


def test_any_iterable_will_do_and_a_body_comes_back_as_a_body(tmp_path: Path) -> None:
    history = make_chat(20)
    listed = compress(history, 1_500)
    assert dump(compress((message for message in history), 1_500).messages) == dump(listed.messages)
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    body = {"model": "gpt-4o", "messages": history, "tools": tools, "temperature": 0.1}
    manager = ContextCompressionManager(SMALL, tmp_path)
    prepared = manager.prepare_context_sync("s1", body)
    assert prepared.body == {**body, "messages": prepared.messages}
    assert manager.status("s1").model == "gpt-4o"
    assert prepared.tools == tools
    assert len(prepared.messages) < len(history)


@dataclass
class Note:
    """A framework's message: one note may hold several results."""

    id: str
    kind: str
    texts: list[str]
    calls: int = 0


class NoteCodec:
    """Turns notes into chat messages and back; a note of kind ``mark`` is nothing that a model sees."""

    def to_raw(self, message: Note) -> list[dict[str, Any]]:
        if message.kind == "mark":
            return []
        if message.kind == "results":
            return [
                {"role": "tool", "tool_call_id": f"{message.id}-{n}", "content": text}
                for n, text in enumerate(message.texts)
            ]
        raw: dict[str, Any] = {"role": message.kind, "content": message.texts[0]}
        if message.calls:
            raw["tool_calls"] = [
                {"id": f"{message.id}-{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
                for n in range(message.calls)
            ]
        return [raw]

    def from_raw(self, raw: dict[str, Any], source: MessageSource) -> Note:
        first = source.messages[0].id if source.messages else "new"
        return Note(f"{first}/{source.kind}", str(raw["role"]), [str(raw["content"])])


def list_notes(steps: int) -> Iterator[Note]:
    yield Note("ask", "user", ["Read every sensor."])
    for n in range(steps):
        yield Note(f"mark{n}", "mark", [])
        yield Note(f"n{n}", "assistant", ["Reading two."], calls=2)
        yield Note(f"n{n}", "results", [LONG.format(n=n), f"Sensor {n} is quiet."])


def test_a_codec_converts_one_message_into_several_and_keeps_what_it_came_from(tmp_path: Path) -> None:
    notes = list(list_notes(20))
    manager = ContextCompressionManager(SMALL, tmp_path)
    prepared = manager.prepare_context_sync("s1", notes, codec=NoteCodec())
    assert all(isinstance(message, Note) for message in prepared.messages)
    folds = [message for message in prepared.messages if message.id.endswith("/fold")]
    assert folds
    assert "⟦" in folds[0].texts[0]
    assert prepared.messages[-1] is notes[-1]
    assert prepared.messages[-2] is notes[-2]
    assert prepared.messages[-3] is notes[-3], "a message without raw form follows its neighbour"
    by_kind = {source.kind for source in prepared.sources}
    assert {"whole", "fold"} <= by_kind
    stored = manager.prepare_context_sync("s1", codec=NoteCodec())
    assert stored.messages[0].texts == prepared.messages[0].texts
    assert all(isinstance(message, Note) for message in stored.messages)


def test_sources_name_what_was_shortened(tmp_path: Path) -> None:
    history = make_chat(1)
    history[-1] = {**history[-1], "content": "\n".join(f"row {n}: {n * 7919}" for n in range(4_000))}
    prepared = ContextCompressionManager(SMALL, tmp_path).prepare_context_sync("s1", history)
    kinds = {source.positions: source.kind for source in prepared.sources}
    assert kinds[(3,)] == "shortened"
    assert kinds[(1,)] == "whole"
    assert prepared.sources[-1].messages == (history[3],)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("hello", "write [{"),
        ({"role": "user", "content": "hi"}, "put it into a list"),
        (["hello"], 'write {"role": "user"'),
        ([object()], "codec="),
        ([ChatCompletion(id="x", choices=[], created=1, model="m", object="chat.completion")], "choices[0].message"),
        (
            [
                AnthropicMessage.model_validate(
                    {
                        "id": "m",
                        "type": "message",
                        "role": "assistant",
                        "model": "m",
                        "content": [],
                        "stop_reason": "end_turn",
                        "usage": {"input_tokens": 1, "output_tokens": 1},
                    }
                )
            ],
            "response.content",
        ),
        ([[{"role": "user", "content": "hi"}]], "one list too deep"),
        ({"text": "hi"}, "a request body"),
    ],
)
def test_anything_else_gets_an_error_that_names_the_remedy(given: Any, remedy: str) -> None:
    with pytest.raises(FormatError) as error:
        compress(given, 1_000)
    assert remedy in str(error.value)


def test_tools_may_be_objects_of_a_framework() -> None:
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    read = SimpleNamespace(name="read", description="Read.", params_json_schema=schema)
    ask = SimpleNamespace(name="ask", description=None, parameters=lambda: schema)
    whole = SimpleNamespace(name="w", schema={"name": "whole", "description": "All.", "parameters": schema})
    tools = read_tools([read, (ask, {"type": "web_search"}), whole, len])
    assert [tool.get("function", tool) for tool in tools] == [
        {"name": "read", "description": "Read.", "parameters": schema},
        {"name": "ask", "description": "", "parameters": schema},
        {"type": "web_search"},
        {"name": "whole", "description": "All.", "parameters": schema},
    ]
    given = [{"type": "function"}]
    assert read_tools(given) is given
    assert read_tools(None) is None
