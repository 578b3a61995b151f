"""Session files of Qwen Code (``~/.qwen/projects/*/chats/*.jsonl``): rows with Gemini's parts.

Rows of kind ``system`` are bookkeeping, except a compression, which is noted; what it replaced is in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refold.readers.chat import ChatBuilder, join_texts
from refold.readers.session import Broken, FileRow, RecordedUsage, Session, read_type

KIND = "qwen-code"


def knows(row: dict[str, Any]) -> bool:
    message = row.get("message")
    return read_type(row) in ("user", "assistant", "tool_result") and isinstance(message, dict) and "parts" in message


def read_rows(rows: Sequence[FileRow], name: str) -> tuple[list[Session], list[Broken]]:
    builders: dict[str, ChatBuilder] = {}
    broken = []
    for row in rows:
        value = row.value
        builder = builders.setdefault(str(value.get("sessionId") or name), ChatBuilder(KIND))
        if value.get("subtype") == "chat_compression":
            builder.add_compaction(_find_summary(value.get("systemPayload")))
        message = value.get("message")
        if read_type(value) == "system" or message is None:
            continue
        parts = message.get("parts") if isinstance(message, dict) else None
        if not isinstance(parts, list):
            broken.append(Broken(row.line, "a message without parts"))
            continue
        _add(builder, value, [part for part in parts if isinstance(part, dict)])
    sessions = [builder.finish(key) for key, builder in builders.items()]
    return [session for session in sessions if session.messages], broken


def _add(builder: ChatBuilder, row: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    time = row.get("timestamp")
    said = [part for part in parts if not part.get("thought")]
    if read_type(row) == "assistant":
        builder.model = str(row.get("model") or builder.model)
        calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        named = [(str(call.get("id")), str(call.get("name")), call.get("args")) for call in calls]
        builder.add_answer(join_texts(said), named, time, _read_used(row.get("usageMetadata")))
        return
    results = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
    for result in results:
        response = result.get("response")
        output = response.get("output", response.get("error")) if isinstance(response, dict) else response
        builder.add_result(str(result.get("id")), output if isinstance(output, str) else str(output), time)
    builder.add_user(join_texts(said), time)


def _read_used(used: object) -> RecordedUsage | None:
    """Return the usage of an answer; Gemini's prompt count includes what was cached."""
    if not isinstance(used, dict):
        return None
    names = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount")
    whole, cached, output = (value if isinstance(value := used.get(name), int) else 0 for name in names)
    return RecordedUsage(0, max(0, whole - cached), cached, 0, output) if whole else None


def _find_summary(payload: object) -> str:
    """Return the text of the messages that a compression left, newest summary included."""
    history = payload.get("compressedHistory") if isinstance(payload, dict) else None
    entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    return "\n".join(join_texts(entry.get("parts")) for entry in entries)
