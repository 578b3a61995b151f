"""Backups that operators make with the databases' own tools, while a manager writes, can be restored and verify."""

from __future__ import annotations

import subprocess
from pathlib import Path

import apsw
import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.ledger.place import LedgerPlace
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from refold.manager.undo import _digest
from refold.testing.postgres import find_binaries
from tests.rigs.postgres import empty_database

CONFIG = CompressionConfig(window=8_000, reserve=500, model="gpt-4o")


def talk(manager: ContextCompressionManager, turns: int) -> None:
    history: list[dict[str, object]] = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"Question {turn} about berth {turn * 7}. " + "More words. " * 60})
        manager.prepare_context_sync("s", history)
        history.append({"role": "assistant", "content": f"Answer {turn}: {turn * 3} m."})


def check(ledger: Ledger, original: Ledger) -> None:
    assert ledger.verify(digest=_digest) == []
    whole = ledger.read_whole("s")
    assert whole is not None
    assert whole == original.read_whole("s")
    assert any(one.edit.kind == "fold" for one in whole.edits)


@pytest.mark.parametrize("how", ["backup", "vacuum"])
def test_a_copy_by_sqlites_own_means_is_whole_while_the_ledger_is_open(tmp_path: Path, how: str) -> None:
    with ContextCompressionManager(CONFIG, tmp_path) as manager:
        talk(manager, 60)
        live = apsw.Connection(str(tmp_path / ".refold" / "ledger.db"))
        copy = tmp_path / "copy.db"
        if how == "vacuum":
            live.execute("VACUUM INTO ?", (str(copy),))
        else:
            target = apsw.Connection(str(copy))
            with target.backup("main", live, "main") as backup:
                while not backup.done:
                    backup.step(100)
            target.close()
        live.close()
        restored = SqliteLedger(copy)
        check(restored, manager.ledger)
        restored.close()


@pytest.mark.slow
def test_a_dump_of_postgresql_can_be_restored_into_an_empty_database(tmp_path: Path) -> None:
    binaries = find_binaries()
    if binaries is None or not (binaries / "pg_restore").exists():
        pytest.skip("no tools of PostgreSQL here: install its server")
    with empty_database() as address, empty_database() as other:
        from refold.ledger.postgres import PostgresLedger

        ledger = PostgresLedger(LedgerPlace(address))
        with ContextCompressionManager(CONFIG, tmp_path, ledger=ledger) as manager:
            talk(manager, 40)
            dump = tmp_path / "ledger.dump"
            subprocess.run([binaries / "pg_dump", "-Fc", "-f", dump, address], check=True, timeout=120)
            subprocess.run([binaries / "pg_restore", "--no-owner", "-d", other, dump], check=True, timeout=120)
            restored = PostgresLedger(LedgerPlace(other))
            check(restored, ledger)
            restored.close()


@pytest.mark.slow
def test_messages_in_hash_partitions_are_folded_undone_forgotten_and_verified(tmp_path: Path) -> None:
    with empty_database() as address:
        import psycopg

        from refold.ledger.postgres import PostgresLedger

        with ContextCompressionManager(CONFIG, tmp_path, ledger=PostgresLedger(LedgerPlace(address))) as manager:
            talk(manager, 5)
        with psycopg.connect(address, autocommit=True) as db:
            db.execute("SET search_path TO refold")
            for table in ("message", "path"):
                db.execute(f"ALTER TABLE {table} RENAME TO {table}_old")
                db.execute(f"CREATE TABLE {table} (LIKE {table}_old INCLUDING ALL) PARTITION BY HASH (session)")
                for number in range(4):
                    values = f"FOR VALUES WITH (MODULUS 4, REMAINDER {number})"
                    db.execute(f"CREATE TABLE {table}_{number} PARTITION OF {table} {values}")
                db.execute(f"INSERT INTO {table} SELECT * FROM {table}_old")
            for name, text in db.execute("SELECT viewname, definition FROM pg_views WHERE schemaname = 'refold'"):
                text = text.replace("message_old", "message").replace("path_old", "path")
                db.execute(f"CREATE OR REPLACE VIEW {name} AS {text}")
            db.execute("DROP TABLE message_old, path_old")
        ledger = PostgresLedger(LedgerPlace(address))
        with ContextCompressionManager(CONFIG, tmp_path, ledger=ledger) as manager:
            talk(manager, 40)
            assert any(one.edit.kind == "fold" for one in ledger.read_edits("s"))
            manager.undo("s")
            for name in ("t", "u"):
                manager.prepare_context_sync(name, [{"role": "user", "content": "hello"}])
            manager.forget("u")
            assert ledger.read_session("u") is None
            assert ledger.verify(digest=_digest) == []
