"""Session files of Claude Code (``projects/*/*.jsonl``), read as Anthropic messages.

A row holds a message beside bookkeeping; one answer of the model may be spread over several rows with one message id,
results of one step over several user rows. Rows of helpers (``isSidechain``) make sessions of their own. Its own
summaries of compacted history are left out: the history itself is in the file. Calls that never got a result are left
out too, because no provider would take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refold.replay.rows import Broken, Row, read_time, settle_times
from refold.replay.session import Session

KIND = "claude-code"
_ROLES = ("user", "assistant")
# Rows of bookkeeping that hold no message.
_SILENT = frozenset(
    (
        "summary",
        "system",
        "file-history-snapshot",
        "queue-operation",
        "progress",
        "attachment",
        "custom-title",
        "last-prompt",
    )
)


def knows(row: dict[str, Any]) -> bool:
    """Tell whether a row is one of Claude Code's."""
    return row.get("type") in _ROLES and isinstance(row.get("message"), dict) and "role" not in row


def read_rows(rows: Sequence[Row], name: str) -> tuple[list[Session], list[Broken]]:
    """Read the sessions of a file, helpers apart."""
    broken: list[Broken] = []
    builders: dict[str, _Builder] = {}
    for row in rows:
        kind = row.value.get("type")
        if kind in _SILENT or row.value.get("isCompactSummary"):
            continue
        if not knows(row.value):
            # New kinds of bookkeeping come with new versions: a row without a message is passed over.
            if "message" in row.value:
                broken.append(Broken(row.line, f"a row of type {str(kind)[:40]!r} whose message is not one"))
            continue
        session_id = str(row.value.get("sessionId") or name)
        key = f"{session_id}/{row.value.get('agentId') or 'side'}" if row.value.get("isSidechain") else session_id
        why = builders.setdefault(key, _Builder(key)).add(row.value)
        if why:
            broken.append(Broken(row.line, why))
    sessions = [builder.finish() for builder in builders.values()]
    return [session for session in sessions if session.messages], broken


class _Builder:
    """Joins rows into messages."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._messages: list[dict[str, Any]] = []
        self._times: list[float | None] = []
        self._last_id: object = None
        self._model = ""

    def add(self, row: dict[str, Any]) -> str:
        """Take one row in; return what is wrong with it, if anything."""
        message = row["message"]
        role, content = message.get("role", row["type"]), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role not in _ROLES or not isinstance(blocks, list):
            return f"a message with role {str(role)[:20]!r} and content of type {type(content).__name__}"
        blocks = [block for block in blocks if isinstance(block, dict) and not _is_empty(block)]
        if not blocks:
            return ""
        model = message.get("model")
        if isinstance(model, str) and model and not model.startswith("<"):
            self._model = model
        self._join(role, blocks, message.get("id"), read_time(row.get("timestamp")))
        return ""

    def _join(self, role: str, blocks: list[dict[str, Any]], message_id: object, time: float | None) -> None:
        last = self._messages[-1] if self._messages else None
        is_same_answer = role == "assistant" and message_id is not None and message_id == self._last_id
        brings_results = all(block.get("type") == "tool_result" for block in blocks)
        if last is not None and last["role"] == role and (is_same_answer or (brings_results and _brings_results(last))):
            last["content"].extend(blocks)
        else:
            self._messages.append({"role": role, "content": blocks})
            self._times.append(time)
        self._last_id = message_id if role == "assistant" else None

    def finish(self) -> Session:
        """Return the session without calls and results that have no other half."""
        kept: list[dict[str, Any]] = []
        times: list[float | None] = []
        for at, message in enumerate(self._messages):
            blocks = _keep_paired(self._messages, at)
            if blocks:
                kept.append({"role": message["role"], "content": blocks})
                times.append(self._times[at])
        while kept and kept[0]["role"] != "user":
            kept.pop(0)
            times.pop(0)
        return Session(self._id, tuple(kept), "anthropic", times=settle_times(times), model=self._model)


def _keep_paired(messages: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    """Return the blocks of a message, less calls that the next one does not answer and results of no call before."""
    blocks = messages[at]["content"]
    if messages[at]["role"] == "assistant":
        follows = messages[at + 1]["content"] if at + 1 < len(messages) else None
        if follows is None:
            return list(blocks)
        answered = {block.get("tool_use_id") for block in follows if block.get("type") == "tool_result"}
        return [block for block in blocks if block.get("type") != "tool_use" or block.get("id") in answered]
    before = messages[at - 1]["content"] if at else []
    called = {block.get("id") for block in before if block.get("type") == "tool_use"}
    return [block for block in blocks if block.get("type") != "tool_result" or block.get("tool_use_id") in called]


def _brings_results(message: dict[str, Any]) -> bool:
    return all(block.get("type") == "tool_result" for block in message["content"])


def _is_empty(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()
