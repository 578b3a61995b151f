"""A service that opens a manager for every request keeps the prefix as often as one that stays open."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.effort import up_to

CONFIG = CompressionConfig(window=8_000, reserve=1_000, summariser="extract")
REQUESTS = up_to(59, quick=30)


def read_sensor(number: int) -> str:
    return "\n".join(f"sensor {number} minute {at}: {(number + 3) * (at + 11) * 7919 % 100_003}" for at in range(40))


def write_step(number: int) -> list[dict[str, Any]]:
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": read_sensor(number)},
    ]


@contextmanager
def open_managers(folder: Path, *, is_reopened: bool) -> Iterator[Iterator[ContextCompressionManager]]:
    def reopen() -> Iterator[ContextCompressionManager]:
        while True:
            with ContextCompressionManager(CONFIG, folder) as manager:
                yield manager

    if is_reopened:
        yield reopen()
        return
    with ContextCompressionManager(CONFIG, folder) as manager:
        yield itertools.repeat(manager)


def run(folder: Path, *, is_reopened: bool) -> list[list[str]]:
    """Return the messages of each request of a growing conversation, with usage reported for each."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Read all sensors of hall seven."}]
    sent: list[list[str]] = []
    with open_managers(folder, is_reopened=is_reopened) as managers:
        for number in range(REQUESTS):
            session = next(managers).session("s1", model="gpt-4o", format="openai-chat")
            prepared = session.prepare(history)
            sent.append([json.dumps(message, sort_keys=True) for message in prepared.messages])
            step = write_step(number)
            session.commit(step[0], {"prompt_tokens": prepared.total_tokens, "completion_tokens": 30})
            history += step
    return sent


def count_kept(sent: list[list[str]]) -> int:
    return sum(after[: len(before)] == before for before, after in itertools.pairwise(sent))


def test_a_manager_per_request_sends_what_one_that_stayed_open_sends(tmp_path: Path) -> None:
    open_one, reopened = (run(tmp_path / name, is_reopened=name == "new") for name in ("open", "new"))
    assert count_kept(open_one) > REQUESTS / 3
    assert count_kept(reopened) == count_kept(open_one)
    assert reopened == open_one
