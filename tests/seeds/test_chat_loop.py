"""The documents' ``chat()`` loop, typed literally: a history is replaced by its compressed form, turn after turn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.conversation.message import find_marks
from tests.rigs.growing import grow, say, work

PRESETS = ("archive", "importance", "offload", "hybrid", "turns", "default")
ORDER = {
    "en": "Remember: the port must always be 8123, never forget this.",
    "zh": "记住：端口必须一直是 8123，这条千万别忘。",
}


def count_records(messages: list[Any]) -> int:
    return sum("⟨f:" in str(message.get("content")) for message in messages)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("preset", PRESETS)
def test_s1_7_a_history_that_is_replaced_every_turn_keeps_one_record(preset: str, language: str) -> None:
    config = refold.CompressionConfig(preset=preset, window=6_000, reserve=500)
    history: list[dict[str, Any]] = []
    compressed = 0
    for at in range(0, 200, 2):
        prompt = ORDER[language] if at == 4 else say(at, "mixed", language)["content"]
        history.append({"role": "user", "content": prompt})
        before = len(history)
        history = refold.compress(history, config=config).messages
        compressed += len(history) < before
        assert count_records(history) <= 1
        assert history[-1]["content"] == prompt
        assert at < 6 or "8123" in json.dumps(history), f"the order is gone after {at} messages"
        history.append(say(at + 1, "mixed", language))
    assert compressed >= 2
    assert count_records(history) == 1
    assert len(history) < 110


@pytest.mark.parametrize("preset", PRESETS)
def test_s1_7_so_does_an_agent_s_history_with_one_record_before_its_task_and_one_after(preset: str) -> None:
    config = refold.CompressionConfig(preset=preset, window=8_000, reserve=500)
    history: list[dict[str, Any]] = []
    known = compressed = 0
    for whole in work(turns=2, steps=30):
        history += whole[known:]
        known, before = len(whole), len(history)
        shorter = refold.compress(history, config=config).messages
        if len(shorter) < len(history):  # As the document writes it back.
            history.clear()
            history.extend(shorter)
        compressed += len(history) < before
        assert count_records(history) <= 2
        # The values and steps of a record that came back are not what the assistant said.
        records = [str(one["content"]) for one in history if "⟨f:" in str(one.get("content"))]
        assert not re.findall(r"^A> (?:.*\(m:[0-9a-f]+\)|\$ |looked at: )", "\n".join(records), re.M)
        newest = next(one["content"] for one in reversed(whole) if one["role"] == "user")
        assert newest in [one.get("content") for one in history]
    assert 3 <= compressed <= 20


def test_s1_7_a_record_that_was_stored_as_json_in_between_is_still_one(tmp_path: Path) -> None:
    place = tmp_path / "history.json"
    place.write_text("[]")
    for at in range(0, 120, 2):
        history = [*json.loads(place.read_text()), say(at, "mixed", "en")]
        history = refold.compress(history, preset="importance").messages
        place.write_text(json.dumps([*history, say(at + 1, "mixed", "en")]))
    assert count_records(json.loads(place.read_text())) == 1


def test_s1_7_the_record_counts_every_message_that_it_stands_for() -> None:
    history: list[dict[str, Any]] = []
    for at in range(0, 160, 2):
        history = refold.compress([*history, say(at, "mixed", "en")], preset="importance").messages
        history.append(say(at + 1, "mixed", "en"))
    record, *rest = history
    assert f"record of {160 - len(rest)} earlier messages" in record["content"]


def test_s1_7_messages_between_two_compressions_are_the_caller_s_own_objects() -> None:
    *_, history = grow("mixed", "en", 41)
    first = refold.compress(history, preset="importance")
    again = refold.compress([*first.messages, say(41, "mixed", "en")], preset="importance")
    assert again.report is not None
    assert again.report.stages == ()
    assert again.messages[:-1] == first.messages
    assert all(one is other for one, other in zip(again.messages[1:], first.messages[1:], strict=False))
    assert [source.positions for source in again.sources] == [(at,) for at in range(len(again.messages))]


@pytest.mark.parametrize(
    "text",
    [
        "⟦record of 12 earlier messages⟧ I wrote this myself",
        "[Context Summary] is the heading I want in my report",
        "The handle ⟨f:514306eb⟩ leads to it",
        "[历史对话摘要] 是什么意思？",
    ],
)
def test_s1_7_what_only_looks_like_a_record_is_a_message(text: str) -> None:
    history = [{"role": "user", "content": text}, *[say(at, "short", "en") for at in range(1, 5)]]
    assert refold.compress(history, preset="importance").messages == history
    assert find_marks(text) == (["f:514306eb"] if "514306eb" in text else [])


def test_s3_1_the_truncation_says_how_many_messages_it_leaves_out_and_marks_every_cut(tmp_path: Path) -> None:
    config = refold.CompressionConfig(preset="hybrid", window=6_000, reserve=500, background=False)
    checked = 0
    with refold.ContextCompressionManager(config, tmp_path) as manager:
        for history in grow("mixed", "en", 200):
            prepared = manager.prepare_context_sync("s", history)
            record = str(prepared.messages[0]["content"])  # type: ignore[index]
            if not record.startswith("[Context Summary]\n\n[Truncated Summary]\n"):
                continue
            checked += 1
            *lines, handle = record.splitlines()[3:]
            assert handle.startswith("⟨f:")
            told = [line for line in lines if line.startswith(("[user]: ", "[assistant]: "))]
            hidden = len(history) - (len(prepared.messages) - 1)
            note = [line for line in lines if "left out" in line]
            assert note == ([f"[{hidden - len(told)} of the messages are left out here]"] if hidden > len(told) else [])
            assert lines == note + told
            whole = {f"[{one['role']}]: {one['content']}" for one in history}
            assert all(line in whole or line.endswith("...") for line in told)
    assert checked > 10
