"""The right to compress a session, and the processes that hold it: alive they keep it, dead they do not."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from refold import ContextCompressionManager
from refold.errors import LedgerError
from refold.ledger.sqlite import SqliteLedger
from refold.manager.flow import LEASE_S, Leases, run_flow
from tests.faults.holding import CONFIG
from tests.rigs.model import working

SESSION = "held"
Running = subprocess.Popen[bytes]


@contextmanager
def hanging(workspace: Path, root: Path, lease_s: float = LEASE_S, *, place: str = "") -> Iterator[Running]:
    """Run a process that holds the lease while its summariser hangs."""
    command = [sys.executable, "-m", "tests.faults.holding", str(workspace), SESSION, str(lease_s)]
    command += [place] if place else []
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"asked\n"
            yield child
        finally:
            child.kill()


def take(manager: ContextCompressionManager, wait_s: float) -> str:
    return run_flow(manager._keeper.leases.take(SESSION, wait_s))


@pytest.mark.slow
def test_a_process_killed_while_its_summariser_hangs_stops_the_others_for_seconds_only(
    place: str, tmp_path: Path, project_root: Path
) -> None:
    manager = ContextCompressionManager(CONFIG.replace(summariser="extract"), tmp_path / "one", ledger=place)
    with hanging(tmp_path / "other", project_root, lease_s=2.0, place=place) as child:
        assert not take(manager, 0.2), "it lives, so the session is its own"
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        begun = time.monotonic()
        prepared = manager.prepare_context_sync(SESSION, working(30))
    # The lease and a little for the work itself; it was two minutes when a lease had to outlive the question.
    assert time.monotonic() - begun < 60
    assert prepared.total_tokens <= 3_500
    assert manager.status(SESSION).compression_count == 1
    assert manager.verify() == []
    manager.close()


@pytest.mark.slow
def test_a_process_that_lives_keeps_its_lease_long_after_it_would_have_run_out(
    tmp_path: Path, project_root: Path
) -> None:
    manager = ContextCompressionManager(CONFIG, tmp_path)
    with hanging(tmp_path, project_root):
        assert not take(manager, 2 * LEASE_S)
    manager.close()


def test_a_lease_that_is_held_is_prolonged_and_one_given_back_is_free_at_once(tmp_path: Path) -> None:
    one, other = (ContextCompressionManager(CONFIG, tmp_path) for _ in range(2))
    one.append(SESSION, working(1))
    for manager in (one, other):
        manager._keeper.leases.seconds = 1.2  # A beat every 0.4 s, also where a thread waits for its turn.
    owner = take(one, 0.0)
    assert owner
    assert not take(other, 3.0), "more than two lifetimes later it is still held"
    one._keeper.leases.give(SESSION, owner)
    next_owner = take(other, 0.0)
    assert next_owner
    other._keeper.leases.give(SESSION, next_owner)
    for manager in (one, other):
        manager.close()


def test_the_heartbeat_ends_with_the_last_lease_and_starts_again_with_the_next(tmp_path: Path) -> None:
    leases = Answered(tmp_path, cycle([True]))
    for name in ("first", "second"):
        owner = run_flow(leases.take(name))
        taken = leases.asked.count(name)
        wait_until(lambda name=name, taken=taken: leases.asked.count(name) > taken)  # type: ignore[misc]
        leases.give(name, owner)
        told = len(leases.asked)
        wait_until(lambda: leases._thread is None)
        assert len(leases.asked) == told, "nothing is prolonged once it was given back"


def test_a_beat_that_fails_is_tried_again_and_a_lease_that_was_lost_is_let_go(tmp_path: Path) -> None:
    leases = Answered(tmp_path, iter([True, LedgerError("locked"), True, False]))
    assert run_flow(leases.take("s"))
    wait_until(lambda: len(leases.asked) == 4)
    wait_until(lambda: not leases._held)


class Answered(Leases):
    """Leases that beat often, of a store with given answers."""

    def __init__(self, folder: Path, answers: Iterator[bool | LedgerError]) -> None:
        super().__init__(SqliteLedger(folder / "ledger.db"), time.time, seconds=0.09)
        self.asked: list[str] = []
        self._answers = answers

    def prolong(self, session_id: str, owner: str) -> bool:
        self.asked.append(session_id)
        answer = next(self._answers)
        if isinstance(answer, LedgerError):
            raise answer
        return answer


def wait_until(holds: object, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.005)
