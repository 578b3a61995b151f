"""``refold replay`` as people run it: a table, JSON, a page that opens from disk, and files with flaws."""

import json
import re

import pytest

from tests.rigs.cli import Shell
from tests.rigs.histories import agent_messages, claude_rows, codex_rows, write_rows


@pytest.fixture
def logs(shell: Shell) -> Shell:
    write_rows(shell.folder / "claude.jsonl", claude_rows())
    write_rows(shell.folder / "rollout-1.jsonl", codex_rows())
    write_rows(shell.folder / "agent.jsonl", [{"id": "agent", "messages": agent_messages(30)}])
    return shell


def test_every_kind_of_file_is_replayed_and_what_is_broken_is_named(logs: Shell) -> None:
    ran = logs.refold("replay", "claude.jsonl", "rollout-1.jsonl", "agent.jsonl", "none.jsonl", "--window", "2500")
    assert ran.code == 0, ran.err
    assert ran.text.splitlines()[0].split()[:2] == ["preset", "fits"]
    assert [line.split()[0] for line in ran.text.splitlines()[1:3]] == ["raw", "default"]
    assert "claude.jsonl, line 6: not JSON" in ran.err
    assert "rollout-1.jsonl, line 12: a function_call without call_id" in ran.err
    assert "none.jsonl" in ran.err


def test_json_output_is_complete_and_two_runs_agree(logs: Shell) -> None:
    runs = [
        logs.refold(
            "replay", "agent.jsonl", "--window", "2.5k", "--presets", "raw,default,last-n", "--json", "-j", jobs
        )
        for jobs in ("1", "2")
    ]
    told = [json.loads(ran.text) for ran in runs]
    for one in told:
        assert set(one.pop("times")) == {"raw", "default", "last-n"}
    assert told[0] == told[1]
    default = told[0]["presets"][1]
    assert (default["preset"], default["fit_percent"], default["valid_percent"]) == ("default", 100.0, 100.0)
    assert default["bill_to_raw"] < 1
    decisions = next(one for one in told[0]["per_session"] if one["preset"] == "default")["decisions"]
    assert all(one["reason"]["text"] for one in decisions)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("replay",), 2, "FILE"),
        (("replay", "none.jsonl"), 4, "no session"),
        (("replay", "agent.jsonl", "--presets", "nope"), 3, "nope"),
        (("replay", "agent.jsonl", "--presets", ","), 4, "--presets"),
        (("replay", "agent.jsonl", "--window", "0"), 2, "window"),
        (("replay", "agent.jsonl", "--report", "agent.jsonl"), 9, "agent.jsonl"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(logs: Shell, args: tuple[str, ...], code: int, says: str) -> None:
    ran = logs.refold(*args)
    assert ran.code == code, ran.err
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_a_folder_stands_for_the_sessions_in_it_and_below(logs: Shell) -> None:
    (logs.folder / "logs/deep").mkdir(parents=True)
    (logs.folder / "agent.jsonl").rename(logs.folder / "logs/deep/agent.jsonl")
    logs.write("logs/notes.txt", "not for us")
    told = json.loads(logs.refold("replay", "logs", "--window", "2.5k", "--json").text)
    assert [one["path"] for one in told["files"]] == ["logs/deep/agent.jsonl"]
    (logs.folder / "empty").mkdir()
    none = logs.refold("replay", "empty")
    assert (none.code, "empty is a folder without any .json" in none.err) == (4, True)


def test_a_report_that_cannot_be_written_is_called_by_its_option(logs: Shell) -> None:
    ran = logs.refold("replay", "agent.jsonl", "--report", "home")
    assert (ran.code, ran.err) == (9, "refold: --report home is a folder; name a file in it\n")


def test_a_file_that_is_not_there_is_named_once(logs: Shell) -> None:
    ran = logs.refold("replay", "none.jsonl")
    assert ran.err.splitlines()[0] == "not read: none.jsonl does not exist; check the name"
    assert "no session in 1 file;" in ran.err


def test_a_run_keeps_what_it_finished(logs: Shell) -> None:
    first = logs.refold("replay", "agent.jsonl", "--window", "2.5k", "--resume", "kept.jsonl", "--json")
    again = logs.refold("replay", "agent.jsonl", "--window", "2.5k", "--resume", "kept.jsonl", "--json")
    assert json.loads(first.text) == json.loads(again.text), "times too: nothing was run again"


def test_the_report_is_one_file_with_the_three_charts(logs: Shell) -> None:
    ran = logs.refold("replay", "agent.jsonl", "--window", "2.5k", "-m", "gpt-5.5", "--report", "report.html")
    assert ran.code == 0, ran.err
    seen = (logs.folder / "report.html").read_text(encoding="utf-8")
    assert seen.count('<svg class="chart"') == 3, "the bill, the probes, and one session"
    assert all(f'data-cause="{cause}"' in seen for cause in ("read", "write", "output"))
    assert 'class="probe' in seen
    assert 'class="fold' in seen
    assert 'class="limit"' in seen


def test_the_tables_are_whole_in_a_terminal_of_eighty_columns(logs: Shell) -> None:
    ran = logs.refold("replay", "agent.jsonl", "--window", "2.5k", "--presets", "raw,last-n,mask,default", COLUMNS="80")
    assert ran.code == 0, ran.err
    assert "…" not in ran.text
    assert ran.text.splitlines()[0].endswith("found")
    assert any(line.startswith("preset") and line.endswith("whole bill") for line in ran.text.splitlines())
    assert any(line.startswith("distance 6-10") for line in ran.text.splitlines())


def test_whoever_watches_sees_how_far_it_is(logs: Shell) -> None:
    code, printed = logs.show("replay", "agent.jsonl", "--window", "2.5k")
    assert code == 0
    assert re.search(r"replaying .*\d/2.*found", printed, re.DOTALL)


def test_where_everything_fits_it_says_so_and_names_a_window_to_try(shell: Shell) -> None:
    write_rows(shell.folder / "agent.jsonl", [{"id": "agent", "messages": agent_messages(60)}])
    ran = shell.refold("replay", "agent.jsonl", "-m", "gpt-5.5")
    last = ran.text.splitlines()[-1]
    assert last.startswith("every session fits its window (the largest request has ")
    tried = re.search(r"try --window (\d+k) ", last)
    assert tried, last
    again = shell.refold("replay", "agent.jsonl", "-m", "gpt-5.5", "--window", tried[1])
    assert "every session fits" not in again.text
    assert any(line.startswith("default") and int(line.split()[4]) > 0 for line in again.text.splitlines()[:4])


def test_sessions_too_short_for_any_window_are_not_sent_on_a_search(shell: Shell) -> None:
    write_rows(shell.folder / "short.jsonl", [{"id": "short", "messages": agent_messages(2)}])
    told = shell.refold("replay", "short.jsonl").text
    assert told.splitlines()[-1].endswith("all are short: there was nothing to do")


def test_the_columns_are_explained_and_missing_times_are_left_out(logs: Shell) -> None:
    told = logs.refold("replay", "agent.jsonl", "--window", "2.5k").text
    for name in ("fits", "breaks", "÷ raw", "whole", "copied", "values", "far", "found"):
        assert any(line.startswith(f"{name} ") for line in told.splitlines())
    assert "0.0 ms" not in told
    assert re.search(r"^default: [\d.]+ ms per request", told, re.M)
