"""Processes and servers that die in the middle, on PostgreSQL: nothing lost, nothing twice, everything verifies."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.faults.test_kill import SESSION, check, kill_often
from tests.faults.worker import open_store
from tests.rigs.manager import SMALL, agent
from tests.rigs.postgres import own_server

COUNTED = CompressionConfig(threshold_rounds=10, retention_count=4)


@pytest.mark.slow
def test_nothing_is_lost_over_a_hundred_kills(url: str, project_root: Path) -> None:
    assert kill_often(url, project_root, 100, seed=3) > 100


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True], ids=["stopped", "crashed"])
def test_data_confirmed_as_stored_survives_a_restart_of_the_server(
    own_url: str, project_root: Path, at_once: bool
) -> None:
    server = own_server()
    dice = random.Random(5)
    command = [sys.executable, "-m", "tests.faults.worker", "grow", own_url, SESSION]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(command, cwd=project_root, **pipes) as worker:
        assert worker.stdout is not None
        stored = [worker.stdout.readline()]
        for _ in range(3):
            time.sleep(dice.uniform(0.1, 0.3))
            server.stop(at_once=at_once)
            server.start()
            stored += [worker.stdout.readline() for _ in range(20)]
            if not stored[-1]:  # A restart exactly during a commit ends the worker with an error.
                break
        worker.kill()
        rest, errors = worker.communicate(timeout=240)
    if worker.returncode == 1:
        assert b"it is not known whether it was stored, read again" in errors, errors.decode()
    lines = [json.loads(line) for line in (b"".join(stored) + rest).split(b"\n")[:-1]]
    assert len(lines) > 60 or worker.returncode == 1
    check(own_url, lines)


WORK = """
import sys
from refold import CompressionConfig, ContextCompressionManager
workspace, url, name, count, sessions = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5].split(",")
config = CompressionConfig(threshold_rounds=10, retention_count=4)
manager = ContextCompressionManager(config, workspace, ledger=url)
for number in range(count):
    session = sessions[number % len(sessions)]
    manager.append(session, [{"role": "user", "content": f"{name} says {number}"}])
    manager.prepare_context_sync(session)
manager.close()
"""


@pytest.mark.slow
def test_replicas_on_one_server_lose_no_message_and_fold_nothing_twice(url: str, tmp_path: Path) -> None:
    names, sessions = ["ann", "bob", "cid"], ["a", "b"]
    commands = [
        [sys.executable, "-W", "error", "-c", WORK, str(tmp_path / name), url, name, "12", "a,b"] for name in names
    ]
    replicas = [subprocess.Popen(command) for command in commands]
    assert [replica.wait(240) for replica in replicas] == [0] * len(names)
    manager = ContextCompressionManager(COUNTED, tmp_path / "checking", ledger=url)
    said = [
        json.loads(stored.raw)["content"] for session in sessions for stored in manager.ledger.read_messages(session)
    ]
    assert sorted(said) == sorted(f"{name} says {number}" for name in names for number in range(12))
    assert manager.verify() == []
    for session in sessions:
        folds = [one.edit for one in manager.ledger.read_edits(session) if one.edit.kind == "fold"]
        assert folds
        replaced = {origin for fold in folds for origin in fold.made_from}
        covered = [message_id for fold in folds if fold.id not in replaced for message_id in fold.covers]
        assert len(covered) == len(set(covered)), "two folds in force cover one message"
    manager.close()


def test_two_replicas_that_get_the_same_request_at_once_fold_once_and_show_the_same(url: str, tmp_path: Path) -> None:
    history = agent(30)
    replicas = [ContextCompressionManager(SMALL, tmp_path / str(number), ledger=url) for number in range(4)]
    shown: list[str] = []
    barrier = threading.Barrier(len(replicas))

    def work(manager: ContextCompressionManager) -> None:
        barrier.wait()
        shown.append(json.dumps(manager.prepare_context_sync("s1", history).messages))

    threads = [threading.Thread(target=work, args=(manager,)) for manager in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(shown) == 4
    assert len(set(shown)) == 1
    assert replicas[0].status("s1").compression_count == 1
    for manager in replicas:
        manager.close()


def test_a_replica_sees_at_once_what_another_did(url: str, tmp_path: Path) -> None:
    one, other = (ContextCompressionManager(SMALL, tmp_path / name, ledger=url) for name in ("one", "other"))
    shown = one.prepare_context_sync("s1", agent(30)).messages
    assert other.prepare_context_sync("s1", agent(30)).messages == shown
    undone = other.undo("s1")
    assert undone
    assert one.status("s1").messages_in_view == other.status("s1").messages_in_view == len(agent(30))
    other.redo("s1")
    assert one.prepare_context_sync("s1").messages == shown
    assert open_store(url).verify() == []
    for manager in (one, other):
        manager.close()
