"""The database of opencode (``~/.local/share/opencode/opencode.db``): sessions, messages and parts as JSON in SQLite.

It is opened for reading only. A tool's part has both the call and its result. A message with ``summary`` is opencode's
own compaction: noted, and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from refold.errors import FormatError
from refold.readers.chat import ChatBuilder, join_texts
from refold.readers.session import RecordedUsage, Session

if TYPE_CHECKING:
    import apsw

KIND = "opencode"


def list_sessions(path: Path) -> list[tuple[str, float]]:
    """Return the ids of the sessions and when each changed, in seconds."""
    rows = _query(path, "SELECT id, time_updated FROM session ORDER BY time_updated", ())
    return [(str(name), float(changed) / 1000) for name, changed in rows]


def read_session(path: Path, session_id: str) -> Session:
    """Read one session; raise FormatError if the database is damaged or has another layout."""
    builder = ChatBuilder(KIND)
    parts: dict[str, list[dict[str, Any]]] = {}
    for message_id, data in _query(
        path, "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY id", (session_id,)
    ):
        parts.setdefault(message_id, []).append(_load(data))
    for message_id, data in _query(
        path, "SELECT id, data FROM message WHERE session_id = ? ORDER BY id", (session_id,)
    ):
        _add(builder, _load(data), parts.get(message_id, []))
    return builder.finish(session_id)


def _add(builder: ChatBuilder, message: dict[str, Any], parts: Sequence[dict[str, Any]]) -> None:
    times = message.get("time")
    time = times.get("created") if isinstance(times, dict) else None
    text = join_texts([part for part in parts if part.get("type") == "text" and not part.get("ignored")])
    if message.get("role") == "user":
        builder.add_user(text, time)
    if message.get("role") != "assistant":
        return
    builder.model = str(message.get("modelID") or builder.model)
    if message.get("summary") is True:
        builder.add_compaction(text)
        return
    done = [part for part in parts if part.get("type") == "tool" and isinstance(part.get("state"), dict)]
    calls = [(str(part.get("callID")), str(part.get("tool")), part["state"].get("input")) for part in done]
    builder.add_answer(text, calls, time, _read_used(message.get("tokens")))
    for part in done:
        result = part["state"].get("output", part["state"].get("error"))
        if isinstance(result, str):
            builder.add_result(str(part.get("callID")), result, time)


def _read_used(tokens: object) -> RecordedUsage | None:
    cache = tokens.get("cache") if isinstance(tokens, dict) else None
    if not isinstance(tokens, dict) or not isinstance(cache, dict):
        return None
    found = (tokens.get("input"), cache.get("read"), cache.get("write"), tokens.get("output"))
    numbers = [value if isinstance(value, int) else 0 for value in found]
    return RecordedUsage(0, *numbers) if any(numbers) else None


def _load(data: object) -> dict[str, Any]:
    try:
        value = orjson.loads(data) if isinstance(data, str | bytes) else {}
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _query(path: Path, statement: str, values: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    import apsw

    try:
        opened: apsw.Connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            opened.set_busy_timeout(1_000)
            return iter(opened.execute(statement, values).fetchall())
        finally:
            opened.close()
    except apsw.Error as error:
        raise FormatError("{path} is not a database of opencode: {error}", path=path, error=error) from None
