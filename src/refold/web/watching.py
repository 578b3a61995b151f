"""Which sessions are being compressed right now in this process, so that every tab can say so (S3.11).

Listens to the managers once; a compression that is never heard of again counts as over after a while.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from refold.manager.notices import Notice

if TYPE_CHECKING:
    from refold.server.app import Application

RUNNING_S_MAX = 180.0
_ENDINGS = ("compressed", "skipped", "failed")


class Watch:
    """Who is at work on what."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._guard = threading.Lock()

    def begin(self, session_id: str) -> None:
        """Take in that a compression began."""
        with self._guard:
            self._since[session_id] = time.monotonic()

    def end(self, session_id: str) -> None:
        """Take in that it ended, one way or another."""
        with self._guard:
            self._since.pop(session_id, None)

    def is_busy(self, session_id: str) -> bool:
        """Tell whether a session is being compressed."""
        with self._guard:
            since = self._since.get(session_id)
            return since is not None and time.monotonic() - since < RUNNING_S_MAX

    def listen(self, application: Application) -> None:
        """Listen to an application's managers."""

        def begin(notice: Notice) -> None:
            self.begin(notice.session_id)

        def end(notice: Notice) -> None:
            self.end(notice.session_id)

        application.managers.on("before_compress", begin)
        for kind in _ENDINGS:
            application.managers.on(kind, end)


_watches: WeakKeyDictionary[Application, Watch] = WeakKeyDictionary()


def find_watch(application: Application) -> Watch:
    """Return the one watch of an application."""
    watch = _watches.get(application)
    if watch is None:
        watch = _watches[application] = Watch()
        watch.listen(application)
    return watch
