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


class ClaudeFile:
    """Writes rows as Claude Code does: each names its parent, results name the answer that called."""

    def __init__(self, session: str = "s-1") -> None:
        self.rows: list[Row | str] = []
        self.session = session
        self.last: str | None = None

    def add(self, kind: str, content: object, minute: int, **more: object) -> str:
        """Add a user or assistant row after the last one, or after ``parent``; return its uuid."""
        message: Row = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {"id": f"msg_{more.pop('answer')}", "type": "message", "model": "claude-opus-5-5"}
            more["requestId"] = f"req_{message['id']}"
        parent = more.pop("parent", self.last)
        uuid = f"uuid-{len(self.rows):04d}"
        self.rows.append(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": "/home/ada/app",
                "sessionId": self.session,
                "version": "2.1.0",
                "gitBranch": "main",
                "type": kind,
                "message": message,
                "uuid": uuid,
                "timestamp": f"2026-11-01T10:{minute:02d}:00.000Z",
                **more,
            }
        )
        if not more.get("isSidechain"):
            self.last = uuid
        return uuid

    def call(self, answer: int, minute: int, call_id: str, **more: object) -> str:
        """Add one call of an answer, in a row of its own."""
        block = {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": "src/app.py"}}
        return self.add("assistant", [block], minute, answer=answer, **more)

    def result(self, minute: int, call_id: str, caller: str, text: str = "import zlib_4711") -> str:
        """Add a call's result, whose parent is the row that called."""
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        more = {"toolUseResult": {"stdout": text}, "sourceToolAssistantUUID": caller}
        return self.add("user", [block], minute, parent=caller, **more)


def claude_rows() -> list[Row | str]:
    """Claude Code: an answer and its results over several rows, a helper, a broken line, a row of a new kind."""
    file = ClaudeFile()
    file.rows.append({"type": "summary", "summary": "Repairing", "leafUuid": "x"})
    file.add("user", "Please repair src/app.py", 0)
    file.add("assistant", [{"type": "thinking", "thinking": "Look first.", "signature": "c2ln"}], 1, answer=1)
    callers = [file.call(1, 1, call_id) for call_id in ("toolu_1", "toolu_2")]
    file.rows.append('{"type": "user", "message": {"role": "us')
    for call_id, caller in zip(("toolu_1", "toolu_2"), callers, strict=True):
        file.result(2, call_id, caller)
    file.rows.append({"type": "hologram", "message": "of a kind that nobody knows", "uuid": "new"})
    file.add("assistant", [{"type": "text", "text": "It imports zlib_4711."}], 20, answer=2)
    side = file.add("user", "go", 21, parent=None, isSidechain=True, agentId="a7")
    gone = [{"type": "text", "text": "gone"}]
    file.add("assistant", gone, 22, answer=3, parent=side, isSidechain=True, agentId="a7")
    file.rows.append({"type": "user", "message": {"role": "user"}, "sessionId": "s-1"})
    file.add("user", "This session is being continued from a previous one", 23, isCompactSummary=True)
    file.add("user", [{"type": "text", "text": "And the tests?"}], 24)
    file.call(4, 25, "toolu_9")
    file.add("user", "stop", 26)
    file.add("assistant", [{"type": "text", "text": "Stopped."}], 27, answer=5)
    return file.rows


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
        {"type": "session_meta", "payload": {"id": "r-6", "base_instructions": {"text": "Of the parent."}}},
        {"type": "turn_context", "payload": {"model": "gpt-5.6", "cwd": "."}},
        item(said("user", "input_text", "<environment_context>\n  <cwd>/home/ada</cwd>\n</environment_context>"), 0),
        item(said("user", "input_text", "List the files of lib_9001"), 1),
        item({"type": "ghost_snapshot", "ghost_commit": {"id": "4f2a"}}, 1),
        {"type": "event_msg", "payload": {"type": "token_count", "info": None}},
        item(dict(reasoning), 2),
        item(call("c1"), 3),
        item({"type": "function_call_output", "call_id": "c1", "output": "a.py\nb.py"}, 4),
        "{not json",
        item({"type": "function_call", "name": "shell", "arguments": "{}"}, 5),
        item({"type": "function_call_output", "call_id": "c404", "output": "?"}, 5),
        item(dict(reasoning), 6),
        item(call("c2"), 6),
        {
            "type": "compacted",
            "payload": {"message": "They listed files.", "replacement_history": [said("user", "input_text", "x")]},
        },
        item(said("user", "input_text", "Delete everything"), 7),
        item(said("assistant", "output_text", "Really?"), 7),
        {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
        item(said("user", "input_text", "never mind"), 7),
        item(said("assistant", "output_text", "Two files."), 8),
    ]
