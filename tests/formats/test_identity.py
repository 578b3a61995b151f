"""An unchanged message is returned as it came, whatever it is; input is never changed in place."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import FormatError
from refold.formats import (
    NAMES,
    detect,
    digest_message,
    make_format,
    parse_messages,
    read_conversation,
    write_conversation,
)

KEYS = st.sampled_from(
    re.findall(
        r"\w+",
        "type role content text id call_id tool_calls function name arguments input output tool_use_id tool_call_id "
        "cache_control thinking reasoning summary refusal x_new is_error",
    )
)
TYPES = st.sampled_from(
    re.findall(
        r"\w+",
        "text image_url image thinking redacted_thinking tool_use tool_result server_tool_use refusal mcp_tool_result "
        "web_search_tool_result input_text output_text input_image compaction reasoning function_call "
        "function_call_output custom_tool_call local_shell_call message x_new",
    )
)
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["\ud83d", "\x00", "{}", '{"a":1}', " ", "以后"]), TYPES)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
BLOCKS = st.builds(
    lambda kind, text, rest: {**rest, "type": kind, **text},
    st.one_of(TYPES, JSON),
    st.one_of(
        st.just({}),
        TEXTS.map(lambda text: {"text": text}),
        TEXTS.map(lambda text: {"content": text, "id": "1", "tool_use_id": "1"}),
    ),
    st.dictionaries(
        st.sampled_from(["x_new", "cache_control", "citations", "is_error", "input", "source"]), JSON, max_size=3
    ),
)
CALLS = st.builds(
    lambda arguments, rest: {**rest, "id": "1", "function": {"name": "f", "arguments": arguments, **rest}},
    TEXTS,
    st.dictionaries(st.sampled_from(["x_new", "type"]), JSON, max_size=2),
)
MESSAGES = st.builds(
    lambda role, content, extra, rest: {**rest, "role": role, **extra, "content": content},
    st.sampled_from(["user", "assistant", "system", "tool"]),
    st.one_of(st.none(), TEXTS, st.lists(BLOCKS, max_size=4)),
    st.one_of(
        st.just({}),
        st.lists(CALLS, max_size=3).map(lambda calls: {"tool_calls": calls}),
        TEXTS.map(lambda text: {"reasoning": text}),
    ),
    st.dictionaries(st.sampled_from(["x_new", "cache_control", "annotations", "name", "audio"]), JSON, max_size=3),
)
RAWS = st.one_of(MESSAGES, BLOCKS, JSON)


def parse_or_none(name: str, raw: object) -> Any:
    try:
        return make_format(name).parse(raw)
    except FormatError:
        return None


@pytest.mark.parametrize("name", NAMES)
@given(raw=RAWS)
def test_an_untouched_message_is_the_very_object_that_came_in(name: str, raw: Any) -> None:
    before = copy.deepcopy(raw)
    message = parse_or_none(name, raw)
    if message is not None:
        assert message.raw is raw
        assert make_format(name).render(message, {}) is raw
        assert make_format(name).parse_parts(raw) == message.parts
    assert raw == before


@pytest.mark.parametrize("name", NAMES)
@given(raw=RAWS, data=st.data())
def test_a_change_touches_only_what_it_names(name: str, raw: Any, data: st.DataObject) -> None:
    message = parse_or_none(name, raw)
    if message is None or message.is_sealed or not message.parts:
        return
    before = copy.deepcopy(raw)
    changes: dict[int, str | None] = {}
    for at, part in enumerate(message.parts):
        allowed = {"call": ["…"], "result": ["…"], "thinking": [None], "opaque": []}.get(part.kind, ["…", None])
        if allowed and data.draw(st.booleans()):
            changes[at] = data.draw(st.sampled_from(allowed))
    form = make_format(name)
    changed: Any = form.render(message, changes)
    assert raw == before
    if changed is None:
        assert all(at in changes or not part.text.strip() for at, part in enumerate(message.parts))
        return
    kept = [part for at, part in enumerate(message.parts) if changes.get(at, "") is not None]
    parts = form.parse_parts(changed)
    if not (name == "openai-responses" and message.parts[0].kind == "thinking"):
        assert [(p.name, p.call_id) for p in parts] == [(p.name, p.call_id) for p in kept]
    untouched = {key: value for key, value in changed.items() if value is raw.get(key)}
    assert len(raw) - len(untouched) <= max(1, len(changes)) + 1
    assert [key for key in changed if key in raw] == [key for key in raw if key in changed]


@pytest.mark.parametrize("name", NAMES)
@given(raw=RAWS)
def test_a_digest_does_not_depend_on_the_order_of_keys(name: str, raw: Any) -> None:
    message = parse_or_none(name, raw)
    if message is not None:
        assert digest_message(reverse_keys(raw)) == message.digest


def reverse_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(value)}
    return [reverse_keys(inner) for inner in value] if isinstance(value, list) else value


@given(raws=st.lists(RAWS, max_size=5), system=JSON, tools=JSON)
def test_detecting_reading_and_judging_never_fail_with_anything_but_a_format_error(
    raws: list[Any], system: Any, tools: Any
) -> None:
    before = copy.deepcopy((raws, system, tools))
    try:
        form = detect(raws, system, tools)
        faults = form.find_faults(parse_messages(form, raws))
        assert all(isinstance(fault, str) and fault for fault in faults)
        form.read_system(system)
    except FormatError:
        pass  # The one error that input may cause.
    assert (raws, system, tools) == before


@given(
    obj=st.one_of(
        JSON,
        st.dictionaries(
            st.sampled_from(["messages", "input", "system", "model", "x"]), JSON | st.lists(MESSAGES, max_size=3)
        ),
    )
)
def test_a_conversation_is_written_back_as_it_was_read(obj: Any) -> None:
    before = copy.deepcopy(obj)
    try:
        conversation = read_conversation(obj)
    except FormatError:
        return
    assert write_conversation(conversation, conversation.messages) == before
    assert obj == before
