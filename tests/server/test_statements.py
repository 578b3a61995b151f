"""How often a request asks PostgreSQL: the numbers may fall, never grow. Time on a server varies, these do not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from refold.ledger.sql.ledger import Ledger
from tests.contract.test_extend import make_extension
from tests.rigs.postgres import empty_database, server_url
from tests.rigs.server import Rig, make_body, make_dialog, start_rig, wait_for
from tests.rigs.talk import send

FIRST_MAX = 28
WARM_MAX = 13
FOLD_MAX = 49
SMALL = {"window": 8_000, "reserve": 1_000}


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record the statements that are sent meanwhile, without those that set up a connection or prolong a lease.

    A lease is prolonged every two seconds: how often a fold does that says how busy the machine is.
    """
    import psycopg

    statements: list[str] = []
    execute = psycopg.Connection.execute

    def record(self: object, query: str, *values: object, **options: object) -> object:
        is_beat = threading.current_thread().name == "refold-heartbeat"
        if not is_beat and not any(name in query for name in ("set_config", "pg_namespace", "ledger_version")):
            statements.append(query)
        return execute(self, query, *values, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", record)
        yield statements


def ask(rig: Rig, messages: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], str]:
    """Send a conversation; return the statements until everything about it is stored, and the reason."""
    ledger = rig.manager.ledger
    before = len(ledger.read_usage("talk", limit=1_000))
    with counting(monkeypatch) as statements:
        answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
        assert answer.status_code == 200, answer.text
        reporter = rig.application.preparer.reporter
        wait_for(lambda: not reporter._due and not reporter._running)
        assert rig.manager.recalling.upkeep.join()
    assert len(ledger.read_usage("talk", limit=1_000)) == before + 1
    return statements, answer.headers["x-refold-reason"]


def test_a_request_asks_the_server_a_few_times(
    tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = make_dialog(3)
    with (
        empty_database(server_url()) as url,
        start_rig(tmp_path, config={**SMALL, "ledger": url}, window=8_000) as rig,
    ):
        first, _ = ask(rig, messages, monkeypatch)
        assert len(first) <= FIRST_MAX, first
        for turn in range(2):
            messages += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": f"go {turn}"}]
            warm, reason = ask(rig, messages, monkeypatch)
            assert reason == "unchanged"
            assert len(warm) <= WARM_MAX, warm
            assert sum(one.startswith("BEGIN") for one in warm) <= 2, warm
        messages += [{"role": "assistant", "content": "ok"}, *make_dialog(30)]
        folding, reason = ask(rig, messages, monkeypatch)
        assert reason.startswith("fold")
        assert len(folding) <= FOLD_MAX, folding
        messages += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
        kept, reason = ask(rig, messages, monkeypatch)
        assert reason == "kept"
        assert len(kept) <= WARM_MAX, kept


def test_requests_that_come_together_take_no_more_statements_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with empty_database(server_url()) as url:
        from refold.ledger.postgres import PostgresLedger

        ledger: Ledger = PostgresLedger(url)
        names = [f"talk {number}" for number in range(12)]
        for name in names:
            send(ledger, ["a"], session=name)
        counts = []
        for together in (names[:1], names[1:]):
            wanted = [make_extension(ledger, "b", session=name) for name in together]
            with counting(monkeypatch) as statements:
                rows = ledger.extend(wanted, may_wait=True)
            assert rows is not None
            assert all(rows)
            counts.append(len(statements))
        ledger.close()
    assert counts == [8, 8]
