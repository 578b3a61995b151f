"""Damaged SQLite files: what can be read is copied to a new file that verifies, and what is lost is listed."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import LedgerError
from refold.ledger.salvage import Salvaged, salvage
from refold.ledger.sqlite import SqliteLedger
from refold.manager.undo import _digest
from tests.rigs.cli import Ran, Shell
from tests.rigs.effort import first_of

PAGE = 4096
COUNT = 240


def fill(folder: Path) -> Path:
    """Make a ledger of two sessions, one of them with folds; return its file."""
    config = CompressionConfig(window=16_000, reserve=1_000, model="gpt-4o")
    with ContextCompressionManager(config, folder) as manager:
        history: list[dict[str, object]] = []
        for at in range(COUNT // 2):
            history.append({"role": "user", "content": f"Question {at} about berth {at * 7}. " + "More words. " * 40})
            history.append({"role": "assistant", "content": f"Answer {at}: the depth is {at * 3} m. " + "Yes. " * 60})
            if at % 20 == 19:
                manager.prepare_context_sync("long", [*history, {"role": "user", "content": f"go on {at}"}])
        manager.prepare_context_sync("short", [{"role": "user", "content": "hello there"}])
    return folder / ".refold" / "ledger.db"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("sound"))


def copy(sound: Path, folder: Path) -> Path:
    (folder / ".refold").mkdir()
    return Path(shutil.copy(sound, folder / ".refold" / "ledger.db"))


def list_first_pages(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    found = [int(page) for (page,) in connection.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")]
    connection.close()
    return found


def find_first_page(path: Path, table: str) -> int:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    page = int(db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get)
    db.close()
    return page


def rescue(path: Path) -> Salvaged:
    before = path.read_bytes()
    made = salvage(path, path.with_name("new.db"), _digest, 3_000.0)
    assert path.read_bytes() == before
    ledger = SqliteLedger(made.path)
    assert ledger.verify(digest=_digest) == []
    ledger.close()
    return made


def read_texts(path: Path, *, checked_only: bool = False) -> set[bytes]:
    ledger = SqliteLedger(path)
    rows = [row.id for row in ledger.list_sessions() if not checked_only or row.id != "salvaged-unassigned"]
    found = {one.raw for name in rows for one in ledger.list_messages(name, limit=10_000) if one.raw}
    ledger.close()
    return found


def test_of_a_sound_file_nothing_is_lost(sound: Path, tmp_path: Path) -> None:
    path = copy(sound, tmp_path)
    made = rescue(path)
    assert made.lost == []
    assert made.sessions == 2
    old, new = SqliteLedger(path), SqliteLedger(made.path)
    assert old.read_whole("long") == new.read_whole("long")
    old.close()
    new.close()


@pytest.mark.parametrize("seed", first_of(range(12), 2))
def test_flipped_pages_cost_only_what_is_on_them(sound: Path, tmp_path: Path, seed: int) -> None:
    path = copy(sound, tmp_path)
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    # Without its first page a table is out of reach; every other page costs what is on it.
    pages = set(range(2, len(content) // PAGE)) - {page - 1 for page in list_first_pages(path)}
    for page in chance.sample(sorted(pages), 1 + seed % 4):
        content[page * PAGE : (page + 1) * PAGE] = chance.randbytes(PAGE)
    path.write_bytes(content)
    made = rescue(path)
    kept, all_texts = read_texts(made.path), read_texts(sound)
    assert kept <= all_texts
    assert bool(made.lost) or kept == all_texts
    assert len(kept) >= len(all_texts) // 3


@pytest.mark.parametrize("seed", first_of(range(8), 1))
def test_flipped_bits_in_content_are_never_taken_for_content(sound: Path, tmp_path: Path, seed: int) -> None:
    path = copy(sound, tmp_path)
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(40):
        content[chance.randrange(2 * PAGE, len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    assert read_texts(rescue(path).path, checked_only=True) <= read_texts(sound)


def destroy(path: Path, *pages: int) -> None:
    content = bytearray(path.read_bytes())
    for page in pages:
        content[(page - 1) * PAGE : page * PAGE] = b"\xff" * PAGE
    path.write_bytes(content)


def list_pages_of(path: Path, table: str) -> list[int]:
    """Return the pages of a table, by what begins there: SQLite's own account of them."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [
        int(page)
        for (page,) in db.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype != 'overflow'", (table,))
    ]
    db.close()
    return found


def test_contents_without_their_messages_are_kept_in_a_session_of_their_own(sound: Path, tmp_path: Path) -> None:
    path = copy(sound, tmp_path)
    destroy(path, *list_pages_of(path, "message"))
    made = rescue(path)
    assert read_texts(made.path) == read_texts(sound)
    assert any(one.session_id == "salvaged-unassigned" for one in made.lost)


def test_contents_are_found_without_the_first_page_of_their_table(sound: Path, tmp_path: Path) -> None:
    path = copy(sound, tmp_path)
    destroy(path, find_first_page(path, "raw"))
    made = rescue(path)
    assert read_texts(made.path, checked_only=True) == read_texts(sound)
    assert made.sessions == 2
    assert made.messages >= COUNT


def test_messages_are_found_without_the_first_page_of_their_table(sound: Path, tmp_path: Path) -> None:
    path = copy(sound, tmp_path)
    destroy(path, find_first_page(path, "message"))
    made = rescue(path)
    # Rows that were on that page itself are lost; their contents are kept aside.
    assert read_texts(made.path) == read_texts(sound)
    assert len(read_texts(made.path, checked_only=True)) >= len(read_texts(sound)) * 0.9


@pytest.mark.parametrize("share", first_of([0.5, 0.9], 1))
def test_a_truncated_file_keeps_what_is_left(sound: Path, tmp_path: Path, share: float) -> None:
    path = copy(sound, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share) // PAGE * PAGE])
    made = rescue(path)
    assert made.lost
    assert read_texts(made.path) <= read_texts(sound)


@pytest.mark.parametrize(
    ("at", "forged"),
    [(0, bytes(100)), (28, (100_000_000).to_bytes(4, "big")), (16, bytes(2)), (16, b"\x00\x01")],
    ids=["gone", "400 GB", "no page size", "another page size"],
)
def test_a_damaged_header_is_replaced(sound: Path, tmp_path: Path, at: int, forged: bytes) -> None:
    path = copy(sound, tmp_path)
    content = bytearray(path.read_bytes())
    content[at : at + len(forged)] = forged
    path.write_bytes(content)
    assert read_texts(rescue(path).path) == read_texts(sound)


def test_a_file_of_which_nothing_can_be_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(random.Random(1).randbytes(20 * PAGE))
    with pytest.raises(LedgerError, match="backup"):
        salvage(path, tmp_path / "new.db", _digest, 3_000.0)


def run(folder: Path, *arguments: str) -> Ran:
    return Shell(folder).refold(*arguments, "--workspace", str(folder))


def test_verify_repair_writes_a_new_file_and_lists_what_is_lost(sound: Path, tmp_path: Path) -> None:
    path = copy(sound, tmp_path)
    content = bytearray(path.read_bytes())
    for page in range(10, len(content) // PAGE, 9):
        content[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
    path.write_bytes(content)
    told = run(tmp_path, "verify", "--repair")
    assert told.code == 1, told.err
    assert "[LOST]" in told.text
    (made,) = (tmp_path / ".refold").glob("ledger.salvaged-*.db")
    assert str(made) in told.text.replace("\n", "")
    assert path.read_bytes() == content
    path.unlink()
    made.rename(path)
    again = run(tmp_path, "verify")
    assert again.code == 0, again.text


def test_a_lost_log_is_noticed_and_reported_until_it_is_confirmed(tmp_path: Path) -> None:
    writes = """
import os, sys
from refold import CompressionConfig, ContextCompressionManager
manager = ContextCompressionManager(CompressionConfig(), sys.argv[1])
manager.append("s", [{"role": "user", "content": "hello"}])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", writes, str(tmp_path)], check=True, timeout=120)
    log = tmp_path / ".refold" / "ledger.db-wal"
    assert log.exists()
    saved = shutil.copytree(tmp_path / ".refold", tmp_path / "saved")
    assert run(tmp_path, "verify").code == 0  # A log that is there is read, whoever left it.
    shutil.rmtree(tmp_path / ".refold")
    saved.rename(tmp_path / ".refold")
    log.unlink()
    for _ in range(2):
        told = run(tmp_path, "verify")
        assert told.code == 1, told.err
        assert "write-ahead log was missing" in " ".join(told.text.split())
    assert run(tmp_path, "verify", "--repair").code == 0
    assert run(tmp_path, "verify").code == 0


def test_a_process_that_ends_leaves_no_marker(tmp_path: Path) -> None:
    writes = """
import sys
from refold import CompressionConfig, ContextCompressionManager
manager = ContextCompressionManager(CompressionConfig(), sys.argv[1])
manager.append("s", [{"role": "user", "content": "hello"}])
"""
    subprocess.run([sys.executable, "-c", writes, str(tmp_path)], check=True, timeout=120)
    assert [one.name for one in (tmp_path / ".refold").iterdir() if "-" in one.name] == []


@pytest.mark.parametrize("ends", ["its thread ended", "before a fork", "while it was opened"])
def test_a_process_that_is_killed_without_a_connection_raises_no_alarm(tmp_path: Path, ends: str) -> None:
    writes = """
import os, sys, threading
from refold.ledger.sqlite import SqliteLedger
from refold.ledger.sqlite_file import LedgerFile
path, ends = sys.argv[1:]
ledger = SqliteLedger(path)
with ledger._file.write():
    pass
ledger.close()
if ends == "while it was opened":
    LedgerFile._set_up = lambda *_: os._exit(0)
ledger = SqliteLedger(path)
thread = threading.Thread(target=ledger.verify)
thread.start()
thread.join()
if ends == "before a fork":
    ledger.verify()
    ledger._file.close_idle()
os._exit(0)
"""
    path = tmp_path / "ledger.db"
    subprocess.run([sys.executable, "-c", writes, str(path), ends], check=True, timeout=120)
    assert not path.with_name("ledger.db-wal").exists()
    assert path.stat().st_size
    ledger = SqliteLedger(path)
    assert ledger.verify() == []
    ledger.close()
