"""Recorded sessions, read one by one. They are not part of the project: without them these tests skip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHATS = (
    "tau_airline",
    "swe_mini",
    "agent_long",
    "agent_native_misc",
    "bfcl_long_replay",
    "bfcl_memory",
    "locomo",
    "zh_dialogues",
    "zh_long_concat",
)


def read_records(folder: Path, name: str, every: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the records of one file, or every n-th of them."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % every == 0:
                yield json.loads(line)
