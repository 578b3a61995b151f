"""OpenAI Responses: what is read out of an item, and what a change leaves of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from refold.formats import OpenAIResponses
from tests.rigs.formats import IMAGE_RESPONSES, kinds, parse

RESPONSES = OpenAIResponses()
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "E",
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "run",
    "arguments": '{"a":1}',
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "out", "status": "completed"}


def read(raw: object) -> Any:
    return parse("openai-responses", raw)


@pytest.mark.parametrize(
    ("raw", "role", "expected"),
    [
        ({"role": "user", "content": "hi"}, "user", ["text"]),
        ({"type": "message", "role": "developer", "content": "rules"}, "system", ["text"]),
        (
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, IMAGE_RESPONSES]},
            "user",
            ["text", "media"],
        ),
        (
            {"role": "user", "content": [{"type": "input_file", "file_id": "f"}, {"type": "hologram"}]},
            "user",
            ["media", "opaque"],
        ),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            "assistant",
            ["text"],
        ),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            "assistant",
            ["text"],
        ),
        ({"type": "message", "role": "user", "content": ""}, "user", []),
        (REASONING, "assistant", ["thinking"]),
        ({"type": "reasoning", "summary": []}, "assistant", ["thinking"]),
        (CALL, "assistant", ["call"]),
        ({"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"}, "assistant", ["call"]),
        (
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
            "assistant",
            ["call"],
        ),
        (OUTPUT, "tool", ["result"]),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}, "tool", ["result"]),
        ({"type": "web_search_call", "id": "ws_1", "status": "completed"}, "assistant", ["opaque"]),
        ({"type": "mcp_call", "id": "m", "name": "f", "output": "x"}, "assistant", ["opaque"]),
        ({"type": "computer_call", "call_id": "cc", "action": {}}, "assistant", ["opaque"]),
        ({"type": "computer_call_output", "call_id": "cc", "output": {}}, "tool", ["opaque"]),
        ({"type": "item_reference", "id": "x"}, "assistant", ["opaque"]),
        ({"id": "x"}, "assistant", ["opaque"]),
        ({"type": "compaction", "encrypted_content": "E"}, "assistant", ["opaque"]),
        ({"type": "hologram_call"}, "assistant", ["opaque"]),
    ],
)
def test_an_item_is_read_into_parts_of_the_right_kind(raw: Any, role: str, expected: list[str]) -> None:
    item = read(raw)
    assert (item.role, kinds(item)) == (role, expected)
    assert item.raw is raw


def test_reasoning_can_be_read_and_names_its_item() -> None:
    part = read(REASONING).parts[0]
    assert (part.text, part.call_id, part.payload) == ("Hm.", "rs_1", REASONING)


def test_reasoning_with_an_id_stays_because_the_items_after_it_need_it() -> None:
    message = read(REASONING)
    assert RESPONSES.render(message, {0: None}) is REASONING
    assert RESPONSES.render(read({key: REASONING[key] for key in REASONING if key != "id"}), {0: None}) is None


@pytest.mark.parametrize(
    "raw", [{"type": "item_reference", "id": "x"}, {"type": "compaction", "encrypted_content": "E"}]
)
def test_what_only_the_provider_can_read_is_sealed(raw: Any) -> None:
    assert read(raw).is_sealed
    with pytest.raises(ValueError, match="sealed"):
        RESPONSES.render(read(raw), {0: "x"})


def test_a_changed_output_and_a_changed_call_keep_everything_else() -> None:
    before = copy.deepcopy((CALL, OUTPUT))
    assert RESPONSES.render(read(OUTPUT), {0: "short"}) == {**OUTPUT, "output": "short"}
    changed: Any = RESPONSES.render(read(CALL), {0: "words"})
    assert json.loads(changed["arguments"]) == {"refold": "words"}
    assert changed == {**CALL, "arguments": changed["arguments"]}
    assert list(changed) == list(CALL)
    assert before == (CALL, OUTPUT)


def test_an_output_of_blocks_is_one_result_with_its_media_inside() -> None:
    raw = {**OUTPUT, "output": [{"type": "input_text", "text": "a"}, IMAGE_RESPONSES]}
    (part,) = read(raw).parts
    assert (part.text, [inner.kind for inner in part.inside]) == ("a", ["media"])
    assert RESPONSES.render(read(raw), {0: "short"}) == {**OUTPUT, "output": "short"}


def test_free_text_and_shell_calls_keep_their_shape() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"}
    shell = {
        "type": "local_shell_call",
        "call_id": "c",
        "action": {"type": "exec", "command": ["ls"], "env": {"A": "1"}},
    }
    assert RESPONSES.render(read(custom), {0: "…"}) == {**custom, "input": "…"}
    assert RESPONSES.render(read(shell), {0: "…"}) == {
        **shell,
        "action": {"type": "exec", "command": ["…"], "env": {"A": "1"}},
    }


def test_changed_media_becomes_the_text_block_of_its_role() -> None:
    user: Any = RESPONSES.render(
        read({"role": "user", "content": [IMAGE_RESPONSES, {"type": "input_text", "text": "a"}]}), {0: "[image]"}
    )
    assert user["content"][0] == {"type": "input_text", "text": "[image]"}
    assistant: Any = RESPONSES.render(read({"role": "assistant", "content": [IMAGE_RESPONSES]}), {0: "[image]"})
    assert assistant["content"][0] == {"type": "output_text", "text": "[image]"}


def test_a_changed_text_keeps_its_annotations() -> None:
    text = {"type": "output_text", "text": "long", "annotations": [{"type": "url_citation"}], "logprobs": []}
    changed: Any = RESPONSES.render(
        read({"type": "message", "id": "m", "role": "assistant", "content": [text]}), {0: "s"}
    )
    assert changed == {"type": "message", "id": "m", "role": "assistant", "content": [{**text, "text": "s"}]}


def test_nothing_is_left_of_an_item_without_its_words() -> None:
    assert RESPONSES.render(read({"role": "user", "content": "a"}), {0: None}) is None
    assert RESPONSES.render(read({"role": "user", "content": [{"type": "input_text", "text": "a"}]}), {0: None}) is None


def test_a_summary_is_a_user_message_item_unless_it_is_the_systems() -> None:
    block = [{"type": "input_text", "text": "s"}]
    assert RESPONSES.write_summary("s", "assistant") == {"type": "message", "role": "user", "content": block}
    assert RESPONSES.write_summary("s", "system") == {"type": "message", "role": "system", "content": block}
    assert RESPONSES.allow_role("assistant", "user", "user") == "user"
