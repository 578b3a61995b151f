"""Runs of the agent loop behind the page: one at a time for each session, whoever started it, seen by every tab.

A run belongs to the server, not to the tab: closing or reloading a tab does not end it, and any tab of the session can
stop it. What was said is in the ledger before anything else happens; here is only what is still being said. No element
of the page is touched: tabs look at ``Room.version``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from refold.agent import Agent, AgentEvent
from refold.agent import events as told
from refold.errors import ConfigError, RefoldError
from refold.llm.openai import LocalModel
from refold.manager import ContextCompressionManager

if TYPE_CHECKING:
    from refold.agent.models import Chosen
    from refold.server.app import Application

log = logging.getLogger("refold.web")
ROOMS_MAX = 500
PROMPT_CHARS_MAX = 1_000_000
START_S_MAX = 20.0
THINKING_CHARS_MAX = 20_000
REPEATED_CHARS = 240
_ENDINGS = {"steps": "chat.ended_steps", "stuck": "chat.ended_stuck", "length": "chat.ended_length"}
SYSTEM = (
    "You are a helpful assistant on a web page. Answer in the user's language, in short Markdown. Older parts of this "
    "conversation may be folded into summaries; context_recall and context_expand bring the originals back."
)


@dataclass(slots=True)
class LiveCall:
    """A tool call of the step under way; ``text`` is its result once it has one."""

    id: str
    name: str
    arguments: str
    text: str = ""
    is_error: bool = False
    is_done: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class Live:
    """What is being said and not stored yet. ``step`` changes when all of it became history.

    ``pieces`` are the answer as it came, so that a long one costs no more by the word than a short one.
    """

    step: int = 0
    pieces: list[str] = field(default_factory=list)
    thinking: str = ""
    calls: list[LiveCall] = field(default_factory=list)
    is_compressing: bool = False
    note: tuple[str, dict[str, object]] | None = None

    @property
    def text(self) -> str:
        """The answer until now."""
        return "".join(self.pieces)


class Room:
    """One session's run, if there is one, and what the last one came to.

    ``problem`` says why there is no answer; ``refused`` is the prompt, if it was not even taken and nothing is stored.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.live = Live()
        self.version = 0
        self.stored = 0
        self.problem = ""
        self.refused = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """True while an answer is being written."""
        return self._task is not None and not self._task.done()

    def start(self, manager: ContextCompressionManager, chosen: Chosen, prompt: str, system: str = SYSTEM) -> None:
        """Send a prompt; ConfigError if an answer is being written already."""
        if self.is_running:
            raise ConfigError("an answer is being written in this session; wait for it, or stop it first")
        if not prompt.strip():
            raise ConfigError("the message is empty; say what is to be done")
        if len(prompt) > PROMPT_CHARS_MAX:
            raise ConfigError(f"the message has more than {PROMPT_CHARS_MAX:,} characters; shorten it")
        self.problem = self.refused = ""
        self.live = Live(self.live.step + 1)
        self._change()
        run = self._run(manager, chosen, prompt, system)
        self._task = asyncio.create_task(run, name=f"refold-chat-{self.session_id[:40]}")

    async def stop(self) -> None:
        """Stop the run; what was said until now is kept, marked as cut off."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=START_S_MAX)

    async def wait_stored(self) -> bool:
        """Wait until the prompt of the run is in the ledger; False if the run ended before that."""
        until = time.monotonic() + START_S_MAX
        while not self.stored and self.is_running and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return self.stored > 0

    def _change(self) -> None:
        self.version += 1

    async def _run(self, manager: ContextCompressionManager, chosen: Chosen, prompt: str, system: str) -> None:
        is_begun = False
        try:
            if await asyncio.to_thread(has_system, manager, self.session_id):
                system = ""
            agent = Agent(
                chosen.model,
                manager=manager,
                session_id=self.session_id,
                system=system,
                context_tools=not getattr(chosen.model, "refuses_tools", False),
            )
            run = agent.run(prompt)
            try:
                async for event in run:
                    is_begun = True
                    self._take(event)
                    if isinstance(chosen.model, LocalModel) and is_repeating(self.live.text):
                        self.live.note = ("chat.ended_repeating", {})
                        break
            finally:
                await run.aclose()  # type: ignore[attr-defined]
        except asyncio.CancelledError:
            self.live.note = ("chat.stopped", {})
        except RefoldError as error:
            self.problem = str(error)[:1_000]
            if isinstance(error, ConfigError) and not is_begun:
                self.refused = prompt
        except Exception as error:
            log.exception("chat failed")
            self.problem = f"unexpected {type(error).__name__}; the log of refold says more"
        finally:
            self._settle()

    def _take(self, event: AgentEvent) -> None:
        live = self.live
        match event:
            case told.StepStarted():
                self._settle()
                if live.note is not None and live.note[0] != "chat.compressed":
                    self.live.note = None  # What was folded for this very request is told until the next one.
            case told.TextDelta():
                live.pieces.append(event.text)
            case told.ThinkingDelta():
                live.thinking = (live.thinking + event.text)[-THINKING_CHARS_MAX:]
            case told.ToolStarted():
                self._start_call(event)
            case told.ToolFinished():
                self._finish_call(event)
            case told.Compressing() | told.Compressed() | told.CompressionSkipped():
                self._tell_compression(event)
            case told.Retrying():
                self.live = Live(live.step + 1, note=("chat.retrying", {"why": event.reason[:300]}))
            case told.Warned():
                live.note = ("chat.warned", {"what": event.text[:300]})
            case told.Finished() if event.reason in _ENDINGS:
                live.note = (_ENDINGS[event.reason], {})
            case _:
                return
        self._change()

    def _settle(self) -> None:
        """Everything said so far is history now."""
        note = self.live.note
        self.live = Live(self.live.step + 1, note=note)
        self.stored += 1
        self._change()

    def _start_call(self, event: told.ToolStarted) -> None:
        if self.live.pieces or self.live.thinking:
            self._settle()  # The message that calls is stored before its tools run.
        self.live.calls.append(LiveCall(event.id, event.name, event.arguments))

    def _finish_call(self, event: told.ToolFinished) -> None:
        for call in self.live.calls:
            if call.id == event.id:
                call.text, call.is_error, call.is_done, call.seconds = event.text, event.is_error, True, event.seconds

    def _tell_compression(self, event: told.Compressing | told.Compressed | told.CompressionSkipped) -> None:
        self.live.is_compressing = isinstance(event, told.Compressing)
        if isinstance(event, told.Compressed):
            self.live.note = ("chat.compressed", {"before": event.tokens_before, "after": event.tokens_after})


def is_repeating(words: str) -> bool:
    """Tell whether a text ends in one phrase, said over and over: what a tiny model falls into."""
    tail = words[-REPEATED_CHARS:]
    if len(tail) < REPEATED_CHARS:
        return False
    return any(tail == (tail[-size:] * (REPEATED_CHARS // size + 1))[-REPEATED_CHARS:] for size in range(1, 81))


def has_system(manager: ContextCompressionManager, session_id: str) -> bool:
    """Tell whether a session brings a system prompt of its own."""
    first = manager.ledger.list_messages(session_id, limit=1)
    return bool(first) and first[0].role == "system"


class Rooms:
    """The rooms of one server; those that nobody used for longest are forgotten first, never one that runs."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, Room] = OrderedDict()

    def find(self, session_id: str) -> Room:
        """Return the room of a session."""
        room = self._rooms.setdefault(session_id, Room(session_id))
        self._rooms.move_to_end(session_id)
        if len(self._rooms) > ROOMS_MAX:
            idle = [name for name, one in self._rooms.items() if not one.is_running and name != session_id]
            for name in idle[: len(self._rooms) - ROOMS_MAX]:
                del self._rooms[name]
        return room

    async def close(self) -> None:
        """Stop every run, so that each session is left in order."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(room.stop() for room in list(self._rooms.values())))


_rooms: WeakKeyDictionary[Application, Rooms] = WeakKeyDictionary()


def find_rooms(application: Application) -> Rooms:
    """Return the rooms of a server."""
    return _rooms.setdefault(application, Rooms())
