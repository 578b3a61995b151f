"""Passages join to the text they came from, and none is too large."""

import gzip
import json
import re
from bisect import bisect_right
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import CompressionConfig, ContextCompressionManager
from refold.recall.originals import (
    PASSAGE_WEIGHT_MAX,
    find_starts,
    has_number,
    is_inside_word,
    is_question,
    split_passages,
    write_out,
)
from refold.recall.search import Recalled, fit_texts
from refold.recall.words import query_words
from refold.tokens import counter_for

SAMPLES = {
    "english": "The harbour is deep. It holds forty ships, and more in winter! Who pays for that? " * 60,
    "chinese": "港口很深，能停四十条船。冬天更多！谁来付钱？" * 120,
    "code": "def load(row):\n    return table[row.key]  # slow, see worker.py\n" * 60,
    "json": json.dumps([{"name": f"berth_{at}", "depth_m": at * 3, "is_free": at % 2 == 0} for at in range(120)]),
    "minified": "a=1;b=function(c){return c+1};" * 200,
}
_BEGINS = re.compile(r"(?:\A|\n\s*|[.!?;][\"'”’)]?\s+|[。！？；][”’」』）\"]?\s*)\Z")


def begins_well(text: str, start: int) -> bool:
    """Return whether a line or a sentence begins at a place."""
    return _BEGINS.search(text[max(0, start - 40) : start]) is not None


@pytest.mark.parametrize("name", SAMPLES)
def test_no_passage_begins_inside_a_word_and_prose_begins_at_a_line_or_sentence(name: str) -> None:
    text = SAMPLES[name]
    passages = list(split_passages(text))
    assert len(passages) > 2
    assert not any(is_inside_word(text, one.start) for one in passages)
    if name in ("english", "chinese", "code"):
        assert all(begins_well(text, one.start) for one in passages)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("tokens_max", [40, 90, 160])
def test_a_passage_that_is_shortened_begins_and_ends_between_words(name: str, tokens_max: int) -> None:
    text = SAMPLES[name]
    count = counter_for(None).count_text
    for asked in ("who pays", "forty ships", "谁来付钱", "berth_77", "return", "nothing of this"):
        for passage in list(split_passages(text))[:3]:
            piece = text[passage.start : passage.stop]
            whole = Recalled(piece, "m:00000000", "user", 1.0, start=passage.start, stop=passage.stop)
            (one,) = fit_texts([whole], tokens_max, count, list(query_words(asked)))
            assert one.text == text[one.start : one.stop]
            assert not is_inside_word(text, one.start)
            assert not is_inside_word(text, one.stop)
            if name in ("english", "chinese", "code"):
                assert begins_well(text, one.start)


@pytest.mark.parametrize("name", ["locomo", "swe_mini", "bfcl_long_replay", "zh_long_concat", "agent_native_misc"])
def test_passages_of_recorded_sessions_begin_between_words(name: str, shared_data: Path) -> None:
    count = counter_for(None).count_text
    with gzip.open(shared_data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        messages = [one for _, line in zip(range(4), lines, strict=False) for one in json.loads(line)["messages"]]
    texts = sorted({str(one["content"]) for one in messages if one.get("content")}, key=len)[-20:]
    for text in texts:
        for passage in list(split_passages(text[:20_000]))[:8]:
            part = text[passage.start : passage.stop]
            longest = max(map(len, re.findall(r"\w+", part)), default=0)
            assert longest > PASSAGE_WEIGHT_MAX or not is_inside_word(text, passage.start)
            words = list(query_words(part[len(part) // 2 :][:80]))
            for one in fit_texts([Recalled(part, "m:00000000", "user", 1.0)], 60, count, words):
                assert longest > 100 or not is_inside_word(part, one.start)
                assert longest > 100 or not is_inside_word(part, one.stop)


ASKED = {
    "locomo": "qa",
    "zh_long_concat": "qa",
    "bfcl_memory": "qa",
    "swe_mini": "probes",
    "agent_native_misc": "probes",
}


def find_sentence(text: str, at: int) -> tuple[int, int]:
    """Return the line or sentence that a place is in."""
    starts = find_starts(text)
    number = bisect_right(starts, at)
    return starts[number - 1], starts[number] if number < len(starts) else len(text)


@pytest.mark.parametrize("name", ASKED)
def test_what_is_recalled_from_recorded_sessions_begins_at_a_line_or_sentence(
    name: str, shared_data: Path, tmp_path: Path
) -> None:
    """Only a part of a line that is longer than what is shown begins inside it, and then between two words."""
    with gzip.open(shared_data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        session = json.loads(next(iter(lines)))
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    fields = ("role", "content", "tool_calls", "tool_call_id")
    manager.append("s", [{key: one[key] for key in fields if key in one} for one in session["messages"]])
    asked = [one.get("question") or one["value"] for one in session[ASKED[name]]][:15]
    shown = 0
    for question, tokens_max in product(asked, (None, 300)):
        for one in manager.recall("s", question, tokens_max=tokens_max):
            text = manager.expand("s", one.handle)
            # Recall writes out what JSON escapes in the arguments of calls.
            text = text if one.text in text else write_out(text)
            begins = (found.start() for found in re.finditer(f"(?={re.escape(one.text[:40])})", text))
            places = [at for at in begins if one.text in text[at:]]
            start, stop = find_sentence(text, places[0])
            is_part = stop - start > len(one.text) and not is_inside_word(text, places[0])
            assert is_part or any(begins_well(text, at) for at in places), text[max(0, places[0] - 40) :][:80]
            shown += 1
    manager.close()
    assert shown > 50


def test_starts_are_those_of_lines_and_sentences() -> None:
    assert find_starts("One. Two!\nThree 3.5 and e\u00e9") == [0, 5, 10]
    assert find_starts("一。二！三") == [0, 2, 4]
    assert find_starts("") == [0]


@given(st.text(alphabet="ab \n.。端口", max_size=4_000), st.integers(20, 900))
def test_passages_join_to_the_whole_without_gap_or_overlap(text: str, weight_max: int) -> None:
    passages = list(split_passages(text, weight_max))
    assert "".join(text[one.start : one.stop] for one in passages) == text
    assert all(0 < one.stop - one.start <= 2 * weight_max for one in passages)


def test_a_short_text_is_one_passage_and_a_long_one_ends_at_lines() -> None:
    assert len(list(split_passages("short"))) == 1
    text = "".join(f"line {number} of the log\n" for number in range(400))
    assert all(text[one.start : one.stop].endswith("\n") for one in split_passages(text))


def test_chinese_passages_are_shorter_because_each_character_weighs_more() -> None:
    passages = list(split_passages("端口是九千零九十。" * 200))
    assert max(one.stop - one.start for one in passages) <= PASSAGE_WEIGHT_MAX // 3 + 1


def test_questions_and_numbers_are_told_apart() -> None:
    assert is_question("Which port did we choose?")
    assert is_question("端口是多少吗")
    assert not is_question("The port is 9090.")
    assert has_number("port 9090")
    assert has_number("三点二十分见")
    assert not has_number("no figures here")
