"""``refold count``: the numbers add up, and they are the ones that ``compact`` goes by."""

import json

from refold import TokenCounter
from tests.cli.conftest import make_session
from tests.rigs.cli import Shell


def test_counts_add_up_and_tool_outputs_are_apart(shell: Shell) -> None:
    body = {
        "model": "gpt-4o",
        "messages": make_session(3),
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    }
    shell.write("body.json", json.dumps(body))
    counted = json.loads(shell.refold("count", "body.json", "--json").out)
    assert counted["total"] == (
        counted["framing"]
        + counted["system"]
        + counted["tools"]
        + counted["tool_outputs"]
        + sum(counted["by_role"].values())
    )
    assert sum(line["tokens"] for line in counted["lines"]) == counted["total"] - counted["framing"] - counted["tools"]
    assert counted["tool_outputs"] == sum(line["tokens"] for line in counted["lines"] if line["role"] == "tool")
    assert counted["tools"] > 0
    assert "tool" not in counted["by_role"]
    assert counted["counter"] == "o200k_base"


def test_plain_messages_count_as_the_token_counter_says(shell: Shell) -> None:
    messages = [{"role": "user", "content": "Hello, 世界"}, {"role": "assistant", "content": "Hi"}]
    shell.write("chat.json", json.dumps(messages))
    counted = json.loads(shell.refold("count", "chat.json", "--json").out)
    assert counted["counter"] == "cl100k_base"
    assert counted["total"] == TokenCounter().count_messages(messages)


def test_compact_and_count_agree(shell: Shell, session: list[dict[str, object]]) -> None:
    counted = json.loads(shell.refold("count", "session.json", "--json").out)
    report = json.loads(shell.refold("compact", "session.json", "--budget", "3000", "--dry-run", "--json").out)
    assert counted["total"] == report["tokens_before"]


def test_in_anthropic_format_results_are_tool_output_though_the_user_brings_them(shell: Shell) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "line\n" * 50}
    body = {
        "model": "claude-sonnet-4-5",
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Read it."},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}],
            },
            {"role": "user", "content": [result, {"type": "text", "text": "and hurry"}]},
        ],
    }
    shell.write("claude.json", json.dumps(body))
    counted = json.loads(shell.refold("count", "claude.json", "--json").out)
    assert counted["format"] == "anthropic"
    assert counted["system"] > 0
    assert counted["tool_outputs"] > 40
    assert 0 < counted["by_role"]["user"] < 40
    assert counted["margin"] > 0


def test_people_see_every_message_the_roles_and_the_share_of_the_window(shell: Shell) -> None:
    shell.write("session.json", json.dumps(make_session(3)))
    told = shell.refold("count", "session.json", "--model", "gpt-4o").text
    for words in ("call read", "tool outputs", "total", "10 messages", "the window of gpt-4o of 128,000 tokens"):
        assert words in told


def test_an_empty_list_has_two_tokens(shell: Shell) -> None:
    shell.write("empty.json", "[]")
    assert json.loads(shell.refold("count", "empty.json", "--json").out)["total"] == 2


def test_the_tokenizer_may_be_characters_by_four(shell: Shell) -> None:
    shell.write("refold.yaml", "tokenizer: chars/4\n")
    shell.write("chat.json", json.dumps([{"role": "user", "content": "x" * 4000}]))
    counted = json.loads(shell.refold("count", "chat.json", "--json").out)
    assert counted["counter"] == "chars/4"
    assert 1000 <= counted["total"] <= 1010
