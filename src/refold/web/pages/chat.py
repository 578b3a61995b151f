"""A new chat: an empty session with the chat box; the first message moves on to the session's own page."""

from __future__ import annotations

import secrets
from datetime import datetime

from nicegui import ui

from refold.web.chat_box import ChatBox
from refold.web.links import session_link
from refold.web.shell import frame, go, heading, text
from refold.web.visit import say


async def show() -> None:
    """Draw the start of a chat."""
    name = f"chat-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    with frame("chat", say("chat.title")), ui.element("div").classes("new-chat"):
        heading(say("chat.title"))
        text("p", say("chat.intro"), "soft")
        ChatBox(name, on_sent=lambda: go(session_link(name)))
