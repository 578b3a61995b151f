"""Nothing blocks the event loop of the gateway: no lock, no file, no slow store. Every rig has a watchdog."""

import asyncio
import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.postgres import empty_database, server_url
from tests.rigs.server import make_body, make_dialog, wait_for
from tests.rigs.watchdog import CPU_S_MAX, LOOP_THREAD, Watchdog, watch_loop

SMALL = {"window": 8_000, "reserve": 1_000}


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold a folder's lock as another process would."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_on_loop(callback: Callable[[], object]) -> Watchdog:
    """Run one callback on a loop that the watchdog takes for the gateway's."""

    async def call() -> None:
        asyncio.get_running_loop().call_soon(callback)
        await asyncio.sleep(0)

    with watch_loop() as dog:
        thread = threading.Thread(target=asyncio.run, args=(call(),), name=LOOP_THREAD)
        thread.start()
        thread.join()
    return dog


def compute() -> None:
    until = time.thread_time() + CPU_S_MAX * 1.5
    while time.thread_time() < until:
        pass


def test_the_watchdog_finds_a_callback_that_computes() -> None:
    (finding,) = run_on_loop(compute).findings
    assert "ms of CPU in <function compute" in finding


def test_the_watchdog_finds_a_callback_that_opens_a_file_however_fast(tmp_path: Path) -> None:
    (finding,) = run_on_loop((tmp_path / "page.md").touch).findings
    assert finding.startswith("open(")


def test_the_watchdog_finds_a_callback_that_asks_the_ledger(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        assert any("ledger._read" in one for one in run_on_loop(lambda: manager.ledger.read_session("a")).findings)


def test_the_watchdog_is_quiet_about_quick_work() -> None:
    dog = run_on_loop(lambda: sum(range(100)))
    assert not dog.findings
    assert dog.callbacks


def test_a_request_that_folds_waits_for_no_lock_and_its_page_is_written_later(start: Any, tmp_path: Path) -> None:
    rig = start(config=SMALL)
    pages = rig.manager.md_sync
    with hold_lock(tmp_path / "work" / "memory"), hold_lock(tmp_path / "work" / ".compression"):
        answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
        assert int(answer.headers["x-refold-edits"]) > 0
        assert rig.http.get("/livez").status_code == 200
        assert pages.list_dates() == []
    wait_for(pages.list_dates)
    (date,) = pages.list_dates()
    assert pages.read(date).count("## Session ") == 1


def test_what_waits_for_a_page_is_written_when_the_gateway_stops(start: Any, tmp_path: Path) -> None:
    rig = start(config=SMALL)
    with hold_lock(tmp_path / "work" / "memory"):
        for name in ("one", "two", "three"):
            rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), x_refold_session=name)
    rig.manager.close()
    (date,) = rig.manager.md_sync.list_dates()
    assert rig.manager.md_sync.read(date).count("## Session ") == 3


def test_a_section_that_waits_cannot_outlive_what_it_was_made_from(start: Any, tmp_path: Path) -> None:
    rig = start(config=SMALL)
    with ThreadPoolExecutor(1) as threads, hold_lock(tmp_path / "work" / "memory"):
        rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), x_refold_session="gone")
        forgetting = threads.submit(rig.manager.forget, "gone")
    forgetting.result()
    (date,) = rig.manager.md_sync.list_dates()
    assert "## Session " not in rig.manager.md_sync.read(date)


def test_a_gateway_writes_no_file_for_all_sessions_and_keeps_one_true_that_is_there(start: Any, tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(**SMALL), tmp_path / "work") as library:
        library.prepare_context_sync("talk", make_dialog(30))
        assert library.compression_folder.read_summaries("talk")
    rig = start(config=SMALL)
    rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), x_refold_session="other")
    folder = rig.manager.compression_folder
    assert {row["sessionId"] for row in folder.read_summaries()} == {"talk"}
    assert rig.http.get("/api/sessions/other/summaries").json()["summaries"]
    rig.http.request("DELETE", "/api/sessions/talk")
    assert folder.read_summaries() == []


@pytest.mark.slow
def test_a_postgres_that_does_not_answer_silences_no_probe(start: Any, postgres_url: str) -> None:
    rig = start(config={**SMALL, "ledger": postgres_url})
    messages = make_dialog(30)
    folded = rig.post("openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
    assert int(folded.headers["x-refold-edits"]) > 0
    messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "Go on."}]
    with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url) as db:
        db.execute("LOCK TABLE refold.sessions, refold.messages IN ACCESS EXCLUSIVE MODE")
        waiting = threads.submit(rig.post, "openai-chat", make_body("openai-chat", messages), x_refold_session="talk")
        wait_for(lambda: rig.application.gateway.requests)
        for _ in range(20):
            assert rig.http.get("/livez").status_code == 200
        assert not waiting.done() or waiting.result().status_code == 200
        db.rollback()
        assert waiting.result().status_code == 200


@pytest.fixture
def postgres_url() -> Iterator[str]:
    with empty_database(server_url()) as url:
        yield url
