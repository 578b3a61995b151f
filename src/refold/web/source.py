"""The only way from the page to data: calls of the manager, in threads, as the caller and never as anybody else.

Write a plain function whose first argument is ``Access`` (``server/api/interface.py``: names to ids, one tenant only)
and call it with ``await source.run(function, ...)``. The event loop also carries the gateway's requests: nothing that
reads a file or takes a lock may run on it. A revoked key ends the visit at the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from refold.errors import RefoldError
from refold.server.api.interface import Access

if TYPE_CHECKING:
    from refold.server.app import Application
    from refold.web.door import Visitor

P = ParamSpec("P")
T = TypeVar("T")
THREADS_MAX = 8
_threads = ThreadPoolExecutor(THREADS_MAX, "refold-page")


class NoLongerAllowed(RefoldError):
    """The key this tab was opened with does not work any more."""

    http_status = 401


class Source:
    """A caller's way to its sessions."""

    def __init__(self, application: Application, visitor: Visitor) -> None:
        self.application = application
        self.visitor = visitor
        self.access = Access(application, visitor.caller)

    async def run(self, call: Callable[Concatenate[Access, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function of ``Access`` returns, run in a thread. Typed errors come through."""
        self.check()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_threads, lambda: call(self.access, *args, **kwargs))

    def check(self) -> None:
        """Raise NoLongerAllowed if the key of this visit was revoked since."""
        if not self.visitor.is_welcome(self.application.keys):
            raise NoLongerAllowed("the key this page was opened with does not work any more; sign in again")
