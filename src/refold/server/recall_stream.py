"""Streamed answers that may contain a recall call: which events the client sees, and how the next answer continues.

Text is relayed as it arrives. From the first tool call on, events are held until the answer ends; if none of the calls
is ours they are released unchanged. After a recall they are dropped, and the events of the next answer get the ids and
numbers that continue what the client has seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from refold.formats.streamed import RESPONSE_ENDS, list_objects
from refold.patterns import lazy_regex
from refold.server.body import dump_json
from refold.server.upstream import read_object
from refold.server.wires import Wire

_EVENT_END = lazy_regex(rb"\r\n\r\n|\n\n|\r\r")


def _find_delta(chunk: dict[str, Any]) -> dict[str, Any]:
    """Return the delta of a chat chunk; empty if there is none."""
    choices = list_objects(chunk.get("choices"))
    found = choices[0].get("delta") if choices else None
    return found if isinstance(found, dict) else {}


class RecallStream(ABC):
    """Reads a streamed answer event by event and decides what the client sees of it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.answer = wire.answer()
        self._rest = b""
        self._held: list[bytes] = []
        self._is_holding = False
        self.is_continued = False

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that may be relayed now."""
        self._rest += chunk
        out: list[bytes] = []
        while (end := _EVENT_END.search(self._rest)) is not None:
            event, self._rest = self._rest[: end.end()], self._rest[end.end() :]
            data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
            payload = read_object(data)
            if payload:
                self.answer.add(payload)
                self._is_holding = self._is_holding or self._must_hold(payload)
            elif b"[DONE]" in event:
                self._is_holding = True
            if self.is_continued and payload:
                event = self._rewrite(payload)
            if event and payload and not self._is_holding:
                self._forwarded(payload)
            if event:
                (self._held if self._is_holding else out).append(event)
        return b"".join(out)

    def release(self) -> bytes:
        """Return the held events, including the end of the stream."""
        held, rest = b"".join(self._held), self._rest
        self._held, self._rest = [], b""
        return held + rest

    def go_on(self) -> None:
        """Drop the held events, and read the next answer as the continuation of this one."""
        self._held, self._rest, self._is_holding, self.is_continued = [], b"", False, True
        self.answer = self._wire.answer()

    @property
    def shown_id(self) -> str:
        """The id of the answer that the client sees, if later requests refer to it."""
        return ""

    @abstractmethod
    def _must_hold(self, payload: dict[str, Any]) -> bool:
        """Return whether an event begins a call or ends the answer."""

    @abstractmethod
    def _forwarded(self, payload: dict[str, Any]) -> None: ...

    @abstractmethod
    def _rewrite(self, payload: dict[str, Any]) -> bytes: ...


class ChatStream(RecallStream):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._id: object = None

    def _must_hold(self, payload: dict[str, Any]) -> bool:
        ends = any(one.get("finish_reason") for one in list_objects(payload.get("choices")))
        return ends or bool(_find_delta(payload).get("tool_calls"))

    def _forwarded(self, payload: dict[str, Any]) -> None:
        self._id = payload.get("id") if self._id is None else self._id

    def _rewrite(self, payload: dict[str, Any]) -> bytes:
        if self._id is not None:
            payload["id"] = self._id
            _find_delta(payload).pop("role", None)
        return b"data: " + dump_json(payload) + b"\n\n"


class AnthropicStream(RecallStream):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._sent = self._shift = 0
        self._has_begun = False
        self._has_thought = False
        self._dropped: set[int] = set()

    def go_on(self) -> None:
        super().go_on()
        self._shift, self._dropped = self._sent, set()

    def _must_hold(self, payload: dict[str, Any]) -> bool:
        block = payload.get("content_block")
        is_call = isinstance(block, dict) and block.get("type") == "tool_use"
        return is_call or payload.get("type") in ("message_delta", "message_stop")

    def _forwarded(self, payload: dict[str, Any]) -> None:
        self._has_begun = self._has_begun or payload.get("type") == "message_start"
        if payload.get("type") == "content_block_start":
            self._sent = max(self._sent, int(payload.get("index") or 0) + 1)
            block = payload.get("content_block") or {}
            self._has_thought = self._has_thought or "thinking" in str(block.get("type"))

    def _rewrite(self, payload: dict[str, Any]) -> bytes:
        """Continue the block indexes; a message begins once, and only its beginning has thinking."""
        kind = str(payload.get("type"))
        if kind == "message_start" and self._has_begun:
            return b""
        if "index" in payload:
            at = int(payload["index"])
            block = payload.get("content_block") or {}
            if kind == "content_block_start" and self._has_thought and "thinking" in str(block.get("type")):
                self._dropped.add(at)
            if at in self._dropped:
                return b""
            payload["index"] = at - sum(one < at for one in self._dropped) + self._shift
        return f"event: {kind}\ndata: ".encode() + dump_json(payload) + b"\n\n"


class ResponsesStream(RecallStream):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._sent: list[Any] = []
        self._shift = 0
        self._has_begun = False
        self._number = -1
        self._id: object = None

    def go_on(self) -> None:
        super().go_on()
        self._shift = len(self._sent)

    @property
    def shown_id(self) -> str:
        return str(self._id or "")

    def _must_hold(self, payload: dict[str, Any]) -> bool:
        item = payload.get("item")
        is_call = isinstance(item, dict) and str(item.get("type")).endswith("_call")
        return is_call or payload.get("type") in RESPONSE_ENDS

    def _forwarded(self, payload: dict[str, Any]) -> None:
        if payload.get("type") == "response.created":
            self._has_begun = True
            self._id = self._id or (payload.get("response") or {}).get("id")
        self._number = max(self._number, int(payload.get("sequence_number") or 0))
        if payload.get("type") == "response.output_item.done":
            self._sent.append(payload.get("item"))

    def _rewrite(self, payload: dict[str, Any]) -> bytes:
        kind = str(payload.get("type"))
        if kind in ("response.created", "response.in_progress", "response.queued") and self._has_begun:
            return b""
        if isinstance(payload.get("output_index"), int):
            payload["output_index"] += self._shift
        if "sequence_number" in payload:
            self._number += 1
            payload["sequence_number"] = self._number
        response = payload.get("response")
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            payload["response"] = {**response, "output": [*self._sent[: self._shift], *response["output"]]}
            if self._id is not None:
                payload["response"]["id"] = self._id
        return f"event: {kind}\ndata: ".encode() + dump_json(payload) + b"\n\n"
