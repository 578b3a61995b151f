"""``refold compact`` as a person runs it: its output, where it goes, and its messages."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import make_session
from tests.rigs.cli import Shell

Session = list[dict[str, object]]


def read_rows(content: bytes) -> list[object]:
    return [json.loads(line) for line in content.decode("utf-8").splitlines()]


def test_the_result_goes_to_standard_output_and_the_report_to_standard_error(shell: Shell, session: Session) -> None:
    ran = shell.refold("compact", "session.json", "--budget", "3000")
    assert ran.code == 0, ran.err
    messages = json.loads(ran.out)
    assert messages[0] == session[0]
    assert messages[-1] == session[-1]
    assert "session.json" in ran.err
    assert "tokens" in ran.err


def test_a_conversation_that_fits_is_unchanged(shell: Shell, session: Session) -> None:
    ran = shell.refold("compact", "session.json", "--budget", "100000")
    assert json.loads(ran.out) == session
    assert "it fits: nothing to do" in ran.err
    assert "next" not in ran.err


def test_if_everything_fits_the_output_says_how_to_compress_anyway(shell: Shell, session: Session) -> None:
    ran = shell.refold("compact", "session.json")
    assert json.loads(ran.out) == session
    assert "--budget 8k" in ran.err


def test_the_input_file_is_never_changed(shell: Shell, session: Session) -> None:
    path = shell.folder / "session.json"
    before = path.read_bytes(), path.stat().st_mtime_ns
    shell.refold("compact", "session.json", "--budget", "3000", "--out", "small.json")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("target", ["session.json", "./session.json", "link.json", "hard.json"])
def test_the_input_file_is_refused_as_output_under_any_name(shell: Shell, session: Session, target: str) -> None:
    path = shell.folder / "session.json"
    (shell.folder / "link.json").symlink_to(path)
    (shell.folder / "hard.json").hardlink_to(path)
    before = path.read_bytes()
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--out", target)
    assert ran.code == 9
    assert "never changed" in ran.err
    assert path.read_bytes() == before


def test_out_replaces_a_file_whole_and_leaves_nothing_beside_it(shell: Shell, session: Session) -> None:
    shell.write("small.json", "older, longer content " * 10_000)
    before = sorted(path.name for path in shell.folder.iterdir())
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--out", "small.json")
    assert ran.code == 0
    assert ran.out == b""
    assert json.loads((shell.folder / "small.json").read_bytes())[-1] == session[-1]
    assert sorted({path.name for path in shell.folder.iterdir()} - {"home"}) == [
        name for name in before if name != "home"
    ]


def test_a_new_file_has_the_rights_that_the_users_mask_gives_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    import os

    from refold.cli.output import write_result

    before = os.umask(0o077)
    try:
        write_result(b"[]\n", str(tmp_path / "new.json"))
        (tmp_path / "old.json").touch()
        (tmp_path / "old.json").chmod(0o640)
        write_result(b"[]\n", str(tmp_path / "old.json"))
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in sorted(tmp_path.iterdir())] == [0o600, 0o640]


def test_an_output_that_cannot_be_written_is_reported_and_nothing_is_left(shell: Shell, session: Session) -> None:
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--out", "no/such/folder/small.json")
    assert ran.code == 9
    assert "cannot be written" in ran.err
    assert ran.out == b""


def test_a_request_body_keeps_its_other_fields_and_its_indentation(shell: Shell) -> None:
    body = {"model": "gpt-4o", "temperature": 0.2, "messages": make_session(), "metadata": {"run": 7}}
    shell.write("body.json", json.dumps(body, indent=4))
    ran = shell.refold("compact", "body.json", "--budget", "3000")
    result = json.loads(ran.out)
    assert {key: result[key] for key in body if key != "messages"} == {
        key: body[key] for key in body if key != "messages"
    }
    assert list(result) == list(body)
    assert ran.text.startswith('{\n    "model"')
    assert "o200k_base" in ran.err


def test_rows_stay_rows(shell: Shell) -> None:
    session = make_session()
    shell.write("session.jsonl", "".join(json.dumps(message) + "\n" for message in session))
    ran = shell.refold("compact", "session.jsonl", "--budget", "3000")
    rows = read_rows(ran.out)
    assert rows[0] == session[0]
    assert rows[-1] == session[-1]
    assert 1 < len(rows) <= len(session)


def test_gzip_is_read_and_written(shell: Shell) -> None:
    session = make_session()
    packed = gzip.compress("".join(json.dumps(message) + "\n" for message in session).encode())
    shell.write("session.jsonl.gz", packed)
    ran = shell.refold("compact", "session.jsonl.gz", "--budget", "3000", "--out", "small.jsonl.gz")
    assert ran.code == 0, ran.err
    rows = read_rows(gzip.decompress((shell.folder / "small.jsonl.gz").read_bytes()))
    assert rows[-1] == session[-1]


def test_a_pipe_is_read_from_standard_input(shell: Shell) -> None:
    session = make_session()
    ran = shell.refold("compact", "-", "--budget", "3000", stdin=json.dumps(session).encode())
    assert json.loads(ran.out)[-1] == session[-1]
    assert "standard input" in ran.err


def test_lone_surrogates_chinese_and_large_numbers_survive(shell: Shell) -> None:
    text = '[{"role": "user", "content": "\\ud83d 你好 \\u0000", "extra": 123456789012345678901234567890}]'
    shell.write("odd.json", text)
    ran = shell.refold("compact", "odd.json", "--budget", "1000")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == json.loads(text)


def test_explain_names_every_change_with_its_handle(shell: Shell, session: Session) -> None:
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--explain", "--out", "small.json", COLUMNS="120")
    told = shell.refold("compact", "session.json", "--budget", "3000", "--json", "--out", "small.json")
    changes = json.loads(told.out)["changes"]
    assert changes
    for change in changes:
        assert change["handle"] in ran.err
        assert change["reason"]["text"]
        assert f"{change['tokens_before']:,} → {change['tokens_after']:,}" in ran.err


def test_explain_gives_a_reason_its_own_line_where_the_terminal_is_narrow(shell: Shell, session: Session) -> None:
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--explain", "--out", "small.json", COLUMNS="80")
    told = shell.refold("compact", "session.json", "--budget", "3000", "--json", "--out", "small.json")
    lines = [line.strip() for line in ran.err.splitlines()]
    for change in json.loads(told.out)["changes"]:
        assert any(change["handle"] in line and change["stage"] in line for line in lines)
        assert change["reason"]["text"] in lines or len(change["reason"]["text"]) > 60


def test_a_dry_run_writes_nothing_and_says_what_stays_and_what_goes(shell: Shell, session: Session) -> None:
    before = {path.name for path in shell.folder.iterdir()}
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--dry-run")
    assert ran.code == 0
    assert "stays" in ran.text
    assert "#0" in ran.text
    assert "would do" in ran.text
    assert ran.err == ""
    # "home" is the shell's own, made by its first command.
    assert {path.name for path in shell.folder.iterdir()} - {"home"} == before - {"home"}


def test_a_dry_run_and_a_real_run_report_the_same_numbers(shell: Shell, session: Session) -> None:
    dry = json.loads(shell.refold("compact", "session.json", "--budget", "3000", "--dry-run", "--json").out)
    real = json.loads(shell.refold("compact", "session.json", "--budget", "3000", "--json", "--out", "o.json").out)
    assert dry["tokens_after"] == real["tokens_after"] <= 3000 < dry["tokens_before"]
    assert dry["changes"] == real["changes"]


def test_a_dry_run_with_a_place_for_the_result_is_a_contradiction(shell: Shell, session: Session) -> None:
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--dry-run", "--out", "small.json")
    assert ran.code == 9
    assert not (shell.folder / "small.json").exists()


def test_with_json_the_report_is_json_and_the_result_still_goes_to_standard_output(
    shell: Shell, session: Session
) -> None:
    ran = shell.refold("compact", "session.json", "--budget", "3000", "--json")
    assert json.loads(ran.out)[-1] == session[-1]
    report = json.loads(ran.err)
    assert report["tokens_after"] <= 3000
    assert report["format"] == "openai-chat"
    assert {stage["stage"] for stage in report["stages"]}


def test_the_same_input_gives_the_same_bytes_in_every_run(shell: Shell, session: Session) -> None:
    runs = {
        shell.refold("compact", "session.json", "--budget", "3000", PYTHONHASHSEED=seed).out
        for seed in ("1", "2", "77")
    }
    assert len(runs) == 1


def test_the_files_that_offloading_names_are_written_beside_the_result(shell: Shell, session: Session) -> None:
    (shell.folder / "made").mkdir()
    ran = shell.refold(
        "compact", "session.json", "--budget", "4500", "--preset", "offload", "--out", "made/small.json", "--json"
    )
    assert ran.code == 0, ran.err
    result = (shell.folder / "made" / "small.json").read_text(encoding="utf-8")
    named = [line.split()[4] for line in json.dumps(json.loads(result)).split('"') if "Tool result is at: " in line]
    assert named
    originals = {message["content"] for message in session if message["role"] == "tool"}
    for path in named:
        assert (shell.folder / "made" / path).read_text(encoding="utf-8") in originals


def test_the_default_preset_writes_no_file_but_the_result(shell: Shell, session: Session) -> None:
    before = {path.name for path in shell.folder.iterdir()}
    shell.refold("compact", "session.json", "--budget", "3000")
    # "home" is the shell's own, made by its first command.
    assert {path.name for path in shell.folder.iterdir()} - {"home"} == before - {"home"}


def test_no_colour_and_no_control_characters_reach_a_pipe(shell: Shell) -> None:
    session = make_session()
    session[1]["content"] = "\x1b[31mred\x1b[0m \x07 [bold]not markup[/bold] " + "x" * 200
    shell.write("session.json", json.dumps(session))
    counted = shell.refold("count", "session.json")
    explained = shell.refold("compact", "session.json", "--budget", "3000", "--explain", "--out", "small.json")
    assert "\x1b" not in counted.text + explained.err
    assert "[bold]not markup" in counted.text


def test_no_color_is_honoured_even_where_colour_is_forced(shell: Shell, session: Session) -> None:
    forced = shell.refold("count", "session.json", FORCE_COLOR="1")
    plain = shell.refold("count", "session.json", FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b[1;32m" in forced.text
    assert "\x1b[1;32m" not in plain.text


def test_every_line_fits_eighty_columns(shell: Shell, session: Session) -> None:
    explained = shell.refold("compact", "session.json", "--budget", "3000", "--explain", "--out", "small.json")
    counted = shell.refold("count", "session.json")
    assert max(map(len, (explained.err + counted.text).splitlines())) <= 80


@pytest.mark.slow
def test_a_reader_that_leaves_early_causes_no_visible_error(shell: Shell, tmp_path: Path) -> None:
    path = shell.write("long.json", json.dumps(make_session(400)))
    piped = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m refold count '{path}' | head -n 1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert piped.stderr == ""
    assert len(piped.stdout.splitlines()) == 1


@pytest.mark.parametrize("written", ["4,000", "4k", "0.004M"])
def test_a_budget_is_written_as_people_write_it(shell: Shell, session: list[dict[str, object]], written: str) -> None:
    ran = shell.refold("compact", "session.json", "--budget", written, "--json", "--out", "small.json")
    assert ran.code == 0, ran.err
    assert "4,000 tokens" in shell.refold("compact", "session.json", "-b", written, "-o", "small.json").err
