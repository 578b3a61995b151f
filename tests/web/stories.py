"""Sessions for the page's tests, written through a manager of the test's own process, as another program would."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager

LINES = "".join(
    f"line {number}: the pump in hall {number % 7} reports {number * 31} litres\n" for number in range(4_000)
)


@contextmanager
def open_manager(workspace: Path) -> Iterator[ContextCompressionManager]:
    """Give a manager on a workspace; nothing is compressed automatically."""
    with ContextCompressionManager(CompressionConfig(), workspace) as manager:
        yield manager


def leave_no_sample(workspace: Path) -> None:
    """Say that the sample was made here already."""
    (workspace / ".refold").mkdir(parents=True, exist_ok=True)
    (workspace / ".refold" / "sample-made").write_text("once\n")


def sample_messages() -> list[Any]:
    """Return the messages of the bundled sample: an agent's session of 193 messages."""
    packed = Path(__file__).parents[2] / "src" / "refold" / "web" / "sample.json.gz"
    script = json.loads(gzip.decompress(packed.read_bytes()))
    return list(script["messages"])


def write_folded(workspace: Path, name: str = "folded") -> None:
    """Write a session with folds, shortened outputs and originals in view."""
    messages = sample_messages()
    with open_manager(workspace) as manager:
        manager.append(name, messages[:120])
        manager.compress(name)
        manager.append(name, messages[120:])


def write_long(workspace: Path, name: str = "long", count: int = 10_000) -> None:
    """Write a session of many messages, none of them folded."""
    messages = [
        {
            "role": "user",
            "content": f"Question {at}: what does step {at} of the plan ask for? " + "Say it briefly. " * 3,
        }
        if at % 2 == 0
        else {"role": "assistant", "content": f"Answer {at}: it asks for {at * 17} bolts and a **calm** hand."}
        for at in range(count)
    ]
    with open_manager(workspace) as manager:
        manager.append(name, messages)


def write_large(workspace: Path, name: str = "large") -> None:
    """Write a session with messages of a megabyte."""
    with open_manager(workspace) as manager:
        manager.append(
            name,
            [
                {"role": "user", "content": "First a small one."},
                {"role": "assistant", "content": "w" * 500_000 + " the middle " + "w" * 500_000 + " the very end"},
                {"role": "user", "content": "And a small one last."},
            ],
        )
