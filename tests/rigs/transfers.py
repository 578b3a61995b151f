"""Sessions of every kind, made through the manager, for what takes them out and puts them in."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from refold.ledger.codec import dump_json
from refold.ledger.records import Event
from refold.ledger.sql.ledger import Ledger
from refold.manager.status import export_session

OFFLOADING = CompressionConfig.preset("offload").replace(
    window=1_900, reserve=300, compact_trigger_threshold=300, threshold_rounds=14
)
FOLDING = CompressionConfig(window=3_000, reserve=300, threshold_rounds=12, retention_count=4)


def export_bytes(ledger: Ledger, session: str) -> bytes:
    return dump_json(export_session(ledger, session))


def make_step(number: int, words: str = "worker finished") -> list[Any]:
    """A call and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": f'{{"n": {number}}}'}}
    lines = "\n".join(f"{number:03d}:{line} {words} {line * 7}" for line in range(15))
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": lines},
    ]


def open_manager(folder: Path, ledger: Ledger, config: CompressionConfig) -> ContextCompressionManager:
    """A manager on this ledger whose clock advances by a second with every look."""
    ticks = itertools.count(1_700_000_000)
    return ContextCompressionManager(config, folder, ledger=ledger, clock=lambda: float(next(ticks)))


def handle_of(ledger: Ledger, session: str, place: int) -> str:
    return f"m:{ledger.read_path(session).digests[place][:8]}"


def make_session(folder: Path, ledger: Ledger, session: str, config: CompressionConfig) -> ContextCompressionManager:
    """A session with all that one can have: folds in folds, files, an undo, a pin, a gap, a fork, usage, odd text."""
    manager = open_manager(folder, ledger, config)
    first = [{"role": "user", "content": "Why does release 4.17.2 fail? I prefer short answers. 请用中文回答 \ud83d"}]
    # A client that once took another branch: its messages there are stored, and off the path.
    manager.prepare_context_sync(session, [*first, {"role": "user", "content": "No, never mind."}])
    manager.prepare_context_sync(session, first)
    for number in range(12):
        manager.append(session, make_step(number))
        manager.prepare_context_sync(session)
        manager.observe_usage(session, {"prompt_tokens": 900 + number, "completion_tokens": 40})
    manager.pin(session, handle_of(ledger, session, 0))
    manager.forget(session, handle_of(ledger, session, 6))
    for number in range(12, 24):
        manager.append(session, make_step(number))
        manager.prepare_context_sync(session)
        if number % 5 == 0:
            manager.compress(session)
    manager.undo(session)
    manager.undo(session)
    manager.redo(session)
    # A client that branches off in the middle: the messages it left are stored, and off the path.
    manager.append(
        session, [{"role": "user", "content": "Und jetzt? \x00 nul, and 12345678901234567890123 is a number"}]
    )
    ledger.add_event(session, Event("tuned", 1_700_009_000.5, {"reason": "tuned: trigger_ratio = 0.9", "by": "tune"}))
    return manager
