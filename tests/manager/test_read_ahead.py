"""Messages are read before the request that folds them."""

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager

STEPS = 60
WINDOW = 9_000
# Messages that the thread may not have read yet when the next request comes.
NEWEST = 6
# Functions that read one message, or one part of it, for the first time.
READERS = frozenset(("_read_parts", "_has_none"))


def make_step(step: int, tag: str) -> list[dict[str, Any]]:
    call = {"name": "bash", "arguments": json.dumps({"command": f"pytest tests/{tag}/test_{step}.py"})}
    name = f"c{step}"
    said = f"Test {step} of {tag} fails because the port is {8000 + step}. I will change config_{step}.py."
    return [
        {"role": "assistant", "content": said, "tool_calls": [{"id": name, "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": name, "content": f"{tag} {step}: {step + 1} passed in 0.{step}s\n" * 12},
    ]


def send_until_it_folds(manager: ContextCompressionManager, tag: str) -> tuple[Counter[str], int]:
    """Return how often each reader ran in the request that folded, and the number of messages then."""
    history: list[Any] = [{"role": "user", "content": f"Make the tests of {tag} pass."}]
    for step in range(STEPS):
        history += make_step(step, tag)
        manager._keeper.read_ahead.join()
        calls: Counter[str] = Counter()

        def note(frame: Any, event: str, _: object, calls: Counter[str] = calls) -> None:
            if event == "call" and frame.f_code.co_name in READERS:
                calls[frame.f_code.co_name] += not frame.f_lasti > 0

        sys.setprofile(note)
        try:
            report = manager.prepare_context_sync(tag, list(history)).report
        finally:
            sys.setprofile(None)
        assert report is not None
        if report.tokens_after < report.tokens_before:
            return calls, len(history)
    raise AssertionError("nothing was folded")


def test_a_request_that_folds_reads_hardly_more_than_the_newest_messages(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(window=WINDOW), tmp_path) as manager:
        calls, messages = send_until_it_folds(manager, "alpha")
    assert messages > 3 * NEWEST
    # Each message has at most three parts to read.
    assert sum(calls.values()) <= 6 * NEWEST
    assert all(times <= 2 * NEWEST for times in calls.values())


def test_a_session_far_from_its_next_compression_is_not_read_ahead(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(window=200_000), tmp_path) as manager:
        history: list[Any] = [{"role": "user", "content": "Make the tests pass."}]
        for step in range(20):
            history += make_step(step, "beta")
            manager.prepare_context_sync("s", list(history))
        assert manager._keeper.read_ahead._last is None


def test_a_request_is_prepared_where_no_thread_can_be_started(tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError(f"can't start new thread {thread.name}")

    with ContextCompressionManager(CompressionConfig(window=WINDOW), tmp_path) as manager:
        history: list[Any] = [{"role": "user", "content": "Make the tests pass."}]
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for step in range(25):
            history += make_step(step, "delta")
            assert manager.prepare_context_sync("s", list(history)).messages == history
        monkeypatch.undo()
        manager.prepare_context_sync("s", [*history, *make_step(25, "delta")])
        assert manager._keeper.read_ahead._last is not None


def test_a_session_without_a_fold_is_not_read_ahead(tmp_path: Path) -> None:
    config = CompressionConfig(window=WINDOW, ladder=("clamp",))
    with ContextCompressionManager(config, tmp_path) as manager:
        history: list[Any] = [{"role": "user", "content": "Make the tests pass."}]
        for step in range(30):
            history += make_step(step, "gamma")
            manager.prepare_context_sync("s", list(history))
        assert manager._keeper.read_ahead._last is None
