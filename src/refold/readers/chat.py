"""Builds a session in the OpenAI chat format from the files of agents that store messages in a format of their own.

Calls without a result and results without a call are left out: no provider accepts them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from refold.readers.session import Compaction, RecordedUsage, Session, read_time, settle_times


class ChatBuilder:
    """Collects the messages of one session in order."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._messages: list[dict[str, Any]] = []
        self._times: list[float | None] = []
        self._compactions: list[Compaction] = []
        self._reported: dict[int, RecordedUsage] = {}
        self.model = ""

    def add_user(self, text: str, time: object = None) -> None:
        """Add a message of the user's; empty text adds nothing."""
        if text.strip():
            self._add({"role": "user", "content": text}, time)

    def add_answer(
        self,
        text: str,
        calls: Sequence[tuple[str, str, object]] = (),
        time: object = None,
        used: RecordedUsage | None = None,
    ) -> None:
        """Add an answer of the model. A call is its id, the tool's name and the arguments."""
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": name, "type": "function", "function": {"name": tool, "arguments": json.dumps(given)}}
                for name, tool, given in calls
            ]
        if text or calls:
            if used is not None:
                self._reported[len(self._messages)] = used
            self._add(message, time)

    def add_result(self, name: str, text: str, time: object = None) -> None:
        """Add the result of the call of this id."""
        self._add({"role": "tool", "tool_call_id": name, "content": text}, time)

    def add_compaction(self, summary: str) -> None:
        """Note that the client replaced everything so far by a summary of its own."""
        self._compactions.append(Compaction(len(self._messages), summary))

    def _add(self, message: dict[str, Any], time: object) -> None:
        self._messages.append(message)
        self._times.append(read_time(time))

    def finish(self, session_id: str, system: str | None = None) -> Session:
        """Return the session without unpaired calls and results."""
        kept: list[dict[str, Any]] = []
        places: list[int] = []
        for at, message in enumerate(self._messages):
            if message["role"] == "tool":
                paired = message if _is_called(kept, message["tool_call_id"]) else None
            else:
                paired = self._pair(message, at)
            if paired is not None:
                kept.append(paired)
                places.append(at)
        return Session(
            session_id,
            tuple(kept),
            system=system,
            times=settle_times([self._times[at] for at in places]),
            model=self.model,
            client=self._client,
            compactions=tuple(one.moved(bisect_left(places, one.at)) for one in self._compactions),
            reported=tuple(
                self._reported[at].moved(number) for number, at in enumerate(places) if at in self._reported
            ),
        )

    def _pair(self, message: dict[str, Any], at: int) -> dict[str, Any] | None:
        """Return a message without the calls that were never answered; None if nothing is left."""
        if "tool_calls" not in message:
            return message
        answered = set()
        for follows in self._messages[at + 1 :]:
            if follows["role"] != "tool":
                break
            answered.add(follows["tool_call_id"])
        calls = [call for call in message["tool_calls"] if call["id"] in answered]
        plain = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**plain, "tool_calls": calls} if calls else (plain if message["content"] else None)


def _is_called(kept: Sequence[Mapping[str, Any]], name: str) -> bool:
    answered = set()
    for message in reversed(kept):
        if message["role"] != "tool":
            return name not in answered and any(call["id"] == name for call in message.get("tool_calls", ()))
        answered.add(message["tool_call_id"])
    return False


def join_texts(parts: object, key: str = "text") -> str:
    """Return the texts of a list of parts; text itself as it is."""
    if isinstance(parts, str):
        return parts
    found = [part.get(key) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in found if isinstance(text, str))


def count_used(source: object, names: Sequence[str]) -> RecordedUsage | None:
    """Return the usage under these keys (input, cached, written, output); None if there is no number at all.

    ``input`` in the source does not include what was read from the cache or written to it.
    """
    if not isinstance(source, dict):
        return None
    found = [source.get(name) for name in names]
    numbers = [value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0 for value in found]
    return RecordedUsage(0, *numbers) if any(numbers) else None
