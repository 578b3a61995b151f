"""Logs of requests in any of the three formats, and exports: a row is a request, a session or a single message.

Clients resend the whole history, so rows that continue one another become one session. A row may wrap its request in
``request``, ``body`` or ``json``. The next request usually repeats the answer beside it (``response``), as the client
keeps it; only the answer to a session's last request is added. Items of a type that no provider has are refused: they
would become messages that nobody can read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from refold.errors import FormatError, RefoldError
from refold.formats import Conversation, read_conversation
from refold.readers.session import Broken, FileRow, Probe, Session, read_time, read_type, settle_times

KIND = "requests"
_WRAPPERS = ("request", "body", "json", "data")
# Items of the Responses API, beside messages.
_ITEMS = frozenset(
    (
        *("message", "reasoning", "item_reference", "compaction", "compaction_summary", "context_compaction"),
        *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output"),
        *("apply_patch_call", "apply_patch_call_output", "computer_call", "computer_call_output"),
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("tool_search_call", "tool_search_output"),
        *("mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
    )
)
_TIMES = ("timestamp", "time", "created", "created_at", "ts")


def knows(row: dict[str, Any]) -> bool:
    return _find_body(row) is not None or "role" in row or is_item(row)


def is_item(row: dict[str, Any]) -> bool:
    return read_type(row) in _ITEMS


def is_plain(row: dict[str, Any]) -> bool:
    """Return whether a row is itself a request body, not a wrapping of one."""
    return _find_body(row) is row


def check_known(conversation: Conversation) -> None:
    """Raise a FormatError that names the place and the type if a message is not one of a provider."""
    for at, message in enumerate(conversation.messages):
        if not isinstance(message, dict):
            raise FormatError("messages[{at}] is a {kind}, not a message", at=at, kind=type(message).__name__)
        kind = message.get("type")
        if isinstance(message.get("role"), str) and (
            kind in (None, "message") or conversation.format.name != "openai-responses"
        ):
            continue
        if not is_item(message):
            fields = ", ".join(list(map(str, message))[:6]) or "no fields"
            what = f"of type {str(kind)[:40]!r}" if kind else "without a role or type"
            raise FormatError(
                "messages[{at}] is an object {what} (it has {fields}), which is not a message",
                at=at,
                what=what,
                fields=fields,
            )


def read_rows(rows: Sequence[FileRow], name: str) -> tuple[list[Session], list[Broken]]:
    broken: list[Broken] = []
    sessions: list[Session] = []
    answers: dict[str, list[Any]] = {}
    loose: list[FileRow] = []
    for row in rows:
        body = _find_body(row.value)
        if body is None:
            if "role" in row.value or "type" in row.value:
                loose.append(row)
            else:
                broken.append(Broken(row.line, "neither a request nor a message"))
            continue
        try:
            session = read_session({**row.value, **body}, f"{name}:{row.line}")
        except RefoldError as error:
            broken.append(Broken(row.line, str(error)[:300]))
            continue
        sessions, at = _join(sessions, session)
        answers[sessions[at].id] = _find_answer(row.value, session)
    for at, session in enumerate(sessions):
        if answer := answers.get(session.id):
            times = (*session.times, *session.times[-1:] * len(answer))
            sessions[at] = replace(session, messages=(*session.messages, *answer), times=times)
    if loose:
        sessions += _read_loose(loose, name, broken)
    return sessions, broken


def read_session(row: dict[str, Any], name: str) -> Session:
    """Read one row: a request body, or a session of an export with its probes."""
    conversation = read_conversation(row)
    check_known(conversation)
    time = next((found for key in _TIMES if (found := read_time(row.get(key))) is not None), None)
    count = len(conversation.messages)
    times = row.get("times")
    listed = [read_time(one) for one in times] if isinstance(times, list) and len(times) == count else []
    return Session(
        id=str(row.get("id") or row.get("session_id") or name),
        messages=tuple(conversation.messages),
        format=conversation.format.name,
        system=conversation.system,
        tools=conversation.tools,
        probes=tuple(probe for one in row.get("probes") or () if (probe := _read_probe(one)) is not None),
        times=settle_times(listed) if listed else ((time,) * count if time is not None else ()),
        model=conversation.model,
    )


def _read_probe(one: object) -> Probe | None:
    if not isinstance(one, dict) or not isinstance(one.get("step"), int) or not isinstance(one.get("value"), str):
        return None
    distance = one.get("distance_in_messages", one.get("distance", 0))
    return Probe(
        step=one["step"],
        value=one["value"],
        sort=str(one.get("cls") or one.get("sort") or ""),
        distance=distance if isinstance(distance, int) else 0,
        is_hard=bool(one.get("is_hard")) or (one.get("n_sources") == 1 and not one.get("in_assistant_text")),
    )


def _find_body(row: dict[str, Any]) -> dict[str, Any] | None:
    if "role" not in row and (isinstance(row.get("messages"), list) or ("input" in row and "type" not in row)):
        return row
    for key in _WRAPPERS:
        inner = row.get(key)
        if isinstance(inner, dict) and ("messages" in inner or "input" in inner):
            return inner
    return None


def _find_answer(row: dict[str, Any], session: Session) -> list[Any]:
    """Return the messages of the answer that a row has beside its request; empty if there is no complete answer."""
    answer = row.get("response")
    if isinstance(answer, dict) and isinstance(answer.get("body"), dict):
        answer = answer["body"]  # As in files of the batch API.
    if not isinstance(answer, dict):
        return []
    if session.format == "openai-responses":
        output = answer.get("output")
        found = output if isinstance(output, list) else []
    elif session.format == "anthropic":
        content = answer.get("content")
        found = [{"role": "assistant", "content": content}] if answer.get("role") == "assistant" and content else []
    else:
        choices = answer.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        found = []
        if isinstance(message, dict) and message.get("role") == "assistant":
            # Without its empty fields, as a client sends it back.
            empty = [key for key, value in message.items() if value in (None, [], {}) and key != "content"]
            found = [{key: value for key, value in message.items() if key not in empty}]
    try:
        read = read_conversation(found, session.format)
        check_known(read)
    except RefoldError:
        return []
    return list(read.messages)


def _join(sessions: list[Session], session: Session) -> tuple[list[Session], int]:
    """Add a session, or replace the newest one that it continues; return the sessions and its index."""
    prints = [_print(message) for message in session.messages]
    for at in range(len(sessions) - 1, max(-1, len(sessions) - 9), -1):
        known = sessions[at]
        size = len(known.messages)
        if known.format != session.format or size > len(prints) or size == 0:
            continue
        if [_print(message) for message in known.messages] == prints[:size]:
            times = (*known.times, *session.times[size:]) if known.times and session.times else ()
            return [*sessions[:at], replace(session, id=known.id, times=times), *sessions[at + 1 :]], at
    return [*sessions, session], len(sessions)


def _print(message: object) -> str:
    if isinstance(message, dict):
        # A message with a moved cache breakpoint is still the same message.
        message = {key: value for key, value in message.items() if key != "cache_control"}
    return json.dumps(message, sort_keys=True, default=str).replace(', "cache_control": {"type": "ephemeral"}', "")


def _read_loose(rows: Sequence[FileRow], name: str, broken: list[Broken]) -> list[Session]:
    """Read rows that are single messages: together they are one conversation."""
    try:
        conversation = read_conversation([row.value for row in rows])
        check_known(conversation)
    except RefoldError as error:
        broken.append(Broken(rows[0].line, str(error)[:300]))
        return []
    times = settle_times([read_time(row.value.get("timestamp")) for row in rows])
    return [Session(name, tuple(conversation.messages), conversation.format.name, times=times)]
