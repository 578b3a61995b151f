"""Exports of tracing services: runs of LangSmith and observations of Langfuse.

Only calls of a model count (``run_type`` "llm", ``type`` "GENERATION"): each holds the messages that were sent and the
answer. Calls of which one continues another become one session, as in a request log. Chains, tools and retrievers only
repeat what the model calls hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from refold.readers import request_log
from refold.readers.session import Broken, FileRow, Session, read_type

KIND = "traces"
_MODEL_KEYS = ("model", "model_name", "ls_model_name")
# LangChain's names of speakers, and its classes.
_ROLES = {"human": "user", "ai": "assistant", "HumanMessage": "user", "AIMessage": "assistant"}
_ROLES |= {"system": "system", "SystemMessage": "system", "tool": "tool", "ToolMessage": "tool"}
_ROLES |= {"HumanMessageChunk": "user", "AIMessageChunk": "assistant"}


def knows(row: dict[str, Any]) -> bool:
    """Return whether a row is a run, an observation, or a trace that holds observations."""
    is_run = isinstance(row.get("run_type"), str) and "inputs" in row
    return is_run or _is_observation(row) or any(_is_observation(one) for one in _find_inner(row))


def _is_observation(row: dict[str, Any]) -> bool:
    return isinstance(row.get("type"), str) and ("traceId" in row or "startTime" in row) and "input" in row


def _find_inner(row: dict[str, Any]) -> list[dict[str, Any]]:
    inner = row.get("observations") or row.get("child_runs") or []
    return [one for one in inner if isinstance(one, dict)] if isinstance(inner, list) else []


def read_rows(rows: Sequence[FileRow], name: str) -> tuple[list[Session], list[Broken]]:
    """Read the calls of models, in the order of their times, as a request log."""
    broken: list[Broken] = []
    bodies: list[tuple[str, int, FileRow]] = []
    for row in rows:
        calls = list(_walk(row.value))
        if not knows(row.value):
            broken.append(Broken(row.line, "neither a run nor an observation"))
        for value in calls:
            body = _read_body(value)
            if body is None:
                broken.append(Broken(row.line, f"a model call without messages (id {str(value.get('id'))[:60]})"))
            else:
                begun = str(value.get("start_time") or value.get("startTime") or "")
                bodies.append((begun, len(bodies), FileRow(row.line, body)))
    sessions, faults = request_log.read_rows([row for _, _, row in sorted(bodies, key=lambda one: one[:2])], name)
    return sessions, [*broken, *faults]


def _walk(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the model calls in a row, also those below a trace."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if one.get("run_type") == "llm" or (_is_observation(one) and one["type"] == "GENERATION"):
            yield one
        waiting += _find_inner(one)


def _read_body(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return a model call as a request body with its answer as the last message; None if it has no messages."""
    given = _load(value.get("inputs", value.get("input")))
    found = given.get("messages") if isinstance(given, dict) else given
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
        found = found[0]  # LangChain prepares several prompts at once.
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        return None
    answer = _find_answer(_load(value.get("outputs", value.get("output"))))
    beside = given if isinstance(given, dict) else {}
    body: dict[str, Any] = {key: beside[key] for key in ("system", "tools") if beside.get(key)}
    body["messages"] = [_read_message(one) for one in [*found, *([answer] if answer else [])]]
    extra = value.get("extra")
    noted = [extra.get("metadata"), extra.get("invocation_params")] if isinstance(extra, dict) else []
    places = (value, beside, *noted)
    models = (place.get(key) for place in places if isinstance(place, dict) for key in _MODEL_KEYS)
    body["model"] = next((model for model in models if isinstance(model, str) and model), "")
    body["id"] = str(value.get("trace_id") or value.get("traceId") or value.get("id") or "")
    body["timestamp"] = value.get("start_time") or value.get("startTime")
    return body


def _load(value: object) -> Any:
    """Return a value; exports as tables hold it as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _find_answer(given: Any) -> dict[str, Any] | None:
    """Return the model's message, whichever way the output wraps it."""
    for _ in range(6):
        if isinstance(given, str) and given.strip():
            return {"role": "assistant", "content": given}
        if isinstance(given, list):
            given = given[0] if given else None
        elif isinstance(given, dict) and ("role" in given or "kwargs" in given or read_type(given) in _ROLES):
            return given
        elif isinstance(given, dict):
            keys = ("choices", "generations", "message", "messages", "output")
            given = next((given[key] for key in keys if given.get(key)), None)
    return None


def _read_message(given: dict[str, Any]) -> dict[str, Any]:
    """Return a message; one that LangChain wrote is turned into OpenAI chat."""
    if "role" in given:
        return given
    fields: dict[str, Any] = next((given[key] for key in ("kwargs", "data") if isinstance(given.get(key), dict)), given)
    named = given.get("id")
    kind = named[-1] if isinstance(named, list) and named else fields.get("type") or given.get("type")
    role = _ROLES.get(str(kind))
    if role is None:
        return given
    message: dict[str, Any] = {"role": role, "content": fields.get("content") or ""}
    if fields.get("tool_call_id"):
        message["tool_call_id"] = fields["tool_call_id"]
    given_calls = fields.get("tool_calls")
    calls = [_read_call(one) for one in given_calls if isinstance(one, dict)] if isinstance(given_calls, list) else []
    if calls:
        message["tool_calls"] = calls
    return message


def _read_call(call: dict[str, Any]) -> dict[str, Any]:
    if "function" in call:
        return call
    function = {"name": str(call.get("name")), "arguments": json.dumps(call.get("args") or {}, ensure_ascii=False)}
    return {"id": str(call.get("id")), "type": "function", "function": function}
