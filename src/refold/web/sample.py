"""A sample session for an empty workspace: an agent's day of work that has been folded several times, and goes on.

It is played through the manager step by step, in a window small enough to fill; what it reports as usage is what was
counted, and the list marks the session as a sample. It stops where the window is nearly full: whoever looks can
compress it, or play on and watch it fold (``SamplePlayer``). It is made once: a mark in the workspace remembers it, so
that a sample that was deleted stays deleted.
"""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from refold.config import CompressionConfig
from refold.errors import RefoldError
from refold.ledger.records import SessionRow
from refold.manager import ContextCompressionManager
from refold.prepared import PreparedContext
from refold.web.reading import SAMPLE, TITLE

log = logging.getLogger("refold.web")
NAME = "sample-harbour-billing"
PLAYED = "sample_played"
MARK_FILE = ".refold/sample-made"
WINDOW_TOKENS = 16_000
RESERVE_TOKENS = 3_000
STOP_SHARE = 0.8
STEP_S = 47.0
CACHED_TOKENS_MIN = 1_024
SAMPLE_TITLE = "An agent fixes a billing bug and adds retries"
# Two tabs may play at once: each step is one of them's.
_turn = threading.Lock()


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the sample did: the tokens in view before and after it, if it was folded."""

    folded_from: int = 0
    folded_to: int = 0
    is_last: bool = False


def make_sample(manager: ContextCompressionManager) -> bool:
    """Put the sample into a workspace that has no session and never had the sample; True if it was made."""
    mark = Path(manager.workspace_path) / MARK_FILE
    if mark.exists() or manager.ledger.list_sessions(limit=1):
        return False
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text("The sample session was made here once; it is not made again.\n", encoding="utf-8")
        _begin(manager)
    except (RefoldError, OSError) as error:
        # A page without a sample is still a page.
        log.warning("no sample session", extra={"fields": {"error": type(error).__name__}})
        return False
    return True


def _begin(manager: ContextCompressionManager) -> None:
    """Play the sample until the window is nearly full, in its second half."""
    player = SamplePlayer(manager)
    count = len(_read_script()["messages"])
    manager.ledger.open_session(NAME, player.moment.now)
    manager.ledger.update_session(NAME, {"settings": {PLAYED: 0}}, player.moment.now)
    manager.set_window(NAME, player.model, WINDOW_TOKENS, RESERVE_TOKENS)
    share = 0.0
    while player.at < count * 3 // 4 and player.play_step() is not None:
        # One step further: the newest one is never folded, and it may be what fills the window.
        if player.at > count // 2 and min(share, player.share) >= STOP_SHARE:
            break
        share = player.share
    manager.ledger.update_session(NAME, {"settings": {TITLE: SAMPLE_TITLE, SAMPLE: True}}, player.moment.now)


class SamplePlayer:
    """Plays the sample from where it stands, step by step: messages come in, a request is prepared, its bill told."""

    def __init__(self, manager: ContextCompressionManager) -> None:
        script = _read_script()
        self.messages: list[Any] = script["messages"]
        self.tools, self.model = script["tools"], script["model"]
        # Another manager on the same ledger: its window and its clock are the sample's own.
        config = CompressionConfig(window=WINDOW_TOKENS, reserve=RESERVE_TOKENS)
        self.ledger = manager.ledger
        self.manager = ContextCompressionManager(config, manager.workspace_path, ledger=manager.ledger)
        row = self.ledger.read_session(NAME)
        self.moment = _Clock(row.updated_at if row is not None else time.time() - STEP_S * len(self.messages))
        self.manager._keeper.clock = self.moment
        self.at = 0
        self.share = 0.0
        self._sent = 0

    def play_step(self) -> Step | None:
        """Play the next step; None if there is none, or somebody went on with the session in their own words."""
        with _turn:
            row = self.ledger.read_session(NAME)
            if row is None or not can_play(row):
                return None
            start = row.messages
            self.at = stop = _find_stop(self.messages, start)
            self.manager.append(NAME, self.messages[start:stop])
            self.moment.now += STEP_S * (stop - start)
            step = self._send(stop) if stop < len(self.messages) else Step(is_last=True)
            self.ledger.update_session(NAME, {"settings": {PLAYED: stop}}, self.moment.now)
            return step

    def _send(self, stop: int) -> Step:
        """Prepare the request that the message at ``stop`` answers."""
        before = self._count()
        prepared = self.manager.prepare_context_sync(NAME, tools=self.tools, model=self.model)
        self.manager.observe_usage(NAME, _make_usage(prepared, self._sent, self.messages[stop]))
        self._sent = prepared.total_tokens
        self.share = prepared.total_tokens / (WINDOW_TOKENS - RESERVE_TOKENS)
        return Step(before, self._count()) if _is_folded(prepared) else Step()

    def _count(self) -> int:
        """Return the tokens in view as the gauge tells them: it knows nothing of the sample's tools."""
        status = self.manager.status(NAME)
        return status.tokens - status.tools_tokens


def can_play(row: SessionRow) -> bool:
    """Tell whether a session is the sample, with more to come, and nobody has said anything else in it."""
    played = row.settings.get(PLAYED)
    return row.id == NAME and played == row.messages and row.messages < len(_read_script()["messages"])


def is_in_sample_window(row: SessionRow) -> bool:
    """Tell whether a session is the sample in the small window that it was played in."""
    return bool(row.settings.get(SAMPLE)) and row.model == _read_script()["model"]


@cache
def _read_script() -> dict[str, Any]:
    script: dict[str, Any] = orjson.loads(gzip.decompress((files("refold.web") / "sample.json.gz").read_bytes()))
    return script


def _is_folded(prepared: PreparedContext) -> bool:
    return prepared.report is not None and bool(prepared.report.stages)


def _make_usage(prepared: PreparedContext, sent_before: int, answer: Any) -> dict[str, Any]:
    """Return what a provider with a prompt cache would bill, by our own count."""
    kept = 0 if _is_folded(prepared) else min(sent_before, prepared.total_tokens)
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


def _find_stop(messages: Sequence[Any], start: int) -> int:
    """Return where a step ends that begins with an answer or a question: before the next answer of the model."""
    following = range(start + 1, len(messages))
    return next((at for at in following if messages[at]["role"] == "assistant"), len(messages))
