"""Small session files as the tools leave them on disk, with the flaws that real ones have."""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def write_rows(path: Path, rows: list[Row | str]) -> Path:
    """Write JSONL; a text among the rows goes in as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def agent_messages(steps: int, words: int = 60) -> list[Row]:
    """An agent that reads files, and now and then one that it read before; each result names a value of its own."""
    messages: list[Row] = [
        {"role": "system", "content": "You repair programs."},
        {"role": "user", "content": "Repair the build of the parser; the ticket is PARSE-4711."},
    ]
    for step in range(steps):
        path = f"src/module_{step:03d}.py"
        arguments = json.dumps({"path": path, "ticket": "PARSE-4711"})
        if step > 5 and step % 4 == 0:
            arguments = json.dumps({"path": f"lib/used_{step - 5:03d}.py"})
        call = {"id": f"call_{step % 3}", "type": "function", "function": {"name": "read", "arguments": arguments}}
        messages.append({"role": "assistant", "content": f"Looking at step {step}.", "tool_calls": [call]})
        text = " ".join(f"word{step}x{n}" for n in range(words))
        messages.append(
            {"role": "tool", "tool_call_id": f"call_{step % 3}", "content": f"lib/used_{step:03d}.py {text}"}
        )
    messages.append({"role": "assistant", "content": "Done."})
    return messages


def claude_rows() -> list[Row | str]:
    """Claude Code: an answer over two rows, results over two rows, a helper, a broken line, a row of a new kind."""

    def row(kind: str, content: object, minute: int, **more: object) -> Row:
        message: Row = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {"id": f"msg_{more.pop('answer')}", "model": "claude-opus-5-5"}
        return {
            "type": kind,
            "message": message,
            "uuid": f"u{minute}",
            "sessionId": "s-1",
            "timestamp": f"2026-11-01T10:{minute:02d}:00.000Z",
            **more,
        }

    call = {"type": "tool_use", "name": "Read", "input": {"file_path": "src/app.py"}}
    return [
        {"type": "summary", "summary": "Repairing", "leafUuid": "x"},
        row("user", "Please repair src/app.py", 0),
        row("assistant", [{"type": "thinking", "thinking": "Look first.", "signature": "c2ln"}], 1, answer=1),
        row("assistant", [{**call, "id": "toolu_1"}, {**call, "id": "toolu_2"}], 1, answer=1),
        '{"type": "user", "message": {"role": "us',
        row("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "import zlib_4711"}], 2),
        row("user", [{"type": "tool_result", "tool_use_id": "toolu_2", "content": "import zlib_4711"}], 2),
        {"type": "hologram", "fields": ["that", "nobody", "knows"]},
        row("assistant", [{"type": "text", "text": "It imports zlib_4711."}], 20, answer=2),
        row("user", "go", 21, isSidechain=True, agentId="a7"),
        row("assistant", [{"type": "text", "text": "gone"}], 22, answer=3, isSidechain=True, agentId="a7"),
        {"type": "user", "message": {"role": "user"}, "sessionId": "s-1"},
        row("user", "This session is being continued from a previous one", 23, isCompactSummary=True),
        row("user", [{"type": "text", "text": "And the tests?"}], 24),
        row("assistant", [{**call, "id": "toolu_9"}], 25, answer=4),
        row("user", "stop", 26),
        row("assistant", [{"type": "text", "text": "Stopped."}], 27, answer=5),
    ]


def codex_rows() -> list[Row | str]:
    """Codex: wrapped items, reasoning, a call that was never answered, an event, a broken line."""

    def item(payload: Row, second: int) -> Row:
        return {"timestamp": f"2026-11-01T10:00:{second:02d}.000Z", "type": "response_item", "payload": payload}

    def call(call_id: str) -> Row:
        return {"type": "function_call", "call_id": call_id, "name": "shell", "arguments": '{"cmd": "ls lib_9001"}'}

    def said(role: str, kind: str, text: str) -> Row:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": "Z0FB"}
    return [
        {"type": "session_meta", "payload": {"id": "r-7", "instructions": "Be brief.", "new_field": 1}},
        {"type": "turn_context", "payload": {"model": "gpt-5.6", "cwd": "."}},
        item(said("user", "input_text", "List the files of lib_9001"), 1),
        {"type": "event_msg", "payload": {"type": "token_count", "info": None}},
        item(dict(reasoning), 2),
        item(call("c1"), 3),
        item({"type": "function_call_output", "call_id": "c1", "output": "a.py\nb.py"}, 4),
        "{not json",
        item({"type": "function_call", "name": "shell", "arguments": "{}"}, 5),
        item({"type": "function_call_output", "call_id": "c404", "output": "?"}, 5),
        item(dict(reasoning), 6),
        item(call("c2"), 6),
        item(said("user", "input_text", "never mind"), 7),
        item(said("assistant", "output_text", "Two files."), 8),
    ]
