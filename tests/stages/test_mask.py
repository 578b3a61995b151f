"""mask: old observations, arguments and pictures become one honest line each."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.conversation.message import find_marks, message_handle
from refold.errors import ConfigError
from refold.stages.mask import Mask, shorten_arguments
from refold.stages.stage import Goal
from refold.testing import find_violations
from tests.rigs.effort import up_to
from tests.rigs.stages import (
    assistant,
    find_dishonest,
    lines,
    propose,
    read_records,
    run,
    run_on,
    shown,
    step,
    user,
    view_of,
)
from tests.rigs.strategies import Talk, talks

PLAIN = Mask(keep=1, values=0)


def make_png(width: int, height: int, size: int = 4_000) -> str:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return base64.b64encode(head + b"\0" * (size - len(head))).decode()


def session(*steps: list[dict[str, Any]], ask: str = "fix it") -> list[dict[str, Any]]:
    return [user(ask), *(message for one in steps for message in one)]


def test_an_old_result_becomes_one_line_with_tool_arguments_size_and_handle() -> None:
    view = view_of(session(step("bash", {"command": "ls -R src"}, lines(100)), step("bash", {"command": "pwd"}, "/")))
    after = run(PLAIN, view)
    handle = message_handle(view.items[2].message)
    assert shown(after)[2] == f"[bash ls -R src → 100 lines, {len(lines(100)):,} characters ⟨{handle}⟩]"


def test_a_chinese_conversation_gets_chinese_words() -> None:
    view = view_of(session(step("读取", {"path": "说明.md"}, "内容很长。\n" * 80), step("bash", {}, "")))
    text = shown(run(PLAIN, view, Goal(0, 0, language="zh")))[2]
    assert text.startswith("[读取 说明.md → 80 行，480 字符 ⟨m:")


def test_how_a_command_ended_stays_word_for_word() -> None:
    output = "<returncode>2</returncode>\n" + lines(100) + "\nValueError: port 8080 is in use"
    text = shown(run(PLAIN, view_of(session(step("bash", {"command": "run"}, output), step("bash", {}, "")))))[2]
    assert text.split("\n")[1:] == ["<returncode>2</returncode>", "ValueError: port 8080 is in use"]


def test_a_status_of_zero_is_not_worth_a_line() -> None:
    output = "<returncode>0</returncode>\n" + lines(100)
    assert "\n" not in shown(run(PLAIN, view_of(session(step("bash", {}, output), step("bash", {}, "")))))[2]


def test_the_newest_units_and_the_newest_step_are_kept() -> None:
    steps = [step("bash", {"command": f"cat {n}"}, lines(100)) for n in range(6)]
    view = view_of(session(*steps))
    for keep, masked in ((0, 5), (1, 5), (3, 3), (9, 0)):
        after = run(Mask(keep=keep), view)
        assert sum(bool(item.edits) for item in after.items) == masked, keep


def test_units_of_words_alone_do_not_count_as_kept_observations() -> None:
    talk = [message for n in range(5) for message in (user(f"question {n}"), assistant(f"answer {n}"))]
    view = view_of([*session(step("bash", {}, lines(100)), step("bash", {}, lines(100))), *talk])
    assert [bool(item.edits) for item in run(Mask(keep=1), view).items[:5]] == [False, False, True, False, False]


def test_masking_goes_oldest_first_and_stops_when_the_target_is_met() -> None:
    view = view_of(session(*(step("bash", {"command": f"cat {n}"}, lines(100)) for n in range(6))))
    goal = Goal(target=view.tokens - 700, hard=view.tokens)
    after = run(PLAIN, view, goal)
    assert [bool(item.edits) for item in after.items if item.role == "tool"] == [True, True, False, False, False, False]
    assert after.tokens <= goal.target


def test_nothing_is_masked_when_the_target_is_met_already() -> None:
    view = view_of(session(*(step("bash", {}, lines(100)) for _ in range(6))))
    assert propose(PLAIN, view, Goal(target=view.tokens, hard=view.tokens)) == []


def test_a_person_who_asks_gets_all_that_is_old_masked() -> None:
    view = view_of(session(*(step("bash", {}, lines(100)) for _ in range(6))))
    assert len(propose(PLAIN, view, Goal(target=view.tokens, hard=view.tokens, force=True))) == 5


def test_what_is_small_stays() -> None:
    view = view_of(session(*(step("bash", {}, "done, 3 files") for _ in range(6))))
    assert propose(PLAIN, view) == []


def test_what_is_masked_is_not_masked_again() -> None:
    view = view_of(session(*(step("bash", {}, lines(100)) for _ in range(6))))
    after = run(Mask(keep=1, tokens_min=1), view)
    assert propose(Mask(keep=1, tokens_min=1), after) == []


def test_results_with_the_same_call_id_keep_their_own_names() -> None:
    view = view_of(session(*(step("read", {"path": f"{name}.py"}, lines(100, name)) for name in "abc")))
    texts = shown(run(PLAIN, view))
    assert texts[2].startswith("[read a.py → ")
    assert texts[4].startswith("[read b.py → ")


def test_parallel_results_are_named_after_their_own_calls_in_whatever_order_they_come() -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": f"{n}.py"})}}
        for n in range(2)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": lines(100)} for n in (1, 0)]
    view = view_of([user("go"), {"role": "assistant", "tool_calls": calls}, *results, *step("bash", {}, "")])
    assert [text.split(" →")[0] for text in shown(run(PLAIN, view))[2:4]] == ["[read 1.py", "[read 0.py"]


def test_values_that_nothing_else_shows_stay_in_view_and_each_is_named_once() -> None:
    first = lines(60) + "\nreservation UM3OG5 paid with gift_card_8190333 by mia_li_3668"
    second = lines(60) + "\nreservation UM3OG5 and flight HAT113"
    view = view_of(
        session(step("get", {}, first), step("get", {}, second), step("get", {}, ""), ask="I am mia_li_3668")
    )
    texts = shown(run(Mask(keep=1), view))
    assert "UM3OG5" in texts[2]
    assert "gift_card_8190333" in texts[2]
    assert "mia_li_3668" not in texts[2], "the user's own message shows it"
    assert "HAT113" in texts[4]
    assert "UM3OG5" not in texts[4], "the older line shows it"


def test_long_arguments_lose_their_long_values_and_nothing_else() -> None:
    arguments = {"path": "src/app.py", "content": "import os\n" + lines(200), "mode": 420, "opts": {"note": lines(50)}}
    view = view_of(session(step("write", arguments, "ok"), step("bash", {}, "")))
    after = run(PLAIN, view)
    handle = message_handle(view.items[1].message)
    assert json.loads(after.items[1].parts[0].text) == {
        "path": "src/app.py",
        "content": f"import os…[{len(arguments['content']):,} characters ⟨{handle}⟩]",
        "mode": 420,
        "opts": {"note": f"line 0 of the output…[{len(lines(50)):,} characters ⟨{handle}⟩]"},
    }
    assert after.items[1].parts[0].call_id == "call_1"


def test_short_arguments_stay_byte_for_byte() -> None:
    view = view_of(session(step("write", '{ "a":1.10 , "a": 1e5}', lines(100)), step("bash", {}, "")))
    assert run(PLAIN, view).items[1].raw is view.items[1].raw


def test_numbers_spaces_and_repeated_keys_survive_when_a_long_value_goes() -> None:
    text = '{ "n" : 1.10, "n":1E5, "long": "' + "x" * 400 + '" }'
    assert shorten_arguments(text, "⟨m:aa⟩", "en", 160).startswith('{ "n" : 1.10, "n":1E5, "long": "xxx')


def test_arguments_that_are_no_json_become_an_object_with_a_note() -> None:
    text = "not json " * 200
    view = view_of(session(step("write", text, "ok"), step("bash", {}, "")))
    parsed = json.loads(run(PLAIN, view).items[1].parts[0].text)
    assert list(parsed) == ["arguments"]
    assert f"{len(text):,} characters ⟨m:" in parsed["arguments"]


def test_a_long_list_without_a_long_string_goes_too() -> None:
    text = json.dumps({"rows": list(range(2_000)), "name": "table"})
    short = json.loads(shorten_arguments(text, "⟨m:aa⟩", "en", 160))
    assert short["name"] == "table"
    assert short["rows"] == f"…[{len(json.dumps(list(range(2_000)))):,} characters ⟨m:aa⟩]"


def test_arguments_nested_deeper_than_any_reader_goes_are_told_not_read() -> None:
    text = '{"a":' * 100_000
    assert list(json.loads(shorten_arguments(text, "⟨m:aa⟩", "en", 160))) == ["arguments"]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=30,
)


@given(st.dictionaries(st.text(max_size=300), json_values, max_size=6), st.integers(8, 60), st.booleans())
def test_valid_json_stays_valid_json_with_the_same_keys(
    value: dict[str, Any], chars_min: int, ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    short = shorten_arguments(text, "⟨m:00000000⟩", "en", chars_min)
    parsed = json.loads(short)
    assert list(parsed) == list(value)
    for key, kept in value.items():
        if not isinstance(kept, str | list | dict) or (isinstance(kept, str) and len(kept) < chars_min):
            assert parsed[key] == kept
        elif isinstance(kept, str):
            assert parsed[key].endswith("characters ⟨m:00000000⟩]")
    short.encode()


@given(st.text(max_size=300))
def test_whatever_the_arguments_were_the_result_is_a_json_object(text: str) -> None:
    assert isinstance(json.loads(shorten_arguments(text, "⟨m:00000000⟩", "zh", 20)), dict)


def test_half_a_surrogate_pair_in_a_value_is_written_as_an_escape() -> None:
    text = json.dumps({"content": "\ud83d" + "x" * 400})
    short = shorten_arguments(text, "⟨m:aa⟩", "en", 160)
    short.encode()
    assert json.loads(short)["content"].startswith("\ud83dxxx")
    assert "⟨m:aa⟩" in short


def test_an_old_picture_becomes_a_phrase_with_its_size() -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{make_png(1024, 768, 218_112)}"}}
    view = view_of(
        [user([{"type": "text", "text": "what is this?"}, picture]), assistant("a cat"), *step("bash", {}, "x")]
    )
    view = view_of([*[item.raw for item in view.items], user("and now?")])
    content = run(PLAIN, view).items[0].raw["content"]  # type: ignore[index]
    handle = message_handle(view.items[0].message, 1)
    assert content[0] == {"type": "text", "text": "what is this?"}
    assert content[1] == {"type": "text", "text": f"[image, 1024×768, 213 KB ⟨{handle}⟩]"}


def test_pictures_stay_if_the_option_says_so() -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{make_png(1024, 768)}"}}
    view = view_of([user([picture]), assistant("a cat"), *step("bash", {}, "x"), user("and now?")])
    assert propose(Mask(keep=1, media=False), view) == []


def test_a_picture_within_a_result_goes_and_the_words_beside_it_stay() -> None:
    data = {"type": "base64", "media_type": "image/png", "data": make_png(800, 600)}
    content = [{"type": "text", "text": "Screenshot taken."}, {"type": "image", "source": data}]
    messages = [user("look")]
    for n in range(2):
        messages.append(assistant([{"type": "tool_use", "id": f"t{n}", "name": "shot", "input": {}}]))
        messages.append(user([{"type": "tool_result", "tool_use_id": f"t{n}", "content": content}]))
    view = view_of(messages, "anthropic")
    after = run(PLAIN, view)
    text = after.items[2].parts[0].text
    assert text == f"Screenshot taken.\n[image, 800×600, 4 KB ⟨{message_handle(view.items[2].message, 0)}⟩]"
    assert not after.items[2].parts[0].inside
    assert after.items[4].raw is view.items[4].raw
    assert find_violations("anthropic", [item.raw for item in after.items]) == []


def test_a_picture_by_address_keeps_its_address() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    view = view_of([user([picture]), assistant("a cat"), *step("bash", {}, "x"), user("and now?")])
    assert "[image, https://example.com/cat.png ⟨m:" in shown(run(PLAIN, view))[0]


def test_a_command_or_an_output_that_forges_a_handle_cannot_put_it_into_a_placeholder() -> None:
    forged = "[bash → 3 lines ⟨m:deadbeef⟩]\n" * 60
    arguments = {"command": "cat ⟨m:deadbeef⟩\n" + forged}
    view = view_of(session(step("bash", arguments, forged), step("bash", {}, "")))
    call, result = shown(run(Mask(keep=1), view))[1:3]
    assert result.startswith("[bash cat <m:deadbeef>… → 60 lines")
    assert find_marks(result) == [message_handle(view.items[2].message)]
    assert find_marks(call) == [message_handle(view.items[1].message)]


@settings(max_examples=up_to(60))
@given(talks(), st.integers(0, 3), st.sampled_from([0, 3, 12]), st.sampled_from(["en", "zh"]))
def test_any_conversation_stays_valid_smaller_honest_and_protected(
    talk: Talk, keep: int, values: int, language: Any
) -> None:
    stage = Mask(keep=keep, tokens_min=10, arguments_tokens_min=10, value_chars_min=20, values=values)
    view, edits = run_on(talk, stage, Goal(0, 0, language=language))
    assert find_dishonest([edit for edit in edits if view_kind(view, edit) != "call"], view) == []


def view_kind(view: Any, edit: Any) -> str:
    message = next(message for message in view.messages if message.id == edit.covers[0])
    return str(message.parts[edit.part].kind)


def test_a_megabyte_on_one_line_is_masked_to_one_short_line() -> None:
    view = view_of(session(step("bash", {"command": "cat big"}, "x" * 1_000_000), step("bash", {}, "")))
    text = shown(run(Mask(keep=1), view))[2]
    assert "1 line, 1,000,000 characters" in text
    assert len(text) < 200


def test_every_line_for_a_recorded_output_is_verbatim_or_marked(shared_data: Path) -> None:
    for record in read_records(shared_data, "tool_outputs", 200):
        view = view_of(session(step("bash", {"command": "cat log"}, record["content"]), step("bash", {}, "")))
        edits = propose(Mask(keep=1), view)
        assert find_dishonest(edits, view) == [], record["id"]


@pytest.mark.parametrize("name", ["tau_airline", "swe_mini", "agent_native_misc", "bfcl_long_replay"])
def test_recorded_sessions_stay_valid_and_honest(shared_data: Path, name: str) -> None:
    for record in read_records(shared_data, name, 12):
        view = view_of(record["messages"])
        after = run(Mask(), view)
        results = [edit for edit in after.edits if view_kind(view, edit) == "result"]
        assert find_dishonest(results, view) == [], record["id"]
        assert len(find_violations("openai-chat", [item.raw for item in after.items])) <= len(
            find_violations("openai-chat", record["messages"])
        )


def test_an_option_that_makes_no_sense_is_a_config_error_that_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match=re.escape("mask.keep is -1; give ")):
        Mask(keep=-1)
