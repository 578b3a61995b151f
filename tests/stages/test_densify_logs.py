"""densify on logs: beginnings and repeats written once, back byte for byte, and only if it is a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.stages.densify import densify_text, expand_text
from refold.stages.densify.logs import read_log, write_log

HANDLE = "m:4f2a91c3"


def test_the_common_beginning_of_lines_is_written_once():
    source = "\n".join(f"[2024-05-01 12:00:00] [INFO] worker: task {at} is done" for at in range(50))
    made = densify_text(source, HANDLE)
    assert made is not None
    assert made.count("[2024-05-01 12:00:00] [INFO]") == 1
    assert "\ntask 7 is done\n" in made
    assert expand_text(made) == source


def test_hits_of_a_search_are_listed_under_their_path():
    source = "\n".join(f"src/refold/stages/fold_{at // 10}.py:{at}: match {at}" for at in range(60))
    made = densify_text(source, HANDLE)
    assert made is not None
    assert "\n»src/refold/stages/fold_3.py:\n30: match 30\n" in made
    assert expand_text(made) == source


def test_a_line_said_many_times_is_said_once_with_how_often():
    source = "12:00:01 start\n" + "12:00:02 retrying the connection to the database\n" * 40 + "12:00:03 done\n"
    made = densify_text(source, HANDLE)
    assert made is not None
    assert "»×40" in made
    assert expand_text(made) == source


def test_a_long_line_that_comes_again_and_again_is_named():
    source = "\n".join(
        f"12:00:{at:02} step {at}\nsee the manual at https://docs.example.com/errors/E1" for at in range(40)
    )
    made = densify_text(source, HANDLE)
    assert made is not None
    assert made.count("see the manual") == 1
    assert expand_text(made) == source


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return x\n\n\n" * 50,
        "import os\nfrom a import b\n" + "    self.assertEqual(expected, actual_value_of_it)\n    return 1\n" * 60,
        "<li class='item item-large'>text</li>\n" * 60 + "<p>",
        "A sentence. " * 100,
        "\n" * 400,
        "time,level,text\n" + "\n".join(f"2024-05-01 12:00:00,INFO,row {at}" for at in range(100)),
        "» a sign of ours\n" + "12:00:00 the same line of a log\n" * 40,
        "⟨m:4f2a91c3⟩ text\n" + "12:00:00 the same line of a log\n" * 40,
    ],
)
def test_code_markup_prose_and_text_with_our_signs_are_left_alone(source):
    assert densify_text(source, HANDLE) is None


LINES = st.sampled_from(
    [
        "[12:00:00] [INFO] a: one",
        "[12:00:00] [INFO] a: two",
        "[12:00:00] [INFO] a: ",
        "[12:00:00] [INFO] a: »x",
        "[12:00:00] [INFO] a: »×3",
        "src/very/long/path.py:12: hit",
        "src/very/long/path.py:13: hit",
        "2024-05-01 12:00:00 INFO the same long line of a log again",
        "",
        " ",
        "\r",
        "=1",
        "1",
        "\ud800",
    ]
)


@given(st.lists(LINES, min_size=8, max_size=60).map("\n".join))
def test_any_log_comes_back_byte_for_byte(source):
    lines = write_log(source)
    if lines is not None:
        assert read_log(lines) == source


@given(st.text(alphabet="»×=1\n a:[]", min_size=8, max_size=400))
def test_no_text_is_mistaken_for_a_sign(source):
    lines = write_log(source)
    if lines is not None:
        assert read_log(lines) == source
    made = densify_text(source, HANDLE, chars_min=1, saving_min=0.0)
    assert made is None or expand_text(made) == source
