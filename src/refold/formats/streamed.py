"""Answers of providers: text, calls and usage, put together from the events of a stream or read from a whole body.

Events are plain JSON values. Unknown events and fields are ignored, so a server may send anything.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Raw = dict[str, Any]
_SHOWN: dict[str, Literal["text", "thinking"]] = {
    "content": "text",
    "refusal": "text",
    "reasoning_content": "thinking",
    "reasoning": "thinking",
}
_PIECES = ("text", "thinking", "signature", "partial_json")
RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, slots=True)
class Delta:
    """One streamed piece of an answer."""

    kind: Literal["text", "thinking"]
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call as the model wrote it; ``arguments`` is text and may be invalid JSON."""

    id: str
    name: str
    arguments: str


class StreamedAnswer(ABC):
    """One answer. ``usage`` is the provider's own object, merged from its pieces; ``error_text`` is an error in it.

    ``chars`` is the length of its text, reasoning and arguments so far. ``response_id`` and ``output`` belong to a
    complete response that the provider may store (Responses).
    """

    def __init__(self) -> None:
        self.usage: Raw = {}
        self.finish_reason = ""
        self.error_text = ""
        self.is_ended = False  # Nothing that matters follows: many readers stop here.
        self.chars = 0
        self.response_id = ""
        self.output: list[Any] = []

    @property
    def has_usage(self) -> bool:
        """True if the provider reported its input tokens."""
        return any(isinstance(self.usage.get(name), int) for name in ("prompt_tokens", "input_tokens"))

    @abstractmethod
    def add(self, event: Mapping[str, Any]) -> list[Delta]:
        """Add one event; return the text and reasoning in it."""

    @abstractmethod
    def add_whole(self, payload: Mapping[str, Any]) -> None:
        """Add an answer that is not streamed."""

    @property
    @abstractmethod
    def message(self) -> Raw:
        """The answer so far, in the provider's format."""

    @property
    @abstractmethod
    def calls(self) -> list[ToolCall]:
        """The tool calls so far."""

    def _add_figures(self, payload: Mapping[str, Any], code: str = "code") -> None:
        """Read usage and error; later figures win, absent ones stay."""
        self.usage |= {name: value for name, value in _object(payload.get("usage")).items() if value is not None}
        if error := _object(payload.get("error")):
            self.error_text = f"{error.get(code)} {error.get('message')}"

    def _end(self, reason: object) -> None:
        self.finish_reason = reason if isinstance(reason, str) and reason else self.finish_reason


class ChatAnswer(StreamedAnswer):
    """A chat completion: the texts by the name of their field, and the calls by their index."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, Raw] = {}

    @property
    def texts(self) -> dict[str, str]:
        return {name: "".join(pieces) for name, pieces in self._texts.items()}

    @property
    def calls(self) -> list[ToolCall]:
        made = [self._calls[at] for at in sorted(self._calls)]
        return [ToolCall(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in made]

    @property
    def message(self) -> Raw:
        calls = {"tool_calls": [self._calls[at] for at in sorted(self._calls)]} if self._calls else {}
        return {"role": "assistant", "content": None, **self.texts, **calls}

    def add(self, event: Mapping[str, Any]) -> list[Delta]:
        self._add_figures(event)
        choices = list_objects(event.get("choices"))
        self.is_ended = bool(self.finish_reason) and not choices
        shown: list[Delta] = []
        for choice in choices:
            if not choice.get("index"):
                self._end(choice.get("finish_reason"))
                shown += self._add_delta(_object(choice.get("delta")))
        return shown

    def add_whole(self, payload: Mapping[str, Any]) -> None:
        choices = [{**one, "delta": one.get("message")} for one in list_objects(payload.get("choices"))]
        self.add({**payload, "choices": choices})

    def _add_delta(self, delta: Mapping[str, Any]) -> Iterator[Delta]:
        for name, piece in delta.items():
            if name == "tool_calls":
                for call in list_objects(piece):
                    self._add_call(call)
            elif isinstance(piece, str) and piece and name != "role":
                self._texts.setdefault(name, []).append(piece)
                self.chars += len(piece)
                # Some servers send their reasoning under both names.
                if name in _SHOWN and not (name == "reasoning" and "reasoning_content" in delta):
                    yield Delta(_SHOWN[name], piece)

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        # Some servers omit the index and send each call in one piece.
        at = piece.get("index")
        function: Raw = {"name": "", "arguments": ""}
        call = self._calls.setdefault(
            at if isinstance(at, int) else len(self._calls), {"id": "", "type": "function", "function": function}
        )
        call["id"] = call["id"] or str(piece.get("id") or "")
        for name, text in _object(piece.get("function")).items():
            if isinstance(text, str):
                call["function"][name] = call["function"].get(name, "") + text
                self.chars += len(text)


class BlockAnswer(StreamedAnswer):
    """A message of Anthropic: its blocks by their index."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, Raw] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}

    @property
    def message(self) -> Raw:
        blocks = [{**one, "input": read_arguments(written)} if written else one for one, written in self.list_blocks()]
        return {"role": "assistant", "content": blocks}

    @property
    def calls(self) -> list[ToolCall]:
        made = [(one, written) for one, written in self.list_blocks() if one.get("type") == "tool_use"]
        return [ToolCall(str(one.get("id")), str(one.get("name")), written) for one, written in made]

    def list_blocks(self) -> Iterator[tuple[Raw, str]]:
        """Yield the blocks so far, each with the JSON of its input if it is a call."""
        for at in sorted(self._blocks):
            *texts, written = ("".join(self._pieces.get((at, name), ())) for name in _PIECES)
            block = self._blocks[at]
            if block.get("type") == "tool_use" and not written:
                written = json.dumps(block.get("input") or {}, ensure_ascii=False)
            begun = {name: block[name] for name in _PIECES if isinstance(block.get(name), str)}
            added = {name: begun.get(name, "") + text for name, text in zip(_PIECES, texts, strict=False) if text}
            yield {**block, **added}, written

    def add(self, event: Mapping[str, Any]) -> list[Delta]:
        kind, index, delta = event.get("type"), event.get("index"), _object(event.get("delta"))
        at = index if isinstance(index, int) else 0
        if kind == "message_start":
            self._add_figures(_object(event.get("message")), "type")
        elif kind == "content_block_start":
            self._blocks[at] = _object(event.get("content_block"))
        elif kind == "content_block_delta":
            return list(self._add_delta(at, delta))
        elif kind == "message_stop":
            self.is_ended = True
        else:
            self._add_figures(event, "type")
            self._end(delta.get("stop_reason"))
        return []

    def add_whole(self, payload: Mapping[str, Any]) -> None:
        self._add_figures(payload, "type")
        self._end(payload.get("stop_reason"))
        self._blocks = dict(enumerate(list_objects(payload.get("content"))))

    def _add_delta(self, at: int, delta: Mapping[str, Any]) -> Iterator[Delta]:
        self._blocks.setdefault(at, {"type": "text", "text": ""})
        for name in _PIECES:
            piece = delta.get(name)
            if isinstance(piece, str) and piece:
                self._pieces.setdefault((at, name), []).append(piece)
                self.chars += len(piece)
                if name in ("text", "thinking"):
                    yield Delta("text" if name == "text" else "thinking", piece)


class ResponseAnswer(StreamedAnswer):
    """A response: its last event holds all of it."""

    def __init__(self) -> None:
        super().__init__()
        self._response: Raw = {}

    @property
    def message(self) -> Raw:
        return self._response

    @property
    def calls(self) -> list[ToolCall]:
        made = [one for one in list_objects(self._response.get("output")) if one.get("type") == "function_call"]
        return [ToolCall(str(one.get("call_id")), str(one.get("name")), str(one.get("arguments"))) for one in made]

    def add(self, event: Mapping[str, Any]) -> list[Delta]:
        if event.get("type") in RESPONSE_ENDS:
            self.add_whole(_object(event.get("response")))
            self.is_ended = event["type"] != "response.failed"
        elif event.get("type") == "error":
            self._add_figures({"error": event})
        return []

    def add_whole(self, payload: Mapping[str, Any]) -> None:
        self._response = dict(payload)
        self._add_figures(payload)
        if _object(payload.get("incomplete_details")).get("reason") == "max_output_tokens":
            self._end("length")
        if isinstance(payload.get("output"), list) and payload.get("status") in ("completed", "incomplete"):
            self.response_id, self.output = str(payload.get("id") or ""), payload["output"]


def _object(value: object) -> Raw:
    """Return a JSON object; empty if the value is not one."""
    return value if isinstance(value, dict) else {}


def list_objects(value: object) -> list[Raw]:
    """Return the JSON objects in a list; empty if the value is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def read_arguments(written: str, default: Raw | None = None) -> Raw:
    """Return the arguments of a call; the default (empty) if they are not a JSON object."""
    try:
        given = json.loads(written)
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else default or {}
