"""A sample session for an empty workspace, so that the page has something to show on the first start.

An agent's day of work is played through the manager step by step, in a window small enough to be folded several times;
what it reports as usage is what was counted, and the list marks the session as a sample. It is made once: a mark in
the workspace remembers it, so that a sample that was deleted stays deleted.
"""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from refold.config import CompressionConfig
from refold.errors import RefoldError
from refold.manager import ContextCompressionManager
from refold.prepared import PreparedContext
from refold.web.reading import SAMPLE, TITLE

log = logging.getLogger("refold.web")
NAME = "sample-harbour-billing"
MARK_FILE = ".refold/sample-made"
WINDOW_TOKENS = 40_000
STEP_S = 47.0
CACHED_TOKENS_MIN = 1_024
SAMPLE_TITLE = "An agent fixes a billing bug and adds retries"


def make_sample(manager: ContextCompressionManager) -> bool:
    """Put the sample into a workspace that has no session and never had the sample; True if it was made."""
    mark = Path(manager.workspace_path) / MARK_FILE
    if mark.exists() or manager.ledger.list_sessions(limit=1):
        return False
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text("The sample session was made here once; it is not made again.\n", encoding="utf-8")
        _play(manager)
    except (RefoldError, OSError) as error:
        # A page without a sample is still a page.
        log.warning("no sample session", extra={"fields": {"error": type(error).__name__}})
        return False
    return True


def _play(manager: ContextCompressionManager) -> None:
    script = orjson.loads(gzip.decompress((files("refold.web") / "sample.json.gz").read_bytes()))
    messages: list[Any] = script["messages"]
    moment = _Clock(time.time() - STEP_S * len(messages))
    config = CompressionConfig(window=WINDOW_TOKENS, reserve=4_000)
    # Another manager on the same ledger: its window and its clock are the sample's own.
    player = ContextCompressionManager(config, manager.workspace_path, ledger=manager.ledger)
    player._keeper.clock = moment
    sent = 0
    for start, stop in _find_steps(messages):
        player.append(NAME, messages[start:stop])
        moment.now += STEP_S * (stop - start)
        if stop == len(messages):
            break
        if messages[stop]["role"] == "assistant":
            prepared = player.prepare_context_sync(NAME, tools=script["tools"], model=script["model"])
            player.observe_usage(NAME, _make_usage(prepared, sent, messages[stop]))
            sent = prepared.total_tokens
    changes = {"settings": {TITLE: SAMPLE_TITLE, SAMPLE: True}}
    manager.ledger.update_session(NAME, changes, moment.now)


def _make_usage(prepared: PreparedContext, sent_before: int, answer: Any) -> dict[str, Any]:
    """Return what a provider with a prompt cache would bill, by our own count."""
    kept = 0 if prepared.report is not None and prepared.report.stages else min(sent_before, prepared.total_tokens)
    words = len(orjson.dumps(answer))
    return {
        "prompt_tokens": prepared.total_tokens,
        "completion_tokens": words // 4,
        "prompt_tokens_details": {"cached_tokens": kept if kept >= CACHED_TOKENS_MIN else 0},
    }


class _Clock:
    """The time within the sample."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def _find_steps(messages: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield from where to where messages come between two answers of the model."""
    start = 0
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            if at > start:
                yield start, at
            yield at, at + 1
            start = at + 1
    if start < len(messages):
        yield start, len(messages)
