"""Schema versions on PostgreSQL, the views that people may read, and what `verify` finds there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from refold.errors import LedgerError
from refold.ledger.sql.migrations import read_steps
from tests.ledger.shown import SHOWN, put_raws
from tests.ledger.versions import VERSIONS, write_rows
from tests.rigs.postgres import empty_database, server_url
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_fold, read_texts, send

if TYPE_CHECKING:
    from refold.ledger.postgres import PostgresLedger


@pytest.fixture
def url() -> Iterator[str]:
    with empty_database(server_url()) as address:
        yield address


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    from refold.ledger.postgres import PostgresLedger

    ledger = PostgresLedger(url)
    yield ledger
    ledger.close()


def connect(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True, options="-csearch_path=refold,pg_catalog")


def build(url: str, version: int) -> None:
    """Write a ledger of a released version."""
    with connect(url) as db:
        db.execute("CREATE SCHEMA refold")
        db.execute("CREATE TABLE ledger_version (version integer NOT NULL)")
        db.execute("INSERT INTO ledger_version VALUES (%s)", (version,))
        db.execute(read_steps("postgres")[0])
        write_rows("postgres", db.execute)
        for table, column in (("session", "key"), ("batch", "key"), ("edit", "key"), ("event", "id")):
            db.execute(f"ALTER TABLE {table} ALTER COLUMN {column} RESTART WITH 2")
        for step in read_steps("postgres")[1:version]:
            db.execute(step)


def read_columns(url: str) -> list[Any]:
    with connect(url) as db:
        sql = (
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
            "WHERE table_schema = 'refold' ORDER BY 1, 2"
        )
        indexes = "SELECT tablename, indexdef, '', '', '' FROM pg_indexes WHERE schemaname = 'refold' ORDER BY 1, 2"
        return [*db.execute(sql).fetchall(), *db.execute(indexes).fetchall()]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_of_every_version_is_brought_up_to_date_and_keeps_all(
    version: int, url: str, ledger: PostgresLedger
) -> None:
    build(url, version)
    assert read_texts(ledger, "old") == ["first", "second", "third"]
    assert [stored.edit.text for stored in ledger.read_edits("old")] == ["summary of two"]
    assert [message.is_compressed for message in ledger.read_messages("old")] == [True, True, False]
    assert ledger.read_events("old")[0].kind == "compressed"
    assert is_sound(ledger)
    send(ledger, ["first", "second", "third", "fourth"], session="old")
    ids = send(ledger, ["a", "b", "c"], session="new")
    assert commit(ledger, make_fold(ids[:2]), session="new")
    assert len(ledger.list_messages("old")) == 4
    assert is_sound(ledger)
    from refold.ledger.postgres import PostgresLedger

    with empty_database(server_url()) as fresh:
        other = PostgresLedger(fresh)
        other.open_session("new", NOW)
        other.close()
        assert read_columns(url) == read_columns(fresh)


def test_a_record_that_is_newer_is_refused_and_left_alone(url: str, ledger: PostgresLedger) -> None:
    send(ledger, ["a"])
    ledger.close()
    with connect(url) as db:
        db.execute("UPDATE ledger_version SET version = 99")
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"schema 99.*install a newer refold"):
            ledger.open_session("other", NOW)
    with connect(url) as db:
        assert db.execute("SELECT id FROM session").fetchall() == [("s1",)]
        db.execute("UPDATE ledger_version SET version = %s", (len(read_steps("postgres")),))
    assert read_texts(ledger) == ["a"]


def test_a_schema_of_another_program_is_refused_and_left_alone(url: str, ledger: PostgresLedger) -> None:
    with connect(url) as db:
        db.execute("CREATE SCHEMA refold")
        db.execute("CREATE TABLE refold.photos (name text)")
    with pytest.raises(LedgerError, match="another program"):
        ledger.open_session(SESSION, NOW)
    with connect(url) as db:
        names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'refold'").fetchall()
    assert names == [("photos",)]


def test_a_step_that_fails_leaves_the_record_at_its_old_version(url: str, ledger: PostgresLedger) -> None:
    import psycopg

    from refold.ledger.postgres_server import migrate

    send(ledger, ["a"])
    before = read_columns(url)
    steps = (
        *read_steps("postgres"),
        "CREATE TABLE half (x integer); INSERT INTO half VALUES (1)",
        "ALTER TABLE absent ADD COLUMN y int",
    )
    with connect(url) as db:
        with pytest.raises(psycopg.errors.UndefinedTable):
            migrate(db, "here", "refold", steps)
        assert read_columns(url) == before
        assert db.execute("SELECT version FROM ledger_version").fetchone() == (len(read_steps("postgres")),)
        migrate(db, "here", "refold", steps[:-1])
        assert db.execute("SELECT x FROM half").fetchone() == (1,)


def test_two_ledgers_in_two_schemas_of_one_database_know_nothing_of_each_other(url: str) -> None:
    from refold.ledger.postgres import PostgresLedger

    one, two = PostgresLedger(url, schema="team a"), PostgresLedger(url, schema='b"; DROP')
    send(one, ["a"])
    send(two, ["b"])
    assert (read_texts(one), read_texts(two)) == (["a"], ["b"])
    one.close()
    two.close()


def test_s0_9_content_is_the_text_of_a_message_and_raw_its_json(url: str, ledger: PostgresLedger) -> None:
    odd = ['{"role":"user","content":"half \\ud800 a character"}', "no JSON at all"]
    raws = [orjson.dumps(raw).decode() for raw, _ in SHOWN] + odd
    put_raws(ledger, raws)
    with connect(url) as db:
        rows = db.execute("SELECT content, raw FROM messages ORDER BY place").fetchall()
    assert [raw for _, raw in rows] == raws
    assert [content for content, _ in rows] == [text for _, text in SHOWN] + ["half \ufffd a character", odd[1]]
    import psycopg

    with psycopg.connect(url, autocommit=True) as other:  # Somebody's shell has another search path.
        found = other.execute("SELECT content FROM refold.messages ORDER BY place").fetchall()
    assert [content for (content,) in found] == [content for content, _ in rows]


def test_the_messages_view_shows_what_is_compressed_and_what_a_summary_stands_for(
    url: str, ledger: PostgresLedger
) -> None:
    ids = send(ledger, ["a", "b\0", "c", "d"])
    inner = make_fold(ids[:2], "[Context Summary] a and b", level=1)
    outer = make_fold(ids[:3], "[Context Summary] all \0 three", level=2, made_from=[inner.id])
    assert commit(ledger, inner, name="b1")
    assert commit(ledger, outer, name="b2", expects=[inner.id])
    with connect(url) as db:
        sql = "SELECT id, compressed, summary_of, is_original FROM messages ORDER BY place, is_original DESC, id"
        rows = {row[0]: row[1:] for row in db.execute(sql).fetchall()}
        assert db.execute("SELECT compression_count FROM sessions").fetchall() == [(2,)]
        (told,) = db.execute("SELECT content FROM messages WHERE id = %s", (outer.id,)).fetchone()
    assert [rows[message_id] for message_id in ids] == [(True, None, True)] * 3 + [(False, None, True)]
    assert rows[inner.id] == (True, list(ids[:2]), False)
    assert rows[outer.id] == (False, list(ids[:3]), False)
    assert told == "[Context Summary] all \ufffd three"


def test_verify_finds_what_was_changed_behind_its_back_and_repairs_what_is_derived(
    url: str, ledger: PostgresLedger
) -> None:
    ids = send(ledger, ["a", "b", "c"])
    commit(ledger, make_fold(ids[:2]))
    with connect(url) as db:
        db.execute("UPDATE session SET tokens = 99, message_count = 7, compression_count = 0, seq_last = 8")
        db.execute("UPDATE edit SET covered = 5")
    found = ledger.verify(repair=True)
    assert {finding.what.split(" is ")[0].split(":")[-1].strip() for finding in found} == {
        "message_count", "tokens", "compression_count", "seq_last", "covered",
    }  # fmt: skip
    assert all(finding.is_derived for finding in found)
    assert is_sound(ledger)
    with connect(url) as db:
        db.execute("UPDATE message SET body = 'changed' WHERE seq = 2")
        db.execute("DELETE FROM message WHERE seq = 3")
        db.execute("INSERT INTO lease VALUES (77, 'x', 1)")
    told = " ".join(finding.what for finding in ledger.verify(repair=True))
    for words in ("not what was stored", "1 of its messages are not stored", "1 rows of lease belong to no session"):
        assert words in told
