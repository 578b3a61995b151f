"""Anthropic messages: what is read out of a message, and what a change leaves of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from refold.formats import Anthropic
from tests.rigs.formats import IMAGE_CLAUDE, claude_step, kinds, parse

CLAUDE = Anthropic()
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
USE = {"type": "tool_use", "id": "t1", "name": "run", "input": {"cmd": "ls"}}
SERVER_USE = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
SERVER_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [{"type": "web_search_result", "encrypted_content": "E"}],
}


def read(raw: object) -> Any:
    return parse("anthropic", raw)


def block(raw: Any) -> Any:
    return read({"role": "assistant", "content": [raw]}).parts[0]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"type": "text", "text": "a"}, "text"),
        (THINKING, "thinking"),
        ({"type": "redacted_thinking", "data": "AAAA"}, "thinking"),
        (USE, "call"),
        ({"type": "mcp_tool_use", "id": "m1", "name": "f", "server_name": "s", "input": {}}, "call"),
        ({"type": "tool_result", "tool_use_id": "t1", "content": "x"}, "result"),
        ({"type": "tool_result", "tool_use_id": "t1"}, "result"),
        ({"type": "mcp_tool_result", "tool_use_id": "m1", "content": [{"type": "text", "text": "x"}]}, "result"),
        (IMAGE_CLAUDE, "media"),
        ({"type": "document", "source": {"type": "base64", "data": "JVBE"}}, "media"),
        (SERVER_USE, "opaque"),
        (SERVER_RESULT, "opaque"),
        ({"type": "compaction", "content": "summary"}, "opaque"),
        ({"type": "hologram"}, "opaque"),
        ({"no": "type"}, "opaque"),
    ],
)
def test_a_block_is_read_into_a_part_of_the_right_kind(raw: Any, kind: str) -> None:
    assert block(raw).kind == kind
    assert block(raw).payload is raw


def test_content_may_be_a_string_empty_or_absent() -> None:
    assert [
        kinds(read({"role": "user", **content})) for content in ({"content": "a"}, {"content": ""}, {"content": []}, {})
    ] == [
        ["text"],
        [],
        [],
        [],
    ]


def test_a_result_has_its_text_its_media_inside_and_whether_it_failed() -> None:
    content = [{"type": "text", "text": "a"}, IMAGE_CLAUDE, {"type": "text", "text": "b"}]
    part = block({"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True})
    assert (part.text, part.call_id, part.is_error, [inner.kind for inner in part.inside]) == (
        "a\nb",
        "t1",
        True,
        ["media"],
    )


def test_the_words_of_a_document_given_as_text_can_be_read() -> None:
    assert block({"type": "document", "source": {"type": "text", "data": "the words"}}).text == "the words"


def test_a_pair_that_the_provider_ran_itself_is_linked_by_its_id() -> None:
    assert block(SERVER_USE).call_id == block(SERVER_RESULT).call_id == "s1"


def test_a_message_with_a_compaction_is_sealed_and_takes_no_edit() -> None:
    message = read(
        {"role": "assistant", "content": [{"type": "compaction", "content": "s"}, {"type": "text", "text": "a"}]}
    )
    assert message.is_sealed
    with pytest.raises(ValueError, match="sealed"):
        CLAUDE.render(message, {1: "b"})


def test_a_changed_result_keeps_its_call_its_error_and_its_breakpoint() -> None:
    raw = {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "is_error": True,
                "content": [IMAGE_CLAUDE],
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "text", "text": "go on"},
        ],
    }
    before = copy.deepcopy(raw)
    changed: Any = CLAUDE.render(read(raw), {0: "short"})
    assert changed["content"][0] == {**before["content"][0], "content": "short"}
    assert list(changed["content"][0]) == list(before["content"][0])
    assert changed["content"][1] is raw["content"][1]
    assert raw == before


@pytest.mark.parametrize(
    ("text", "expected"), [('{"a": 1}', {"a": 1}), ("words", {"refold": "words"}), ("[]", {"refold": "[]"})]
)
def test_a_changed_call_has_an_object_as_input(text: str, expected: Any) -> None:
    changed: Any = CLAUDE.render(read({"role": "assistant", "content": [THINKING, USE]}), {1: text})
    assert changed["content"] == [THINKING, {**USE, "input": expected}]
    assert changed["content"][0] is THINKING


def test_changed_media_becomes_a_text_block() -> None:
    changed: Any = CLAUDE.render(
        read({"role": "user", "content": [IMAGE_CLAUDE, {"type": "text", "text": "a"}]}), {0: "[image]"}
    )
    assert changed["content"][0] == {"type": "text", "text": "[image]"}


def test_thinking_goes_whole_or_not_at_all() -> None:
    message = read({"role": "assistant", "content": [THINKING, USE]})
    assert CLAUDE.render(message, {0: None}) == {"role": "assistant", "content": [USE]}
    with pytest.raises(ValueError, match="thinking"):
        CLAUDE.render(message, {0: "Hm"})
    assert CLAUDE.render(read({"role": "assistant", "content": [THINKING]}), {0: None}) is None


@pytest.mark.parametrize("at", [0, 1])
def test_a_call_or_a_result_is_never_dropped_alone(at: int) -> None:
    message = read(claude_step("t1")[at])
    with pytest.raises(ValueError, match="fold the unit"):
        CLAUDE.render(message, {len(message.parts) - 1: None})


@pytest.mark.parametrize("raw", [SERVER_USE, SERVER_RESULT, {"type": "hologram"}])
def test_a_block_of_the_providers_own_is_never_changed_alone(raw: Any) -> None:
    message = read({"role": "assistant", "content": [raw]})
    for change in ("text", None):
        with pytest.raises(ValueError, match="opaque"):
            CLAUDE.render(message, {0: change})


def test_nothing_is_left_of_a_message_whose_rest_is_blank() -> None:
    raw = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " \n"}]}
    assert CLAUDE.render(read(raw), {0: None}) is None
    assert CLAUDE.render(read({"role": "user", "content": "a"}), {0: None}) is None


def test_a_changed_text_keeps_the_fields_beside_it() -> None:
    text = {"type": "text", "text": "long", "citations": [{"x": 1}], "cache_control": {"type": "ephemeral"}}
    changed: Any = CLAUDE.render(read({"role": "assistant", "content": [text]}), {0: "s"})
    assert changed["content"] == [{**text, "text": "s"}]


@pytest.mark.parametrize(
    ("wanted", "before", "after", "allowed"),
    [
        ("assistant", None, "user", "user"),
        ("assistant", "user", "user", "assistant"),
        ("assistant", "user", "assistant", "user"),
        ("assistant", "assistant", "user", "user"),
        ("assistant", "user", None, "user"),
        ("system", "user", "user", "user"),
        ("tool", "user", "user", "user"),
        ("user", None, "assistant", "user"),
    ],
)
def test_a_summary_has_the_role_user_unless_it_is_between_two_user_messages(
    wanted: Any, before: Any, after: Any, allowed: str
) -> None:
    assert CLAUDE.allow_role(wanted, before, after) == allowed


def test_a_summary_is_a_message_with_a_string() -> None:
    assert CLAUDE.write_summary("s", "system") == {"role": "user", "content": "s"}
    assert CLAUDE.write_summary("s", "assistant") == {"role": "assistant", "content": "s"}
