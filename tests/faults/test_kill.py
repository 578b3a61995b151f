"""``kill -9`` at any moment: calls that returned are stored, others have no effect, and everything verifies."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.worker import open_store

SESSION = "killed"


def run_until_killed(file: Path | str, root: Path, delay_s: float) -> list[dict[str, str]]:
    """Start a worker, kill it some time after its first word, return what it had reported as done."""
    command = [sys.executable, "-m", "tests.faults.worker", "grow", str(file), SESSION]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        first = worker.stdout.readline()
        time.sleep(delay_s)
        worker.send_signal(signal.SIGKILL)
        rest, errors = worker.communicate(timeout=240)
    assert first, errors.decode()
    lines = (first + rest).split(b"\n")
    # The last line may be cut; the lines before it are whole.
    return [json.loads(line) for line in lines[:-1]]


def check(file: Path | str, told: list[dict[str, str]]) -> None:
    ledger = open_store(str(file))
    assert ledger.verify() == []
    path = set(ledger.read_path(SESSION).ids)
    assert {line["message"] for line in told} <= path
    assert len(ledger.list_messages(SESSION, limit=1_000_000)) == len(path)
    batches = {batch.id: batch for batch in ledger.read_batches(SESSION)}
    assert {line["batch"] for line in told if "batch" in line} <= batches.keys()
    assert all(len(batch.edits) == 2 and batch.is_active for batch in batches.values())
    logged = [event.fields["batch"] for event in ledger.read_events(SESSION, limit=1_000_000)]
    assert sorted(map(str, logged)) == sorted(batches)
    ledger.close()


def kill_often(file: Path | str, root: Path, rounds: int, seed: int = 0) -> int:
    dice = random.Random(seed)
    told: list[dict[str, str]] = []
    for _ in range(rounds):
        told += run_until_killed(file, root, dice.uniform(0, 0.06))
        check(file, told)
    return len(told)


def test_nothing_is_lost_over_a_few_kills(tmp_path: Path, project_root: Path) -> None:
    assert kill_often(tmp_path / "ledger.db", project_root, 4) >= 4


@pytest.mark.slow
def test_nothing_is_lost_over_two_hundred_kills(tmp_path: Path, project_root: Path) -> None:
    done = rounds = 0
    while rounds < 8 or done <= 400:  # A slow machine stores less before each kill, so it is killed more often.
        assert rounds < 40, f"only {done} messages were stored"
        done += kill_often(tmp_path / f"{rounds}.db", project_root, 25, rounds)
        rounds += 1


@pytest.mark.slow
def test_a_kill_while_the_ledger_is_made_leaves_one_that_works(tmp_path: Path, project_root: Path) -> None:
    dice = random.Random(7)
    for number in range(5):
        file = tmp_path / f"{number}.db"
        command = [sys.executable, "-m", "tests.faults.worker", "grow", str(file), SESSION]
        with subprocess.Popen(command, cwd=project_root, stdout=subprocess.DEVNULL) as worker:
            give_up_at = time.monotonic() + 20
            while not file.exists() and time.monotonic() < give_up_at:
                time.sleep(0.001)
            time.sleep(dice.uniform(0, 0.01))
            worker.send_signal(signal.SIGKILL)
        check(file, run_until_killed(file, project_root, 0.0))
