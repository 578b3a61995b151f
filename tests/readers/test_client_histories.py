"""Histories of pi, Qwen Code, opencode and aider, and what every client reports: usage and its own compactions."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.errors import FormatError
from refold.readers import opencode
from refold.readers.file import read_file, read_value
from refold.readers.session import Session
from refold.testing.provider_rules import find_violations
from tests.rigs.histories import ClaudeFile, write_rows

PI: list[dict[str, Any]] = [
    {"type": "session", "version": 3, "id": "s-pi", "timestamp": "2026-11-01T10:00:00Z", "cwd": "w"},
    {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "Count the tests"}},
    {
        "type": "message",
        "id": "b",
        "parentId": "a",
        "message": {
            "role": "assistant",
            "model": "glm-5",
            "content": [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls tests"}}],
            "usage": {"input": 40, "cacheRead": 1200, "cacheWrite": 60, "output": 9},
            "timestamp": 1761991200000,
        },
    },
    {
        "type": "message",
        "id": "c",
        "parentId": "b",
        "message": {"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "a.py b.py"}]},
    },
    {"type": "message", "id": "x", "parentId": "c", "message": {"role": "user", "content": "a branch left behind"}},
    {"type": "compaction", "id": "d", "parentId": "c", "summary": "Two tests were counted."},
    {"type": "message", "id": "e", "parentId": "d", "message": {"role": "user", "content": "And now?"}},
    {
        "type": "message",
        "id": "f",
        "parentId": "e",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Two."}]},
    },
]
QWEN: list[dict[str, Any]] = [
    {"type": "user", "sessionId": "s-q", "message": {"role": "user", "parts": [{"text": "Read go.mod"}]}},
    {
        "type": "assistant",
        "sessionId": "s-q",
        "model": "qwen4-coder",
        "message": {
            "role": "model",
            "parts": [
                {"text": "I should read it", "thought": True},
                {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "go.mod"}}},
            ],
        },
        "usageMetadata": {"promptTokenCount": 900, "cachedContentTokenCount": 800, "candidatesTokenCount": 12},
    },
    {
        "type": "tool_result",
        "sessionId": "s-q",
        "message": {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "module x"}}}],
        },
    },
    {
        "type": "system",
        "subtype": "chat_compression",
        "sessionId": "s-q",
        "systemPayload": {"compressedHistory": [{"role": "user", "parts": [{"text": "It is module x."}]}]},
    },
    {"type": "assistant", "sessionId": "s-q", "message": {"role": "model", "parts": [{"text": "It is module x."}]}},
]
AIDER = """
# aider chat started at 2026-11-02 09:30:00

> Main model: gpt-5.5 with diff edit format
#### rename add to plus
#### everywhere

I renamed it:

```python
def plus(a, b):
```

> Applied edit to calc.py

# aider chat started at 2026-11-02 11:00:00
> Model: gpt-5.5
"""


def make_database(path: Path, messages: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> Path:
    opened = apsw.Connection(str(path))
    opened.execute(
        "CREATE TABLE session (id TEXT, time_updated INT); INSERT INTO session VALUES ('s-o', 1761991200000);"
        "CREATE TABLE message (id TEXT, session_id TEXT, data TEXT);"
        "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)"
    )
    for number, (message, parts) in enumerate(messages):
        opened.execute("INSERT INTO message VALUES (?, 's-o', ?)", (f"m{number:03}", json.dumps(message)))
        for at, part in enumerate(parts):
            opened.execute(
                "INSERT INTO part VALUES (?, ?, 's-o', ?)", (f"p{number:03}-{at}", f"m{number:03}", json.dumps(part))
            )
    opened.close()
    return path


def say(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


OPENCODE = [
    ({"role": "user", "time": {"created": 1761991200000}}, [say("Fix the port")]),
    (
        {
            "role": "assistant",
            "modelID": "glm-5",
            "tokens": {"input": 5, "output": 3, "cache": {"read": 70, "write": 9}},
        },
        [
            say("Reading."),
            {"type": "tool", "callID": "c1", "tool": "read", "state": {"input": {"file": "a.py"}, "output": "8080"}},
            {"type": "tool", "callID": "c2", "tool": "bash", "state": {"input": {}, "status": "running"}},
        ],
    ),
    ({"role": "assistant", "summary": True}, [say("The port is 8080.")]),
    ({"role": "user"}, [say("Go on")]),
    ({"role": "assistant"}, [say("Done.")]),
]


def list_roles(session: Session) -> list[str]:
    return [message["role"] for message in session.messages]  # type: ignore[index]


def test_a_pi_file_is_the_branch_that_ends_with_its_last_message(tmp_path: Path) -> None:
    reading = read_file(str(write_rows(tmp_path / "s.jsonl", PI)))
    (session,) = reading.sessions
    assert (reading.kind, session.id, session.model, session.client) == ("pi", "s-pi", "glm-5", "pi")
    assert list_roles(session) == ["user", "assistant", "tool", "user", "assistant"]
    assert find_violations("openai-chat", session.messages) == []
    assert "left behind" not in str(session.messages)
    assert [(one.at, one.summary) for one in session.compactions] == [(3, "Two tests were counted.")]
    assert [(one.at, one.prompt, one.output) for one in session.reported] == [(1, 1300, 9)]


def test_a_qwen_code_file_is_not_taken_for_claude_codes(tmp_path: Path) -> None:
    reading = read_file(str(write_rows(tmp_path / "s.jsonl", QWEN)))
    (session,) = reading.sessions
    assert (reading.kind, session.model) == ("qwen-code", "qwen4-coder")
    assert list_roles(session) == ["user", "assistant", "tool", "assistant"]
    assert find_violations("openai-chat", session.messages) == []
    assert "I should read it" not in str(session.messages), "thoughts are not sent again"
    assert [(one.at, one.summary) for one in session.compactions] == [(3, "It is module x.")]
    assert [(one.input, one.cached, one.output) for one in session.reported] == [(100, 800, 12)]


def test_an_opencode_database_is_read_session_by_session(tmp_path: Path) -> None:
    path = make_database(tmp_path / "opencode.db", OPENCODE)
    assert opencode.list_sessions(path) == [("s-o", 1761991200.0)]
    (session,) = read_file(str(path)).sessions
    assert list_roles(session) == ["user", "assistant", "tool", "user", "assistant"]
    assert find_violations("openai-chat", session.messages) == []
    assert "c2" not in str(session.messages), "a call that was never answered would be refused"
    assert [(one.at, one.summary) for one in session.compactions] == [(3, "The port is 8080.")]
    assert [(one.at, one.prompt) for one in session.reported] == [(1, 84)]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 200])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="not a database of opencode"):
        opencode.list_sessions(path)


def test_odd_rows_of_a_database_are_left_out(tmp_path: Path) -> None:
    odd: list[Any] = [None, 3, "x", [], {"role": 7}, {"role": "assistant", "tokens": 3, "time": 4}]
    parts: list[Any] = [
        None,
        3,
        {"type": "tool"},
        {"type": "tool", "state": {"output": 3}},
        {"type": "text", "text": 3},
    ]
    path = make_database(tmp_path / "opencode.db", [*((one, parts) for one in odd), *OPENCODE])
    session = opencode.read_session(path, "s-o")
    assert list_roles(session) == ["user", "assistant", "tool", "user", "assistant"]


def test_an_aider_history_has_a_session_for_each_chat_with_an_answer(tmp_path: Path) -> None:
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(AIDER, encoding="utf-8")
    reading = read_file(str(path))
    (session,) = reading.sessions
    assert (reading.kind, session.model) == ("aider", "gpt-5.5")
    asked, answered = session.messages
    assert asked == {"role": "user", "content": "rename add to plus\neverywhere"}
    assert "def plus(a, b):" in answered["content"]  # type: ignore[index]
    assert "Applied edit" not in str(session.messages)


def test_claude_codes_usage_and_compactions_are_read() -> None:
    file = ClaudeFile()
    file.add("user", "Rename it", 0)
    file.add("assistant", [say("Renamed.")], 1, answer=1)
    used = {"input_tokens": 3, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 7, "output_tokens": 2}
    file.rows[-1]["message"]["usage"] = used
    file.add("user", "This session is continued from another one: it was renamed.", 2)
    file.rows[-1]["isCompactSummary"] = True
    file.add("user", "And now the docs", 3)
    (session,) = read_value(file.rows, "s.jsonl").sessions
    assert [(one.at, one.input, one.prompt, one.output) for one in session.reported] == [(1, 3, 60, 2)]
    assert [one.at for one in session.compactions] == [2]
    assert "it was renamed" in session.compactions[0].summary


def test_codexs_usage_and_compactions_are_read() -> None:
    def item(role: str, text: str) -> dict[str, Any]:
        kind = "input_text" if role == "user" else "output_text"
        content = [{"type": kind, "text": text}]
        return {"type": "response_item", "payload": {"type": "message", "role": role, "content": content}}

    used = {"input_tokens": 900, "cached_input_tokens": 700, "output_tokens": 30}
    rows = [
        {"type": "session_meta", "payload": {"id": "s-c"}},
        item("user", "Rename it"),
        item("assistant", "Renamed."),
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": used}}},
        {"type": "compacted", "payload": {"message": "It was renamed."}},
        item("user", "And the docs"),
    ]
    (session,) = read_value(rows, "s.jsonl").sessions
    assert [(one.at, one.input, one.cached, one.output) for one in session.reported] == [(1, 200, 700, 30)]
    assert [(one.at, one.summary) for one in session.compactions] == [(2, "It was renamed.")]
