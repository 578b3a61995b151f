"""Many real processes at once while everything goes wrong: nothing that was acknowledged is lost, nothing is doubled.

Whatever is done to them, ``verify`` finds nothing afterwards. What takes long is marked slow.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold.ledger.codec import dump_json
from refold.manager.status import export_session
from tests.faults.test_kill import SESSION, check
from tests.faults.worker import open_store
from tests.rigs.postgres import own_server
from tests.rigs.transfers import FOLDING, make_session

WORKERS = 8


class Growing:
    """Processes that append to one session and compress it, each telling what was acknowledged."""

    def __init__(self, place: str, root: Path, told: Path) -> None:
        self._place, self._root, self._told = place, root, told
        self._running: list[subprocess.Popen[bytes]] = []
        self._count = 0

    def start(self, count: int) -> None:
        command = [sys.executable, "-m", "tests.faults.worker", "grow", self._place, SESSION]
        for _ in range(count):
            self._count += 1
            with (
                (self._told / f"{self._count}.out").open("wb") as out,
                (self._told / f"{self._count}.err").open("wb") as errors,
            ):
                self._running.append(subprocess.Popen(command, cwd=self._root, stdout=out, stderr=errors))

    def wait_for_words(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many processes have reported something."""
        give_up_at = time.monotonic() + seconds
        while sum(path.stat().st_size > 0 for path in self._told.glob("*.out")) < count:
            assert time.monotonic() < give_up_at, self.read_errors()
            time.sleep(0.01)

    def kill(self, at: int) -> None:
        worker = self._running.pop(at)
        worker.kill()
        worker.wait(60)

    def kill_all(self) -> None:
        while self._running:
            self.kill(-1)

    def count_living(self) -> int:
        self._running = [worker for worker in self._running if worker.poll() is None]
        return len(self._running)

    def read_told(self) -> list[dict[str, str]]:
        """What was acknowledged; the last line of a process that was killed may be cut."""
        lines = [line for path in self._told.glob("*.out") for line in path.read_bytes().split(b"\n")[:-1]]
        return [json.loads(line) for line in lines]

    def read_errors(self) -> list[bytes]:
        """Return the errors that ended processes, without the driver's own notes about lost connections."""
        return [content for path in self._told.glob("*.err") if b"Traceback" in (content := path.read_bytes())]


@contextmanager
def growing(place: str, root: Path, folder: Path) -> Iterator[Growing]:
    told = folder / "told"
    told.mkdir()
    crowd = Growing(place, root, told)
    try:
        yield crowd
    finally:
        crowd.kill_all()


def check_all(place: str, crowd: Growing) -> int:
    """Check the record against what was acknowledged; return how much that was."""
    told = crowd.read_told()
    check(place, told)
    ledger = open_store(place)
    said = Counter(message.digest for message in ledger.read_messages(SESSION))
    assert set(said.values()) == {1}, "something was stored twice"
    covered = Counter(one for stored in ledger.read_edits(SESSION) for one in stored.edit.covers)
    assert set(covered.values()) <= {1}, "something was compressed twice"
    ledger.close()
    return len(told)


def kill_rounds(place: str, root: Path, folder: Path, rounds: int) -> int:
    dice = random.Random(11)
    with growing(place, root, folder) as crowd:
        for number in range(rounds):
            crowd.start(WORKERS - crowd.count_living())
            crowd.wait_for_words(WORKERS if number == 0 else 1)
            for _ in range(WORKERS if number == rounds - 1 else WORKERS // 2):
                time.sleep(dice.uniform(0, 0.05))
                if crowd.count_living():
                    crowd.kill(dice.randrange(crowd.count_living()))
        crowd.kill_all()
        assert crowd.read_errors() == []
        return check_all(place, crowd)


def test_eight_processes_on_one_session_are_killed_at_random(place: str, project_root: Path, tmp_path: Path) -> None:
    assert kill_rounds(place, project_root, tmp_path, 1) >= WORKERS


@pytest.mark.slow
def test_eight_processes_on_one_session_are_killed_over_and_over(
    place: str, project_root: Path, tmp_path: Path
) -> None:
    assert kill_rounds(place, project_root, tmp_path, 8) > 2 * WORKERS


def disturb(own_url: str, root: Path, folder: Path, disturbance: Callable[[Growing], None], workers: int) -> None:
    """Let processes work while something is done to their server, until it was done; then check."""
    with growing(own_url, root, folder) as crowd:
        crowd.start(workers)
        crowd.wait_for_words(workers)
        disturbance(crowd)
        before = len(crowd.read_told())
        give_up_at = time.monotonic() + 240
        while len(crowd.read_told()) < before + 5:
            assert time.monotonic() < give_up_at, crowd.read_errors()
            # The last cut may have ended somebody just now.
            crowd.start(max(0, 1 - crowd.count_living()))
            time.sleep(0.05)
        crowd.kill_all()
        # A process that was cut repeatedly, or at the very moment of a commit, gets an error in our words.
        ends = {error.rstrip().split(b"\n")[-1] for error in crowd.read_errors()}
        assert all(end.startswith(b"refold.errors.LedgerError: postgresql://") for end in ends), ends
        assert check_all(own_url, crowd) > workers


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True], ids=["stopped", "crashed"])
def test_a_server_is_restarted_under_eight_processes(
    own_url: str, project_root: Path, tmp_path: Path, at_once: bool
) -> None:
    def restart(crowd: Growing) -> None:
        for _ in range(3):
            crowd.start(WORKERS - crowd.count_living())
            own_server().stop(at_once=at_once)
            own_server().start()
            time.sleep(0.3)

    disturb(own_url, project_root, tmp_path, restart, WORKERS)


def cut_connections(url: str, times: int, crowd: Growing, workers: int) -> None:
    import psycopg

    dice = random.Random(3)
    with psycopg.connect(url, autocommit=True) as db:
        cut, give_up_at = 0, time.monotonic() + 5 * times
        while time.monotonic() < give_up_at:
            # A cut at the very moment of a commit is an error: then another process continues.
            crowd.start(workers - crowd.count_living())
            sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            pids = [pid for (pid,) in db.execute(sql).fetchall()]
            if pids:
                db.execute("SELECT pg_terminate_backend(%s)", (dice.choice(pids),))
                cut += 1
            if cut == times:
                return
            time.sleep(dice.uniform(0, 0.03))
    raise AssertionError(f"only {cut} connections could be cut")


@pytest.mark.slow
def test_connections_are_cut_by_the_server_while_processes_write(
    own_url: str, project_root: Path, tmp_path: Path
) -> None:
    disturb(own_url, project_root, tmp_path, lambda crowd: cut_connections(own_url, 8, crowd, 2), 2)


@pytest.mark.slow
def test_sixty_connections_are_cut_while_four_processes_write(own_url: str, project_root: Path, tmp_path: Path) -> None:
    disturb(own_url, project_root, tmp_path, lambda crowd: cut_connections(own_url, 60, crowd, 4), 4)


def insist(write: Callable[[], Any]) -> Any:
    """Write until it succeeds: where the machine is busy, a short time runs out though nobody holds a lock."""
    from refold.errors import LedgerError

    for _ in range(100):
        try:
            return write()
        except LedgerError:
            continue
    return write()


@pytest.mark.slow
def test_statements_that_run_out_of_time_change_nothing(own_url: str, tmp_path: Path) -> None:
    import psycopg

    from refold.errors import LedgerError
    from refold.ledger.postgres import PostgresLedger
    from tests.faults.worker import add_message, compress

    patient, hasty = open_store(own_url), PostgresLedger(own_url, timeout_s=0.3, lock_timeout_s=0.2)
    patient.open_session(SESSION, 1.0)
    acknowledged = [add_message(patient, SESSION, f"first {number}") for number in range(6)]
    refused = 0
    for number in range(12):
        with psycopg.connect(own_url) as other:
            other.execute("SELECT 1 FROM refold.session FOR UPDATE")
            if number % 3:
                other.execute("LOCK TABLE refold.message IN ACCESS EXCLUSIVE MODE")
            try:
                acknowledged.append(add_message(hasty, SESSION, f"hasty {number}"))
            except LedgerError:
                refused += 1
        acknowledged.append(insist(lambda number=number: add_message(hasty, SESSION, f"then {number}")))
        insist(lambda number=number: compress(hasty, SESSION, f"batch {number}"))
    assert refused == 12
    assert list(patient.read_path(SESSION).ids) == acknowledged
    assert patient.verify() == []
    patient.close()
    hasty.close()


def write_export(folder: Path) -> tuple[Path, bytes]:
    """A session in a file, and its bytes."""
    from refold.ledger.sqlite import SqliteLedger

    (folder / "made").mkdir()
    manager = make_session(folder / "made", SqliteLedger(folder / "made" / "ledger.db"), SESSION, FOLDING)
    content = dump_json(export_session(manager.ledger, SESSION))
    manager.close()
    (folder / "export.json").write_bytes(content)
    return folder / "export.json", content


def start_import(place: str, file: Path, root: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.importing", place, str(file)]
    return subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_of_processes_that_import_one_file_at_once_one_succeeds(place: str, project_root: Path, tmp_path: Path) -> None:
    file, content = write_export(tmp_path)
    importers = [start_import(place, file, project_root) for _ in range(3)]
    for importer in importers:
        assert importer.stdout is not None
        assert importer.stdout.readline() == b"ready\n"
    ended = [importer.communicate(b"go\n", timeout=240) for importer in importers]
    assert sorted(out for out, _ in ended) == [b"imported\n", *[b"refused\n"] * 2], ended
    ledger = open_store(place)
    assert dump_json(export_session(ledger, SESSION)) == content
    assert ledger.verify() == []
    ledger.close()


def kill_imports(place: str, file: Path, content: bytes, root: Path, rounds: int) -> Counter[str]:
    dice = random.Random(5)
    seen: Counter[str] = Counter()
    wait_s = 0.1  # Adapted to the machine's speed, so that both outcomes occur.
    for _ in range(rounds):
        importer = start_import(place, file, root)
        assert importer.stdout is not None
        assert importer.stdin is not None
        assert importer.stdout.readline() == b"ready\n"
        importer.stdin.write(b"go\n")
        importer.stdin.flush()
        time.sleep(dice.uniform(0, wait_s))
        importer.kill()
        out, _ = importer.communicate(timeout=240)
        ledger = open_store(place)
        assert ledger.verify() == []
        is_there = ledger.read_session(SESSION) is not None
        assert is_there or not out, "it was acknowledged"
        if is_there:
            assert dump_json(export_session(ledger, SESSION)) == content
            ledger.delete_session(SESSION)
        seen["whole" if is_there else "nothing"] += 1
        wait_s *= 0.6 if is_there else 1.6
        ledger.close()
    return seen


@pytest.mark.slow
def test_an_import_that_is_killed_is_whole_or_did_not_happen(place: str, project_root: Path, tmp_path: Path) -> None:
    file, content = write_export(tmp_path)
    assert kill_imports(place, file, content, project_root, 2).total() == 2


@pytest.mark.slow
def test_twenty_imports_are_killed(place: str, project_root: Path, tmp_path: Path) -> None:
    file, content = write_export(tmp_path)
    seen = kill_imports(place, file, content, project_root, 20)
    assert min(seen["whole"], seen["nothing"]) > 0, seen


def test_verify_and_repair_while_others_append_change_nothing(place: str, project_root: Path, tmp_path: Path) -> None:
    with growing(place, project_root, tmp_path) as crowd:
        crowd.start(2)
        crowd.wait_for_words(2)
        ledger = open_store(place)
        for _ in range(12):
            assert ledger.verify(repair=True) == []
        broken = spoil_counts(place)
        found = ledger.verify(repair=True)
        assert broken, "a count was made wrong"
        assert any(finding.is_derived for finding in found)
        time.sleep(0.2)
        assert [finding for finding in ledger.verify() if not finding.is_derived] == []
        ledger.verify(repair=True)
        crowd.kill_all()
        assert crowd.read_errors() == []
        ledger.close()
        assert check_all(place, crowd) > 2


def spoil_counts(place: str) -> bool:
    """Make a count wrong, as a bug or a manual change of the tables would."""
    sql = "UPDATE session SET message_count = message_count + 3, tokens = tokens - 1"
    if "://" not in place:
        import apsw

        db = apsw.Connection(place)
        db.set_busy_timeout(10_000)
        db.execute(sql)
        db.close()
        return True
    import psycopg

    with psycopg.connect(place, autocommit=True) as server:
        server.execute("SET search_path = refold")
        return bool(server.execute(sql).rowcount)


@pytest.mark.slow
def test_tuning_while_another_process_writes(tmp_path: Path, project_root: Path) -> None:
    from refold import CompressionConfig, ContextCompressionManager
    from refold.config import load_config
    from refold.tuning import apply, propose, read_stored
    from tests.tuning.test_tuning import fill

    manager = fill(tmp_path)
    stops = threading.Event()
    said: list[str] = []
    problems: list[BaseException] = []

    def write() -> None:
        with ContextCompressionManager(CompressionConfig(window=12_000, reserve=500), tmp_path) as other:
            try:
                while not stops.is_set() and len(said) < 400:
                    said.append(f"{os.getpid()} says {len(said)} " + "x" * 200)
                    other.append("long", [{"role": "user", "content": said[-1]}])
                    other.prepare_context_sync("long")
            except BaseException as error:  # noqa: BLE001
                problems.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for now in range(2):
            tuning = propose(read_stored(manager), manager.config, trials_max=4)
            apply(tmp_path, manager.ledger, tuning, float(now + 1))
            load_config(tmp_path)
    finally:
        stops.set()
        writer.join(60)
    assert problems == []
    stored = [json.loads(message.raw)["content"] for message in manager.ledger.read_messages("long")]
    assert [one for one in stored if one in said] == said
    assert manager.verify() == []
    manager.close()
