"""Requests of well-known clients, as shapes: headers, fields and their order, and how each writes a step with a tool.

The words are ours. A shape grows a conversation as its client does, so that a test can play it turn by turn.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Raw = dict[str, Any]
SESSION = "0a1b2c3d-0000-4000-8000-000000000001"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CHAT_TOOL = {"type": "function", "function": {"name": "run", "description": "Run a command.", "parameters": SCHEMA}}
FLAT_TOOL = {"type": "function", "name": "run", "description": "Run a command.", "strict": False, "parameters": SCHEMA}


@dataclass(frozen=True)
class Shape:
    """One client. ``start`` opens a conversation, ``step`` writes an answer with a call and its result."""

    wire: str
    agent: str
    start: Callable[[str], list[Raw]]
    step: Callable[[int, str], list[Raw]]
    wrap: Callable[[list[Raw]], Raw]
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""
    client: str = ""
    title: str = "Please run all the steps, one after the other."


def _claude_step(number: int, output: str) -> list[Raw]:
    return [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": f"Step {number} is next.", "signature": f"c2lnbmF0dXJl{number}"},
                {"type": "text", "text": f"I run step {number}."},
                {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": {"command": f"step {number}"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"tool_use_id": f"toolu_{number}", "type": "tool_result", "content": output, "is_error": False},
                {"type": "text", "text": "<system-reminder>\nThe list of tasks is empty.\n</system-reminder>"},
            ],
        },
    ]


def _wrap_claude(messages: list[Raw]) -> Raw:
    last = {**messages[-1], "content": [*messages[-1]["content"]]}
    last["content"][-1] = {**last["content"][-1], "cache_control": {"type": "ephemeral"}}
    user = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": SESSION})
    return {
        "model": "claude-sonnet-4-5",
        "messages": [*messages[:-1], last],
        "system": [
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Work step by step. " * 20, "cache_control": {"type": "ephemeral"}},
        ],
        "tools": [{"name": "run", "description": "Run a command.", "input_schema": SCHEMA}],
        "metadata": {"user_id": user},
        "max_tokens": 1_000,
        "thinking": {"budget_tokens": 999, "type": "enabled"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
    }


def _message(role: str, text: str, number: int = 0) -> Raw:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "id": f"msg_{role}_{number}", "role": role, "content": [{"type": kind, "text": text}]}


def _codex_step(number: int, output: str) -> list[Raw]:
    arguments = json.dumps({"command": f"step {number}"})
    call = {"type": "function_call", "status": "completed", "id": f"fc_{number}", "name": "run"}
    return [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": None, "encrypted_content": "gAAA" * 20},
        _message("assistant", f"I run step {number}.", number),
        {**call, "arguments": arguments, "call_id": f"call_{number}"},
        {"type": "function_call_output", "id": f"fco_{number}", "call_id": f"call_{number}", "output": output},
    ]


def _wrap_codex(items: list[Raw]) -> Raw:
    return {
        "model": "gpt-5",
        "stream": True,
        "input": items,
        "tools": [FLAT_TOOL, {"type": "web_search", "external_web_access": False}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": SESSION,
        "client_metadata": {"x-codex-installation-id": "i" * 8},
    }


def _opencode_step(number: int, output: str) -> list[Raw]:
    arguments = json.dumps({"command": f"step {number}"})
    return [
        {"role": "assistant", "content": [{"type": "output_text", "text": f"I run step {number}."}]},
        {"type": "function_call", "call_id": f"call_{number}", "name": "run", "arguments": arguments},
        {"type": "function_call_output", "call_id": f"call_{number}", "output": output},
    ]


def _chat_step(number: int, output: object) -> list[Raw]:
    called = {"name": "run", "arguments": json.dumps({"command": f"step {number}"})}
    return [
        {
            "role": "assistant",
            "content": f"I run step {number}.",
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": called}],
        },
        {"role": "tool", "tool_call_id": f"call_{number}", "content": output},
    ]


def _talk_step(number: int, output: str) -> list[Raw]:
    return [
        {"role": "assistant", "content": f"Answer {number}: {output}"},
        {"role": "user", "content": f"Thanks. Please go on with step {number + 1}."},
    ]


def _wrap_chat(**fields: Any) -> Callable[[list[Raw]], Raw]:
    return lambda messages: {"model": "gpt-4o", "messages": messages, **fields}


SHAPES = {
    "claude-code": Shape(
        "anthropic",
        "claude-cli/2.1.197 (external, sdk-cli)",
        lambda text: [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>\nToday is a day.\n</system-reminder>"},
                    {"type": "text", "text": text},
                ],
            }
        ],
        _claude_step,
        _wrap_claude,
        {
            "x-claude-code-session-id": SESSION,
            "anthropic-beta": "claude-code-20250219,context-management-2025-06-27",
            "x-app": "cli",
        },
        "?beta=true",
        "claude-code",
    ),
    "codex": Shape(
        "openai-responses",
        "codex_exec/0.166.0 (Debian 12.0.0; x86_64) unknown",
        lambda text: [
            _message("developer", "You are a coding agent."),
            _message("user", "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"),
            _message("user", text, 1),
        ],
        _codex_step,
        _wrap_codex,
        {"session-id": SESSION, "thread-id": SESSION, "originator": "codex_exec", "accept": "text/event-stream"},
        client="codex",
    ),
    "opencode": Shape(
        "openai-responses",
        "opencode/1.18.33 (linux; x64) ai-sdk/provider-utils/4.0.40 runtime/bun/1.3",
        lambda text: [
            {"role": "developer", "content": "You are a coding agent."},
            {"role": "user", "content": [{"type": "input_text", "text": text}]},
        ],
        _opencode_step,
        lambda items: {
            "model": "gpt-5",
            "input": items,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "ses_1",
            "tools": [FLAT_TOOL],
            "tool_choice": "auto",
            "stream": True,
        },
        {"session-id": "ses_1", "x-session-id": "ses_1", "x-session-affinity": "ses_1"},
        client="opencode",
    ),
    "qwen-code": Shape(
        "openai-chat",
        "QwenCode/0.15.10 (linux; x64)",
        lambda text: [
            {"role": "system", "content": "You are a coding agent."},
            {"role": "user", "content": [{"type": "text", "text": "This is the Qwen Code. We are setting up things."}]},
            {"role": "assistant", "content": "Got it."},
            {"role": "user", "content": [{"type": "text", "text": text}]},
        ],
        lambda number, output: _chat_step(number, [{"type": "text", "text": output}]),
        _wrap_chat(stream=True, stream_options={"include_usage": True}, tools=[CHAT_TOOL], max_tokens=800),
        client="qwen-code",
    ),
    "aider": Shape(
        "openai-chat",
        "litellm/1.82.1",
        lambda text: [
            {"role": "system", "content": "Act as an expert software developer."},
            {"role": "user", "content": "I switched to a new code base."},
            {"role": "assistant", "content": "Ok."},
            {"role": "user", "content": text},
        ],
        _talk_step,
        _wrap_chat(temperature=0, stream=False),
        client="litellm",
        title="I switched to a new code base.",
    ),
    "llm": Shape(
        "openai-chat",
        "OpenAI/Python 3.49.0",
        lambda text: [{"role": "user", "content": text}],
        _talk_step,
        _wrap_chat(stream=True, stream_options={"include_usage": True}),
        client="openai",
    ),
    "langchain": Shape(
        "openai-chat",
        "OpenAI/Python 2.9.0",
        lambda text: [{"content": "Be brief.", "role": "system"}, {"content": text, "role": "user"}],
        lambda number, output: [{**_chat_step(number, output)[0], "content": None}, _chat_step(number, output)[1]],
        _wrap_chat(stream=False, tools=[CHAT_TOOL]),
        client="openai",
    ),
    "pydantic-ai": Shape(
        "openai-responses",
        "pydantic-ai/1.30.0",
        lambda text: [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
        _opencode_step,
        lambda items: {"model": "gpt-5", "input": items, "stream": False, "tools": [FLAT_TOOL], "tool_choice": "auto"},
        client="pydantic-ai",
    ),
    "openai-agents": Shape(
        "openai-responses",
        "Agents/Python 0.6.0",
        lambda text: [{"content": text, "role": "user"}],
        _codex_step,
        lambda items: {
            "model": "gpt-5",
            "instructions": "Be brief.",
            "input": items,
            "include": [],
            "tools": [FLAT_TOOL],
            "stream": False,
        },
        client="agents",
    ),
    "ai-sdk": Shape(
        "openai-responses",
        "ai/6.0.326 ai-sdk/provider-utils/4.0.65 runtime/node.js/v20.20.2",
        lambda text: [{"role": "user", "content": [{"type": "input_text", "text": text}]}],
        lambda number, output: [
            {"role": "assistant", "content": [{"type": "output_text", "text": f"Step {number}."}]},
            {"type": "function_call", "call_id": f"call_{number}", "name": "run", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"call_{number}", "output": output},
        ],
        lambda items: {"model": "gpt-5", "input": items, "tools": [FLAT_TOOL], "tool_choice": "auto"},
        client="ai",
    ),
}
