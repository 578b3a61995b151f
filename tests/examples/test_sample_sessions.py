"""The sample sessions: generated again byte for byte, valid for their provider, and with facts where they say.

These checks read the raw JSON on purpose: they must not depend on the parsers that the sessions are there to test.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from refold.tokens.counter import TokenCounter

ROOT = Path(__file__).resolve().parents[2]
SESSIONS = ROOT / "examples" / "sessions"
FILES = ("coding_agent.json", "chat_zh.jsonl", "anthropic_thinking.json", "responses_agent.json")
BYTES_MAX = 700_000


def load_messages(name: str) -> list[dict[str, Any]]:
    """Messages of a session, or its items when it is in Responses format."""
    text = (SESSIONS / name).read_text(encoding="utf-8")
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    body = json.loads(text)
    messages: list[dict[str, Any]] = body["input"] if "input" in body else body["messages"]
    return messages


def load_facts(name: str) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = json.loads(
        (SESSIONS / f"{name.split('.')[0]}.facts.json").read_text(encoding="utf-8")
    )
    return facts


def read_text(value: Any) -> str:
    """All strings inside a JSON value, one per line."""
    if isinstance(value, str):
        return value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return "\n".join(read_text(child) for child in children)


def hash_folder(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_writers_give_the_same_bytes_as_the_files_in_the_repository(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.make_sessions", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    assert hash_folder(tmp_path) == hash_folder(SESSIONS)


@pytest.mark.parametrize("name", FILES)
def test_a_session_is_long_its_file_small_and_the_readme_says_how_long(name: str) -> None:
    assert (SESSIONS / name).stat().st_size <= BYTES_MAX
    messages = load_messages(name)
    tokens = TokenCounter("o200k_base").count_text(read_text(messages))
    assert 30_000 <= tokens <= 150_000
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    row = next(line for line in readme.splitlines() if line.startswith(f"| `{name}`"))
    assert [cell.strip() for cell in row.split("|")][3:5] == [f"{len(messages)}", f"{tokens:,}"]


@pytest.mark.parametrize("name", FILES)
def test_every_fact_is_said_by_the_message_that_it_names(name: str) -> None:
    messages, facts = load_messages(name), load_facts(name)
    assert 10 <= len(facts) <= 20
    assert len({fact["question"] for fact in facts}) == len(facts)
    for fact in facts:
        assert set(fact) == {"question", "answer", "message_index", "why"}
        assert fact["answer"] in read_text(messages[fact["message_index"]]), fact


@pytest.mark.parametrize("name", FILES)
def test_most_facts_lie_far_from_the_end_of_their_session(name: str) -> None:
    messages, facts = load_messages(name), load_facts(name)
    far = [fact for fact in facts if fact["message_index"] < len(messages) * 0.7]
    assert len(far) >= len(facts) * 0.6


@pytest.mark.parametrize("name", FILES)
def test_a_session_ends_with_a_request_of_the_user(name: str) -> None:
    assert load_messages(name)[-1]["role"] == "user"


@pytest.mark.parametrize("name", FILES)
def test_addresses_are_invented(name: str) -> None:
    text = read_text(load_messages(name))
    hosts = set(re.findall(r"(?:https?://|(?<!\\)\w@)([a-z0-9.-]+\.[a-z]{2,})", text))
    assert {host for host in hosts if not re.search(r"(^|\.)example\.(com|org)$", host)} == set()


def pair_chat_calls(messages: list[dict[str, Any]]) -> list[str]:
    """Ids of all calls in order, after checking that each message's results follow it at once, in its order."""
    ids: list[str] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        assert message["role"] != "tool", f"message {position} is a result without its call"
        expected = [call["id"] for call in message.get("tool_calls", [])]
        for call in message.get("tool_calls", []):
            json.loads(call["function"]["arguments"])
        results = messages[position + 1 : position + 1 + len(expected)]
        assert [result.get("tool_call_id") for result in results] == expected
        ids += expected
        position += 1 + len(expected)
    return ids


def test_calls_of_the_coding_agent_have_their_results_and_one_id_is_used_twice() -> None:
    messages = load_messages("coding_agent.json")
    counts = Counter(pair_chat_calls(messages))
    assert sorted(counts.values())[-2:] == [1, 2]
    shared = next(identity for identity, count in counts.items() if count == 2)
    calls = [at for at, m in enumerate(messages) if any(c["id"] == shared for c in m.get("tool_calls", []))]
    assert [messages[at + 1]["tool_call_id"] for at in calls] == [shared, shared]
    assert messages[calls[0]]["tool_calls"] != messages[calls[1]]["tool_calls"]


def test_the_coding_agent_has_parallel_calls_repeated_reads_and_a_large_log() -> None:
    messages = load_messages("coding_agent.json")
    results = [message["content"] for message in messages if message["role"] == "tool"]
    calls = [call["function"] for message in messages for call in message.get("tool_calls", [])]
    reads = Counter(call["arguments"] for call in calls if call["name"] == "read_file")
    assert 150 <= len(messages) <= 250
    assert max(len(message.get("tool_calls", [])) for message in messages) >= 3
    assert reads.most_common(1)[0][1] >= 3
    assert max(len(result.encode()) for result in results) >= 60_000
    assert not any(result.startswith("error: old_text") for result in results)


def test_calls_of_the_coding_agent_use_values_from_more_than_fifty_messages_before() -> None:
    messages = load_messages("coding_agent.json")
    used = set()
    for fact in load_facts("coding_agent.json"):
        later = messages[fact["message_index"] + 51 :]
        if any(fact["answer"] in read_text(message.get("tool_calls")) for message in later):
            used.add(fact["answer"])
    assert len(used) >= 6, used


def test_the_chinese_chat_alternates_and_hardly_repeats_itself() -> None:
    messages = load_messages("chat_zh.jsonl")
    assert messages[0]["role"] == "system"
    assert [message["role"] for message in messages[1:]] == [
        "user" if at % 2 == 0 else "assistant" for at in range(len(messages) - 1)
    ]
    # Rows of the bill come back in every recap, and such lines are what a recap is; prose must not.
    prose = "\n".join(line for line in read_text(messages).splitlines() if not line.startswith("|"))
    sentences = [part for part in re.split(r"[。！？；\n]", prose) if len(part) >= 10]
    repeated = [part for part, count in Counter(sentences).items() if count > 1]
    assert len(repeated) <= len(sentences) * 0.02, repeated[:10]
    assert sum("\u4e00" <= letter <= "\u9fff" for letter in prose) > len(prose) * 0.6


def test_every_call_of_the_anthropic_session_has_its_result_next_and_thinking_comes_first() -> None:
    messages = load_messages("anthropic_thinking.json")
    seen: set[str] = set()
    for at, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else []
        kinds = [block["type"] for block in blocks]
        assert not any(kind in ("thinking", "redacted_thinking") for kind in kinds[1:])
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not seen & set(calls)
        seen |= set(calls)
        following = messages[at + 1]["content"] if at + 1 < len(messages) else []
        results = [
            block["tool_use_id"] for block in following if isinstance(block, dict) and block["type"] == "tool_result"
        ]
        assert results == calls
        assert message["role"] == "assistant" or not calls


def test_roles_of_the_anthropic_session_alternate_and_the_user_begins() -> None:
    roles = [message["role"] for message in load_messages("anthropic_thinking.json")]
    assert roles[0] == "user"
    assert all(left != right for left, right in pairwise(roles))


def test_the_anthropic_session_holds_every_kind_of_block() -> None:
    body = json.loads((SESSIONS / "anthropic_thinking.json").read_text(encoding="utf-8"))
    text = json.dumps(body)
    for kind in ("thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document", "text"):
        assert f'"type": "{kind}"' in text
    assert '"is_error": true' in text
    assert 1 <= text.count('"cache_control"') <= 4
    images = [
        block["source"]["data"]
        for message in body["messages"]
        for result in message["content"]
        if isinstance(result, dict) and isinstance(result.get("content"), list)
        for block in result["content"]
        if block["type"] == "image"
    ]
    assert base64.b64decode(images[0], validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    signatures = re.findall(r'"signature": "([^"]+)"', text)
    assert len(signatures) >= 20
    assert len(set(signatures)) == len(signatures)
    for signature in signatures:
        base64.b64decode(signature, validate=True)


def test_items_of_the_responses_session_are_paired_and_reasoning_precedes_its_calls() -> None:
    items = load_messages("responses_agent.json")
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    assert calls == outputs
    assert len(set(calls)) == len(calls)
    assert {item["type"] for item in items} == {"message", "reasoning", "function_call", "function_call_output"}
    for before, item in pairwise(items):
        if item["type"] == "function_call":
            json.loads(item["arguments"])
            assert before["type"] in ("reasoning", "function_call")
        if item["type"] == "function_call_output":
            assert before["type"] in ("function_call", "function_call_output")
