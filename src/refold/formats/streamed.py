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
_CALL_FIELDS = ("index", "id", "type", "function")
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
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._whole: Raw = {}

    @property
    def texts(self) -> dict[str, str]:
        return {name: "".join(pieces) for name, pieces in self._texts.items()}

    @property
    def calls(self) -> list[ToolCall]:
        made = [(call["id"], call["function"]) for call in self._list_calls()]
        return [ToolCall(call_id, function["name"], function["arguments"]) for call_id, function in made]

    @property
    def message(self) -> Raw:
        calls = {"tool_calls": self._list_calls()} if self._calls else {}
        return self._whole or {"role": "assistant", "content": None, **self.texts, **calls}

    def _list_calls(self) -> list[Raw]:
        functions: dict[int, Raw] = {at: {"name": "", "arguments": ""} for at in sorted(self._calls)}
        for (at, name), pieces in self._pieces.items():
            functions[at][name] = "".join(pieces)
        return [{**self._calls[at], "function": function} for at, function in functions.items()]

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
        choice = next(iter(list_objects(payload.get("choices"))), {})
        self._whole = _object(choice.get("message"))
        # Some servers number all calls of an answer with 0.
        calls = [{**call, "index": at} for at, call in enumerate(list_objects(self._whole.get("tool_calls")))]
        self.add({**payload, "choices": [{**choice, "index": 0, "delta": {**self._whole, "tool_calls": calls}}]})

    def _add_delta(self, delta: Mapping[str, Any]) -> Iterator[Delta]:
        for name, given in delta.items():
            # Some servers send their text in blocks.
            blocks = list_objects(given) if name == "content" else []
            piece = "".join(str(block.get("text") or "") for block in blocks) or given
            if name == "tool_calls":
                for call in list_objects(piece):
                    self._add_call(call)
            elif isinstance(piece, str) and piece and name != "role":
                self._texts.setdefault(name, []).append(piece)
                self.chars += len(piece)
                # Some servers send their reasoning under both names.
                if name in _SHOWN and not (name == "reasoning" and delta.get("reasoning_content")):
                    yield Delta(_SHOWN[name], piece)

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        # Some servers omit the index and send each call in one piece.
        index = piece.get("index")
        at = index if isinstance(index, int) else len(self._calls)
        call = self._calls.setdefault(at, {"id": "", "type": "function"})
        call["id"] = call["id"] or str(piece.get("id") or "")
        # Providers want other fields back with the call, such as the signature of a thought.
        call.update((name, value) for name, value in piece.items() if name not in _CALL_FIELDS and value is not None)
        for name, given in _object(piece.get("function")).items():
            text = write_arguments(given) if name == "arguments" and given is not None else given
            if isinstance(text, str):
                self._pieces.setdefault((at, name), []).append(text)
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
                written = write_arguments(block.get("input") or {})
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
        return [
            ToolCall(str(one.get("call_id")), str(one.get("name")), write_arguments(one.get("arguments")))
            for one in made
        ]

    def add(self, event: Mapping[str, Any]) -> list[Delta]:
        kind, response = event.get("type"), _object(event.get("response"))
        if response:  # Servers name the event that ends a response differently.
            self.add_whole(response)
            self.is_ended = kind in RESPONSE_ENDS[:2]
        else:
            self._add_figures({**event, "error": _object(event.get("error")) or event} if kind == "error" else event)
        return []

    def add_whole(self, payload: Mapping[str, Any]) -> None:
        self._response = dict(payload)
        self._add_figures(payload)
        is_cut = _object(payload.get("incomplete_details")).get("reason") == "max_output_tokens"
        self._end("length" if is_cut else "completed" if payload.get("status") == "completed" else "")
        if isinstance(payload.get("output"), list) and payload.get("status") in ("completed", "incomplete"):
            self.response_id, self.output = str(payload.get("id") or ""), payload["output"]


def _object(value: object) -> Raw:
    """Return a JSON object; empty if the value is not one."""
    return value if isinstance(value, dict) else {}


def list_objects(value: object) -> list[Raw]:
    """Return the JSON objects in a list; empty if the value is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def write_arguments(given: object) -> str:
    """Return the arguments of a call as text; some servers send them as an object."""
    if isinstance(given, str):
        return given
    try:
        return json.dumps(given, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def read_arguments(written: str, default: Raw | None = None) -> Raw:
    """Return the arguments of a call; the default (empty) if they are not a JSON object."""
    try:
        given = json.loads(written)
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else default or {}
