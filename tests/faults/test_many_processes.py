"""Eight processes on four sessions at once: no lost message, no double compression, no deadlock, all verifies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.worker import SESSIONS, open_store

WORKERS = 8
ROUNDS = 16
TIMEOUT_S = 100


@pytest.mark.slow  # tests/manager/test_together.py shows it with two processes.
def test_eight_processes_append_to_and_compress_four_sessions(place: str, project_root: Path) -> None:
    commands = [
        [sys.executable, "-m", "tests.faults.worker", "share", place, str(number), str(ROUNDS)]
        for number in range(WORKERS)
    ]
    workers = [
        subprocess.Popen(command, cwd=project_root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for command in commands
    ]
    try:
        ended = [worker.communicate(timeout=TIMEOUT_S) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [errors for _, errors in ended if errors] == []
    done = [json.loads(told) for told, _ in ended]
    ledger = open_store(place)
    assert ledger.verify() == []
    for session in SESSIONS:
        path = ledger.read_path(session).ids
        told = [message_id for worker in done for name, message_id in worker["messages"] if name == session]
        assert len(told) == len(set(told)) == WORKERS * ROUNDS // len(SESSIONS)
        assert sorted(path) == sorted(told)
        batches = {batch: covers for worker in done for name, batch, covers in worker["batches"] if name == session}
        assert {batch.id for batch in ledger.read_batches(session)} == batches.keys()
        times = Counter(message_id for covers in batches.values() for message_id in covers)
        assert set(times.values()) <= {1}
        row = ledger.read_session(session)
        assert row is not None
        assert (row.messages, row.compression_count) == (len(told), len(batches))
        assert len(ledger.read_events(session)) == len(batches)
    assert sum(len(worker["batches"]) for worker in done) >= len(SESSIONS)
    ledger.close()
