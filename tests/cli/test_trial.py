"""``refold trial`` as people run it: a table, JSON, a run that is continued, and names that mean nothing."""

import json

from tests.rigs.cli import Shell


def test_a_trial_is_a_table_and_is_continued_from_a_file(shell: Shell) -> None:
    base = ("trial", "--window", "8k", "--tasks", "booking-*", "--compressors", "raw,last-n", "--resume", "runs.jsonl")
    ran = shell.refold(*base)
    assert ran.code == 0, ran.err
    assert ran.text.splitlines()[2].split()[:2] == ["raw", "6/6"]
    kept = (shell.folder / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"]["problem"] for line in kept] == [""] * len(kept), "only ended runs are results"
    again = json.loads(shell.refold(*base, "--json").text)
    assert [run["solved"] for run in again["runs"] if run["arm"] == "raw"] == [True] * 6
    assert (shell.folder / "runs.jsonl").read_text().splitlines()[: len(kept)] == kept


def test_wrong_names_are_errors(shell: Shell) -> None:
    assert shell.refold("trial", "--player", "nobody").code == 3
    assert shell.refold("trial", "--tasks", "nothing-*").code == 3
    assert shell.refold("trial", "--compressors", "zip").code == 3
