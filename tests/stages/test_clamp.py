"""clamp: the last resort cuts what is too large even alone."""

from __future__ import annotations

import json
import re
from typing import Any

import refold
from refold.conversation.message import find_marks
from refold.prepared import Originals
from refold.stages.clamp import Clamp
from refold.stages.stage import Goal
from refold.testing import find_violations
from tests.rigs.stages import lines, run, shown, step, user, view_of


def clamp(messages: list[Any], hard: int, stage: Clamp | None = None) -> Any:
    return run(stage or Clamp(), view_of(messages), Goal(target=hard, hard=hard))


def test_one_giant_result_is_cut_to_what_there_is_room_for() -> None:
    output = lines(50_000) + "\nERROR: the disk is full"
    after = clamp([user("why"), *step("run", {"command": "make"}, output)], 1_500)
    assert 1_000 < after.tokens <= 1_500
    text = shown(after)[2]
    assert "ERROR: the disk is full" in text
    assert Originals(after.messages).expand(find_marks(text)[0]) == output


def test_a_cut_fills_its_room_whether_its_lines_are_dense_or_thin() -> None:
    thin, dense = "word " * 60, "4f2a91c3d/" * 30
    output = "\n".join([thin] * 120 + [dense] * 120)
    for hard in (800, 1_500, 3_000):
        assert clamp([user("why"), *step("run", {"command": "make"}, output)], hard).tokens > hard * 0.85


def test_the_characters_left_out_are_counted_exactly() -> None:
    output = "x" * 1_000_000
    text = shown(clamp([user("why"), *step("run", {}, output)], 1_000))[2]
    (left_out,) = (int(number) for number in re.findall(r"\[truncated (\d+) characters\]", text))
    assert left_out + text.count("x") == len(output)


def test_several_large_results_come_down_to_one_size_and_small_ones_stay() -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "run", "arguments": "{}"}} for n in range(3)]
    outputs = [lines(2_000), lines(1_000), "small"]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": text} for n, text in enumerate(outputs)]
    after = clamp([user("go"), {"role": "assistant", "content": None, "tool_calls": calls}, *results], 2_000)
    sizes = [item.tokens for item in after.items[2:]]
    assert abs(sizes[0] - sizes[1]) < 0.2 * sizes[0]
    assert shown(after)[4] == "small"
    assert find_violations("openai-chat", [item.raw for item in after.items]) == []


def test_arguments_of_a_call_stay_a_json_object() -> None:
    after = clamp([user("go"), *step("write", {"text": "word " * 20_000}, "ok")], 1_000)
    arguments = after.items[1].raw["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(arguments), dict)
    assert after.tokens <= 1_000


def test_a_step_that_cannot_be_cut_small_enough_is_folded_whole_and_described_as_room_allows() -> None:
    names = [{"name": "run", "arguments": json.dumps({"command": f"make t{n}"})} for n in range(200)]
    calls = [{"id": f"c{n}", "type": "function", "function": name} for n, name in enumerate(names)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": lines(3, f"job_{n}x{n}")} for n in range(200)]
    messages = [user("go"), {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    after = clamp(messages, 1_500)
    assert [item.is_fold for item in after.items] == [False, True]
    assert "201 earlier messages" in shown(after)[1]
    assert "job_199x199" in shown(after)[1]
    assert 600 < after.tokens <= 1_500
    assert clamp(messages, 100).tokens <= 100


def test_the_newest_user_message_is_cut_only_if_that_is_allowed() -> None:
    messages = [user(lines(5_000))]
    assert clamp(messages, 500).items[0].raw is messages[0]
    assert clamp(messages, 500, Clamp(newest_user=True)).tokens <= 500


def test_a_picture_that_does_not_fit_becomes_a_line_with_its_handle() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    messages = [
        {"role": "user", "content": [picture, *[picture] * 3]},
        {"role": "assistant", "content": "seen"},
        user("and?"),
    ]
    after = clamp(messages, 120)
    assert after.tokens <= 120
    assert len(find_marks("".join(shown(after)))) >= 1


def test_a_result_that_is_cut_for_lack_of_room_says_how_to_read_the_rest() -> None:
    lines = "\n".join(f"{number}: a line of the log" for number in range(2_000))
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Read the log."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": lines},
    ]
    prepared = refold.compress(messages, budget=2_000)
    text = prepared.messages[-1]["content"]
    assert re.search(r"characters\] \.\.\. ⟨m:[0-9a-f.]+⟩ \(no room for all of it at once: read the rest", text)
    assert text.count("no room for all of it") == 1
