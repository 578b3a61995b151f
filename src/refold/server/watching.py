"""Watches over one request: a client that goes away, a client that takes or sends nothing, an answer without end.

One timer looks at all of it now and then, so that a request which is soon over pays for a single timer. What it finds
cancels the request's task; ``run`` turns that into the exception that says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from refold.server.request import ClientGone, ClientStalled, Message, Receive, Send

# Most answers are there sooner than it pays to watch for.
FIRST_S, NEXT_S = 0.02, 1.0
_NEVER = float("inf")


class TookTooLong(Exception):
    """The request took longer than any may take."""


class Watch:
    """Watches over the task that is running now. ``stall_s`` is what one step of the client may take."""

    def __init__(self, receive: Receive, *, stall_s: float, request_s_max: float) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._stall_s = stall_s
        self._stalled_at = _NEVER
        self._over_at = self._loop.time() + request_s_max
        self._tick_s = min(NEXT_S, stall_s / 4, request_s_max / 4)
        self._timer = self._loop.call_later(min(FIRST_S, self._tick_s), self._look)
        self._watcher: asyncio.Task[None] | None = None
        self._body_is_read = False
        self._problem: Exception | None = None

    async def receive(self) -> Message:
        """Wait for what the client sends, as one step."""
        self.begin_step()
        message = await self._receive()
        self.end_step()
        return message

    async def give(self, send: Send, message: Message) -> None:
        """Hand something to the client, as one step."""
        self.begin_step()
        await send(message)
        self.end_step()

    def begin_step(self) -> None:
        """The client has to do something now: send a piece, or take one."""
        self._stalled_at = self._loop.time() + self._stall_s

    def end_step(self) -> None:
        """It did."""
        self._stalled_at = _NEVER

    def end_body(self) -> None:
        """The request is read: from now on the client says no more than that it goes away."""
        self._body_is_read = True

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Await ``work``; raise ClientGone, ClientStalled or TookTooLong if that is why it did not end."""
        try:
            await work
        except asyncio.CancelledError:
            if self._problem is not None and self._task is not None and not self._task.uncancel():
                raise self._problem from None
            raise
        finally:
            self._timer.cancel()
            if self._watcher is not None:
                self._watcher.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._stalled_at:
            self._end(ClientStalled())
        elif now >= self._over_at:
            self._end(TookTooLong())
        else:
            if self._watcher is None and self._body_is_read:
                self._watcher = self._loop.create_task(self._watch_client())
            self._timer = self._loop.call_later(self._tick_s, self._look)

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(ClientGone())

    def _end(self, problem: Exception) -> None:
        if self._problem is None and self._task is not None:
            self._problem = problem
            self._task.cancel()
