"""Every frequent statement finds its rows by an index, also in a record where other sessions hold nearly everything."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from refold.conversation.view import Fact
from refold.ledger.records import Event, Splice, StoredUsage
from tests.rigs.postgres import empty_database, server_url
from tests.rigs.talk import NOW, SESSION, commit, make_batch, make_fold, make_mask, send

if TYPE_CHECKING:
    from refold.ledger.postgres import PostgresLedger

LARGE = ("message", "edit", "cover", "batch", "fact", "event", "usage", "path", "session", "lease")
# All sessions are asked for: reading all of them, or the newest, is the point.
OVER_ALL = ("ORDER BY updated_at DESC", "ORDER BY fact.key LIMIT")


@pytest.fixture
def url() -> Iterator[str]:
    with empty_database(server_url()) as address:
        yield address


def fill(url: str, sessions: int, messages: int) -> None:
    """Make a crowd by the server's own means: rows as other sessions have them."""
    import psycopg

    with psycopg.connect(url, autocommit=True, options="-csearch_path=refold,pg_catalog") as db:
        crowd = f"generate_series(1000000, {1_000_000 + sessions}) AS s"
        rows = f"{crowd}, generate_series(1, {messages}) AS n"
        for statement in (
            f"INSERT INTO session (id, created_at, updated_at) SELECT 'crowd ' || s, 1, 1 FROM {crowd}",
            "INSERT INTO message SELECT s, n, sha256((s || ' ' || n)::bytea), '', sha256(('d' || s || n)::bytea), "
            f"'user', 1, 1, '{{}}', '' FROM {rows}",
            f"INSERT INTO path SELECT s, 1, 1, {messages} FROM {crowd}",
            f"INSERT INTO batch (session, id, reason, tokens_before, tokens_after, created_at) "
            f"SELECT s, 'b' || n, '', 1, 1, 1 FROM {rows} WHERE n <= 8",
            "INSERT INTO edit (session, id, kind, level, batch, is_active, covered, created_at, payload) "
            f"SELECT s, 'e' || n, 'fold', 0, 1, true, 1, 1, '{{}}' FROM {rows} WHERE n <= 8",
            "INSERT INTO cover SELECT key, 0, session, key % 50, key % 50 FROM edit",
            "INSERT INTO fact (session, batch, kind, text, digest, handle, created_at) "
            f"SELECT s, 1, 'key', 't' || n, n::text::bytea, '', 1 FROM {rows} WHERE n <= 8",
            f"INSERT INTO event (session, kind, created_at, fields) SELECT s, 'x', 1, '{{}}' FROM {rows} WHERE n <= 8",
            f"INSERT INTO usage (session, created_at, model, input_tokens, output_tokens, cache_read_tokens, "
            "cache_write_tokens, counted_tokens, path_length, edits_version) "
            f"SELECT s, 1, '', 1, 1, 1, 1, 1, 1, 1 FROM {rows} WHERE n <= 8",
            f"INSERT INTO lease SELECT s, 'me', 1 FROM {crowd}",
        ):
            db.execute(statement)
        db.execute("ANALYZE")


def run_all_calls(ledger: PostgresLedger) -> None:
    ids = send(ledger, [f"message {number}" for number in range(30)])
    send(ledger, [f"message {number}" for number in range(5, 32)])
    path = ledger.read_path(SESSION)
    mask = make_mask(path.ids[-1])
    ledger.append(
        SESSION, [], [Splice(0, 1, ())], version=path.version, now=NOW, arrival=[mask], events=[Event("x", NOW)]
    )
    assert ledger.commit(SESSION, make_batch(make_fold(ids[8:12]), facts=[Fact("key", "f")]), now=NOW)
    assert commit(ledger, make_fold(ids[8:12]), name="b2", expects=[make_fold(ids[8:12]).id])
    ledger.read_messages(SESSION)
    ledger.read_messages(SESSION, ids[:3])
    ledger.list_messages(SESSION, after=3, limit=5)
    ledger.find_messages(SESSION, "0a1b")
    ledger.find_forgotten(SESSION)
    ledger.switch_edits(SESSION, [mask.id], on=False, now=NOW, event=Event("undone", NOW))
    ledger.read_edits(SESSION)
    ledger.read_batches(SESSION)
    ledger.read_events(SESSION, after=1)
    ledger.read_events(None, after=10)
    ledger.read_facts(SESSION)
    ledger.add_usage(SESSION, StoredUsage(NOW))
    ledger.read_usage(SESSION)
    ledger.update_session(SESSION, {"model": "m"}, NOW)
    ledger.list_sessions(prefix="s")
    assert ledger.acquire_lease(SESSION, "me", seconds=1, now=NOW)
    ledger.release_lease(SESSION, "me")
    ledger.forget(SESSION, [ids[9]], NOW)
    ledger.delete_session(SESSION)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every statement that goes to the server from now on, with its values."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'refold[postgres]'")
    seen: dict[str, Any] = {}
    execute = psycopg.Connection.execute

    def note(self: Any, query: str, params: Any = None, **options: Any) -> Any:
        if params:
            seen.setdefault(query, params)
        return execute(self, query, params, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", note)
    return seen


def number_places(sql: str) -> str:
    places = itertools.count(1)
    return re.sub("%[sb]", lambda _: f"${next(places)}", sql)


@pytest.mark.slow
def test_every_frequent_statement_finds_its_rows_by_an_index(url: str, statements: dict[str, Any]) -> None:
    import psycopg

    from refold.ledger.postgres import PostgresLedger

    ledger = PostgresLedger(url)
    ledger.open_session("first", NOW)
    fill(url, 4_000, 20)
    statements.clear()
    run_all_calls(ledger)
    ledger.close()
    asked = {sql: values for sql, values in statements.items() if re.match("SELECT|INSERT|UPDATE|DELETE|WITH", sql)}
    asked = {sql: values for sql, values in asked.items() if "set_config" not in sql and "pg_class" not in sql}
    assert len(asked) > 40
    slow = []
    with psycopg.connect(url, autocommit=True, options="-csearch_path=refold,pg_catalog") as db:
        # Plans without values: the server uses these once a statement was prepared.
        db.execute("SET plan_cache_mode = force_generic_plan")
        for number, (sql, values) in enumerate(asked.items()):
            if any(words in sql for words in OVER_ALL):
                continue
            db.execute(f"PREPARE p{number} AS {number_places(sql)}".encode())
            marks = ", ".join(["%s"] * len(values))
            cursor = psycopg.ClientCursor(db)
            cursor.execute(f"EXPLAIN EXECUTE p{number} ({marks})".encode(), list(values))
            plan = "\n".join(row[0] for row in cursor.fetchall())
            if re.search(rf"Seq Scan on ({'|'.join(LARGE)})\b", plan):
                slow.append(f"{sql}\n{plan}")
    assert slow == [], "\n\n".join(slow)
