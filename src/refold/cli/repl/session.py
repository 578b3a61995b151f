"""One interactive chat: its state, the loop that reads and answers, and what it prints about a turn's events.

Slash commands and the loop share ``ChatSession``. Changing the model or the session creates a new agent over the same
ledger. At a terminal the loop prompts; from a pipe every line is a turn; with ``--once`` the whole input is one turn.
Before a tool writes or runs, the user is asked. All arguments are shown: nothing can hide past the end of a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from refold.agent import Agent, AgentEvent, AgentLimits, Tool, events
from refold.agent.models import Chosen, find_endpoint
from refold.agent.tools import Approve
from refold.cli.repl.screen import OPTIMISING, Screen, write_gauge
from refold.cli.words import clean_line, count_things, describe_change, describe_error, describe_share, say_reason, tr
from refold.errors import BudgetTooSmall, FormatError, LedgerError, RefoldError
from refold.formats.streamed import ToolCall
from refold.llm.choose import converse_with
from refold.manager import ContextCompressionManager
from refold.manager.status import SessionStatus

if TYPE_CHECKING:
    from refold.cli.repl.keyboard import Keyboard
    from refold.ledger.sql.ledger import Ledger


Result = TypeVar("Result")
STDIN_CHARS_MAX = 50_000_000
_RESULT_CHARS = 60
SYSTEM = (
    "You are a helpful assistant in a terminal. Answer in the user's language, in short Markdown. Older parts of this "
    "conversation may be folded into summaries; context_recall and context_expand bring the originals back."
)
SHOWN_CHARS = 4_000
# Shorter calls are shown in full by the line that announces them.
LINE_CHARS = 90
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


@dataclass
class ChatSession:
    """The state of a chat."""

    manager: ContextCompressionManager
    chosen: Chosen
    choose: Callable[[str], Chosen]  # Finds another model by its name.
    session_id: str
    tools: list[Tool] = field(default_factory=list)
    system: str = SYSTEM
    limits: AgentLimits = field(default_factory=AgentLimits)
    approve: Approve | None = None
    agent: Agent = field(init=False)
    is_over: bool = False

    def __post_init__(self) -> None:
        self.open(self.session_id)

    def open(self, session_id: str) -> None:
        """Continue a session, or start it."""
        self.session_id = session_id
        self.agent = Agent(
            self.chosen.model,
            self.tools,
            self.manager,
            session_id=session_id,
            system=self.system,
            limits=self.limits,
            approve=self.approve,
            context_tools=not getattr(self.chosen.model, "refuses_tools", False),
        )

    def converse(self) -> AbstractContextManager[None]:
        """Let the chat's own model write the summaries that are started inside this context."""
        return converse_with(find_endpoint(self.chosen.model))

    def status(self) -> SessionStatus | None:
        """Return the status including system prompt and tools; None before the first message."""
        tools, model = self.agent.write_tools() or None, self.chosen.model.name
        try:
            return self.manager.status(self.session_id, self.system, tools=tools, model=model)
        except LedgerError:
            return None

    def gauge(self) -> str:
        """Return the current gauge; empty before the first message."""
        status = self.status()
        return write_gauge(status) if status is not None else ""


def name_session(now: datetime, ledger: Ledger) -> str:
    """Return the name of a new session; two chats that begin in the same second have different ones."""
    name = f"chat-{now:%Y%m%d-%H%M%S}"
    number = 1
    while ledger.read_session(name if number == 1 else f"{name}-{number}") is not None:
        number += 1
    return name if number == 1 else f"{name}-{number}"


async def talk(chat: ChatSession, screen: Screen, keyboard: Keyboard, first: asyncio.Future[str]) -> None:
    """Chat at a terminal; ``first`` is the line already being typed."""
    from refold.cli.repl.keyboard import Interrupted, hushed

    keyboard.gauge = lambda: screen.wrap(chat.gauge())
    chat.approve = chat.approve or make_approve(screen, keyboard)
    chat.open(chat.session_id)

    def load_client() -> None:
        with contextlib.suppress(ImportError):  # The first request reports what is missing.
            import_module("anthropic" if chat.chosen.model.wire == "anthropic" else "openai")

    # Importing the provider's client takes seconds.
    threading.Thread(target=load_client, name="refold-load-client", daemon=True).start()
    was_interrupted = False
    reading = first
    while not chat.is_over:
        try:
            line = await reading
        except EOFError:
            return
        except Interrupted:
            if was_interrupted:
                return
            was_interrupted = True
            screen.note("press Ctrl-C again or Ctrl-D, or type /quit, to leave")
        else:
            was_interrupted = False
            with hushed():
                # The prompt already shows the gauge.
                await take_line(chat, screen, line, shows_gauge=False)
        if not chat.is_over:
            reading = asyncio.ensure_future(keyboard.read())


async def take_line(chat: ChatSession, screen: Screen, line: str, *, shows_gauge: bool) -> RefoldError | None:
    """Run a slash command, or send the line to the model."""
    if not line.strip():
        return None
    if line.lstrip().startswith("/") and "\n" not in line.strip():
        from refold.cli.repl.commands import run_command  # Here, because commands import this module.

        await _run_stoppable(screen, run_command(chat, screen, line), tr("stopped; nothing was changed"))
        return None
    error = await run_turn(chat, screen, line, shows_gauge=shows_gauge)
    if error is not None:
        screen.note(describe_error(error), "red")
    return error


async def talk_from_pipe(chat: ChatSession, screen: Screen, prompt: str, *, is_once: bool) -> None:
    """Answer the prompt or standard input; raise the first error."""
    if prompt or is_once:
        text = prompt or await asyncio.to_thread(sys.stdin.read, STDIN_CHARS_MAX + 1)
        if not text.strip():
            raise FormatError("the input is empty; try: echo 'hello' | refold chat --once")
        if len(text) > STDIN_CHARS_MAX:
            raise FormatError("the input has more than {most:,} characters", most=STDIN_CHARS_MAX)
        error = await run_turn(chat, screen, text, shows_gauge=False)
        if error is not None:
            raise error
        return
    while not chat.is_over and (line := await asyncio.to_thread(sys.stdin.readline, STDIN_CHARS_MAX)):
        error = await take_line(chat, screen, line.rstrip("\n"), shows_gauge=True)
        if error is not None:
            raise error


async def run_turn(
    chat: ChatSession, screen: Screen, prompt: str | None, *, shows_gauge: bool = True
) -> RefoldError | None:
    """Run one turn; return its error, if any. Ctrl-C stops the turn, not the chat."""
    stopped = tr("stopped; the session is intact, type to continue")
    try:
        return await _run_stoppable(screen, _follow(chat, screen, prompt), stopped)
    finally:
        if shows_gauge and (gauge := chat.gauge()):
            screen.note(gauge)


async def _run_stoppable(screen: Screen, work: Coroutine[Any, Any, Result], stopped: str) -> Result | None:
    """Run something that Ctrl-C stops; print ``stopped`` and return None in that case."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    # Signals are not available outside the main thread and outside POSIX.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        screen.note(stopped, "yellow")
        return None
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
        screen.rest()


async def _follow(chat: ChatSession, screen: Screen, prompt: str | None) -> RefoldError | None:
    screen.wait("…")
    stream = chat.agent.run(prompt)
    try:
        async for event in stream:
            show_event(screen, event)
    except RefoldError as error:
        return error
    finally:
        with contextlib.suppress(RuntimeError):
            await stream.aclose()  # type: ignore[attr-defined]
    return None


def show_event(screen: Screen, event: AgentEvent) -> None:
    match event:
        case events.TextDelta():
            screen.say(event.text)
        case events.ToolStarted():
            screen.note(f"→ {event.name}({clean_line(event.arguments, LINE_CHARS)})")
            screen.wait(event.name)
        case events.ToolFinished():
            mark = "✗" if event.is_error else "✓"
            size = count_things(event.chars_total, "character")
            screen.note(f"{mark} {event.name} · {size} · {event.seconds:.1f} s{_describe_result(event)}")
            screen.wait("…")
        case events.Compressing():
            screen.wait(tr(OPTIMISING))
        case events.Compressed():
            screen.note(
                "context {before:,} → {after:,} tokens ({share}) · {reason}{back}",
                "green",
                before=event.tokens_before,
                after=event.tokens_after,
                share=describe_share(event.tokens_before, event.tokens_after),
                reason=say_reason(event.reason),
                back=tr(" · undo with /undo {id}", id=event.undo) if event.undo else "",
            )
            screen.wait("…")
        case events.Offloaded():
            screen.note(
                "{files:,} tool results were moved to files, {tokens_freed:,} tokens freed",
                files=len(event.files),
                tokens_freed=event.tokens_freed,
            )
        case events.CompressionSkipped() if (
            event.reason.values.get("error") != BudgetTooSmall.__name__
        ):  # The error follows.
            screen.note("not compressed: {reason}", "yellow", reason=say_reason(event.reason))
        case events.WindowLowered():
            window = describe_change(event.window_before, event.window_after)
            screen.note(
                "the context window of {model} is now {window}: {reason}",
                "yellow",
                model=event.model,
                window=window,
                reason=say_reason(event.reason),
            )
        case events.Retrying():
            screen.note("retrying: {reason}", "yellow", reason=tr(event.reason))
            screen.wait("…")
        case events.Warned():
            screen.note(event.text, "yellow")
        case events.Finished():
            _show_end(screen, event)


def _describe_result(event: events.ToolFinished) -> str:
    """Return a short description of a result: its error, its last status line, or its first words."""
    rows = event.text.strip().splitlines() or [""]
    is_ending = rows[-1].startswith("[") and rows[-1].endswith("]")
    words = clean_line(rows[-1].strip("[]") if is_ending and not event.is_error else rows[0], _RESULT_CHARS)
    return f" · {words}" if words else ""


def _show_end(screen: Screen, event: events.Finished) -> None:
    screen.rest()
    ends = {
        "length": tr("the answer reached the output limit and is cut off"),
        "steps": tr("stopped: too many steps; type 'continue' to go on"),
        "content_filter": tr("the provider filtered the answer"),
    }
    if event.reason in ends:
        screen.note(ends[event.reason], "yellow")
    elif not event.text.strip() and event.reason == "stop":
        screen.note("the model returned an empty answer")


def make_approve(screen: Screen, keyboard: Keyboard) -> Approve:
    """Return the approval callback: it asks one question at a time, and none for tools that the user always allows."""
    always: set[str] = set()
    one_at_a_time = asyncio.Lock()

    async def approve(call: ToolCall, tool: Tool) -> bool:
        async with one_at_a_time:
            if tool.name in always:
                return True
            await asyncio.sleep(0.05)  # Lets the line that announces the call appear first.
            with screen.holding():
                if details := describe_call(call):
                    screen.out.print(details, style="bold", highlight=False)
                answer = await keyboard.ask(tr("run it? [y]es, [a]lways, [N]o: "))
            if answer == "a":
                always.add(tool.name)
            return answer in ("y", "a")

    return approve


def describe_call(call: ToolCall) -> str:
    """Return a call argument by argument, with hidden characters visible; empty if its announcement shows it all."""
    if len(call.arguments) <= LINE_CHARS and "\\" not in call.arguments and not _HIDDEN.search(call.arguments):
        return ""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        given = call.arguments
    if not isinstance(given, dict):
        given = {"arguments": given}
    lines = [tr("{tool} wants to run with", tool=call.name)]
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"  {name}:" if "\n" in text else f"  {name}: {show_text(text)}"]
        lines += [f"    {row}" for row in show_text(text).split("\n")] if "\n" in text else []
    return "\n".join(lines)


def show_text(text: str) -> str:
    """Return text with hidden characters escaped; the middle of long text is replaced by its length."""
    visible = _HIDDEN.sub(lambda found: found[0].encode("unicode_escape", "backslashreplace").decode(), text)
    if len(visible) <= SHOWN_CHARS:
        return visible
    head, tail = visible[: SHOWN_CHARS // 2], visible[-SHOWN_CHARS // 2 :]
    return head + tr("\n… {count:,} characters are not shown here …\n", count=len(visible) - SHOWN_CHARS) + tail
