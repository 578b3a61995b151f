"""Several gateways on one PostgreSQL ledger, behind a balancer that knows nothing: one session, one view, one fold."""

import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.rigs.postgres import empty_database, own_server, server_url
from tests.rigs.server import Rig, make_body, make_dialog, start_rig, wait_for

SMALL = {"window": 8_000, "reserve": 1_000}


@pytest.fixture
def rigs(tmp_path: Path, empty_home: Path) -> Iterator[list[Rig]]:
    with empty_database(server_url()) as url, ExitStack() as stack:
        yield [
            stack.enter_context(start_rig(tmp_path / name, config={**SMALL, "ledger": url}, window=8_000))
            for name in ("one", "two", "three")
        ]


def find_sent(rig: Rig) -> list[object]:
    sent: list[object] = json.loads(rig.provider.requests[-1].body)["messages"]
    return sent


def test_a_session_that_goes_from_replica_to_replica_keeps_its_prefix_and_is_folded_once(rigs: list[Rig]) -> None:
    messages = make_dialog(30)
    first = rigs[0].post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
    assert first.status_code == 200, first.text
    assert int(first.headers["x-refold-edits"]) > 0
    sent = find_sent(rigs[0])
    for turn in range(4):
        messages = [
            *messages,
            {"role": "assistant", "content": f"ok {turn}"},
            {"role": "user", "content": f"go {turn}"},
        ]
        rig = rigs[(turn + 1) % 3]
        answer = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-refold-reason"] == "kept"
        assert find_sent(rig)[: len(sent)] == sent
        sent = find_sent(rig)
    ledger = rigs[1].manager.ledger
    row = ledger.read_session(first.headers["x-refold-session"])
    assert row is not None
    assert row.compression_count == 1
    stored = [json.loads(one.raw) for one in ledger.read_messages(row.id)]
    assert [one for one in stored if one["role"] == "user"] == [one for one in messages if one["role"] == "user"]
    assert ledger.verify() == []


def test_a_client_that_names_no_session_is_known_by_every_replica(rigs: list[Rig]) -> None:
    messages = make_dialog(30)
    names = set()
    for turn in range(4):
        answer = rigs[turn % 3].post("openai-chat", make_body("openai-chat", messages))
        assert answer.status_code == 200, answer.text
        names.add(answer.headers["x-refold-session"])
        messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": f"go {turn}"}]
    assert len(names) == 1
    row = rigs[0].manager.ledger.read_session(names.pop())
    assert row is not None
    assert row.compression_count == 1


def test_the_interface_of_every_replica_shows_the_same_sessions_and_no_password(rigs: list[Rig]) -> None:
    rigs[0].post("openai-chat", make_body("openai-chat", make_dialog(2)), x_refold_session="talk")
    # The cost of an answer is stored a moment after it.
    wait_for(lambda: len({rig.http.get("/api/sessions").text for rig in rigs}) == 1)
    assert "talk" in rigs[2].http.get("/api/sessions").text
    rows = {row["name"]: row["value"] for row in rigs[1].http.get("/api/config").json()["settings"]}
    assert rows["ledger"] == str(rigs[1].manager.config.ledger)


def cut_connections(url: str) -> None:
    """Let the server cut every connection of the gateways, over and over."""
    with psycopg.connect(url, autocommit=True) as database:
        for _ in range(40):
            database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'refold'")
            time.sleep(0.05)


def lock_sessions(url: str) -> None:
    """Keep every row of a session locked, as a forgotten client does."""
    with psycopg.connect(url) as database:
        database.execute("SELECT * FROM refold.session FOR UPDATE")
        time.sleep(4)


def take_all_connections(url: str) -> None:
    """Leave the gateways without any connection."""
    held = []
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'refold'")
        with suppress(psycopg.Error):
            while True:
                held.append(psycopg.connect(url))
        time.sleep(2)
    for one in held:
        one.close()


def restart_server(url: str) -> None:
    own_server().stop(at_once=True)
    time.sleep(1)
    own_server().start()


def make_read_only(url: str) -> None:
    """Make the server a standby for a while, which refuses every change."""
    server = own_server()
    server.stop()
    mark = server.folder / "data" / "standby.signal"
    mark.touch()
    shutil.chown(mark, (server.folder / "data").owner(), (server.folder / "data").group())
    command = ["-D", str(server.folder / "data"), "-p", str(server.port), "-k", str(server.folder)]
    standby = server._popen([str(server._binaries / "postgres"), *command], subprocess.DEVNULL, subprocess.DEVNULL)
    time.sleep(3)
    standby.send_signal(signal.SIGINT)
    standby.wait(30)
    mark.unlink()
    server.start()


BAD_DAYS = [cut_connections, lock_sessions, take_all_connections, restart_server, make_read_only]


@pytest.mark.slow
@pytest.mark.parametrize("bad_day", BAD_DAYS, ids=lambda one: one.__name__)
def test_on_a_bad_day_of_the_server_every_request_is_answered_and_nothing_answered_is_lost(
    tmp_path: Path, empty_home: Path, bad_day: Callable[[str], None]
) -> None:
    with empty_database(own_server().url()) as url, ExitStack() as stack:
        config = {"window": 3_000, "reserve": 500, "ledger": url}
        rigs = [stack.enter_context(start_rig(tmp_path / name, config=config, window=3_000)) for name in ("one", "two")]
        is_over = threading.Event()
        histories: dict[str, list[dict[str, str]]] = {f"talk{number}": [] for number in range(4)}
        refused: list[str] = []

        def say(name: str, turn: int) -> None:
            asked = {"role": "user", "content": f"{name} {turn}: " + " ".join(f"value{turn}x{n}" for n in range(40))}
            body = make_body("openai-chat", [*histories[name], asked])
            answer = rigs[turn % 2].post("openai-chat", body, x_refold_session=name)
            if answer.status_code != 200:
                refused.append(answer.text)
            histories[name] += [asked, {"role": "assistant", "content": "ok"}]

        def talk(name: str) -> None:
            for turn in count():
                if is_over.is_set():
                    return
                say(name, turn)

        threads = [threading.Thread(target=talk, args=(name,)) for name in histories]
        for thread in threads:
            thread.start()
        wait_for(lambda: all(len(one) > 8 for one in histories.values()))
        bad_day(url)
        wait_for(lambda: all(rig.http.get("/readyz").status_code == 200 for rig in rigs))
        is_over.set()
        for thread in threads:
            thread.join()
        for name in histories:
            say(name, 10_000)
        assert refused == []
        ledger = rigs[0].manager.ledger
        rows = {row.id.rpartition("/")[2]: row.id for row in ledger.list_sessions()}
        for name, history in histories.items():
            stored = {json.loads(one.raw)["content"] for one in ledger.read_messages(rows[name])}
            assert [one["content"] for one in history if one["role"] == "user" and one["content"] not in stored] == []
        assert ledger.verify() == []
