"""The chat behind the page: runs of the agent loop, one at a time per session, and the models they can use.

A run belongs to the server, not to the tab: closing or reloading a tab does not end it, and any tab of the session can
stop it. Messages are stored in the ledger first; ``Live`` holds only what is still being written. Nothing here touches
elements of the page: tabs poll ``ChatRoom.version``.

The operator can use every model that the settings and the environment name. A tenant can use only those that the
gateway holds a key for and those on this machine, so that tenants cannot spend the operator's keys. No text contains a
key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from refold.agent import Agent, AgentEvent, events
from refold.agent.models import OLLAMA_URL, Chosen, Wanted, choose_chat_model, find_ollama
from refold.config.load import ChatBlock, read_block
from refold.errors import ConfigError, LedgerError, RefoldError
from refold.llm.choose import DEFAULT_MODELS
from refold.llm.openai import NAME as LOCAL_NAME
from refold.llm.openai import LocalModel, find_local_model
from refold.manager import ContextCompressionManager
from refold.server.api.interface import show_error
from refold.server.auth import find_tenant
from refold.server.settings import ANTHROPIC, OPENAI
from refold.tokens import model_info

if TYPE_CHECKING:
    from refold.server.api.interface import Access
    from refold.server.app import Application


ROWS_MAX = 50
NAMES_MAX = 30
_locals: WeakKeyDictionary[Application, LocalModel] = WeakKeyDictionary()
_guard = threading.Lock()
log = logging.getLogger("refold.web")
ROOMS_MAX = 500
PROMPT_CHARS_MAX = 1_000_000
STOP_S_MAX = 20.0
THINKING_CHARS_MAX = 20_000
REPEATED_CHARS = 240
_ENDINGS = {"steps": "chat.ended_steps", "stuck": "chat.ended_stuck", "length": "chat.ended_length"}
SYSTEM = (
    "You are a helpful assistant on a web page. Answer in the user's language, in short Markdown. Older parts of this "
    "conversation may be folded into summaries; context_recall and context_expand bring the originals back."
)


@dataclass(frozen=True, slots=True)
class Offer:
    """The models of the picker: names, the default and why; ``problem`` if there is no model.

    ``kind`` is how the default was found: key, settings, ollama or local. ``wanted`` is the configured model that is
    not available, ``local`` the small one on this machine.
    """

    names: tuple[str, ...] = ()
    chosen: str = ""
    kind: str = "key"
    local: str = ""
    wanted: str = ""
    problem: ConfigError | None = None


def list_offer(access: Access, session_id: str) -> Offer:
    """Return the models that a caller can use; a session continues with its own model if that is available.

    The small local model is offered only in chats that started with it: it cannot continue a larger model's session.
    """
    row = access.ledger.read_session(session_id)
    session_model = row.model if row is not None else ""
    chosen: Chosen | None = None
    problem: ConfigError | None = None
    may_be_local = session_model in ("", LOCAL_NAME)
    for name in dict.fromkeys((session_model, "")):
        try:
            found = choose(access, name)
            if isinstance(found.model, LocalModel) and not may_be_local:
                raise ConfigError("no model is connected")
            chosen = found
            break
        except ConfigError as error:
            problem = error
    own = find_own_model(access, read_chat_block(access))
    if chosen is None:
        return Offer(problem=problem, wanted=own)
    variables = list_variables(access)
    names = [chosen.model.name, own]
    names += [DEFAULT_MODELS["openai"]] if variables.get("OPENAI_API_KEY") else []
    names += [DEFAULT_MODELS["anthropic"]] if variables.get("ANTHROPIC_API_KEY") else []
    names += find_ollama()
    names += [LOCAL_NAME] if may_be_local and _find_local(access.application) is not None else []
    for known in (one.model for one in access.list_rows(ROWS_MAX, 0)):
        key = "ANTHROPIC_API_KEY" if known.startswith("claude") else "OPENAI_API_KEY"
        names += [known] if variables.get(key) and known != LOCAL_NAME else []
    listed = tuple(dict.fromkeys(name for name in names if name))[:NAMES_MAX]
    local = LOCAL_NAME if LOCAL_NAME in listed else ""
    return Offer(listed, chosen.model.name, _name_kind(chosen, own), local)


def _name_kind(chosen: Chosen, own: str) -> str:
    if isinstance(chosen.model, LocalModel):
        return "local"
    if getattr(chosen.model, "url", "").startswith(OLLAMA_URL):
        return "ollama"
    return "settings" if chosen.model.name == own else "key"


def choose(access: Access, name: str) -> Chosen:
    """Return the model with this name, or the first one available; raise ConfigError if there is none."""
    find_local = partial(_find_local, access.application)
    if name == LOCAL_NAME and (local := find_local()) is not None:
        return Chosen(local, "asked for; it runs on this machine")
    block = read_chat_block(access)
    origin = "asked for" if name else "set as model in the settings"
    wanted = Wanted(name or find_own_model(access, block), block.get("base_url", ""), origin=origin)
    return choose_chat_model(wanted, list_variables(access), find_local=find_local)


def read_chat_block(access: Access) -> dict[str, str]:
    """Return the block ``chat`` of the settings, as ``refold chat`` reads it; empty for a tenant."""
    if access.tenant:
        return {}
    block = read_block(ChatBlock, access.manager.workspace_path)
    return {name: value for name, value in block.model_dump().items() if value}


def find_own_model(access: Access, block: Mapping[str, str]) -> str:
    """Return the model that the settings name; empty if there is none."""
    return block.get("model", "") or access.manager.config.model or ""


def find_window(access: Access, model: str) -> int:
    """Return the context window of a model under the current settings."""
    own = getattr(choose(access, model).model, "window", None)
    return own if isinstance(own, int) else access.manager.config.budget(model_info(model)).window


def list_variables(access: Access) -> Mapping[str, str]:
    """Return the keys and addresses that a caller may use, by the providers' own names."""
    settings = access.application.settings
    found = {} if access.tenant else dict(access.manager.config.variables)
    if settings.openai_key and not found.get("OPENAI_API_KEY"):
        url = "" if settings.openai_upstream == OPENAI else settings.openai_upstream
        found |= {"OPENAI_API_KEY": settings.openai_key, "OPENAI_BASE_URL": url}
    if settings.anthropic_key and not found.get("ANTHROPIC_API_KEY"):
        url = "" if settings.anthropic_upstream == ANTHROPIC else settings.anthropic_upstream
        found |= {"ANTHROPIC_API_KEY": settings.anthropic_key, "ANTHROPIC_BASE_URL": url}
    return found


def _find_local(application: Application) -> LocalModel | None:
    """Return the small local model, always the same object, because loading its weights is slow."""
    with _guard:
        known = _locals.get(application)
        if known is None and (known := find_local_model()) is not None:
            _locals[application] = known
        return known


@dataclass(slots=True)
class LiveCall:
    """A tool call of the current step; ``text`` is its result, once there is one."""

    id: str
    name: str
    arguments: str
    text: str = ""
    is_error: bool = False
    is_done: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class Live:
    """The text that is being written and not stored yet. ``step`` changes when all of it was stored.

    ``pieces`` is the answer as it was received, so that the cost per word does not grow with the answer.
    """

    step: int = 0
    pieces: list[str] = field(default_factory=list)
    thinking: str = ""
    calls: list[LiveCall] = field(default_factory=list)
    is_compressing: bool = False
    note: tuple[str, dict[str, object]] | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ChatRoom:
    """The run of one session, if there is one, and the result of the last one.

    ``problem`` says why there is no answer; ``refused`` is the prompt, if it was refused and nothing was stored.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.live = Live()
        self.version = 0
        self.stored = 0
        self.problem: RefoldError | None = None
        self.refused = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, manager: ContextCompressionManager, chosen: Chosen, prompt: str, system: str = SYSTEM) -> None:
        """Send a prompt; raise ConfigError if an answer is already being written."""
        if self.is_running:
            raise ConfigError("an answer is being written in this session; wait for it, or stop it first")
        if not prompt.strip():
            raise ConfigError("the message is empty; type something first")
        if len(prompt) > PROMPT_CHARS_MAX:
            raise ConfigError("the message has more than {most:,} characters; shorten it", most=PROMPT_CHARS_MAX)
        self.problem, self.refused = None, ""
        self.live = Live(self.live.step + 1)
        self._change()
        run = self._run(manager, chosen, prompt, system)
        self._task = asyncio.create_task(run, name=f"refold-chat-{self.session_id[:40]}")

    async def stop(self) -> None:
        """Stop the run; the text written so far is stored and marked as cut off."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_S_MAX)

    async def wait_stored(self) -> bool:
        """Wait until the prompt of the run is in the ledger; False if the run ended before that."""
        while not self.stored and self.is_running:  # A run has limits of its own.
            await asyncio.sleep(0.02)
        return self.stored > 0

    def _change(self) -> None:
        self.version += 1

    async def _run(self, manager: ContextCompressionManager, chosen: Chosen, prompt: str, system: str) -> None:
        is_begun = False
        try:
            first = await asyncio.to_thread(manager.ledger.list_messages, self.session_id, limit=1)
            if first and first[0].role == "system":
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
            tenant = find_tenant(self.session_id)
            self.problem = type(error)(show_error(error, tenant)) if isinstance(error, LedgerError) else error
            if isinstance(error, ConfigError) and not is_begun:
                self.refused = prompt
        except Exception as error:
            log.exception("chat failed")
            self.problem = RefoldError("unexpected {kind}; see refold's log", kind=type(error).__name__)
        finally:
            self._settle()

    def _take(self, event: AgentEvent) -> None:
        live = self.live
        match event:
            case events.StepStarted():
                self._settle()
                if live.note is not None and live.note[0] != "chat.compressed":
                    self.live.note = None  # A compression made for this request is shown until the next one.
            case events.TextDelta():
                live.pieces.append(event.text)
            case events.ThinkingDelta():
                live.thinking = (live.thinking + event.text)[-THINKING_CHARS_MAX:]
            case events.ToolStarted():
                if live.pieces or live.thinking:
                    self._settle()  # The message that calls is stored before its tools run.
                self.live.calls.append(LiveCall(event.id, event.name, event.arguments))
            case events.ToolFinished():
                for call in (one for one in live.calls if one.id == event.id):
                    call.text, call.is_error, call.is_done = event.text, event.is_error, True
                    call.seconds = event.seconds
            case events.Compressing():
                live.is_compressing = True
            case events.Compressed():
                live.is_compressing = False
                live.note = ("chat.compressed", {"before": event.tokens_before, "after": event.tokens_after})
            case events.CompressionSkipped():
                live.is_compressing = False
            case events.Retrying():
                self.live = Live(live.step + 1, note=("chat.retrying", {"why": event.reason[:300]}))
            case events.Warned():
                live.note = ("chat.warned", {"what": event.text[:300]})
            case events.Finished() if event.reason in _ENDINGS:
                live.note = (_ENDINGS[event.reason], {})
            case _:
                return
        self._change()

    def _settle(self) -> None:
        """Clear the live text: all of it is stored now."""
        self.live = Live(self.live.step + 1, note=self.live.note)
        self.stored += 1
        self._change()


def is_repeating(words: str) -> bool:
    """Return whether a text ends in one phrase repeated over and over, as small models do."""
    tail = words[-REPEATED_CHARS:]
    if len(tail) < REPEATED_CHARS:
        return False
    return any(tail == (tail[-size:] * (REPEATED_CHARS // size + 1))[-REPEATED_CHARS:] for size in range(1, 81))


class Rooms:
    """The rooms of one server; the least recently used are dropped first, except those with a run."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, ChatRoom] = OrderedDict()

    def find(self, session_id: str) -> ChatRoom:
        room = self._rooms.setdefault(session_id, ChatRoom(session_id))
        self._rooms.move_to_end(session_id)
        if len(self._rooms) > ROOMS_MAX:
            idle = [name for name, one in self._rooms.items() if not one.is_running and name != session_id]
            for name in idle[: len(self._rooms) - ROOMS_MAX]:
                del self._rooms[name]
        return room

    async def close(self) -> None:
        """Stop every run, so that each session is left in a consistent state."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(room.stop() for room in list(self._rooms.values())))


_rooms: WeakKeyDictionary[Application, Rooms] = WeakKeyDictionary()


def find_rooms(application: Application) -> Rooms:
    return _rooms.setdefault(application, Rooms())
