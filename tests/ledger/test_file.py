"""The file: made late and for its owner only, shared by threads and processes, erased where it says so."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.errors import ConfigError, LedgerError
from refold.ledger.records import Event
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_fold, read_texts, send

OPEN_UNTIL_KILLED = """
import sys
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.talk import send
ledger = SqliteLedger(sys.argv[1])
send(ledger, ["hello from another process"], session="other")
print("open", flush=True)
sys.stdin.read()
"""

# Runs after the ledger's own work at the end of a process, as a background thread may.
READ_AT_THE_END = """
import atexit, sys
atexit.register(lambda: print(len(ledger.list_sessions())))
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.talk import send
ledger = SqliteLedger(sys.argv[1])
send(ledger, ["hello"])
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path / ".refold" / "ledger.db")
    yield ledger
    ledger.close()


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_reading_makes_no_file_and_no_folder(ledger: SqliteLedger, tmp_path: Path) -> None:
    assert ledger.read_session(SESSION) is None
    assert ledger.list_sessions() == ledger.verify() == []
    assert list_files(tmp_path) == []


def test_the_file_and_its_log_are_for_their_owner_only(ledger: SqliteLedger, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        send(ledger, ["a"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / ".refold").stat().st_mode) == 0o700
    files = list((tmp_path / ".refold").iterdir())
    assert len(files) == 5  # The file, its log, the log's index, the marker of this process, and what git ignores.
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_what_was_written_is_there_after_closing_and_opening_again(ledger: SqliteLedger) -> None:
    send(ledger, ["a", "b"])
    ledger.close()
    assert read_texts(ledger) == ["a", "b"]


def test_a_session_id_never_becomes_a_path(ledger: SqliteLedger, tmp_path: Path) -> None:
    for name in ("../../escape", "/var/escape", "a/b", "..", "nul\0byte"):
        send(ledger, ["a"], session=name)
    ledger.close()
    assert list_files(tmp_path) == [".refold", ".refold/.gitignore", ".refold/ledger.db"]


def test_threads_share_a_ledger(ledger: SqliteLedger) -> None:
    ledger.open_session(SESSION, NOW)
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(10):
                send(ledger, [f"{name} {at}" for at in range(number)], session=name)
        except BaseException as error:  # noqa: BLE001  (shown below)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"thread {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [len(read_texts(ledger, f"thread {number}")) for number in range(8)] == [9] * 8
    assert is_sound(ledger)


FORK = """
import os, sys
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.talk import read_texts, send
ledger = SqliteLedger(sys.argv[1])
send(ledger, ["parent 1"])
children = []
for number in range(3):
    before = ledger._file._find_opened()
    child = os.fork()
    if child == 0:
        assert before.is_closed, "the child holds a connection whose locks it does not have"
        for count in range(1, 20):
            send(ledger, [f"child {number} {at}" for at in range(count)], session=f"child {number}")
        os._exit(0 if len(read_texts(ledger, f"child {number}")) == 19 else 1)
    children.append(child)
for count in range(2, 20):
    send(ledger, [f"parent {at}" for at in range(count)])
failed = [os.waitpid(child, 0)[1] for child in children]
assert failed == [0, 0, 0], failed
assert len(read_texts(ledger)) == 19
assert ledger.verify() == []
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_ledger_opened_before_a_fork_serves_parent_and_children(tmp_path: Path, project_root: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "ledger.db")]
    ran = subprocess.run(command, cwd=project_root, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    after = SqliteLedger(tmp_path / "ledger.db")
    assert [row.messages for row in after.list_sessions()] == [19] * 4
    assert is_sound(after)
    after.close()


def test_a_file_that_was_taken_away_while_open_is_an_error_and_not_an_empty_ledger(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    send(ledger, ["a"])
    file = tmp_path / ".refold" / "ledger.db"
    away = file.rename(tmp_path / "away.db")
    for attempt in (lambda: send(ledger, ["a", "b"]), lambda: ledger.read_session(SESSION)):
        with pytest.raises(LedgerError, match="moved or deleted"):
            attempt()
    away.rename(file)
    assert read_texts(ledger) == ["a"]


@pytest.mark.parametrize("purge", ["forget", "delete"])
def test_purged_content_is_in_no_file_any_more(ledger: SqliteLedger, tmp_path: Path, purge: str) -> None:
    secret = "sk-live-hunter2-" + "0123456789" * 40
    ids = send(ledger, ["a", f"my key is {secret}", *[f"message {number}" for number in range(50)]])
    assert commit(ledger, make_fold(ids[:4], f"the key is {secret}"))
    send(ledger, ["a", f"my key is {secret}", "another branch"])
    folder = tmp_path / ".refold"
    assert any(secret.encode() in path.read_bytes() for path in folder.iterdir())
    if purge == "forget":
        assert ledger.forget(SESSION, [ids[1]], NOW) == 1
    else:
        assert ledger.delete_session(SESSION)
    assert not any(b"hunter2" in path.read_bytes() for path in folder.iterdir())
    assert is_sound(ledger)


def test_a_purge_that_a_reader_blocks_says_so_and_can_be_finished(ledger: SqliteLedger, tmp_path: Path) -> None:
    ids = send(ledger, ["a", "hunter2"])
    slow = SqliteLedger(tmp_path / ".refold" / "ledger.db", busy_timeout_s=0.2)
    with ledger._file.read() as db:
        db.execute("SELECT count(*) FROM message").fetchall()
        with pytest.raises(LedgerError, match="another process is reading"):
            slow.forget(SESSION, [ids[1]], NOW)
    assert slow.forget(SESSION, [ids[1]], NOW) == 0
    assert not any(b"hunter2" in path.read_bytes() for path in (tmp_path / ".refold").iterdir())
    slow.close()


def test_a_call_inside_another_calls_transaction_is_an_error_and_not_a_wait_without_end(ledger: SqliteLedger) -> None:
    send(ledger, ["a"])
    with pytest.raises(LedgerError, match="within a transaction"), ledger._file.write():
        ledger.add_event(SESSION, Event("x", NOW))
    assert read_texts(ledger) == ["a"]
    assert ledger.read_events(SESSION) == []


def test_a_process_that_ends_properly_while_another_looks_leaves_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    send(ledger, ["hello"])
    ledger.close()
    ended = tmp_path / "ledger.db-open-4194300"
    ended.touch()

    def end_meanwhile(pid: int) -> bool:
        # The other process removes its marker, then the log, and ends, after its marker was seen.
        ended.unlink(missing_ok=True)
        return pid != 4194300

    monkeypatch.setattr("refold.ledger.sqlite_file._is_running", end_meanwhile)
    again = SqliteLedger(tmp_path / "ledger.db")
    assert read_texts(again) == ["hello"]
    again.close()
    assert not (tmp_path / "ledger.db-lost").exists()


def test_a_file_that_is_read_once_more_as_its_process_ends_leaves_no_alarm(tmp_path: Path, project_root: Path) -> None:
    path = tmp_path / "ledger.db"
    command = [sys.executable, "-c", READ_AT_THE_END, str(path)]
    assert subprocess.run(command, cwd=project_root, capture_output=True, check=True).stdout == b"1\n"
    again = SqliteLedger(path)
    assert again.verify() == []
    again.close()


def test_a_process_killed_while_another_closes_leaves_no_alarm(tmp_path: Path) -> None:
    """The close that follows is the last one: it takes over the log and removes it, so nothing is lost."""
    path = tmp_path / "ledger.db"
    other = subprocess.Popen(
        [sys.executable, "-c", OPEN_UNTIL_KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    ledger = SqliteLedger(path)
    send(ledger, ["hello"])
    closing = threading.Thread(target=ledger.close)
    with ledger._file.read():
        closing.start()
        own = tmp_path / f"ledger.db-open-{os.getpid()}"
        while own.exists():
            closing.join(0.01)
        other.kill()
        other.communicate()
    closing.join()
    again = SqliteLedger(path)
    assert again.verify() == []
    assert read_texts(again) == ["hello"]
    again.close()


def test_an_unknown_way_to_flush_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use one of off, normal, full, extra"):
        SqliteLedger(tmp_path / "ledger.db", synchronous="sometimes")  # type: ignore[arg-type]
