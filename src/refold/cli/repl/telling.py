"""Runs one turn of a chat and shows its events: the answer, tools in a line each, compressions, what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from refold.agent import AgentEvent
from refold.agent import events as told
from refold.cli.render import clean_line, count_things
from refold.cli.repl.approving import LINE_CHARS
from refold.cli.repl.chat_session import ChatSession
from refold.cli.repl.screen import OPTIMISING, Screen
from refold.errors import BudgetTooSmall, RefoldError

_RESULT_CHARS = 60


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
            screen.note(f"→ {event.name}({clean_line(event.arguments, LINE_CHARS)})")
            screen.wait(event.name)
        case told.ToolFinished():
            mark = "✗" if event.is_error else "✓"
            size = count_things(event.chars_total, "character")
            screen.note(f"{mark} {event.name} · {size} · {event.seconds:.1f} s{_tell_result(event)}")
            screen.wait("…")
        case told.Compressing():
            screen.wait(OPTIMISING)
        case told.Compressed():
            screen.compressed(event.tokens_before, event.tokens_after, str(event.reason), event.undo)
            screen.wait("…")
        case told.Offloaded():
            screen.note(f"{len(event.files):,} tool results went to files, {event.tokens_freed:,} tokens freed")
        case told.CompressionSkipped() if (
            event.reason.values.get("error") != BudgetTooSmall.__name__
        ):  # The error follows.
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


def _tell_result(event: told.ToolFinished) -> str:
    """Return what a result comes to in a few words: why it failed, how it ended, else how it begins."""
    rows = event.text.strip().splitlines() or [""]
    is_ending = rows[-1].startswith("[") and rows[-1].endswith("]")
    words = clean_line(rows[-1].strip("[]") if is_ending and not event.is_error else rows[0], _RESULT_CHARS)
    return f" · {words}" if words else ""


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
