"""A watchdog for the gateway's event loop: no callback computes for long, and none waits for a file, a lock or a store.

It asserts on CPU time of the loop's thread, never on wall time, and a wait counts however short it was: a test on a
fast disk finds what would take seconds on a slow one. Time of the garbage collector belongs to the test process and is
not counted.
"""

import asyncio.events
import gc
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from refold.ledger.postgres import PostgresLedger
from refold.ledger.sqlite import SqliteLedger

LOOP_THREAD = "refold-gateway"
CPU_S_MAX = 0.05
# Events of the interpreter that may wait for a disk, another process or another machine.
_WAITS = {"fcntl.flock", "fcntl.lockf", "time.sleep", "subprocess.Popen", "os.posix_spawn", "shutil.rmtree"}
_WAITS |= {"os.mkdir", "os.rename", "os.remove", "os.link", "os.listdir", "os.scandir"}
_WAITS |= {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}
# Modules on their first use; and the keys, a small file without a lock whose change takes effect at once.
_NO_WAIT = (".py", ".pyc", ".so", ".pyd", "keys.json")
_FRAMES_SHOWN = 8


class Watchdog:
    """What the loop's callbacks did that no event loop may do; ``findings`` is empty if all is well."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.callbacks = 0
        self._collecting_since = 0.0
        self._collected_s = 0.0

    def note(self, what: str) -> None:
        """Note that the loop's thread did this, with the place in the code."""
        frames = [one for one in traceback.extract_stack()[:-2] if "/refold/" in one.filename][-_FRAMES_SHOWN:]
        where = " > ".join(f"{Path(one.filename).name}:{one.lineno}" for one in frames)
        self.findings.append(f"{what} at {where or 'no frame of refold'}")

    def run(self, handle: asyncio.events.Handle, original: Any) -> None:
        """Run a callback of the loop and look at what it took."""
        self._collected_s, started = 0.0, time.thread_time()
        described = _describe(handle)
        original(handle)
        spent = time.thread_time() - started - self._collected_s
        self.callbacks += 1
        if spent > CPU_S_MAX:
            self.findings.append(f"{spent * 1000:.0f} ms of CPU in {described}")

    def collect(self, phase: str, _: object) -> None:
        """Measure the garbage collector."""
        if not is_loop_thread():
            return
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since


_active: Watchdog | None = None
_is_hooked = False


def is_loop_thread() -> bool:
    return threading.current_thread().name == LOOP_THREAD


def _describe(handle: asyncio.events.Handle) -> str:
    callback: Any = handle._callback
    task = getattr(callback, "__self__", None)
    return repr(task.get_coro()) if isinstance(task, asyncio.Task) else repr(callback)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    """Note a call that may wait. The interpreter has no way to remove this hook again."""
    dog = _active
    if dog is None or (event != "open" and event not in _WAITS) or not is_loop_thread():
        return
    if event == "open" and (not isinstance(args[0], str) or args[0].endswith(_NO_WAIT)):
        return
    if event == "socket.connect" and args[0].gettimeout() == 0:
        return
    if event == "os.remove" and "-open-" in str(args[0]):
        return  # The garbage collector closes a ledger that another test left open.
    dog.note(f"{event}({', '.join(map(str, args[:1]))})")


@contextmanager
def watch_loop() -> Iterator[Watchdog]:
    """Watch every callback of the gateway's loop in this process."""
    global _active, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_hear)
        _is_hooked = True
    dog, handle_run = Watchdog(), asyncio.events.Handle._run

    def run(handle: asyncio.events.Handle) -> None:
        dog.run(handle, handle_run) if is_loop_thread() else handle_run(handle)

    with ExitStack() as stack:
        stack.enter_context(patch.object(asyncio.events.Handle, "_run", run))
        for ledger in (SqliteLedger, PostgresLedger):
            for name in ("_read", "_change"):
                stack.enter_context(patch.object(ledger, name, _watch_call(dog, name, getattr(ledger, name))))
        gc.callbacks.append(dog.collect)
        stack.callback(gc.callbacks.remove, dog.collect)
        outer, _active = _active, dog
        try:
            yield dog
        finally:
            _active = outer


def _watch_call(dog: Watchdog, name: str, original: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_loop_thread():
            dog.note(f"ledger.{name}")
        return original(*args, **kwargs)

    return call
