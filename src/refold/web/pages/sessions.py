"""The list of sessions."""

from __future__ import annotations

from refold.web.shell import frame, heading
from refold.web.visit import say


async def show() -> None:
    """Draw the list."""
    with frame("sessions"):
        heading(say("shell.sessions"))
