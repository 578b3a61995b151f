"""Digests: which messages are the same, and which are not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from refold.errors import FormatError
from refold.formats import digest_message
from refold.formats.canonical import DEPTH_MAX, find_depth, parse_arguments
from tests.rigs.formats import chat_call

BIG = 12345678901234567890123


def with_arguments(arguments: Any) -> Any:
    return {"role": "assistant", "tool_calls": [chat_call("1", arguments)]}


SAME = {
    "key order": ({"role": "user", "content": "a"}, {"content": "a", "role": "user"}),
    "deep key order": (
        {"role": "user", "content": "a", "x": {"b": 1, "a": 2}},
        {"role": "user", "content": "a", "x": {"a": 2, "b": 1}},
    ),
    "string and one text part": (
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
    ),
    "string and one input_text": (
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
    ),
    "item type message": ({"role": "user", "content": "a"}, {"type": "message", "role": "user", "content": "a"}),
    "empty annotations": (
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]},
    ),
    "cache_control on a block": (
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "a"},
    ),
    "cache_control on a message": (
        {"role": "user", "content": "a", "cache_control": {"type": "ephemeral"}},
        {"role": "user", "content": "a"},
    ),
    "cache_control in a result": (
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": [{"type": "text", "text": "a", "cache_control": {}}],
                }
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a", "cache_control": {}}]},
    ),
    "spaces and order in arguments": (with_arguments('{"a": 1, "b": [2]}'), with_arguments('{"b":[2],"a":1}')),
    "arguments as an object": (with_arguments('{"a": 1}'), with_arguments({"a": 1})),
    "arguments of an item": (
        {"type": "function_call", "call_id": "1", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "1", "arguments": '{"a":1}'},
    ),
    "legacy arguments": (
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}},
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a":1}'}},
    ),
    "null and absent content": (
        {"role": "assistant", "content": None, "tool_calls": [chat_call()]},
        {"role": "assistant", "tool_calls": [chat_call()]},
    ),
    "empty and null content": ({"role": "assistant", "content": ""}, {"role": "assistant", "content": None}),
    "null fields": (
        {"role": "assistant", "content": "a", "refusal": None, "audio": None},
        {"role": "assistant", "content": "a"},
    ),
    "no calls": ({"role": "assistant", "content": "a", "tool_calls": []}, {"role": "assistant", "content": "a"}),
    "key order beside a lone surrogate": ({"role": "user", "content": "\ud83d"}, {"content": "\ud83d", "role": "user"}),
}
DIFFERENT = {
    "role": ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
    "white space": ({"role": "user", "content": "a"}, {"role": "user", "content": "a "}),
    "unknown field": ({"role": "user", "content": "a"}, {"role": "user", "content": "a", "x": 1}),
    "unknown field of a block": (
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]},
    ),
    "two text parts": (
        {"role": "user", "content": "ab"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ),
    "order of parts": (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "a"}]},
    ),
    "call id": (with_arguments("{}"), {"role": "assistant", "tool_calls": [chat_call("2", "{}")]}),
    "argument": (with_arguments('{"a": 1}'), with_arguments('{"a": 2}')),
    "broken arguments": (with_arguments('{"a": 1'), with_arguments('{"a": 1}')),
    "large numbers in arguments": (with_arguments(f'{{"id": {BIG}}}'), with_arguments(f'{{"id": {BIG + 1}}}')),
    "large numbers": ({"role": "user", "content": "a", "x": BIG}, {"role": "user", "content": "a", "x": BIG + 1}),
    "cache_control as data": (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"cache_control": 1}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
    ),
    "not a number": (
        {"role": "user", "content": "a", "x": [float("nan")]},
        {"role": "user", "content": "a", "x": [None]},
    ),
    "infinity": (
        {"role": "user", "content": "a", "x": [float("inf")]},
        {"role": "user", "content": "a", "x": [float("nan")]},
    ),
    "surrogate": ({"role": "user", "content": "\ud83d"}, {"role": "user", "content": "\ud83e"}),
    "escaped surrogate": ({"role": "user", "content": "\ud83d"}, {"role": "user", "content": "\\ud83d"}),
    "nul": ({"role": "user", "content": "a\x00"}, {"role": "user", "content": "a"}),
    "signature": (
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "1"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "2"}]},
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_what_means_the_same_has_the_same_digest(case: str) -> None:
    one, other = SAME[case]
    assert digest_message(one) == digest_message(other)


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_has_another_digest(case: str) -> None:
    one, other = DIFFERENT[case]
    assert digest_message(one) != digest_message(other)


def test_a_digest_is_the_same_in_every_process() -> None:
    # A fixed value as well: a change of the canonical form orphans every stored message, so it must be on purpose.
    code = (
        "from refold.formats import digest_message as d;"
        "print(d({'role':'user','content':'你好','x':{'b':1,'a':'\\ud83d'}}), d({'role':'user','content':'hi'}))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
    assert runs.pop().split() == [digest_message({"role": "user", "content": "你好", "x": {"b": 1, "a": "\ud83d"}}), HI]


HI = "9017285104d1b249960a30732b8e92f6"


def test_nesting_without_end_is_refused_with_its_place() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    circle: Any = {"role": "user", "content": "a"}
    circle["self"] = circle
    for raw in ({"role": "user", "content": "a", "x": deep}, circle):
        with pytest.raises(FormatError, match=rf"messages\[3\] nests deeper than {DEPTH_MAX}"):
            digest_message(raw, where="messages[3]")
    while deep:
        deep = deep.pop()  # Freed level by level, so that no destructor recurses.


def test_invalid_json_is_refused_with_its_place() -> None:
    for value in (b"bytes", {1, 2}, object()):
        with pytest.raises(FormatError, match=r"messages\[3\] is not JSON"):
            digest_message({"role": "user", "content": "a", "x": value}, where="messages[3]")


@pytest.mark.parametrize(
    "text", ["", "null", "5", '"s"', "{", "{}}", "[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000]
)
def test_arguments_that_are_neither_object_nor_list_stay_text(text: str) -> None:
    assert parse_arguments(text) == text


def test_brackets_within_strings_do_not_count_as_nesting() -> None:
    assert find_depth('{"a": "[[[[\\"[[", "b": []}') == 2
