"""The sample session of an empty workspace: an agent's day of work, folded several times, that can be continued.

It is played through the manager step by step, in a window small enough to fill. We count its usage ourselves, and its
window is part of its settings, so every face shows the same figures. It stops when the window is nearly full. A reader
can play on and watch it fold, ask for something that was folded, or start over. A file in the workspace records that
the sample was created, so a deleted sample stays deleted.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
from nicegui import ui

from refold.config import CompressionConfig
from refold.errors import RefoldError
from refold.ledger.records import SessionRow
from refold.manager import ContextCompressionManager
from refold.manager.recorded import is_changed, make_usage
from refold.manager.session_state import TITLE
from refold.prepared import PreparedContext
from refold.server.api.interface import Access
from refold.web.data import SAMPLE
from refold.web.shell import button, notify, set_prop, text
from refold.web.visit import find_visit, say

log = logging.getLogger("refold.web")
NAME = "sample-harbour-billing"
PLAYED = "sample_played"
MARK_FILE = ".refold/sample-made"
WINDOW_TOKENS = 16_000
RESERVE_TOKENS = 3_000
STOP_SHARE = 0.8
STEP_S = 47.0
CACHED_TOKENS_MIN = 1_024
PAUSE_S = 0.9
SAMPLE_TITLE = "An agent fixes a billing bug and adds retries"
# Two tabs may play at the same time; each step is played by one of them.
_turn = threading.Lock()
# Held while the sample is started over: for a moment the session is not there.
_reset = threading.Lock()


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """A question about something that was folded, the value that answers it, and the answer."""

    question: str
    value: str
    answer: str


QUESTIONS = (
    SampleQuestion(
        "Which port does the database quayline_dev listen on?",
        "5493",
        "Port **5493**: the settings say `postgresql://quayline@127.0.0.1:5493/quayline_dev`.",
    ),
    SampleQuestion(
        "Who is the author of commit 77c0d38ae?",
        "i.brandao@example.com",
        "I. Brandao (**i.brandao@example.com**), on 2 September 2025.",
    ),
    SampleQuestion(
        "Which error code does the API answer for StayTooLong?",
        "E4107",
        "**E4107**: `StayTooLong` in `quayline/billing/nights.py`.",
    ),
    SampleQuestion(
        "Which fix did we commit for QL-2217, and on which branch?",
        "74a1c5b74",
        "Commit **74a1c5b74** on `fix/ql-2217-calendar-nights`: *billing: count nights on the calendar*.",
    ),
    SampleQuestion(
        "What was the time zone of tenant tnt_x8c6ju again?",
        "Ilha das Cabras",
        "**Europe/Lisbon**. The tenant is Ilha das Cabras.",
    ),
)


@dataclass(frozen=True, slots=True)
class SampleStep:
    """The result of one step: the tokens in view before and after, if it triggered a fold."""

    folded_from: int = 0
    folded_to: int = 0
    is_last: bool = False


def make_sample(manager: ContextCompressionManager) -> bool:
    """Create the sample in a workspace without sessions that never had it; return True if it was created."""
    mark = Path(manager.workspace_path) / MARK_FILE
    if mark.exists() or manager.ledger.list_sessions(limit=1):
        return False
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text("The sample session was created here once; it is not created again.\n", encoding="utf-8")
        _begin(manager)
    except (RefoldError, OSError) as error:
        # The page also works without the sample.
        log.warning("no sample session", extra={"fields": {"error": type(error).__name__}})
        return False
    return True


def reset_sample(manager: ContextCompressionManager) -> None:
    with _reset:
        with _turn:
            manager.delete_session(NAME)
        _begin(manager)


def is_sample_back(access: Access) -> bool:
    """Return whether a sample that a tab did not find is being started over, or is there again."""
    return _reset.locked() or access.ledger.read_session(NAME) is not None


def _begin(manager: ContextCompressionManager) -> None:
    """Play the sample until the window is nearly full, in its second half."""
    player = SamplePlayer(manager)
    count = len(_read_script()["messages"])
    manager.ledger.open_session(NAME, player.now)
    manager.ledger.update_session(NAME, {"settings": {PLAYED: 0}}, player.now)
    manager.set_window(NAME, player.model, WINDOW_TOKENS, RESERVE_TOKENS)
    share = 0.0
    while player.at < count * 3 // 4 and player.play_step() is not None:
        # Play one step more: the newest step is never folded, and it alone may fill the window.
        if player.at > count // 2 and min(share, player.share) >= STOP_SHARE:
            break
        share = player.share
    manager.ledger.update_session(NAME, {"settings": {TITLE: SAMPLE_TITLE, SAMPLE: True}}, player.now)


class SamplePlayer:
    """Plays the sample step by step: appends messages, prepares a request, reports its usage."""

    def __init__(self, manager: ContextCompressionManager) -> None:
        script = _read_script()
        self.messages: list[Any] = script["messages"]
        self.tools, self.model = script["tools"], script["model"]
        # Another manager on the same ledger, with default settings and the sample's own clock.
        self.ledger = manager.ledger
        row = self.ledger.read_session(NAME)
        self.now = row.updated_at if row is not None else time.time() - STEP_S * len(self.messages)
        self.manager = ContextCompressionManager(
            CompressionConfig(), manager.workspace_path, ledger=manager.ledger, clock=lambda: self.now
        )
        self.at = 0
        self.share = 0.0
        self._sent = 0

    def play_step(self) -> SampleStep | None:
        """Play the next step; return None after the last one, or if the session has other messages."""
        with _turn:
            row = self.ledger.read_session(NAME)
            if row is None or not can_play(row):
                return None
            start = row.messages
            self.at = stop = _find_stop(self.messages, start)
            self.manager.append(NAME, self.messages[start:stop])
            self.now += STEP_S * (stop - start)
            step = self._send(self.messages[stop]) if stop < len(self.messages) else SampleStep(is_last=True)
            self.ledger.update_session(NAME, {"settings": {PLAYED: stop}}, self.now)
            return step

    def find_question(self, number: int) -> SampleQuestion | None:
        """Return the first question, from this number on, whose value is out of view; None if all are in view."""
        view = " ".join(str(item.raw) for item in self.manager.read_view(NAME))
        asked = (QUESTIONS[(number + at) % len(QUESTIONS)] for at in range(len(QUESTIONS)))
        return next((one for one in asked if one.value not in view), None)

    def ask(self, asked: SampleQuestion) -> bool:
        """Ask a question and answer it; return True if recall added the value to the request.

        If it did not, the agent looks the value up with a tool first, as a real one would.
        """
        with _turn:
            self.manager.append(NAME, [{"role": "user", "content": asked.question}])
            self.now += STEP_S
            prepared = self._prepare()
            answer: dict[str, Any] = {"role": "assistant", "content": asked.answer}
            is_added = asked.value in str(prepared.messages[-1])
            if not is_added:
                self._look_up(asked)
                prepared = self._prepare()
            self._report(prepared, answer)
            self.manager.append(NAME, [answer])
            return is_added

    def _look_up(self, asked: SampleQuestion) -> None:
        found = self.manager.recall(NAME, asked.question, 3)
        arguments = orjson.dumps({"query": asked.question}).decode()
        call = {"id": "call_sample", "type": "function", "function": {"name": "context_recall", "arguments": arguments}}
        said = "\n\n".join(f"⟨{one.handle}⟩ {one.text}" for one in found) or "nothing was found"
        call_message = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "call_sample", "content": said[:4_000]}
        self.manager.append(NAME, [call_message, result])

    def _prepare(self) -> PreparedContext:
        return self.manager.prepare_context_sync(NAME, tools=self.tools, model=self.model)

    def _report(self, prepared: PreparedContext, answer: Any) -> None:
        kept = 0 if is_changed(prepared) else min(self._sent, prepared.total_tokens)
        cached = kept if kept >= CACHED_TOKENS_MIN else 0
        self.manager.observe_usage(NAME, make_usage(prepared, cached, answer))
        self._sent = prepared.total_tokens

    def _send(self, answer: Any) -> SampleStep:
        """Prepare the request that ``answer`` answers."""
        prepared = self._prepare()
        self._report(prepared, answer)
        self.share = prepared.total_tokens / (WINDOW_TOKENS - RESERVE_TOKENS)
        report = prepared.report
        if report is None or not is_changed(prepared):
            return SampleStep()
        return SampleStep(report.tokens_before, report.tokens_after)


def is_sample(row: SessionRow) -> bool:
    return row.id == NAME and bool(row.settings.get(SAMPLE))


def can_play(row: SessionRow) -> bool:
    """Return whether a session is the sample, with steps left and no other messages."""
    played = row.settings.get(PLAYED)
    return row.id == NAME and played == row.messages and row.messages < len(_read_script()["messages"])


@cache
def _read_script() -> dict[str, Any]:
    script: dict[str, Any] = orjson.loads(gzip.decompress((files("refold.web") / "sample.json.gz").read_bytes()))
    return script


def _find_stop(messages: Sequence[Any], start: int) -> int:
    """Return the end of the step that starts here: the next answer of the model."""
    following = range(start + 1, len(messages))
    return next((at for at in following if messages[at]["role"] == "assistant"), len(messages))


class SampleBar:
    """The bar below the sample, in one tab: play, ask, start over.

    ``on_step`` refreshes the view; ``follow`` scrolls it to the newest message.
    """

    def __init__(self, row: SessionRow, on_step: Callable[[], Awaitable[object]], follow: Callable[[], object]) -> None:
        self.source = find_visit().source
        self.on_step, self.follow = on_step, follow
        self.client = ui.context.client
        self.is_busy = self.is_playing = False
        self.asked = 0
        play, ask, reset = self._alone(self._play), self._alone(self._ask), self._alone(self._reset)
        with ui.element("div").classes("sample-bar").props("role=note") as bar:
            self.words = text("span", say("session.sample_why", window=WINDOW_TOKENS), "soft")
            self.play = button(say("session.sample_play"), play, kind="small primary", icon_name="play")
            self.pause = button(say("session.sample_pause"), self._pause, kind="small", icon_name="pause")
            self.ask = button(say("session.sample_ask"), ask, kind="small", icon_name="search")
            self.reset = button(say("session.sample_reset"), reset, kind="small quiet", icon_name="undo")
        bar.set_visibility(is_sample(row))
        self._show(row)

    def _show(self, row: SessionRow) -> None:
        can = can_play(row)
        self.play.set_visibility(can and not self.is_playing)
        self.pause.set_visibility(self.is_playing)
        for one in (self.ask, self.reset):
            set_prop(one, "disabled", self.is_busy)

    async def _catch_up(self) -> None:
        await self.on_step()
        row = await self.source.run(lambda access: access.need(NAME))
        self._show(row)

    def _pause(self) -> None:
        self.is_playing = False

    def _alone(self, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Return the handler of a button; it does nothing while another button's handler is running."""

        async def run() -> None:
            if self.is_busy:
                return
            self.is_busy = True
            try:
                await work()
            finally:
                self.is_busy = self.is_playing = False
                await self._catch_up()

        return run

    async def _play(self) -> None:
        self.is_playing = True
        self.follow()
        player = await self.source.run(lambda access: SamplePlayer(access.manager))
        while self.is_playing and self.client.has_socket_connection:
            step = await self.source.run(lambda _: player.play_step())
            await self._catch_up()
            if step is None or step.is_last:
                break
            if step.folded_from:
                notify(say("session.sample_folded", before=step.folded_from, after=step.folded_to))
                break
            await asyncio.sleep(PAUSE_S)

    async def _ask(self) -> None:
        player = await self.source.run(lambda access: SamplePlayer(access.manager))
        asked = await self.source.run(lambda _: player.find_question(self.asked))
        if asked is None:
            notify(say("session.sample_all_in_view"))
            return
        self.asked = QUESTIONS.index(asked) + 1
        is_added = await self.source.run(lambda _: player.ask(asked))
        await self.on_step()
        self.follow()
        notify(say("session.sample_recalled" if is_added else "session.sample_looked_up", value=asked.value))

    async def _reset(self) -> None:
        await self.source.run(lambda access: reset_sample(access.manager))
        self.asked = 0
