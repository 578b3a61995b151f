"""Messages of the AI SDK: read, shortened and folded without losing a field."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager, compress
from refold.errors import FormatError
from refold.formats import detect, make_format, parse_messages
from refold.testing.provider_rules import find_violations

OPTIONS = {"providerOptions": {"anthropic": {"cacheControl": {"type": "ephemeral"}}}}


def make_step(n: int, output: Any = None) -> list[Any]:
    call = {"type": "tool-call", "toolCallId": f"c{n}", "toolName": "read", "input": {"n": n}, **OPTIONS}
    lines = "\n".join(f"line {at} of {n}: {at * n * 7919}" for at in range(60))
    result = {"type": "tool-result", "toolCallId": f"c{n}", "toolName": "read", **OPTIONS}
    return [
        {"role": "assistant", "content": [{"type": "reasoning", "text": f"Thought {n}.", **OPTIONS}, call], **OPTIONS},
        {"role": "tool", "content": [{**result, "output": output or {"type": "text", "value": lines}}]},
    ]


def make_history(steps: int) -> list[Any]:
    return [{"role": "user", "content": "Read all."}, *(one for n in range(steps) for one in make_step(n))]


def test_parts_are_read_by_kind() -> None:
    form = make_format("ai-sdk")
    outputs = [
        ({"type": "text", "value": "a"}, "a", False),
        ({"type": "json", "value": {"a": [1]}}, '{"a":[1]}', False),
        ({"type": "error-text", "value": "no"}, "no", True),
        ({"type": "error-json", "value": {"a": 1}}, '{"a":1}', True),
        ({"type": "execution-denied", "reason": "not today"}, "not today", False),
        ({"type": "content", "value": [{"type": "text", "text": "b"}, {"type": "file-url", "url": "u"}]}, "b", False),
    ]
    for output, text, is_error in outputs:
        assistant, tool = parse_messages(form, make_step(1, output))
        assert [part.kind for part in assistant.parts] == ["thinking", "call"]
        (result,) = tool.parts
        assert (result.kind, result.text, result.is_error, result.call_id) == ("result", text, is_error, "c1")
    own = [
        {"type": "tool-call", "toolCallId": "s1", "toolName": "search", "input": {}, "providerExecuted": True},
        {"type": "tool-result", "toolCallId": "s1", "toolName": "search", "output": {"type": "json", "value": 1}},
        {"type": "text", "text": "Found."},
    ]
    (message,) = parse_messages(form, [{"role": "assistant", "content": own}])
    assert [part.kind for part in message.parts] == ["opaque", "opaque", "text"]


def test_one_strange_field_is_enough_to_recognise_them() -> None:
    assert detect(make_history(1)).name == "ai-sdk"
    assert detect([{"role": "user", "content": "a", **OPTIONS}]).name == "ai-sdk"
    assert detect([{"role": "user", "content": [{"type": "file", "data": "", "mediaType": "a/b"}]}]).name == "ai-sdk"
    with pytest.raises(FormatError, match="mixes formats"):
        detect([*make_history(1), {"role": "tool", "tool_call_id": "c1", "content": "a"}])


@pytest.mark.parametrize("budget", [1_200, 4_000, 12_000])
def test_what_fits_keeps_every_field_of_what_it_keeps(budget: int) -> None:
    history = make_history(24)
    before = json.dumps(history)
    fitted = compress(history, budget, model="gpt-4o")
    assert json.dumps(history) == before
    assert fitted.total_tokens <= budget
    assert find_violations("ai-sdk", fitted.messages) == []
    for message, source in zip(fitted.messages, fitted.sources, strict=True):
        if source.kind == "whole":
            assert message is history[source.positions[0]]
        elif source.kind == "shortened":
            (origin,) = source.messages
            assert message.keys() == origin.keys()
            for part, old in zip(message["content"][-1:], origin["content"][-1:], strict=True):
                assert part.keys() == old.keys()
                assert {**part, "output": 0, "input": 0} == {**old, "output": 0, "input": 0}


def test_a_session_grows_folds_and_gives_back_every_original(tmp_path: Path) -> None:
    history: list[Any] = []
    with ContextCompressionManager(CompressionConfig(window=6_000, reserve=500, model="gpt-4o"), tmp_path) as manager:
        for message in make_history(40):
            history.append(message)
            if message["role"] != "assistant":
                view = manager.prepare_context_sync("s1", history).messages
                assert find_violations("ai-sdk", view) == []
        assert any("⟦" in json.dumps(one, ensure_ascii=False) for one in view)
        assert manager.session("s1").messages() == history
        assert manager.status("s1").wire == "ai-sdk"
        assert "line 59 of 3" in manager.recall("s1", "line 59 of 3")[0].text
        assert manager.verify() == []


def test_the_sidecars_openapi_has_no_reference_that_leads_nowhere() -> None:
    from refold.server.api.sidecar import ChatCompressRequest, CompressRequest, describe_body

    for kind in (ChatCompressRequest, CompressRequest):
        assert "$ref" not in json.dumps(describe_body(kind))
