"""The chat itself: read, talk, show, until somebody leaves. One event loop; nothing here knows a provider.

With a keyboard it prompts; from a pipe every line is a turn; with ``--once`` the whole input is one.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING

from refold.cli.repl.approving import make_approve
from refold.cli.repl.chat_session import ChatSession
from refold.cli.repl.commands import run_command
from refold.cli.repl.screen import Screen
from refold.cli.repl.telling import run_turn, stopping
from refold.errors import FormatError, RefoldError

if TYPE_CHECKING:
    from refold.cli.repl.keyboard import Keyboard

STDIN_CHARS_MAX = 50_000_000


async def talk(chat: ChatSession, screen: Screen, keyboard: Keyboard, first: asyncio.Future[str]) -> None:
    """Talk with a person at a terminal; ``first`` is the line that is being typed already."""
    from refold.cli.repl.keyboard import Interrupted, hushed

    keyboard.gauge = chat.gauge
    chat.approve = chat.approve or make_approve(screen, keyboard)
    chat.open(chat.session_id)
    _load_client_ahead(chat)
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
            screen.note("Ctrl-C again, Ctrl-D or /quit leaves")
        else:
            was_interrupted = False
            with hushed():
                # The prompt shows the gauge.
                await take_line(chat, screen, line, shows_gauge=False)
        if not chat.is_over:
            reading = asyncio.ensure_future(keyboard.read())


async def take_line(chat: ChatSession, screen: Screen, line: str, *, shows_gauge: bool) -> RefoldError | None:
    """Do what a line says: a command, or something for the model."""
    if not line.strip():
        return None
    if line.lstrip().startswith("/") and "\n" not in line.strip():
        task = asyncio.ensure_future(run_command(chat, screen, line))
        with stopping(task):
            try:
                await task
            except asyncio.CancelledError:
                screen.note("stopped; nothing was changed", "yellow")
            finally:
                screen.rest()
        return None
    error = await run_turn(chat, screen, line, shows_gauge=shows_gauge)
    if error is not None:
        screen.note(str(error), "red")
    return error


async def talk_from_pipe(chat: ChatSession, screen: Screen, prompt: str, *, is_once: bool) -> None:
    """Answer what stands in a pipe or on the command line; the first error ends it."""
    if prompt or is_once:
        text = prompt or await asyncio.to_thread(_read_stdin)
        if not text.strip():
            raise FormatError("nothing to answer: the input is empty; echo 'hello' | refold chat --once")
        error = await run_turn(chat, screen, text, shows_gauge=False)
        if error is not None:
            raise error
        return
    while not chat.is_over and (line := await asyncio.to_thread(sys.stdin.readline, STDIN_CHARS_MAX)):
        error = await take_line(chat, screen, line.rstrip("\n"), shows_gauge=True)
        if error is not None:
            raise error


def _read_stdin() -> str:
    text = sys.stdin.read(STDIN_CHARS_MAX + 1)
    if len(text) > STDIN_CHARS_MAX:
        raise FormatError(f"the input has more than {STDIN_CHARS_MAX:,} characters")
    return text


def _load_client_ahead(chat: ChatSession) -> None:
    """Import the provider's client while the person types: it takes seconds."""
    name = "anthropic" if chat.chosen.model.wire == "anthropic" else "openai"

    def load() -> None:
        import contextlib
        import importlib

        with contextlib.suppress(ImportError):  # The first request says what is missing.
            importlib.import_module(name)

    threading.Thread(target=load, name="refold-load-client", daemon=True).start()
