"""Schema versions, the SQL that people may read, and what every frequent query uses to find its rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import orjson
import pytest

from refold.errors import LedgerError
from refold.ledger.records import Event, Splice, StoredUsage
from refold.ledger.sql.migrations import read_steps
from refold.ledger.sqlite import SqliteLedger
from refold.ledger.sqlite_file import APPLICATION_ID, migrate
from tests.ledger.shown import SHOWN, put_raws
from tests.ledger.versions import RELEASED, VERSIONS, Store, build_file, hash_hex
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_fold, make_mask, read_texts, send

SQLITE_STEPS = read_steps("sqlite")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(file: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(file)
    yield ledger
    ledger.close()


def read_schema(connection: apsw.Connection) -> set[tuple[str, str]]:
    return {(name, re.sub(r"\s+", " ", sql)) for name, sql in connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")}  # fmt: skip


@pytest.mark.parametrize("store", sorted(RELEASED))
def test_a_released_step_is_never_changed(store: Store) -> None:
    assert tuple(hash_hex(step.encode()) for step in read_steps(store)) == RELEASED[store]
    assert len(RELEASED[store]) == len(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_every_version_is_brought_up_to_date_and_keeps_all(version: int, file: Path) -> None:
    build_file(file, version)
    ledger = SqliteLedger(file)
    assert read_texts(ledger, "old") == ["first", "second", "third"]
    assert [stored.edit.text for stored in ledger.read_edits("old")] == ["summary of two"]
    assert [message.is_compressed for message in ledger.read_messages("old")] == [True, True, False]
    assert ledger.read_events("old")[0].kind == "compressed"
    assert is_sound(ledger)
    send(ledger, ["first", "second", "third", "fourth"], session="old")
    assert len(ledger.list_messages("old")) == 4
    ledger.close()
    fresh = SqliteLedger(file.with_name("fresh.db"))
    fresh.open_session("new", NOW)
    fresh.close()
    assert read_schema(apsw.Connection(str(file))) == read_schema(apsw.Connection(str(file.with_name("fresh.db"))))


def test_a_file_that_is_newer_is_refused_and_left_alone(ledger: SqliteLedger, file: Path) -> None:
    send(ledger, ["a"])
    ledger.close()
    raw = apsw.Connection(str(file))
    raw.pragma("user_version", len(SQLITE_STEPS) + 7)
    raw.close()
    before = file.read_bytes()
    with pytest.raises(LedgerError, match=rf"schema {len(SQLITE_STEPS) + 7}.*install a newer refold"):
        ledger.read_session(SESSION)
    assert file.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone(file: Path) -> None:
    raw = apsw.Connection(str(file))
    raw.execute("CREATE TABLE photos (name)")
    raw.close()
    before = file.read_bytes()
    with pytest.raises(LedgerError, match="another program"):
        SqliteLedger(file).open_session(SESSION, NOW)
    assert file.read_bytes() == before


def test_a_step_that_fails_leaves_the_file_at_its_old_version(ledger: SqliteLedger, file: Path) -> None:
    send(ledger, ["a"])
    ledger.close()
    raw = apsw.Connection(str(file))
    before = read_schema(raw)
    steps = (*SQLITE_STEPS, "CREATE TABLE half (x); INSERT INTO half VALUES (1)", "ALTER TABLE absent ADD COLUMN y")
    with pytest.raises(apsw.SQLError):
        migrate(raw, str(file), steps)
    assert read_schema(raw) == before
    assert (raw.pragma("user_version"), raw.pragma("application_id")) == (len(SQLITE_STEPS), APPLICATION_ID)
    migrate(raw, str(file), steps[:-1])
    assert raw.execute("SELECT x FROM half").get == 1
    raw.close()


def test_s0_9_content_is_the_text_of_a_message_and_raw_its_json(ledger: SqliteLedger) -> None:
    odd = ['{"role":"user","content":"half \\ud800 a character"}', "no JSON at all"]
    raws = [orjson.dumps(raw).decode() for raw, _ in SHOWN] + odd
    put_raws(ledger, raws)
    with ledger._file.read() as db:
        rows = db.execute("SELECT content, raw FROM messages ORDER BY place").fetchall()
    assert [raw for _, raw in rows] == raws
    assert [content for content, _ in rows] == [text for _, text in SHOWN] + odd


def test_the_messages_view_shows_what_is_compressed_and_what_a_summary_stands_for(ledger: SqliteLedger) -> None:
    ids = send(ledger, ["a", "b", "c", "d"])
    inner = make_fold(ids[:2], "[Context Summary] a and b", level=1)
    outer = make_fold(ids[:3], "[Context Summary] all three", level=2, made_from=[inner.id])
    commit(ledger, inner, name="b1")
    commit(ledger, outer, name="b2", expects=[inner.id])
    with ledger._file.read() as db:
        rows = db.execute(
            "SELECT content, compressed, summary_of, created_at FROM messages WHERE session_id = ? "
            "ORDER BY place, is_original DESC, compressed DESC", (SESSION,)
        ).fetchall()  # fmt: skip
        count = db.execute("SELECT compression_count FROM sessions WHERE id = ?", (SESSION,)).get
    shown = [(text, flag, json.loads(of or "null")) for text, flag, of, _ in rows]
    assert shown == [
        ("a", 1, None),
        ("[Context Summary] a and b", 1, list(ids[:2])),
        ("[Context Summary] all three", 0, list(ids[:3])),
        ("b", 1, None),
        ("c", 1, None),
        ("d", 0, None),
    ]
    assert {created_at for *_, created_at in rows} == {NOW}
    assert count == 2


def test_every_frequent_query_finds_its_rows_by_an_index(ledger: SqliteLedger) -> None:
    ids = send(ledger, ["a", "b", "c", "d"])
    commit(ledger, make_fold(ids[:2]))
    statements: set[str] = set()
    with ledger._file._use() as db:

        def note(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
            statements.add(sql)
            return True

        db.exec_trace = note
    run_all_calls(ledger)
    with ledger._file._use() as db:
        db.exec_trace = None
        assert len(statements) > 35
        scans = {
            (sql, step)
            for sql in statements
            if sql.startswith(("SELECT", "UPDATE", "DELETE"))
            for *_, step in db.execute(f"EXPLAIN QUERY PLAN {sql}", [0] * sql.count("?"))
            if step.startswith("SCAN") and "CONSTANT ROW" not in step
        }
    assert scans == set()


def run_all_calls(ledger: SqliteLedger) -> None:
    """Every call of the port that works on one session, with paths that branch, grow and shrink."""
    send(ledger, ["a", "x", "c", "d"])
    ids = send(ledger, ["b", "c", "d", "e"])
    version = ledger.read_path(SESSION).version
    arrival = [make_mask(ids[0])]
    ledger.append(SESSION, [], [Splice(0, 1, ())], version=version, now=NOW, arrival=arrival, events=[Event("x", NOW)])
    ledger.open_session("other", NOW)
    ledger.read_messages(SESSION)
    ledger.read_messages(SESSION, ids)
    ledger.list_messages(SESSION, after=1)
    ledger.find_messages(SESSION, "ab")
    ledger.update_session(SESSION, {"model": "m"}, NOW)
    commit(ledger, make_fold(ids[2:]), name="b9")
    ledger.switch_edits(SESSION, [arrival[0].id], on=False, now=NOW, event=Event("undone", NOW))
    ledger.read_edits(SESSION)
    ledger.read_batches(SESSION)
    ledger.add_event(SESSION, Event("x", NOW))
    ledger.read_events(SESSION)
    ledger.read_facts(SESSION)
    ledger.add_usage(SESSION, StoredUsage(NOW))
    ledger.read_usage(SESSION)
    ledger.acquire_lease(SESSION, "me", seconds=1, now=NOW)
    ledger.release_lease(SESSION, "me")
    ledger.forget(SESSION, [ids[0]], NOW)
    ledger.delete_session("other")
