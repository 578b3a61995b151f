"""truncate: head, tail and telling lines of an oversized output, verbatim, with exact counts in between."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.message import Message, Part, message_handle
from refold.errors import ConfigError
from refold.reading.outputs import looks_like_log
from refold.stages.densify import Densify
from refold.stages.gist import count_lines
from refold.stages.truncate import Truncate
from tests.rigs.stages import lines, propose, run, step, user, view_of

HANDLE = "m:4f2a91c3"
MARKER = re.compile(rf"\.\.\. \[(?:truncated (\d+) characters|截断 (\d+) 字符)\] \.\.\. ⟨{HANDLE}⟩")
SMALL = Truncate(lines_max=20, bytes_max=1_000)


def split_pieces(shown: str) -> tuple[list[str], list[int]]:
    """The kept pieces and the counts between them."""
    pieces: list[list[str]] = [[]]
    counts: list[int] = []
    for line in shown.split("\n"):
        match = MARKER.fullmatch(line)
        if match:
            counts.append(int(match[1] or match[2]))
            pieces.append([])
        else:
            pieces[-1].append(line)
    return ["\n".join(piece) for piece in pieces], counts


def check_honest(source: str, shown: str) -> None:
    """Every piece occurs in the source, in order, and pieces and counts add up to the whole."""
    pieces, counts = split_pieces(shown)
    at = 0
    for piece, gap in zip(pieces, [*counts, 0], strict=True):
        assert source.startswith(piece, at)
        at += len(piece) + gap
    assert at == len(source)
    assert all(count > 0 for count in counts)


def message(text: str, name: str = "") -> Message:
    part = Part("result", text, name=name, call_id="call_1")
    return Message({"role": "tool"}, "tool", (part,), "4f2a91c3" + "0" * 24, "id-1")


AWKWARD = st.sampled_from(
    ["\n", "\n\n", "a", "word ", "错误", "🙂", "\ud800", "\x00", "\u2028", "\r", "x" * 300, "é" * 90]
)
LINES = st.sampled_from(
    [
        "ok 12 passed",
        "ERROR: disk full",
        "2024-05-01 12:00:00 INFO step 7",
        "",
        "  return 1",
        "E   AssertionError: 1 != 2",
    ]
)
TEXTS = st.one_of(
    st.lists(AWKWARD, max_size=120).map("".join),
    st.lists(LINES, max_size=120).map("\n".join),
    st.text(max_size=3_000),
)
OPTIONS = st.builds(
    Truncate,
    lines_max=st.integers(10, 60),
    bytes_max=st.integers(500, 3_000),
    chars_max=st.one_of(st.none(), st.integers(200, 2_000)),
    landmarks_max=st.integers(0, 20),
)


def test_an_output_within_its_limits_is_left_alone():
    assert Truncate().arrive(message("short\n" * 2_000)) == []
    assert Truncate().arrive(message("x" * 51_200)) == []


def test_an_output_over_its_limit_keeps_head_and_tail_and_says_exactly_what_is_missing():
    source = "\n".join(f"item {number}" for number in range(5_000))
    (edit,) = Truncate().arrive(message(source))
    check_honest(source, edit.text)
    assert edit.text.startswith("item 0\nitem 1\n")
    assert edit.text.endswith("item 4998\nitem 4999")
    assert count_lines(edit.text) <= 2_000


def test_the_marker_names_the_message_it_comes_from():
    source = message("x" * 60_000)
    (edit,) = Truncate().arrive(source)
    assert f"⟨{message_handle(source)}⟩" in edit.text


def test_a_limit_of_3000_characters_makes_the_shape_that_was_asked_for():
    source = "\n".join(f"row {number:05}" for number in range(1_000))
    shown = Truncate(chars_max=3_000).cut(source, HANDLE)
    assert re.fullmatch(
        r"(?s)row 00000\n.*\n\.\.\. \[truncated \d+ characters\] \.\.\. ⟨m:4f2a91c3⟩\nrow \d{5}\n.*", shown
    )
    assert len(shown) <= 3_000


def test_chinese_text_gets_a_chinese_marker():
    shown = Truncate(chars_max=3_000).cut("今天的天气很好。\n" * 1_000, HANDLE)
    assert re.search(r"\.\.\. \[截断 \d+ 字符\] \.\.\. ⟨m:4f2a91c3⟩", shown)
    assert "truncated" in Truncate(chars_max=3_000, language="en").cut("今天的天气很好。\n" * 1_000, HANDLE)


def test_one_line_of_a_megabyte_is_cut_inside_the_line():
    source = "".join(chr(97 + number % 26) for number in range(1_000_000))
    shown = Truncate().cut(source, HANDLE)
    check_honest(source, shown)
    assert 45_000 < len(shown) <= 51_200


def test_a_cut_falls_between_lines_where_it_can():
    source = "\n".join(f"line {number} with some words" for number in range(4_000))
    whole = set(source.split("\n"))
    assert all(line in whole or MARKER.fullmatch(line) for line in Truncate().cut(source, HANDLE).split("\n"))


def test_errors_in_the_middle_are_kept_verbatim():
    noise = [f"2024-05-01 12:00:{number % 60:02} INFO request {number} served" for number in range(6_000)]
    noise[2_500] = "2024-05-01 12:00:07 ERROR payment 8812 failed: card declined"
    noise[2_600] = "Traceback (most recent call last):"
    noise[2_601] = "KeyError: 'amount'"
    shown = Truncate().cut("\n".join(noise), HANDLE)
    for number in (2_500, 2_600, 2_601):
        assert noise[number] in shown.split("\n")
    check_honest("\n".join(noise), shown)


@pytest.mark.parametrize(
    "line",
    [
        "FAILED tests/test_pay.py::test_total - assert 1 == 2",
        "======= 3 failed, 40 passed in 2.10s =======",
        "--- FAIL: TestTotal (0.00s)",
        "error[E0308]: mismatched types",
        "src/main.c:10:5: error: expected ';'",
        "make: *** [all] Error 2",
        "npm ERR! code ELIFECYCLE",
        "Tests run: 12, Failures: 1, Errors: 0",
        "thread 'main' panicked at src/main.rs:4",
        "java.lang.NullPointerException: no name",
        "not ok 3 - adds up",
        "  ✕ adds up (3 ms)",
        "Process exited with code 137",
        "退出码 1",
        "数据库连接失败: 超时",
        "diff --git a/one.py b/one.py",
    ],
)
def test_what_failed_is_kept_whatever_tool_said_it(line):
    noise = [f"[12:00:{number % 60:02}] step {number} is done" for number in range(6_000)]
    noise[1_500] = line
    assert line in Truncate().cut("\n".join(noise), HANDLE).split("\n")


def test_one_complaint_said_a_thousand_times_takes_one_line():
    noise = [f"12:00:00 step {number}" if number % 5 else "ERROR: no space left" for number in range(9_000)]
    pieces, _ = split_pieces(Truncate().cut("\n".join(noise), HANDLE))
    assert "\n".join(pieces[1:-1]).count("ERROR: no space left") <= 1


def test_output_of_commands_keeps_more_of_its_end_than_of_its_begin():
    log = "\n".join(f"2024-05-01 12:00:00 INFO row {number}" for number in range(9_000))
    pieces, _ = split_pieces(Truncate().cut(log, HANDLE))
    assert 3 < len(pieces[-1]) / len(pieces[0]) < 5
    prose = "\n".join(f"A sentence about number {number} and nothing else." for number in range(9_000))
    pieces, _ = split_pieces(Truncate().cut(prose, HANDLE))
    assert 0.8 < len(pieces[-1]) / len(pieces[0]) < 1.25
    pieces, _ = split_pieces(Truncate().cut(prose, HANDLE, tool="bash"))
    assert 3 < len(pieces[-1]) / len(pieces[0]) < 5


def test_source_code_is_not_taken_for_a_log():
    code = (
        "import os\n" + "def read(path):\n    if not path:\n        raise ValueError('error')\n    return 1\n\n" * 200
    )
    assert not looks_like_log(code)


def test_only_results_are_cut_unless_texts_are_asked_for():
    part = Part("text", "x" * 60_000)
    said = Message({"role": "user"}, "user", (part,), "4f2a91c3" + "0" * 24, "id-1")
    assert Truncate().arrive(said) == []
    assert len(Truncate(texts=True).arrive(said)) == 1


def test_a_sealed_message_and_a_result_with_an_image_are_left_alone():
    sealed = Message({}, "tool", (Part("result", "x" * 60_000),), "4f2a91c3" + "0" * 24, "id-1", is_sealed=True)
    pictured = Part("result", "x" * 60_000, inside=(Part("media"),))
    assert Truncate().arrive(sealed) == []
    assert Truncate().arrive(Message({}, "tool", (pictured,), "4f2a91c3" + "0" * 24, "id-1")) == []


@pytest.mark.parametrize("wrong", [{"lines_max": 3}, {"bytes_max": 10}, {"chars_max": 0}, {"language": "fr"}])
def test_a_limit_that_leaves_no_room_for_a_marker_is_refused(wrong):
    with pytest.raises(ConfigError, match="truncate"):
        Truncate(**wrong)


def test_in_a_view_old_outputs_are_cut_and_the_newest_step_is_not():
    big = lines(3_000)
    view = view_of([user("look"), *step("bash", {"command": "a"}, big), *step("bash", {"command": "b"}, big)])
    after = run(Truncate(), view)
    cut = [at for at, (old, new) in enumerate(zip(view.items, after.items, strict=True)) if old is not new]
    assert cut == [2]
    assert "... [truncated " in after.items[2].parts[0].text
    assert after.tokens < view.tokens
    assert propose(Truncate(), after) == []


def test_what_another_stage_made_smaller_is_cut_as_it_is_seen():
    rows = json.dumps([{"id": at, "city": "Berlin", "note": f"row number {at} of the export"} for at in range(3_000)])
    view = view_of([user("look"), *step("query", {}, rows), *step("bash", {}, "ok")])
    dense = run(Densify(), view)
    shown = run(Truncate(), dense).items[2].parts[0].text
    assert shown.startswith("⟨m:")
    assert '{"columns":["id","city","note"],"rows":[' in shown
    assert "... [truncated " in shown
    assert len(shown.encode()) <= 51_200


@given(TEXTS, OPTIONS)
def test_every_line_is_verbatim_or_a_marker_and_the_counts_add_up(source, stage):
    shown = stage.cut(source, HANDLE)
    check_honest(source, shown)


@given(TEXTS, OPTIONS)
def test_what_comes_out_is_within_all_limits_so_cutting_again_changes_nothing(source, stage):
    shown = stage.cut(source, HANDLE)
    assert len(shown.encode("utf-8", "surrogatepass")) <= stage.bytes_max
    assert count_lines(shown) <= stage.lines_max
    assert stage.chars_max is None or len(shown) <= stage.chars_max
    assert stage.cut(shown, HANDLE) == shown
    assert stage.cut(source, HANDLE) == shown


def test_every_recorded_output_is_cut_honestly_and_keeps_what_must_be_kept(shared_data: Path):
    kept = wanted = 0
    with gzip.open(shared_data / "tool_outputs.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    for stage in (Truncate(), Truncate(bytes_max=10_240)):
        for record in records:
            shown = stage.cut(record["content"], HANDLE)
            check_honest(record["content"], shown)
            must_keep = record.get("must_keep") or []
            wanted += len(must_keep)
            kept += sum(line in shown for line in must_keep)
    assert kept >= 0.98 * wanted


def test_no_gap_is_shorter_than_its_marker() -> None:
    lines = [f"ok {n}" if n % 9 else f"ERROR {n}: connection refused by db-{n % 7}" for n in range(400)]
    text = "\n".join(lines)
    for chars in range(600, 3_600, 100):
        cut = Truncate(chars_max=chars).cut(text, "m:6689de09", "bash")
        marks = re.findall(r"\.\.\. \[truncated (\d+) characters\] \.\.\. ⟨m:6689de09⟩", cut)
        assert marks
        assert len(cut) <= chars
        assert all(int(gone) > len("... [truncated 10 characters] ... ⟨m:6689de09⟩") for gone in marks), cut
