"""The first prompt: there as soon as the model is known, before the rest is loaded: nobody waits for that to type."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from refold.cli.repl.keyboard import Interrupted, Keyboard

if TYPE_CHECKING:
    from refold.cli.repl.chat_session import ChatSession

Open = Callable[[], "ChatSession"]


async def start_talking(folder: Path, open_chat: Open) -> ChatSession:
    """Prompt, open the chat meanwhile, then talk; return the chat when somebody leaves it."""
    keyboard = Keyboard(folder)
    reading = asyncio.ensure_future(keyboard.read())
    await keyboard.wait_shown(reading)  # Imports would only hold up what is drawn.
    try:
        chat = await asyncio.to_thread(open_chat)
    except BaseException:
        # There is nothing to talk to: the line that was begun goes, and the terminal is as it was.
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, EOFError, Interrupted):
            await reading
        raise
    from refold.cli.repl.screen import greet, make_screen
    from refold.cli.repl.talk import talk

    with make_screen() as screen:
        await keyboard.print_above(lambda: greet(screen, chat, is_typed=True))
        await talk(chat, screen, keyboard, reading)
        screen.note(f"go on with: refold chat --session {shlex.quote(chat.session_id)}")
    return chat
