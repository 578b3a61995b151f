"""Session files of pi (``~/.pi/agent/sessions/*/*.jsonl``).

Entries form a tree by ``parentId``; the branch that ends with the last message is the session. A compaction of pi's own
is noted, and what it replaced stays: the file has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refold.readers.chat import ChatBuilder, count_used, join_texts
from refold.readers.session import Broken, FileRow, Session, read_type

KIND = "pi"
_USED = ("input", "cacheRead", "cacheWrite", "output")


def knows(row: dict[str, Any]) -> bool:
    return (read_type(row) == "session" and "cwd" in row and "version" in row) or (
        read_type(row) == "message" and "parentId" in row and isinstance(row.get("message"), dict)
    )


def read_rows(rows: Sequence[FileRow], name: str) -> tuple[list[Session], list[Broken]]:
    builder, broken = ChatBuilder(KIND), []
    session_id = name
    for row in _find_branch(rows):
        value, message = row.value, row.value.get("message")
        if read_type(value) == "session":
            session_id = str(value.get("id") or name)
        elif read_type(value) == "compaction":
            builder.add_compaction(str(value.get("summary") or ""))
        elif read_type(value) == "message":
            if isinstance(message, dict):
                _add(builder, message)
            else:
                broken.append(Broken(row.line, "a message that is not an object"))
    session = builder.finish(session_id)
    return ([session] if session.messages else []), broken


def _find_branch(rows: Sequence[FileRow]) -> list[FileRow]:
    """Return the rows on the way to the last message, in order; rows without an id belong to every branch."""
    by_id = {name: row for row in rows if isinstance(name := row.value.get("id"), str) and "parentId" in row.value}
    last = next((row.value.get("id") for row in reversed(rows) if read_type(row.value) == "message"), None)
    branch: set[int] = set()
    while isinstance(last, str) and (row := by_id.get(last)) is not None and row.line not in branch:
        branch.add(row.line)
        last = row.value.get("parentId")
    return [row for row in rows if row.line in branch or "parentId" not in row.value]


def _add(builder: ChatBuilder, message: dict[str, Any]) -> None:
    content, time = message.get("content"), message.get("timestamp")
    match message.get("role"):
        case "user":
            builder.add_user(join_texts(content), time)
        case "assistant":
            builder.model = str(message.get("model") or builder.model)
            parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
            calls = [
                (str(part.get("id")), str(part.get("name")), part.get("arguments"))
                for part in parts
                if part.get("type") == "toolCall"
            ]
            builder.add_answer(join_texts(content), calls, time, count_used(message.get("usage"), _USED))
        case "toolResult":
            builder.add_result(str(message.get("toolCallId")), join_texts(content), time)
        case "bashExecution":
            builder.add_user(f"$ {message.get('command')}\n{message.get('output')}", time)
