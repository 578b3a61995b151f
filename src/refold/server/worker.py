"""Worker processes for large bodies, and threads that tenants share: no request delays those of others for long.

A parser holds the interpreter lock until it has read its whole input, so a body above ``worker_bytes_min`` is handled
in a separate process, which opens the same ledger as another gateway would. Processes are started on first use; there
are few of them, and each is bounded in memory and killed at its time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from refold.errors import RefoldError
from refold.llm.choose import converse_with
from refold.manager import ContextCompressionManager
from refold.server.body import ReadRequest, TooManyValues, Unreadable, dump_json, read_request
from refold.server.fallback import (
    NoWorker,
    PrepareJob,
    SmallerBody,
    WorkClock,
    WorkerFailed,
    compress_to_fit,
    cut_down,
    limit_config,
    prepare_whole,
    trim,
)
from refold.server.outgoing import Attempt
from refold.server.overflow import NO_LIMITS
from refold.server.session_lookup import KnownSession
from refold.server.wires import WIRES, Wire

WORKERS_MAX = 2
MEMORY_BYTES_MAX = 3_000_000_000
READ_S_MAX = 20.0
# The main process keeps these values of a body that a worker has parsed.
_KEPT_FIELDS = ("model", "metadata", "max_completion_tokens", "max_tokens", "max_output_tokens")
# Half of the threads stay free for other tenants.
THREADS_MAX = max(8, min(32, (os.cpu_count() or 1) + 4))
# The tenant of the request that a task, and the threads it starts, work for.
request_owner: ContextVar[str] = ContextVar("request_owner", default="")


class FairThreads(ThreadPoolExecutor):
    """The event loop's threads, which tenants get in turn. A tenant uses at most half of them; the operator, all."""

    def __init__(self) -> None:
        super().__init__(THREADS_MAX, "refold-thread")
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in a thread when its owner's turn comes."""
        made: Future[Any] = Future()
        with self._lock:
            self._waiting.setdefault(request_owner.get(), deque()).append((made, partial(fn, *args, **kwargs)))
            self._start_next()
        return made

    def _start_next(self) -> None:
        """Start calls that may run now; the caller holds the lock. Owners who just had a turn come last."""
        while sum(self._running.values()) < THREADS_MAX:
            owner = next((one for one in self._waiting if not one or self._running[one] < THREADS_MAX // 2), None)
            if owner is None:
                return
            future, call = self._waiting[owner].popleft()
            self._waiting.move_to_end(owner)
            if not self._waiting[owner]:
                del self._waiting[owner]
            self._running[owner] += 1
            super().submit(self._run, owner, future, call)

    def _run(self, owner: str, future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - the future carries it to its waiter
                    future.set_exception(error)
        finally:
            with self._lock:
                self._running[owner] -= 1
                self._running += Counter()  # Drop owners without running calls.
                with contextlib.suppress(RuntimeError):  # The pool was shut down: nobody is waiting.
                    self._start_next()


def read_process_time(pid: int) -> float:
    """Return the processor time of a process in seconds; where the system does not tell, real time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic()


class _Process:
    """One worker process and the connection to it. Calls block and are made in threads, one at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True, name="refold-body-worker")
        self._process.start()
        other.close()

    def call(self, job: tuple[str, str, bytes, PrepareJob | None], seconds: float) -> Any:
        """Send a job and return its result; raise WorkerFailed if the process died or its time is over."""
        is_done, is_late = threading.Event(), threading.Event()
        threading.Thread(target=self._kill_late, args=(seconds, is_done, is_late), daemon=True).start()
        try:
            self._pipe.send(job)
            made = self._pipe.recv()
        except (EOFError, OSError):
            made = WorkerFailed("the worker died")
        finally:
            is_done.set()
        if is_late.is_set():  # It was killed.
            raise WorkerFailed("timeout")
        if isinstance(made, Exception):
            raise made
        return made

    def _kill_late(self, seconds: float, is_done: threading.Event, is_late: threading.Event) -> None:
        """Kill the process after so many seconds of its work, unless the job is done before."""
        clock = WorkClock(partial(read_process_time, self._process.pid or 0))
        while not is_done.wait(step_s := clock.choose_step(seconds)):
            if clock.count(step_s) >= seconds:
                is_late.set()
                self.kill()
                return

    def kill(self) -> None:
        self._process.kill()

    def join(self) -> None:
        self._process.join(5)


class BodyWorkers:
    """A small pool of worker processes. For one event loop; a tenant has one job at a time."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._free: list[_Process] = []
        self._room = asyncio.Semaphore(max(1, min(WORKERS_MAX, os.cpu_count() or 1)))
        self._tenants: dict[str, asyncio.Lock] = {}
        self._guard = threading.Lock()
        self._all: set[_Process] = set()
        self.started = 0

    async def run(self, kind: str, tenant: str, wire: Wire, body: bytes, *, job: PrepareJob | None = None) -> Any:
        """Run a job of ``_Jobs`` in a process; raise Unreadable or WorkerFailed. A process that fails is killed."""
        limits = {"read": min(READ_S_MAX, self._seconds_max), "trim": READ_S_MAX}  # Trimming is the last resort.
        seconds = limits.get(kind, self._seconds_max)
        turn = self._tenants.setdefault(tenant, asyncio.Lock())
        try:
            async with turn, self._room:
                process = self._free.pop() if self._free else await asyncio.to_thread(self._start)
                try:
                    return await asyncio.to_thread(process.call, (kind, wire.name, body, job), seconds)
                except (WorkerFailed, asyncio.CancelledError):
                    self._drop(process)
                    raise
                finally:
                    if process in self._all:
                        self._free.append(process)
        finally:
            if not turn.locked():
                self._tenants.pop(tenant, None)

    def _start(self) -> _Process:
        try:
            made = _Process()
        except (OSError, RuntimeError, MemoryError) as error:
            raise NoWorker(f"no worker process: {type(error).__name__}") from error
        with self._guard:
            self._all.add(made)
            self.started += 1
        return made

    def _drop(self, process: _Process) -> None:
        with self._guard:
            self._all.discard(process)
        process.kill()

    def close(self) -> None:
        """End every process. Blocks."""
        ended = list(self._all)
        for process in ended:
            self._drop(process)
        for process in ended:
            process.join()
        self._free.clear()


def _serve(pipe: Connection) -> None:
    """Run jobs until the other end closes."""
    _limit_memory()
    jobs = _Jobs()
    while True:
        try:
            kind, wire, body, job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            made = jobs.run(kind, WIRES[wire], body, job)
        except (Unreadable, TooManyValues) as error:
            made = error
        except MemoryError:
            made = WorkerFailed("out of memory")
        except Exception as error:  # noqa: BLE001 - the other side decides what to do about it
            made = WorkerFailed(type(error).__name__)
        with contextlib.suppress(OSError):
            pipe.send(made)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:
        return  # Not on Windows.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


class _Jobs:
    """The jobs of a worker process; it keeps the last body that it read, and its manager."""

    def __init__(self) -> None:
        self._last: tuple[bytes, ReadRequest] | None = None
        self._manager: ContextCompressionManager | None = None
        self._opened: tuple[object, ...] = ()

    def run(self, kind: str, wire: Wire, body: bytes, job: PrepareJob | None) -> Any:
        """Return what a job makes of a body; ``read`` needs no job and leaves the messages here."""
        if job is None:
            request = self._read(wire, body)
            kept = {name: request.body[name] for name in _KEPT_FIELDS if name in request.body}
            return replace(request, body=kept, messages=[])
        if kind == "answer":
            return self._answer(body, job)
        if kind in ("cut", "trim"):
            shrink = cut_down if kind == "cut" else trim
            return shrink(wire, body, job.config, job.limits)
        request, self._last = self._read(wire, body), None
        if job.ledger is None:
            result = compress_to_fit(request, limit_config(job.config, job.limits))
        else:
            result = self._prepare(request, job)
        return replace(result, made=())

    def _read(self, wire: Wire, body: bytes) -> ReadRequest:
        """Parse a body, unless it is the last one."""
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if self._last is None or self._last[0] != digest:
            self._last = None
            self._last = digest, read_request(wire, body)
        return self._last[1]

    def _answer(self, body: bytes, job: PrepareJob) -> tuple[int, bytes]:
        """Return status and body of the answer to a request of the sidecar."""
        from refold.server.api.interface import read_model, show_error
        from refold.server.api.sidecar import CompressRequest, answer_wish

        try:
            manager = self._find_manager(job) if job.ledger is not None else None
            wish = read_model(body, CompressRequest)
            limits = job.learned.get(wish.model, NO_LIMITS)
            return 200, dump_json(answer_wish(wish, manager, job.config, tenant=job.tenant, limits=limits))
        except RefoldError as error:
            problem = {"error": {"kind": type(error).__name__, "message": show_error(error, job.tenant)}}
            return error.http_status, dump_json(problem)

    def _prepare(self, request: ReadRequest, job: PrepareJob) -> SmallerBody:
        manager = self._find_manager(job)
        session = KnownSession(job.session_id, job.tenant, request.wire.name)
        with converse_with(job.endpoint):
            return asyncio.run(prepare_whole(manager, Attempt(session, request, job.limits, b"")))

    def _find_manager(self, job: PrepareJob) -> ContextCompressionManager:
        opened = (job.config, job.workspace, job.ledger)
        if self._manager is None or self._opened != opened:
            if self._manager is not None:
                self._manager.close()
            self._manager = ContextCompressionManager(job.config, job.workspace, ledger=job.ledger or None)
            self._manager.pages, self._opened = job.pages, opened
        return self._manager
