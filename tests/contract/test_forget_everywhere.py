"""What was forgotten is nowhere any more: no byte of it in any file of the workspace, nor in any row of a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.ledger.records import Event
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from tests.contract.conftest import open_postgres
from tests.rigs.effort import each_once
from tests.rigs.postgres import ON_POSTGRES, own_server, schema_of
from tests.rigs.talk import NOW
from tests.rigs.transfers import FOLDING, OFFLOADING, handle_of, make_step

# Of each word the index writes only what differs from the one before it, so the last letters are looked for.
SECRET = "qzxv-hunter2"
CHINESE = "密钥木星七号"
TAILS = (b"hunter2", b"qzxv", "木星".encode(), "七号".encode(), b"\\u6728\\u661f", "木星".encode("utf-16-le"))


def search(folder: Path) -> list[str]:
    """The files that hold any of it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path.relative_to(folder)) for path in files if any(tail in path.read_bytes() for tail in TAILS)]


def tell_story(manager: ContextCompressionManager, session: str) -> str:
    """A session whose secret went everywhere: folded, offloaded, noted, found again, written down; its handle."""
    lines = "\n".join(f"the deploy key of line {line} is {SECRET} und {CHINESE}" for line in range(30))
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": json.dumps({"key": SECRET})}}
    first: list[Any] = [
        {"role": "user", "content": "We always deploy on Fridays. Which key?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": lines},
        {"role": "assistant", "content": f"TODO: rotate the key {SECRET}. We decided to use {CHINESE} from now on."},
    ]
    manager.append(session, first)
    manager.recall(session, "deploy key")
    for number in range(24):
        manager.append(session, make_step(number))
        manager.prepare_context_sync(session)
        if number % 8 == 7:
            manager.compress(session)
    manager.undo(session)
    manager.redo(session)
    manager.append(session, [{"role": "user", "content": "What was the deploy key of line 7 that I told you?"}])
    manager.prepare_context_sync(session)
    manager.recall(session, "rotate the key")
    # As earlier versions logged it, and as a check of a summary still may.
    for fields in (
        {"reason": f"words: {SECRET}"},
        {"summaries": {"note": f"dropped: the key {CHINESE}"}},
        {"x": ["qzxv"]},
    ):
        manager.ledger.add_event(session, Event("recalled", NOW, fields))
    manager.ledger.update_session(session, {"settings": {"title": f"the key {SECRET}"}}, NOW)
    return first[3]["content"]  # type: ignore[no-any-return]


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    folder = tmp_path / "workspace" / ".refold"
    folder.mkdir(parents=True)
    ledger = SqliteLedger(folder / "ledger.db") if request.param == "sqlite" else open_postgres(tmp_path)
    yield ledger
    ledger.close()


@pytest.mark.parametrize(("config", "is_whole"), each_once((FOLDING, OFFLOADING), (False, True)))
def test_no_byte_of_it_is_left_in_any_file_or_row(
    record: Ledger, tmp_path: Path, config: CompressionConfig, is_whole: bool
) -> None:
    workspace = tmp_path / "workspace"
    manager = ContextCompressionManager(config.replace(redact=False, write_files="on"), workspace, ledger=record)
    tell_story(manager, "s1")
    manager.append("other", [{"role": "user", "content": "nothing to see"}])
    half_written = workspace / manager._keeper.find_folder("s1").relative / ".x.txt.77-0badcafe.tmp"
    half_written.parent.mkdir(parents=True, exist_ok=True)
    for folder in {half_written.parent, workspace / "memory", workspace / ".compression"}:
        if folder.is_dir():
            (folder / half_written.name).write_text(SECRET)
    held = search(workspace)
    assert any("memory" in name for name in held)
    assert any("recall" in name for name in held)
    if is_whole:
        manager.forget("s1")
    else:
        for place in (3, 2, 1):
            forgotten = manager.forget("s1", handle_of(record, "s1", place))
            assert forgotten.messages >= 1
            assert forgotten.warnings == ()
        events = [event.fields for event in record.read_events("s1")]
        assert sum(fields.get("tokens_before", 0) for fields in events) > 0, "figures stay"  # type: ignore[misc]
        assert manager.verify() == []
        manager.prepare_context_sync("s1")
        manager.recall("s1", "deploy key")
        assert [item.raw for item in manager.read_view("s1")]
    assert search(workspace) == []
    manager.close()
    assert search(workspace) == []
    if not isinstance(record, SqliteLedger):
        assert find_rows(tmp_path) == []


def test_a_secret_as_long_as_the_stub_that_replaces_it_is_not_read_from_memory(tmp_path: Path) -> None:
    with ContextCompressionManager(FOLDING.replace(redact=False), tmp_path) as manager:
        secret = f"Use {SECRET[:7]}"
        assert len(secret) == len("[forgotten]")
        manager.append("s1", [{"role": "user", "content": "Deploy it."}, {"role": "user", "content": secret}])
        for number in range(24):
            manager.append("s1", make_step(number))
            manager.prepare_context_sync("s1")
        assert SECRET[:7] in json.dumps(manager.prepare_context_sync("s1").messages)
        manager.forget("s1", handle_of(manager.ledger, "s1", 1))
        manager.compress("s1")
        assert SECRET[:7] not in json.dumps(manager.prepare_context_sync("s1").messages)


def test_a_damaged_file_that_was_put_aside_is_named(tmp_path: Path) -> None:
    with ContextCompressionManager(FOLDING, tmp_path) as manager:
        manager.append("s1", [{"role": "user", "content": SECRET}])
        (tmp_path / ".compression").mkdir(exist_ok=True)
        (tmp_path / ".compression" / "summaries.json.unreadable").write_text(f"[{SECRET}")
        [warning] = manager.forget("s1", handle_of(manager.ledger, "s1", 0)).warnings
        assert "summaries.json.unreadable is damaged" in warning


def find_rows(folder: Path) -> list[str]:
    """The tables of the ledger in which any of it can be read."""
    import psycopg

    from tests.rigs.postgres import server_url

    schema, found = schema_of(folder), []
    with psycopg.connect(server_url(), autocommit=True) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        assert len(tables) > 5
        for (table,) in tables:
            for row in db.execute(f'SELECT * FROM "{schema}"."{table}"', binary=True).fetchall():
                content = b"".join(one if isinstance(one, bytes) else str(one).encode() for one in row)
                found += [table] * any(tail in content for tail in TAILS)
    return found


@pytest.mark.slow
def test_after_vacuum_full_no_page_of_a_server_holds_it(tmp_path: Path) -> None:
    import psycopg

    server = own_server()
    ledger = open_postgres(tmp_path)
    manager = ContextCompressionManager(FOLDING.replace(redact=False), tmp_path, ledger=ledger)
    tell_story(manager, "s1")
    schema = schema_of(tmp_path)
    with psycopg.connect(server.url(), autocommit=True) as db:
        paths = "SELECT pg_relation_filepath(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        paths += "WHERE relkind IN ('r', 'i', 't') AND (nspname = %s OR c.oid IN (SELECT reltoastrelid FROM pg_class c "
        paths += "JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s))"

        def look() -> list[str]:
            db.execute("CHECKPOINT")
            files = [server.folder / "data" / path for (path,) in db.execute(paths, (schema, schema)).fetchall()]
            return [file.name for file in files if any(tail in file.read_bytes() for tail in TAILS)]

        assert look()
        for place in (3, 2, 1):
            manager.forget("s1", handle_of(ledger, "s1", place))
        # Cleaned pages still hold old bytes in their free space; only rewriting a table removes them.
        for table in ("message", "edit", "fact", "event", "batch", "session"):
            db.execute(f'VACUUM FULL "{schema}"."{table}"')
        assert look() == []
    manager.close()
