"""Tokens of a message: the formula of S0.2 and its extensions."""

import base64
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.message import Part
from refold.errors import ConfigError, FormatError
from refold.formats.anthropic import Anthropic
from refold.formats.openai_chat import OpenAIChat
from refold.formats.openai_responses import OpenAIResponses
from refold.tokens import Calibration, Counter, TokenCounter, counter_for
from refold.tokens.counter import BLOB_CHARS_PER_TOKEN, CALL_TOKENS, NAME_TOKENS

counter = TokenCounter()
count = counter.count_text

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are terse."},
    {"role": "developer", "content": "Answer in German."},
    {"role": "user", "name": "ada", "content": "Where is the config?"},
    {"role": "user", "content": [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "https://x/y"}},
    ]},
    {"role": "assistant", "content": None, "reasoning_content": "The user wants a path.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.toml"}'}},
        {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls -la"}},
    ]},
    {"role": "tool", "tool_call_id": "c1", "content": "[tool]\nx = 1"},
    {"role": "tool", "tool_call_id": "c2", "name": "shell", "content": [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]},
    {"role": "assistant", "content": "", "refusal": "I will not."},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "thinking_blocks": [{"thinking": "hm"}]},
    {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
    {"role": "function", "name": "old", "content": "done"},
    {"role": "assistant", "content": "你好，世界 <|endoftext|>", "audio": {"id": "audio_1"}},
    {"role": "user", "content": [
        {"type": "video_url", "video_url": {"url": "https://x/v"}},
        {"type": "unheard_of", "x": [1, 2]},
    ]},
]  # fmt: skip
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is the config?"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "A path is wanted.", "signature": "Zm9v" * 50},
        {"type": "redacted_thinking", "data": "QUJD" * 400},
        {"type": "text", "text": "I will look.", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.toml", "lines": [1, 20]}},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "toml"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
            {"title": "TOML", "encrypted_content": "Q" * 4000},
        ]},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [
            {"type": "text", "text": "x = 1"},
            {"type": "text", "text": "y = 2"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ]},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "The manual."}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE" * 99}},
    ]},
    {"role": "assistant", "content": [{"type": "compaction", "content": "Earlier: a config was sought."}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2"}]},
    {"role": "assistant", "content": []},
]  # fmt: skip
ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Where is the config?"},
        {"type": "input_image", "image_url": "https://x/y"},
    ]},
    {"type": "reasoning", "id": "r1", "encrypted_content": "Q" * 900, "summary": [
        {"type": "summary_text", "text": "Seek it."},
    ]},
    {"type": "local_shell_call", "call_id": "c0", "action": {"command": ["ls"]}},
    {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": True},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.toml"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "x = 1"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "shell", "input": "ls"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a.toml"}]},
    {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search", "query": "toml"}},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Here.", "annotations": []}]},
]  # fmt: skip


def test_an_empty_list_counts_two() -> None:
    assert counter.count_messages([]) == 2


def test_a_message_counts_four_and_its_content_and_its_role() -> None:
    messages = [{"role": "user", "content": "Hello, world"}, {"role": "assistant", "content": "你好"}]
    expected = 2 + sum(4 + count(message["content"]) + count(message["role"]) for message in messages)
    assert counter.count_messages(messages) == expected


def test_the_default_encoding_is_cl100k_and_known_counts_hold() -> None:
    assert counter.name == "cl100k_base"
    assert count("") == 0
    assert count("hello world") == 2
    assert count("tiktoken is great!") == 6
    assert TokenCounter("o200k_base").count_text("hello world") == 2


def test_a_call_counts_its_name_and_its_arguments() -> None:
    plain = counter.count_parts("assistant", [])
    call = Part("call", '{"city": "Berlin"}', "get_weather", "c1")
    expected = CALL_TOKENS + count("get_weather") + count('{"city": "Berlin"}')
    assert counter.count_parts("assistant", [call]) - plain == expected


def test_a_name_counts() -> None:
    assert counter.count_parts("user", [], "ada") - counter.count_parts("user", []) == NAME_TOKENS + count("ada")


def test_tool_schemas_count_in_both_shapes() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "where to look"}}}
    chat = [{"type": "function", "function": {"name": "read", "description": "reads", "parameters": schema}}]
    anthropic = [{"name": "read", "description": "reads", "input_schema": schema}]
    assert counter.count_tools(chat) > counter.count_tools(anthropic) > count(json.dumps(schema, separators=(",", ":")))
    assert counter.count_tools(anthropic * 2) > counter.count_tools(anthropic)
    assert counter.count_tools(None) == counter.count_tools([]) == 0


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "chars/4", "estimate:claude"])
@pytest.mark.parametrize(
    ("form", "messages"),
    [(OpenAIChat(), CHAT), (Anthropic(), MESSAGES), (OpenAIResponses(), ITEMS)],
    ids=["chat", "anthropic", "responses"],
)
def test_messages_count_as_the_sum_of_their_parsed_parts(form: Any, messages: list[Any], name: str) -> None:
    chosen: Any = counter_for(None, name)
    parsed = [form.parse(message) for message in messages]
    each = [chosen.count_parts(message.role, message.parts, message.name) for message in parsed]
    assert [chosen.count_message(message) for message in messages] == each
    assert chosen.count_messages(messages) == 2 + sum(each)


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(("text", "thinking", "tool_use", "tool_result", "image", "document", "image_url", "x"))
FIELDS = ("text", "thinking", "input", "content", "source", "image_url", "name", "id", "data", "file", "detail")
MORE = ("name", "refusal", "function_call", "reasoning_content", "reasoning_details", "audio")


def make_messages(types: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return messages of roughly the right shape, with anything at all in any place."""
    blocks = st.fixed_dictionaries({"type": types}, optional=dict.fromkeys(FIELDS, JSONISH))
    calls = st.lists(st.fixed_dictionaries({"function": blocks | JSONISH}), max_size=2)
    optional = {"content": st.lists(blocks, max_size=3) | blocks | JSONISH, "tool_calls": calls | JSONISH}
    roles = st.sampled_from(("system", "user", "assistant", "tool", "function")) | JSONISH
    return st.fixed_dictionaries({"role": roles}, optional={**optional, **dict.fromkeys(MORE, JSONISH)})


@given(messages=st.lists(make_messages(TYPES | JSONISH) | JSONISH, max_size=3) | JSONISH)
def test_no_shape_of_message_makes_counting_fail(messages: Any) -> None:
    assert counter.count_messages(messages) >= 2


@given(message=make_messages(TYPES))
def test_whatever_a_format_accepts_counts_the_same_parsed_or_raw(message: Any) -> None:
    for form in (OpenAIChat(), Anthropic()):
        try:
            parsed = form.parse(message)
        except FormatError:
            continue
        if form.name == "openai-chat" and isinstance(message.get("content"), list):
            continue  # Blocks of the other format are opaque to this one.
        if form.name == "anthropic" and set(message) - {"role", "content"}:
            continue  # A chat message that this one happens to accept.
        assert counter.count_message(message) == counter.count_parts(parsed.role, parsed.parts, parsed.name)


def test_messages_that_are_not_json_are_counted_too() -> None:
    endless: dict[str, Any] = {"role": "user"}
    endless["content"] = [{"type": "odd", "again": endless}]
    assert counter.count_messages([endless, {"role": "user", "content": object()}, {1: 2}, 7, None, b"x"]) > 2
    assert counter.count_tools([{"name": "f", "call": print}, endless]) > 0
    assert counter.count_tools("just text") > 0


def test_results_nested_without_end_are_counted_too() -> None:
    block: dict[str, Any] = {"type": "text", "text": "deep"}
    for _ in range(5_000):
        block = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    assert counter.count_messages([{"role": "user", "content": [block]}]) > 2


def test_sealed_text_does_not_count_as_if_it_were_read() -> None:
    sealed = base64.b64encode(bytes(n * 37 % 256 for n in range(30_000))).decode()
    opaque = Part("opaque", payload={"type": "web_search_tool_result", "encrypted_content": sealed})
    thinking = Part("thinking", payload={"type": "redacted_thinking", "data": sealed})
    for part in (opaque, thinking):
        tokens = counter.count_parts("assistant", [part])
        assert tokens < count(sealed) / 2
        assert tokens == pytest.approx(len(sealed) / BLOB_CHARS_PER_TOKEN, rel=0.01)


def test_a_picture_in_a_tool_result_counts_beside_its_text() -> None:
    picture = Part("media", payload={"type": "image", "source": {"type": "url", "url": "https://x/y.png"}})
    alone = counter.count_parts("user", [Part("result", "saved")])
    assert counter.count_parts("user", [Part("result", "saved", inside=(picture,))]) - alone > 1_000


def test_a_counter_keeps_nothing_of_what_it_counted() -> None:
    fresh = TokenCounter("o200k_base")
    for n in range(300):
        fresh.count_parts(f"role {n}", [Part("text", f"text {n}")], f"name {n}")
    assert sum(len(value) for value in vars(fresh).values() if isinstance(value, dict)) <= 16


@pytest.mark.parametrize(
    ("model", "tokenizer", "name"),
    [
        (None, None, "cl100k_base"),
        ("gpt-4", None, "cl100k_base"),
        ("gpt-6.1-sol", None, "o200k_base"),
        ("claude-opus-5-5", None, "estimate:claude"),
        ("gemini-3.1-pro-preview", None, "estimate:gemini"),
        ("qwen3-32b", None, "qwen3"),
        ("never-heard-of", None, "estimate:generic"),
        ("claude-opus-5-5", "chars/4", "chars/4"),
        ("claude-opus-5-5", "o200k", "o200k_base"),
        ("claude-opus-5-5", "estimate", "estimate:claude"),
        ("gpt-4o", "estimate", "estimate:generic"),
    ],
)
def test_a_model_gets_its_counter_unless_one_is_named(model: str | None, tokenizer: str | None, name: str) -> None:
    found = counter_for(model, tokenizer)
    assert isinstance(found, Counter)
    assert found.name == name
    assert found.is_exact is (name in ("cl100k_base", "o200k_base"))
    assert (found.margin == 0.0) is found.is_exact


def test_an_unknown_tokenizer_is_an_error_of_the_operator() -> None:
    for name in ("gpt2", "estimate:martian", ""):
        with pytest.raises(ConfigError, match="not known"):
            counter_for("gpt-4o", name)


def test_reported_usage_narrows_the_margin_of_a_counter() -> None:
    seen = Calibration()
    for _ in range(10):
        seen = seen.observe("claude-opus-5-5", 10_000, 9_000)
    stated = counter_for("claude-opus-5-5").margin
    assert 0 < counter_for("claude-opus-5-5", calibration=seen).margin < stated / 5
    assert counter_for("gpt-4o", calibration=seen.observe("gpt-4o", 100, 120)).margin == 0.0


def test_characters_by_four_rounds_up() -> None:
    quarter = counter_for(None, "chars/4")
    assert [quarter.count_text("x" * n) for n in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


def test_importing_tokens_loads_no_vocabulary() -> None:
    code = "import sys, refold.tokens; print(sorted({'splintr', 'tiktoken', 'genai_prices'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
