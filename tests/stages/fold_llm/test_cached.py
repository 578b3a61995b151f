"""The request for a note is the conversation as it was sent, and one message more: it is read from the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from refold import CompressionConfig, ContextCompressionManager
from refold.cli.main import app as cli
from refold.llm.anthropic import AnthropicModel
from refold.llm.openai import OpenAIModel
from refold.llm.port import ChatRequest
from refold.testing import ScriptedProvider, fail
from refold.testing.script import RecordedRequest
from refold.tokens.models import model_info
from tests.rigs.model import working

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

NAMES = {"openai": "gpt-5.1", "responses": "gpt-5.1", "anthropic": "claude-haiku-5-5"}
SYSTEM = "You find faults in logs. " * 40
NOTE = "## Where things are now\n- The logs were read. [2-9]"


def is_note(request: RecordedRequest) -> bool:
    return "Write the note by which" in request.prompt


def make_tools(wire: str) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    if wire == "anthropic":
        return [{"name": "read_file", "description": "Read a file.", "input_schema": schema}]
    if wire == "responses":
        return [{"type": "function", "name": "read_file", "description": "Read a file.", "parameters": schema}]
    return [{"type": "function", "function": {"name": "read_file", "description": "Read.", "parameters": schema}}]


def make_messages(wire: str, steps: int) -> list[Any]:
    sent = working(steps)
    if wire == "openai":
        return sent
    written: list[Any] = [sent[0]]
    for call, result in zip(sent[1::2], sent[2::2], strict=True):
        (made,) = call["tool_calls"]
        if wire == "responses":
            used = {"type": "function_call", "call_id": made["id"], "name": "read_file", "arguments": '{"path": "x"}'}
            output = {"type": "function_call_output", "call_id": made["id"], "output": result["content"]}
            written += [{"role": "assistant", "content": call["content"]}, used, output]
            continue
        use = {"type": "tool_use", "id": made["id"], "name": "read_file", "input": {"path": "x"}}
        written.append({"role": "assistant", "content": [{"type": "text", "text": call["content"]}, use]})
        block = {"type": "tool_result", "tool_use_id": made["id"], "content": result["content"]}
        written.append({"role": "user", "content": [block]})
    return written


def make_model(wire: str, provider: ScriptedProvider, name: str = "") -> Any:
    if wire != "anthropic":
        return OpenAIModel(name or NAMES[wire], "key", provider.openai_url)
    return AnthropicModel(name or NAMES[wire], "key", provider.anthropic_url)


async def converse(
    wire: str, folder: Path, provider: ScriptedProvider, writer: Any, *, name: str = "", reserve: int = 2_000
) -> None:
    """Send a growing conversation request by request; ``writer`` writes the notes."""
    name = name or NAMES[wire]
    config = CompressionConfig(window=9_000, reserve=reserve, model=name, background=False)
    manager = ContextCompressionManager(config, folder, llm=writer)
    speaker = make_model(wire, provider, name)
    speaker = speaker.on_wire("openai-responses") if wire == "responses" else speaker
    tools = make_tools(wire)
    for steps in range(2, 60, 2):
        prepared = await manager.prepare_context("s", make_messages(wire, steps), SYSTEM, tools=tools, model=name)
        answer = await speaker.follow(ChatRequest(prepared.messages, SYSTEM, tools), 100)
        manager.observe_usage("s", answer.usage)
    manager.close()


@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
async def test_a_note_is_asked_for_on_the_conversation_that_the_model_has_cached(wire: str, tmp_path: Path) -> None:
    with ScriptedProvider(lambda request: NOTE if is_note(request) else "ok", caches=True) as provider:
        await converse(wire, tmp_path, provider, make_model(wire, provider))
        asked = [at for at, request in enumerate(provider.requests) if is_note(request)]
        assert asked
        for at in asked:
            note, before = provider.requests[at], provider.requests[at - 1]
            assert note.messages[:-1] == before.messages, "the same messages, and one more"
            assert note.json["tools"] == before.json["tools"]
            assert all(note.json.get(name) == before.json.get(name) for name in ("system", "instructions"))
            usage = provider.usages[at]
            assert usage.cached >= usage.input * 0.6
        # On Anthropic's wire another choice of tools would make all messages new, so it is left as it was.
        choices = {str(provider.requests[at].json.get("tool_choice")) for at in asked}
        assert choices == {"None" if wire == "anthropic" else "none"}


async def test_another_model_gets_the_span_as_text(tmp_path: Path) -> None:
    with ScriptedProvider(lambda request: NOTE if is_note(request) else "ok", caches=True) as provider:
        await converse("openai", tmp_path, provider, make_model("openai", provider, "gpt-4o-mini"))
        notes = [request for request in provider.requests if is_note(request)]
        assert notes
        assert all(len(request.messages) == 1 and "tools" not in request.json for request in notes)
        assert "[2] assistant: Log 0 comes next." in notes[0].prompt


async def test_a_provider_that_refuses_the_request_on_the_conversation_is_asked_with_a_prompt(tmp_path: Path) -> None:
    def answer(request: RecordedRequest) -> Any:
        if is_note(request) and len(request.messages) > 1:
            return fail(400, "tool_choice: not here")
        return NOTE if is_note(request) else "ok"

    with ScriptedProvider(answer, caches=True) as provider:
        await converse("openai", tmp_path, provider, make_model("openai", provider))
        assert any(is_note(request) and len(request.messages) == 1 for request in provider.requests)


async def test_status_statistics_and_the_bill_show_what_notes_cost(tmp_path: Path) -> None:
    with ScriptedProvider(lambda request: NOTE if is_note(request) else "ok", caches=True) as provider:
        await converse("openai", tmp_path, provider, make_model("openai", provider))
        asked = [usage for request, usage in zip(provider.requests, provider.usages, strict=True) if is_note(request)]
    manager = ContextCompressionManager(CompressionConfig(model="gpt-5.1"), tmp_path)
    last = asked[-1]
    assert manager.status("s").note_tokens == (last.input, last.cached, last.output), "one note is in view"
    bill = manager.figures("s").bill
    prices = model_info("gpt-5.1").prices
    assert prices is not None
    paid = sum(
        ((one.input - one.cached * 0.9) * prices.input + one.output * prices.output) / 1_000_000 for one in asked
    )
    assert bill.dollars_summaries == pytest.approx(paid)
    manager.close()
    told = CliRunner().invoke(cli, ["stats", "--session", "s", "--workspace", str(tmp_path)]).stdout
    assert "notes by a model" in told
    assert f"${paid:,.4f}" in told


async def test_a_session_is_compressed_early_enough_for_the_question_and_its_answer(tmp_path: Path) -> None:
    config = CompressionConfig(model="gpt-4o", reserve=100, context_compression_threshold=0.99)
    soft = []
    for name, writer in (("rules", None), ("model", OpenAIModel("gpt-4o", "key"))):
        manager = ContextCompressionManager(config, tmp_path / name, llm=writer)
        await manager.prepare_context("s", working(2), SYSTEM)
        soft.append(manager.status("s").soft)
        manager.close()
    assert soft == [126_720, 128_000 - 4_500]


async def test_an_answer_that_cannot_be_used_is_paid_for_and_shown(tmp_path: Path) -> None:
    with ScriptedProvider(lambda request: "{}" if is_note(request) else "ok", caches=True) as provider:
        await converse("openai", tmp_path, provider, make_model("openai", provider))
        asked = [usage for request, usage in zip(provider.requests, provider.usages, strict=True) if is_note(request)]
    manager = ContextCompressionManager(CompressionConfig(model="gpt-5.1"), tmp_path)
    assert manager.status("s").note_tokens[0] == asked[-2].input + asked[-1].input, "it was asked twice"
    manager.close()
