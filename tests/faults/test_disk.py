"""A problem that the operator must fix is a LedgerError that says what to do; it loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from refold.config import CompressionConfig
from refold.errors import LedgerError
from refold.ledger.sqlite import SqliteLedger
from refold.manager import ContextCompressionManager
from tests.faults.disk import NAME, Disk, faulty_disk
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_fold, read_texts, send


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def disk() -> Iterator[Disk]:
    with faulty_disk() as disk:
        yield disk


def write_sample(file: Path, count: int = 3) -> tuple[str, ...]:
    ledger = SqliteLedger(file)
    ids = send(ledger, [f"message {number}" for number in range(count)])
    ledger.close()
    return ids


def test_a_full_ledger_says_so_and_keeps_what_it_has(file: Path) -> None:
    ledger = SqliteLedger(file, bytes_max=300_000)
    send(ledger, ["small"])
    with pytest.raises(LedgerError, match=r"disk is full.*free space or raise the limit"):
        send(ledger, ["small", "x" * 1_000_000])
    assert read_texts(ledger) == ["small"]
    assert is_sound(ledger)
    send(ledger, ["small", "also small"])
    ledger.close()
    larger = SqliteLedger(file)
    send(larger, ["small", "also small", "x" * 1_000_000])
    assert is_sound(larger)
    larger.close()


@pytest.mark.slow
def test_after_closing_a_manager_its_ledger_is_one_file_although_a_thread_was_just_reading_it(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(120))
    talk = [{"role": role, "content": f"{turn} {words}"} for turn in range(12) for role in ("user", "assistant")]
    for number in range(40):
        manager = ContextCompressionManager(CompressionConfig(window=8_000, reserve=1_000), tmp_path / str(number))
        manager.prepare_context_sync("s", [*talk, {"role": "user", "content": "go on"}])
        manager.close()
        assert [one.name for one in (tmp_path / str(number) / ".refold").glob("ledger.db*")] == ["ledger.db"]


def test_a_read_only_file_says_so_and_can_still_be_read(file: Path, disk: Disk) -> None:
    write_sample(file)
    ledger = SqliteLedger(file, vfs=NAME)
    assert len(read_texts(ledger)) == 3
    disk.plan(1, is_dead_after=True, error=apsw.ReadOnlyError)
    with pytest.raises(LedgerError, match=r"read-only; make it and its folder writable"):
        send(ledger, ["a"])
    assert len(read_texts(ledger)) == 3
    disk.plan(0, is_dead_after=False)
    assert is_sound(ledger)
    ledger.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="modes do not bind the superuser")
def test_a_file_whose_mode_forbids_writing_is_a_ledger_error(file: Path) -> None:
    write_sample(file)
    file.chmod(0o400)
    with pytest.raises(LedgerError, match=r"read-only|may not be"):
        send(SqliteLedger(file), ["a"])


def test_a_locked_ledger_says_so_after_the_time_it_was_given(file: Path) -> None:
    write_sample(file)
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    ledger = SqliteLedger(file, busy_timeout_s=0.1)
    assert len(read_texts(ledger)) == 3
    with pytest.raises(LedgerError, match=r"locked for too long; try again"):
        send(ledger, ["a"])
    other.execute("ROLLBACK")
    other.close()
    send(ledger, ["a"])
    assert is_sound(ledger)
    ledger.close()


@pytest.mark.parametrize(
    "content", [b"this is a diary, not a database" * 40, bytes(range(256)) * 40], ids=["text", "bytes"]
)
def test_a_file_that_is_not_a_database_is_refused_and_left_alone(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(LedgerError, match="not a database"):
        SqliteLedger(file).open_session(SESSION, NOW)
    assert file.read_bytes() == content


def test_a_damaged_page_is_reported_and_never_read_as_a_shorter_history(file: Path) -> None:
    ledger = SqliteLedger(file)
    ids = send(ledger, [f"message {number} " + "x" * 500 for number in range(300)])
    commit(ledger, make_fold(ids[:50]))
    ledger.close()
    whole = file.read_bytes()
    told = 0
    for page in range(1, len(whole) // 4096):
        damaged = bytearray(whole)
        damaged[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        file.write_bytes(damaged)
        hurt = SqliteLedger(file)
        try:
            texts = read_texts(hurt)
            findings = hurt.verify()
            assert findings or texts == read_all(ids)
            told += bool(findings)
        except (LedgerError, ValueError) as error:
            told += isinstance(error, LedgerError)
        finally:
            hurt.close()
            for leftover in file.parent.glob("ledger.db-*"):
                leftover.unlink()
    assert told > len(whole) // 4096 // 2


def read_all(ids: tuple[str, ...]) -> list[str]:
    return [f"message {number} " + "x" * 500 for number in range(len(ids))]


def test_a_changed_byte_of_a_message_is_found_by_verify(file: Path) -> None:
    write_sample(file)
    file.write_bytes(file.read_bytes().replace(b"message 1", b"massage 1"))
    ledger = SqliteLedger(file)
    (finding,) = ledger.verify()
    assert finding.session_id == SESSION
    assert "message 2" in finding.what
    assert "not what was stored" in finding.what
    assert not finding.is_derived
    assert ledger.verify(repair=True) == ledger.verify() == [finding]
    ledger.close()


TAMPERINGS = {
    "UPDATE session SET message_count = 99": True,
    "UPDATE session SET tokens = tokens + 1": True,
    "UPDATE session SET compression_count = 0": True,
    "UPDATE session SET seq_last = 1": True,
    "UPDATE edit SET covered = 1": True,
    "UPDATE message SET digest = zeroblob(16) WHERE seq = 2": False,
    "UPDATE message SET parent = zeroblob(16) WHERE seq = 2": False,
    "DELETE FROM message WHERE seq = 2": False,
    "DELETE FROM raw WHERE key = 2": False,
    "DELETE FROM cover": False,
    "DELETE FROM batch": False,
    "DELETE FROM session": False,
    "UPDATE edit SET payload = replace(payload, 'summary', 'fiction')": False,
    "UPDATE edit SET payload = 'x'": False,
    "UPDATE path SET last = 9": False,
    "INSERT INTO path VALUES (1, 1, 2, 2)": False,
    "INSERT INTO raw (body) VALUES ('lost')": False,
}


@pytest.mark.parametrize(("sql", "is_derived"), TAMPERINGS.items())
def test_verify_finds_it_and_repairs_only_what_is_derived(file: Path, sql: str, is_derived: bool) -> None:
    ledger = SqliteLedger(file)
    ids = send(ledger, ["a", "b", "c"])
    commit(ledger, make_fold(ids[:2]))
    ledger.close()
    raw = apsw.Connection(str(file))
    raw.execute(sql)
    assert raw.total_changes() > 0
    raw.close()
    findings = ledger.verify(repair=True)
    assert findings
    assert any(finding.is_derived is is_derived for finding in findings)
    left = ledger.verify()
    assert all(not finding.is_derived for finding in left)
    assert (left == []) is is_derived
    ledger.close()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"absent.*is missing.*create it, or choose another"):
        SqliteLedger(tmp_path / "absent" / "deeper" / "ledger.db").open_session(SESSION, NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_the_file_is_named(file: Path) -> None:
    file.mkdir()
    with pytest.raises(LedgerError, match=r"ledger\.db cannot be created"):
        SqliteLedger(file).open_session(SESSION, NOW)


@pytest.mark.parametrize("error", [apsw.FullError, apsw.ReadOnlyError, apsw.IOError])
def test_a_test_write_reaches_the_disk_and_notices_that_it_fails(
    file: Path, disk: Disk, error: type[apsw.Error]
) -> None:
    write_sample(file)
    ledger = SqliteLedger(file, vfs=NAME)
    ledger.check_write()
    disk.plan(1, is_dead_after=True, error=error)
    with pytest.raises(LedgerError):
        ledger.check_write()
    disk.plan(0, is_dead_after=False)
    ledger.check_write()
    assert is_sound(ledger)
