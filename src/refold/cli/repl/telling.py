"""Runs one turn of a chat and shows its events: the answer, tools in a line each, compressions, what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from refold.agent import AgentEvent
from refold.agent import events as told
from refold.cli.render import clean_line
from refold.cli.repl.chat_session import ChatSession
from refold.cli.repl.screen import OPTIMISING, Screen
from refold.errors import RefoldError

_LINE_CHARS = 110


async def run_turn(
    chat: ChatSession, screen: Screen, prompt: str | None, *, shows_gauge: bool = True
) -> RefoldError | None:
    """Let the model answer; return what went wrong, if something did. Ctrl-C stops the turn, not the chat."""
    task = asyncio.ensure_future(_follow(chat, screen, prompt))
    with stopping(task):
        try:
            return await task
        except asyncio.CancelledError:
            screen.note("stopped; the session is in order, say something to go on", "yellow")
            return None
        finally:
            screen.rest()
            if shows_gauge and (gauge := chat.gauge()):
                screen.note(gauge)


@contextlib.contextmanager
def stopping(task: asyncio.Task[object] | asyncio.Future[object]) -> Iterator[None]:
    """Let Ctrl-C cancel a task, as long as this holds."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    except (NotImplementedError, RuntimeError, ValueError):
        yield  # No signals here: not the main thread, or another system.
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


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
    """Show what happens."""
    match event:
        case told.TextDelta():
            screen.say(event.text)
        case told.ToolStarted():
            screen.note(f"→ {event.name}({clean_line(event.arguments, _LINE_CHARS - 20)})")
            screen.wait(event.name)
        case told.ToolFinished():
            mark = "✗" if event.is_error else "✓"
            first = clean_line(event.text, _LINE_CHARS - 30)
            screen.note(f"{mark} {event.name} · {event.chars_total:,} characters · {event.seconds:.1f} s · {first}")
            screen.wait("…")
        case told.Compressing():
            screen.wait(OPTIMISING)
        case told.Compressed():
            screen.compressed(event.tokens_before, event.tokens_after, event.reason, event.undo)
            screen.wait("…")
        case told.Offloaded():
            screen.note(f"{len(event.files):,} tool results went to files, {event.tokens_freed:,} tokens freed")
        case told.CompressionSkipped():
            screen.note(f"not compressed: {event.reason}", "yellow")
        case told.WindowLowered():
            window = f"{event.window_before:,} → {event.window_after:,} tokens"
            screen.note(f"the window of {event.model} counts as {window}: {event.reason}", "yellow")
        case told.Retrying():
            screen.note(f"asking again: {event.reason}", "yellow")
            screen.wait("…")
        case told.Warned():
            screen.note(event.text, "yellow")
        case told.Finished():
            _show_end(screen, event)


def _show_end(screen: Screen, event: told.Finished) -> None:
    screen.rest()
    ends = {
        "length": "the answer reached its limit and is cut off",
        "steps": "stopped: too many steps; say 'go on' to let it work on",
        "content_filter": "the provider filtered the answer",
    }
    if event.reason in ends:
        screen.note(ends[event.reason], "yellow")
    elif not event.text.strip() and event.reason == "stop":
        screen.note("the model answered without words")
