"""Messages that are a role and a list of parts become chat messages and come back, whatever happened to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import TypeAdapter

from refold import CompressionConfig, ContextCompressionManager
from refold.formats import MessageSource
from refold.integrations.parts import PartKind, PartsCodec, find_origin


@dataclass(frozen=True)
class Turn:
    who: str
    parts: tuple[Any, ...]
    ticket: str = ""


class TurnCodec(PartsCodec):
    """Parts are plain blocks."""

    def open(self, message: Turn) -> tuple[str, list[Any]]:
        return message.who, list(message.parts)

    def close(self, role: str, parts: list[Any], origin: Turn | None) -> Turn:
        who = "assistant" if role == "assistant" else "user"
        return Turn(who, tuple(parts)) if origin is None else replace(origin, parts=tuple(parts))

    def read(self, part: Any) -> dict[str, Any]:
        return dict(part)

    def make(self, block: dict[str, Any], origin: Any) -> Any:
        return {**(origin or {}), **block, "id": (origin or block)["id"]} if "id" in block else block


def call(n: int, name: str = "") -> dict[str, Any]:
    return {"type": "call", "id": name, "name": "read", "arguments": json.dumps({"n": n})}


def result(text: str, name: str = "") -> dict[str, Any]:
    return {"type": "result", "id": name, "name": "read", "content": text}


THOUGHT = {"type": "thinking", "thinking": "Which one?", "signature": "s"}
TEXT = {"type": "text", "text": "Both."}
ANSWER = Turn("assistant", (THOUGHT, TEXT, call(1), call(2)), "T-1")


def test_calls_without_ids_pair_with_their_results_by_order() -> None:
    codec = TurnCodec()
    (said,) = codec.to_raw(ANSWER)
    results = codec.to_raw(Turn("user", (result("one"), result("two"))))
    assert [one["id"] for one in said["tool_calls"]] == [one["tool_call_id"] for one in results]
    assert [one["content"] for one in results] == ["one", "two"]


def test_a_changed_message_keeps_its_unchanged_parts_their_order_and_its_fields() -> None:
    codec = TurnCodec()
    (raw,) = codec.to_raw(ANSWER)
    calls = raw["tool_calls"]
    calls[0] = {**calls[0], "function": {"name": "read", "arguments": "{}"}}
    made = codec.from_raw({**raw, "content": [TEXT]}, MessageSource((0,), "shortened", (ANSWER,)))
    assert made.ticket == "T-1"
    assert made.parts == (TEXT, {**call(1), "arguments": "{}"}, call(2))
    assert made.parts[0] is TEXT
    assert made.parts[2] is ANSWER.parts[3]


def test_an_original_in_the_place_of_a_record_is_not_a_copy_of_the_record() -> None:
    record = Turn("user", ({"type": "text", "text": "a record"},), "T-2")
    source = MessageSource((0,), "restored", (record,))
    assert find_origin(source) is None
    raw = {"role": "assistant", "content": "Both."}
    assert TurnCodec().from_raw(raw, source) == Turn("assistant", (TEXT,))


def test_results_that_came_in_one_message_are_sent_in_one(tmp_path: Path) -> None:
    turns = [Turn("user", ({"type": "text", "text": "Read everything."},), "T-0")]
    for step in range(6):
        texts = ["\n".join(f"line {n} of {step}.{at}" for n in range(300 * at + 20)) for at in range(3)]
        turns.append(Turn("assistant", tuple(call(step * 3 + at) for at in range(3)), f"T-{step}"))
        turns.append(Turn("user", tuple(map(result, texts)), f"T-{step}"))
    codec = TurnCodec()
    with ContextCompressionManager(CompressionConfig(window=6_000, reserve=500), tmp_path) as manager:
        prepared = manager.session("s1", format="openai-chat", codec=codec).prepare(turns)
    sent = prepared.messages
    assert "shortened" in {source.kind for source in prepared.sources}
    assert len(sent) == len(prepared.sources)
    shapes = [[part["type"] for part in turn.parts] for turn in sent if turn.ticket not in ("", "T-0")]
    assert shapes
    assert all(shape in (["call"] * 3, ["result"] * 3) for shape in shapes)


class TableCodec(PartsCodec):
    """A table whose calls have an object as arguments."""

    message, field = dict, "parts"
    kinds = (
        PartKind("text", text="text"),
        PartKind("call", at="use", name="name", id="id", arguments="input"),
        PartKind("result", at="answer", id="id", content="text"),
    )


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    content: Any
    thought: str | None = None
    ticket: str = ""


@dataclass(frozen=True)
class Heard:
    content: Any


class AsideCodec(PartsCodec):
    """A message is a text or a list of calls; beside calls, the text is a thought."""

    field, aside, classes = "content", "thought", {"assistant": Said, "user": Heard}
    kinds = (PartKind("text", str), PartKind("call", Call, id="id", name="name", json="arguments"))


def test_a_text_beside_calls_may_have_a_field_of_its_own() -> None:
    codec = AsideCodec()
    plain, calls = Said("Done.", "I was quick."), Said([Call("c1", "read", "{}")], "I look.", "T-1")
    assert codec.to_raw(plain) == [{"role": "assistant", "content": "Done."}]
    (raw,) = codec.to_raw(calls)
    assert (raw["content"], len(raw["tool_calls"])) == ("I look.", 1)
    assert codec.from_raw(raw, MessageSource((0,), "whole")) == Said(calls.content, "I look.")
    shorter = codec.from_raw({**raw, "content": "I …"}, MessageSource((0,), "shortened", (calls,)))
    assert shorter == Said(calls.content, "I …", "T-1")
    assert codec.from_raw({"role": "user", "content": "A record."}, MessageSource((0, 1), "fold")) == Heard("A record.")


@dataclass(frozen=True)
class Picture:
    url: str


@dataclass(frozen=True)
class Prompt:
    content: Any
    kind: str = "prompt"


@dataclass(frozen=True)
class Answer:
    content: str
    kind: str = "answer"


@dataclass(frozen=True)
class Sound:
    name: str


@dataclass(frozen=True)
class Asked:
    parts: list[Any]


@dataclass(frozen=True)
class Replied:
    parts: list[Any]


class NestedCodec(PartsCodec):
    """A part of a message is a text, or a list of texts, pictures and sounds."""

    field, mark, classes = "parts", "kind", {"assistant": Replied, "user": Asked}
    holders: ClassVar = {"assistant": Answer, "user": Prompt}
    parts = TypeAdapter(Prompt | Answer | Picture | Sound)
    kinds = (
        PartKind("text", str),
        PartKind("text", (Prompt, Answer), text="content"),
        PartKind("image_url", Picture, url="url"),
    )


@pytest.mark.parametrize("kind", [list, tuple])
def test_parts_that_hold_texts_and_pictures_are_opened_and_closed(kind: type) -> None:
    codec = NestedCodec()
    sound, picture = Sound("hall.wav"), Picture("data:image/png;base64,AA==")
    asked = Asked([Prompt("First this."), Prompt(kind(["Then what is this?", picture, sound]))])
    (raw,) = codec.to_raw(asked)
    assert [block["type"] for block in raw["content"]] == ["text", "text", "image_url", "part"]
    stored = codec.from_raw(raw, MessageSource((0,), "whole"))
    assert stored == Asked([Prompt(["First this.", "Then what is this?", picture, sound])])
    changed = [*raw["content"][:1], {"type": "text", "text": "Then …"}, *raw["content"][2:]]
    shorter = codec.from_raw({**raw, "content": changed}, MessageSource((0,), "shortened", (asked,)))
    assert shorter.parts[0] is asked.parts[0]
    assert shorter.parts[1] == Prompt(["Then …", picture, sound])
    assert codec.from_raw({"role": "assistant", "content": "Yes."}, MessageSource((), "whole")) == Replied(
        [Answer("Yes.")]
    )


@pytest.mark.parametrize("written", ['{"path": "a.t', "[1, 2]", "not JSON", "[" * 100_000])
def test_arguments_that_a_model_wrote_wrong_are_given_back(written: str, tmp_path: Path) -> None:
    said = [
        {"role": "user", "parts": [{"text": "Read a.txt."}]},
        {"role": "assistant", "parts": [{"use": {"name": "read", "id": "c1", "input": written}}]},
        {"role": "tool", "parts": [{"answer": {"id": "c1", "text": "these arguments cannot be read"}}]},
    ]
    with ContextCompressionManager(CompressionConfig(window=6_000, reserve=500), tmp_path) as manager:
        session = manager.session("s1", format="openai-chat", codec=TableCodec())
        session.append(said)
        known = session.messages()
    assert known == [
        said[0],
        {"role": "assistant", "parts": [{"use": {**said[1]["parts"][0]["use"], "input": {"arguments": written}}}]},
        said[2],
    ]
