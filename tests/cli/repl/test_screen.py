"""The chat's output, as functions of numbers and texts."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from refold.budget import Budget, Counts, Thresholds
from refold.budget.decision import DecisionPolicy, look_ahead
from refold.cli.repl.keyboard import Pastes
from refold.cli.repl.screen import Screen, shorten_tokens, split_blocks, write_gauge
from refold.cli.repl.session import describe_call, show_text
from refold.cli.words import strip_controls
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.llm.port import ToolCall
from refold.manager.status import SessionStatus


def make_status(tokens: int, hard: int = 128_000, soft: int = 96_000, stopped: Reason = NO_REASON) -> SessionStatus:
    return SessionStatus(
        session_id="s",
        wire="openai-chat",
        model="gpt-4o",
        counter="o200k_base",
        messages=1,
        messages_in_view=1,
        turns=1,
        tokens=tokens,
        tokens_original=tokens,
        window=hard,
        hard=hard,
        soft=soft,
        share=tokens / hard,
        compression_count=0,
        edits=0,
        pinned=0,
        stopped=stopped,
        ahead=look_ahead(Counts(tokens), Budget(hard, soft, soft, soft // 2, hard), DecisionPolicy()),
    )


@pytest.mark.parametrize(
    ("tokens", "gauge"),
    [
        (78_080, "▰▰▰▰▱ 81% · 78k/96k tokens · compresses at 96,000 tokens; 17,920 tokens to go"),
        (0, "▱▱▱▱▱ 0% · 0/96k tokens · compresses at 96,000 tokens; 96,000 tokens to go"),
        (95_999, "▰▰▰▰▰ 99% · 96k/96k tokens · compresses at 96,000 tokens; 1 token to go"),
        (128_000, "▰▰▰▰▰ 100% · 128k/96k tokens · compresses at 96,000 tokens; the next request compresses"),
    ],
)
def test_the_gauge_is_one_line(tokens: int, gauge: str) -> None:
    assert write_gauge(make_status(tokens)) == gauge


def test_the_gauge_says_when_nothing_is_automatic() -> None:
    stopped = write_gauge(make_status(64_000, stopped=because.AUTO_OFF()))
    assert stopped == "▰▰▱▱▱ 50% · 64k/128k tokens · automatic compression is off"


def test_s3_9_the_gauge_shows_messages_where_their_number_acts_next() -> None:
    ahead = look_ahead(
        Counts(1_000, 60, 30),
        Budget(100_000, 90_000, 80_000, 45_000, 128_000),
        DecisionPolicy(Thresholds(rounds=100, tokens=4_000, kept=50)),
    )
    gauge = write_gauge(replace(make_status(1_000), ahead=ahead))
    assert gauge == "▰▰▰▱▱ 60% · 60/100 messages · compresses at 100 messages or 4,000 tokens; 40 messages to go"


@pytest.mark.parametrize(
    ("tokens", "told"), [(0, "0"), (999, "999"), (1_000, "1.0k"), (9_949, "9.9k"), (9_960, "10k"), (1_048_576, "1.05M")]
)
def test_tokens_in_a_few_letters(tokens: int, told: str) -> None:
    assert shorten_tokens(tokens) == told


def test_a_block_is_finished_at_a_blank_line_that_is_not_in_a_fence() -> None:
    assert split_blocks("one\ntwo") == ("", "one\ntwo")
    assert split_blocks("one\n\ntwo") == ("one\n\n", "two")
    assert split_blocks("one\n\n```\na\n\nb") == ("one\n\n", "```\na\n\nb")
    assert split_blocks("```\na\n\nb\n```\n\nc") == ("```\na\n\nb\n```\n\n", "c")


def test_no_control_character_survives() -> None:
    assert strip_controls("a\x1b[2Jb\x07\tc\r\nd\u202ee\ud800") == "ab\tc\nde"


def test_small_pastes_stay_and_large_ones_are_put_back_when_sent() -> None:
    pastes = Pastes()
    assert pastes.keep("short") == "short"
    mark = pastes.keep("x" * 5_000)
    assert mark == "[pasted #1: 5,000 characters]"
    assert pastes.put_back(f"see {mark}!") == f"see {'x' * 5_000}!"
    assert pastes.put_back("[pasted #9: 1 characters]") == "[pasted #9: 1 characters]"


def test_a_question_before_a_tool_runs_shows_all_that_it_wants() -> None:
    short = ToolCall("1", "run_command", '{"command": "ls"}')
    assert describe_call(short) == ""  # The line before it told all of it.
    long = ToolCall("1", "run_command", json.dumps({"command": "echo " + "a" * 500 + "; rm -rf /", "timeout_s": 5}))
    assert (
        describe_call(long) == f"run_command wants to run with\n  command: echo {'a' * 500}; rm -rf /\n  timeout_s: 5"
    )
    lines = ToolCall("1", "write_file", json.dumps({"path": "x", "content": "one\ntwo"}))
    assert describe_call(lines).split("\n")[2:] == ["  content:", "    one", "    two"]
    hidden = ToolCall("1", "run_command", json.dumps({"command": "ls \x1b[8m; rm x\u202e"}))
    assert "ls \\x1b[8m; rm x\\u202e" in describe_call(hidden)
    giant = show_text("x" * 10_000 + "; rm x")
    assert giant.endswith("; rm x")
    assert "… 6,006 characters are not shown here …" in giant


def test_a_gauge_wider_than_the_terminal_goes_on_in_the_next_line() -> None:
    screen = Screen(Console(width=40), Console(width=40), is_live=True)
    gauge = write_gauge(make_status(128_000))
    lines = screen.wrap(gauge).splitlines()
    assert lines[0] == "", "it stands apart from what was said"
    assert max(map(len, lines)) <= 40
    assert " ".join(lines[1:]) == gauge
    assert screen.wrap("") == ""
