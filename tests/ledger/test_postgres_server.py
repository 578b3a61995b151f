"""The server may be away, refuse, restart, hang: a typed error or nothing to notice, and never a password in it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from refold.config import CompressionConfig, explain, load_config
from refold.errors import ConfigError, LedgerError
from refold.ledger.place import LedgerPlace, choose_ledger, find_index_file, redact_address
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.postgres import empty_database, own_server, server_url
from tests.rigs.talk import NOW, SESSION, is_sound, read_texts, send

if TYPE_CHECKING:
    from pathlib import Path

    from refold.ledger.postgres import PostgresLedger

SECRET = "hunter2-s3cret"


def open_ledger(url: str, **options: Any) -> PostgresLedger:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'refold[postgres]'")
    from refold.ledger.postgres import PostgresLedger

    return PostgresLedger(url, **options)


@pytest.fixture
def url() -> Iterator[str]:
    with empty_database(server_url()) as address:
        yield address


@pytest.fixture
def own_url() -> Iterator[str]:
    """A database on a server that may be stopped."""
    with empty_database(own_server().url()) as address:
        yield address


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    ledger = open_ledger(url)
    yield ledger
    ledger.close()


def tell_everything(error: BaseException) -> str:
    """All that a log, a traceback or a debugger's first look would show."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.__cause__)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"postgresql://bob:{SECRET}@h:5432/db", "postgresql://bob:***@h:5432/db"),
        (f"postgres://bob:{SECRET}@h/db?sslmode=require", "postgres://bob:***@h/db?sslmode=require"),
        (f"postgresql://h/db?user=bob&password={SECRET}&x=1", "postgresql://h/db?user=bob&password=***&x=1"),
        ("postgresql://bob@h/db", "postgresql://bob@h/db"),
        ("postgresql:///db?host=/tmp", "postgresql:///db?host=/tmp"),
        ("some/file.db", "some/file.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    place = LedgerPlace(address)
    assert str(place) == redact_address(address) == shown
    assert SECRET not in repr(place)
    assert place.reveal() == address


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://bob:{SECRET}@x@h/db",
        f"postgresql://bob:{SECRET}#@h/db",
        f"postgresql://bob:{SECRET}%zz@h/db",
        f"mysql://bob:{SECRET}@h/db",
        f"http://bob:{SECRET}@h/db",
        {"url": f"postgresql://bob:{SECRET}@h/db"},
        [SECRET],
        f"{SECRET}\0",
        "",
        7,
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_being_quoted(address: object) -> None:
    with pytest.raises(ConfigError, match="ledger") as caught:
        CompressionConfig(ledger=address)
    assert SECRET not in tell_everything(caught.value)


def test_an_address_that_the_driver_cannot_read_is_not_quoted_either() -> None:
    for address in (f"postgresql://bob:{SECRET}@h/db?nope=1", f"postgresql://bob:{SECRET}@[h/db"):
        with pytest.raises(ConfigError, match="address of PostgreSQL") as caught:
            open_ledger(address)
        assert SECRET not in tell_everything(caught.value)


def test_two_places_that_disagree_are_reported_without_their_passwords(tmp_path: Path) -> None:
    lines = [f"ledger: postgresql://bob:{SECRET}{at}@h/db" for at in range(2)]
    (tmp_path / "refold.yaml").write_text(f"{lines[0]}\ncompression:\n  {lines[1]}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"refold.yaml:1: ledger is .*bob:\*\*\*@h/db.*keep one") as caught:
        load_config(tmp_path, environ={})
    assert SECRET not in tell_everything(caught.value)


def test_settings_show_the_place_of_the_ledger_without_its_password() -> None:
    config = CompressionConfig(ledger=f"postgresql://bob:{SECRET}@h/db")
    rows = {row.name: row for row in explain(config)}
    assert rows["ledger"].value == "postgresql://bob:***@h/db"
    for told in (repr(config), str(config), str(config.model_dump()), config.model_dump_json(), repr(rows["ledger"])):
        assert SECRET not in told


def test_the_store_is_chosen_by_the_place(tmp_path: Path) -> None:
    assert isinstance(choose_ledger(tmp_path), SqliteLedger)
    assert isinstance(choose_ledger(tmp_path, "other.db"), SqliteLedger)
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'refold[postgres]'")
    assert type(choose_ledger(tmp_path, "postgresql://nowhere/x")).__name__ == "PostgresLedger"
    assert list(tmp_path.iterdir()) == []
    indexes = {
        find_index_file(tmp_path, place and LedgerPlace(place))
        for place in (None, "other.db", "postgresql://nowhere/x", "postgresql://nowhere/y")
    }
    assert len(indexes) == 4
    assert all(index.is_relative_to(tmp_path) for index in indexes)


def test_without_the_driver_the_error_says_how_to_install_it(project_root: Path) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from refold import ContextCompressionManager\n"
        f"ContextCompressionManager(ledger='postgresql://bob:{SECRET}@h/db')"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, timeout=240)
    assert "ConfigError: ledger = postgresql://bob:***@h/db needs psycopg" in ran.stderr
    assert "pip install 'refold[postgres]'" in ran.stderr


@pytest.mark.slow
def test_a_server_that_stays_away_is_waited_for_once_and_not_at_every_call(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    ledger = open_ledger(own_url)
    send(ledger, ["a"])
    monkeypatch.setattr("refold.ledger.postgres_server._PATIENCE_S", 4.0)
    server.stop()
    try:
        started = time.monotonic()
        with pytest.raises(LedgerError, match="cannot be reached"):
            ledger.read_session(SESSION)
        waited = time.monotonic() - started
        started = time.monotonic()
        for _ in range(3):
            with pytest.raises(LedgerError, match="cannot be reached"):
                ledger.read_session(SESSION)
        assert waited >= 4.0 > time.monotonic() - started
    finally:
        server.start()
    assert read_texts(ledger) == ["a"]
    ledger.close()


def test_a_server_that_is_not_there_is_an_error_that_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.ledger.postgres_server._PATIENCE_S", 600.0)
    ledger = open_ledger(f"postgresql://bob:{SECRET}@127.0.0.1:1/db")
    with pytest.raises(LedgerError, match=r"bob:\*\*\*@127.0.0.1:1/db: the server cannot be reached") as caught:
        ledger.read_session(SESSION)
    assert SECRET not in tell_everything(caught.value)


def test_a_wrong_password_is_an_error_that_names_the_user_and_never_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    server = own_server()
    for password, database, words in (
        (SECRET, "postgres", "refuses this user or password"),
        (server.password, "nowhere", "no such database"),
    ):
        ledger = open_ledger(server.url(database, password=password))
        with pytest.raises(LedgerError, match=words) as caught:
            ledger.open_session(SESSION, NOW)
        told = tell_everything(caught.value) + caplog.text + repr(ledger)
        assert password not in told
        assert "refold" in told
    good = open_ledger(server.url(password=server.password), schema="by_password")
    send(good, ["a"])
    assert read_texts(good) == ["a"]
    good.close()


@pytest.mark.slow
def test_a_database_that_cannot_hold_every_text_is_refused(own_url: str) -> None:
    import psycopg

    with psycopg.connect(own_url, autocommit=True) as db:
        db.execute("CREATE DATABASE narrow TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(LedgerError, match="LATIN1"):
        open_ledger(own_server().url("narrow")).list_sessions()
    with psycopg.connect(own_url, autocommit=True) as db:
        db.execute("DROP DATABASE narrow")


@pytest.mark.slow
def test_a_read_only_role_can_read_and_gets_a_clear_error_for_writing(own_url: str) -> None:
    import psycopg

    ledger = open_ledger(own_url)
    send(ledger, ["a"])
    ledger.close()
    with psycopg.connect(own_url, autocommit=True) as db:
        db.execute("CREATE ROLE reader LOGIN")
        db.execute("GRANT USAGE ON SCHEMA refold TO reader")
        db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA refold TO reader")
    reader = open_ledger(own_url.replace("refold@", "reader@"))
    assert read_texts(reader) == ["a"]
    with pytest.raises(LedgerError, match="lacks the permission"):
        reader.open_session("mine", NOW)
    reader.close()
    with psycopg.connect(own_url, autocommit=True) as db:
        db.execute("DROP OWNED BY reader")
        db.execute("DROP ROLE reader")


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True])
def test_a_restart_between_two_calls_is_not_noticed(own_url: str, at_once: bool) -> None:
    server = own_server()
    ledger = open_ledger(own_url)
    send(ledger, ["a"])
    server.stop(at_once=at_once)
    server.start()
    assert send(ledger, ["a", "b"])
    assert read_texts(ledger) == ["a", "b"]
    assert is_sound(ledger)
    ledger.close()


@pytest.mark.slow
def test_a_call_waits_for_a_server_that_is_being_restarted(own_url: str) -> None:
    server = own_server()
    ledger = open_ledger(own_url)
    send(ledger, ["a"])
    server.stop()
    starting = threading.Timer(0.7, server.start)
    starting.start()
    assert send(ledger, ["a", "b"])
    starting.join()
    assert read_texts(ledger) == ["a", "b"]
    ledger.close()


@pytest.mark.slow
def test_a_connection_that_the_server_cuts_in_the_middle_of_a_call_costs_nothing_and_nobody_complains(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    import psycopg

    ledger = open_ledger(url, lock_timeout_s=20)
    send(ledger, ["a"])
    with psycopg.connect(url) as blocker:
        blocker.execute("SELECT 1 FROM refold.session FOR UPDATE")
        done: list[object] = []
        caller = threading.Thread(target=lambda: done.append(send(ledger, ["a", "b"])))
        caller.start()
        for _ in range(3_000):
            sql = (
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() "
                "AND application_name = 'refold'"
            )
            with psycopg.connect(url, autocommit=True) as other:
                waiting = other.execute(sql).fetchall()
                if waiting:
                    other.execute("SELECT pg_terminate_backend(%s)", waiting[0])
                    break
            time.sleep(0.02)
        else:
            pytest.fail("nobody waited for the lock")
    caller.join(60)
    assert len(done) == 1
    assert read_texts(ledger) == ["a", "b"]
    assert is_sound(ledger)
    assert not caplog.records
    ledger.close()


@pytest.mark.slow
def test_a_session_that_another_process_keeps_locked_is_an_error_in_time(url: str) -> None:
    import psycopg

    ledger = open_ledger(url, lock_timeout_s=0.2)
    send(ledger, ["a"])
    with psycopg.connect(url) as blocker:
        blocker.execute("SELECT 1 FROM refold.session FOR UPDATE")
        with pytest.raises(LedgerError, match="kept the session locked for too long"):
            send(ledger, ["a", "b"])
        assert read_texts(ledger) == ["a"]
    assert send(ledger, ["a", "b"])
    ledger.close()


def test_a_ledger_works_again_once_a_missing_table_is_back(url: str) -> None:
    # The driver prepares a statement when it is used often; how often it failed before must not matter.
    import psycopg

    for succeeded in range(4):
        for failed in range(1, 4):
            with closing(open_ledger(url)) as ledger, psycopg.connect(url, autocommit=True) as database:
                for _ in range(succeeded):
                    ledger.check_write()
                ledger.list_sessions()
                database.execute("ALTER TABLE refold.message RENAME TO elsewhere")
                for _ in range(failed):
                    with pytest.raises(LedgerError, match="a table of the ledger is missing"):
                        ledger.check_write()
                database.execute("ALTER TABLE refold.elsewhere RENAME TO message")
                for _ in range(3):
                    ledger.check_write()


@pytest.mark.slow
def test_a_statement_that_takes_too_long_is_stopped(url: str) -> None:
    ledger = open_ledger(url, timeout_s=2)
    ledger.open_session(SESSION, NOW)
    with pytest.raises(LedgerError, match="timed out"):
        ledger._server.run(lambda db: db.execute("SELECT pg_sleep(60)"))
    assert ledger.read_session(SESSION)
    ledger.close()


@pytest.mark.slow
def test_when_all_connections_are_busy_a_call_waits_and_then_says_so(url: str) -> None:
    ledger = open_ledger(url, connections_max=1, timeout_s=2)
    ledger.open_session(SESSION, NOW)
    inside, leave = threading.Event(), threading.Event()

    def stay(db: object) -> None:
        inside.set()
        leave.wait(60)

    holder = threading.Thread(target=lambda: ledger._server.run(stay))
    holder.start()
    assert inside.wait(60)
    with pytest.raises(LedgerError, match="all 1 connections were busy"):
        ledger.read_session(SESSION)
    leave.set()
    holder.join(60)
    assert ledger.read_session(SESSION)
    ledger.close()


@pytest.mark.slow
def test_many_threads_share_few_connections(url: str) -> None:
    import psycopg

    ledger = open_ledger(url, connections_max=2)
    ledger.open_session(SESSION, NOW)
    failures: list[Exception] = []

    def ask() -> None:
        try:
            for _ in range(20):
                assert ledger.read_session(SESSION)
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    with psycopg.connect(url) as db:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refold' AND datname = current_database()"
        assert db.execute(sql).fetchone() in [(1,), (2,)]
    ledger.close()


FORK = """
import os, sys
from refold.ledger.place import choose_ledger
from tests.rigs.talk import send, read_texts
ledger = choose_ledger(".", sys.argv[1])
send(ledger, ["a"])
pid = os.fork()
if pid == 0:
    try:
        send(ledger, ["a"], session="child")
        assert read_texts(ledger, "child") == ["a"]
    except BaseException as error:
        print(error, flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
send(ledger, ["a", "b"])
assert read_texts(ledger) == ["a", "b"]
ledger.close()
"""


@pytest.mark.slow
def test_a_child_process_opens_connections_of_its_own(url: str, project_root: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK, url], cwd=project_root, capture_output=True, text=True, timeout=240
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.slow
def test_forgotten_content_is_in_no_row_any_more(url: str, ledger: PostgresLedger) -> None:
    import psycopg

    ids = send(ledger, ["a", f"my key is {SECRET} " + "x" * 5_000, "c"])
    assert ledger.forget(SESSION, [ids[1]], NOW) == 1
    told: list[str] = []
    with psycopg.connect(url, autocommit=True) as db:
        for (table,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'refold'").fetchall():
            rows = db.execute(f"SELECT t::text FROM refold.{table} AS t").fetchall()
            assert SECRET not in str(rows)
            assert SECRET.encode().hex() not in str(rows)
        # The server's statistics come late: a ledger's own connection may report rows as dead after they were removed.
        db.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        db.execute("VACUUM (VERBOSE) refold.message")
    removed = re.findall(r"tuples: (\d+) removed|found (\d+) removable", "\n".join(told))
    assert removed, told
    assert not any(int(now or before) for now, before in removed), "no dead row was left to remove"
    assert is_sound(ledger)


@pytest.mark.slow
def test_a_ledger_that_nobody_closes_leaves_no_connection_behind(url: str) -> None:
    import psycopg

    ledger = open_ledger(url)
    ledger.open_session(SESSION, NOW)
    del ledger
    # Within one transaction the server would show the connections of its first look for ever.
    with psycopg.connect(url, autocommit=True) as db:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refold' AND datname = current_database()"
        for _ in range(3_000):
            if db.execute(sql).fetchone() == (0,):
                break
            time.sleep(0.02)
        else:
            pytest.fail("a connection is left")


@pytest.mark.slow
def test_the_environment_names_the_ledger(url: str, tmp_path: Path, empty_home: Path) -> None:
    environment = {**os.environ, "REFOLD_LEDGER": url}
    ran = subprocess.run(
        [sys.executable, "-m", "refold", "sessions", "--workspace", str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "no sessions yet" in ran.stdout
