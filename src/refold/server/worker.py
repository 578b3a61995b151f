"""Worker processes for large bodies, and threads that tenants share: no request holds up those of others for long.

A parser or a pattern holds the interpreter lock for as long as its input is long, so a body above ``worker_bytes_min``
is handled in a separate process, which opens the same ledger as another gateway would. Processes are started on first
use; there are few of them, and each is bounded in memory and killed at its time limit. A body that could not be
prepared in time is cut down by sizes alone (``cut_down``) and compressed in memory, within a time limit, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import orjson

from refold.compressing import compress
from refold.config import CompressionConfig
from refold.conversation.reason import NO_REASON, Reason
from refold.errors import BudgetTooSmall, RefoldError
from refold.ladder.run import answer_nothing
from refold.llm.choose import Endpoint, converse_with
from refold.prepared import PreparedContext
from refold.server.body import (
    ReadRequest,
    TooManyValues,
    Unreadable,
    dump_json,
    parse_json,
    read_request,
    write_request,
)
from refold.server.cut import choose_by_size, trim
from refold.server.wires import WIRES, Wire
from refold.tokens import counter_for, model_info

if TYPE_CHECKING:
    from refold.manager import ContextCompressionManager

WORKERS_MAX = 2
MEMORY_BYTES_MAX = 3_000_000_000
READ_S_MAX = 20.0
# What the main process keeps of a body that a worker has parsed.
_KEPT_FIELDS = ("model", "metadata", "max_completion_tokens", "max_tokens", "max_output_tokens")
# No provider's tokens are longer than this on average, whatever the text: a cut by bytes keeps at least the budget.
_BYTES_PER_TOKEN = 6
_KEEP_MOST = {"trigger_ratio": 0.98, "target_ratio": 0.85, "target_tokens": None, "compact_target": None}


# Half of the threads stay free for others, whatever a tenant sends.
THREADS_MAX = max(8, min(32, (os.cpu_count() or 1) + 4))
# The tenant for whose request a task, and the threads that it starts, work.
request_owner: ContextVar[str] = ContextVar("request_owner", default="")


class FairThreads(ThreadPoolExecutor):
    """The event loop's threads, given to tenants in turns. A tenant uses half of them at most; the operator, all."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        super().__init__(threads_max, "refold-thread")
        self._threads_max = threads_max
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
        """Start what may run now; the lock is held. Owners who have just had a turn are last."""
        while sum(self._running.values()) < self._threads_max:
            owner = next((one for one in self._waiting if self._has_room(one)), None)
            if owner is None:
                return
            future, call = self._waiting[owner].popleft()
            self._waiting.move_to_end(owner)
            if not self._waiting[owner]:
                del self._waiting[owner]
            self._running[owner] += 1
            super().submit(self._run, owner, future, call)

    def _has_room(self, owner: str) -> bool:
        return not owner or self._running[owner] < max(1, self._threads_max // 2)

    def _run(self, owner: str, future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - handed over to whoever waits for it
                    future.set_exception(error)
        finally:
            with self._lock:
                self._running[owner] -= 1
                self._running += Counter()  # Without owners who have nothing running.
                with contextlib.suppress(RuntimeError):  # Shut down meanwhile: nobody waits any more.
                    self._start_next()


class WorkerFailed(Exception):
    """A worker died, ran out of memory or took too long; the text says which."""


class TooMuch(WorkerFailed):
    """A body has too many values; its worker is as well as before."""


class NoWorker(WorkerFailed):
    """No process could be started: the machine has no memory, no process or no file left."""


@dataclass(frozen=True, slots=True)
class PrepareJob:
    """Input for preparing the body that a worker has read. ``ledger`` None: compress in memory, store nothing.

    ``learned`` has the tenant's learned window and reserve by model, for a body whose model is not known yet.
    """

    session_id: str
    config: CompressionConfig
    workspace: str
    ledger: str | None
    window: int | None
    reserve: int | None
    endpoint: Endpoint | None = field(default=None, repr=False)
    tenant: str = ""
    learned: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LargeAnswer:
    """The answer to a large request of the sidecar."""

    status: int
    written: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class LargeResult:
    """A large request as prepared by a worker; ``written`` is its new body, None if it goes upstream unchanged."""

    tokens: int
    tokens_before: int
    edits: int
    reason: Reason
    written: bytes | None = field(default=None, repr=False)
    over: tuple[int, int] | None = None


class _Process:
    """One worker process and the connection to it. Calls block and are made in threads, one at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True, name="refold-body-worker")
        self._process.start()
        other.close()

    def call(self, job: tuple[str, str, PrepareJob | None], body: bytes, seconds: float) -> Any:
        """Send a job and return its result; WorkerFailed if the process died or was killed when its time was over."""
        late = threading.Event()
        timer = threading.Timer(seconds, self._kill_late, (late,))
        timer.start()
        try:
            self._pipe.send(job)
            self._pipe.send_bytes(body)
            ending, value, has_bytes = self._pipe.recv()
            written = self._pipe.recv_bytes() if has_bytes else None
        except (EOFError, OSError):
            raise WorkerFailed("timeout" if late.is_set() else "the worker died") from None
        finally:
            timer.cancel()
        if late.is_set():
            raise WorkerFailed("timeout")
        if ending == "too many values":
            raise TooMuch(ending)
        if ending == "failed":
            raise WorkerFailed(value)
        if ending == "unreadable":
            raise Unreadable(value)
        return replace(value, written=written) if has_bytes else value

    def _kill_late(self, late: threading.Event) -> None:
        late.set()
        self.kill()

    def kill(self) -> None:
        """End the process at once; a thread that waits for it sees the end of the connection."""
        self._process.kill()

    def join(self) -> None:
        """Wait until the process has ended. Blocks."""
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

    async def read(self, tenant: str, wire: Wire, body: bytes) -> ReadRequest:
        """Return a body parsed and hashed, without its messages; raise Unreadable or WorkerFailed."""
        seconds = min(READ_S_MAX, self._seconds_max)
        request: ReadRequest = await self._run(tenant, ("read", wire.name, None), body, seconds)
        return replace(request, wire=wire)

    async def prepare(self, tenant: str, wire: Wire, body: bytes, job: PrepareJob) -> LargeResult:
        """Return a body prepared for a session; raise Unreadable or WorkerFailed."""
        result: LargeResult = await self._run(tenant, ("prepare", wire.name, job), body, self._seconds_max)
        return result

    async def cut_down(self, tenant: str, wire: Wire, body: bytes, job: PrepareJob) -> LargeResult:
        """Return a request that fits, cut by sizes alone and compressed in memory; raise WorkerFailed if that fails."""
        result: LargeResult = await self._run(tenant, ("cut", wire.name, job), body, self._seconds_max)
        return result

    async def trim(self, tenant: str, wire: Wire, body: bytes, job: PrepareJob) -> LargeResult:
        """Return the newest part of a request by sizes alone; raise WorkerFailed if even that fails."""
        result: LargeResult = await self._run(tenant, ("trim", wire.name, job), body, READ_S_MAX)
        return result

    async def answer(self, body: bytes, job: PrepareJob) -> LargeAnswer:
        """Return the answer to a request of the sidecar; raise WorkerFailed."""
        answered: LargeAnswer = await self._run(job.tenant, ("answer", "openai-chat", job), body, self._seconds_max)
        return answered

    async def _run(self, tenant: str, job: tuple[str, str, PrepareJob | None], body: bytes, seconds: float) -> Any:
        """Run a job in a process, waiting in a thread; a process that fails is killed."""
        turn = self._tenants.setdefault(tenant, asyncio.Lock())
        try:
            async with turn, self._hold() as process:
                try:
                    return await asyncio.to_thread(process.call, job, body, seconds)
                except TooMuch:
                    raise
                except (WorkerFailed, asyncio.CancelledError):
                    self._drop(process)
                    raise
        finally:
            if not turn.locked():
                self._tenants.pop(tenant, None)

    @contextlib.asynccontextmanager
    async def _hold(self) -> AsyncIterator[_Process]:
        async with self._room:
            process = self._free.pop() if self._free else await asyncio.to_thread(self._start)
            try:
                yield process
            finally:
                if process in self._all:
                    self._free.append(process)

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
            kind, wire, job = pipe.recv()
            body = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            value = jobs.run(kind, WIRES[wire], body, job)
            written = getattr(value, "written", None)
            small = replace(value, written=None) if written is not None else value
            ending: tuple[str, object, bool] = ("done", small, written is not None)
        except Unreadable as error:
            ending, written = ("unreadable", error.reason, False), None
        except TooManyValues:
            ending, written = ("too many values", "", False), None
        except MemoryError:
            ending, written = ("failed", "out of memory", False), None
        except Exception as error:  # noqa: BLE001 - the other side decides what to do about it
            ending, written = ("failed", type(error).__name__, False), None
        with contextlib.suppress(OSError):
            pipe.send(ending)
            if written is not None:
                pipe.send_bytes(written)


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
        """Return what a job makes of a body."""
        if kind in ("cut", "trim"):
            assert job is not None, "a job says how large the request may be"
            return _cut_down(wire, body, job) if kind == "cut" else trim_to_fit(wire, body, job)
        if kind == "answer":
            assert job is not None, "a job says whose request it is"
            return self._answer(body, job)
        request = self._read(wire, body)
        if job is None:
            kept = {name: request.body[name] for name in _KEPT_FIELDS if name in request.body}
            return replace(request, body=kept, messages=[])
        self._last = None
        return _compress(request, job) if job.ledger is None else self._prepare(request, job)

    def _read(self, wire: Wire, body: bytes) -> ReadRequest:
        """Parse a body, unless it is the last one."""
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if self._last is None or self._last[0] != digest:
            self._last = None
            self._last = digest, read_request(wire, body)
        return self._last[1]

    def _answer(self, body: bytes, job: PrepareJob) -> LargeAnswer:
        from refold.server.api.interface import read_model, show_error
        from refold.server.api.sidecar import CompressRequest, answer_wish
        from refold.server.overflow import Limits

        try:
            manager = self._find_manager(job) if job.ledger is not None else None
            wish = read_model(body, CompressRequest)
            limits = Limits(*job.learned.get(wish.model, ()))
            return LargeAnswer(200, dump_json(answer_wish(wish, manager, job.config, tenant=job.tenant, limits=limits)))
        except RefoldError as error:
            problem = {"error": {"kind": type(error).__name__, "message": show_error(error, job.tenant)}}
            return LargeAnswer(error.http_status, dump_json(problem))

    def _prepare(self, request: ReadRequest, job: PrepareJob) -> LargeResult:
        from refold.manager.append import Request

        manager = self._find_manager(job)
        digests = (*request.lead_digests, *request.digests)
        wanted = Request(
            job.session_id,
            system="" if request.system is None else request.system,
            tools=request.tools,
            model=request.model or None,
            format=request.wire.name,
            window=job.window,
            reserve=job.reserve,
            messages=request.messages,
            digests=digests,
        )
        over = None
        with converse_with(job.endpoint):
            try:
                prepared = asyncio.run(manager.prepare(wanted))
            except BudgetTooSmall as error:
                if not error.tokens:
                    raise
                over = (error.tokens, error.budget)
                smallest = replace(wanted, window=int(error.tokens * 1.25) + 2, reserve=0)
                prepared = asyncio.run(manager.prepare(smallest))
        report = prepared.report
        return LargeResult(
            prepared.total_tokens,
            max(prepared.total_tokens, prepared.original_tokens),
            len(prepared.edits),
            report.reason if report is not None and report.stages else NO_REASON,
            write_request(request, prepared.messages) if prepared.edits else None,
            over,
        )

    def _find_manager(self, job: PrepareJob) -> ContextCompressionManager:
        from refold.manager import ContextCompressionManager

        opened = (job.config, job.workspace, job.ledger)
        if self._manager is None or self._opened != opened:
            if self._manager is not None:
                self._manager.close()
            self._manager = ContextCompressionManager(job.config, job.workspace, ledger=job.ledger or None)
            self._opened = opened
        return self._manager


def limit_config(config: CompressionConfig, window: int | None, reserve: int | None) -> CompressionConfig:
    """Return a config with this window and this reserve, as far as they are given, that keeps as much as fits.

    A compression in memory is not stored, and nothing can be recalled from it: it goes no deeper than it must.
    """
    given = {name: value for name, value in (("window", window), ("reserve", reserve)) if value is not None}
    return config.model_copy(update=_KEEP_MOST | given)


def compress_in_memory(request: ReadRequest, config: CompressionConfig, **options: Any) -> PreparedContext:
    """Compress a request without a model and without storing anything; ``options`` are more of ``compress``."""
    return compress(
        request.messages,
        system=request.system,
        tools=request.tools,
        model=request.model or None,
        config=config,
        format=request.wire.name,
        answer=answer_nothing,
        **options,
    )


def _compress(request: ReadRequest, job: PrepareJob) -> LargeResult:
    """Compress a request in memory; one that cannot fit comes as small as possible."""
    config = limit_config(job.config, job.window, job.reserve)
    over = None
    try:
        prepared = compress_in_memory(request, config)
    except BudgetTooSmall as error:
        if not error.tokens:
            raise
        over = (error.tokens, error.budget)
        larger = config.model_copy(update={"window": int(error.tokens * 1.25) + 2, "reserve": 0})
        prepared = compress_in_memory(request, larger)
    written = write_request(request, prepared.messages)
    tokens = prepared.total_tokens
    return LargeResult(tokens, max(tokens, prepared.original_tokens), len(prepared.edits), NO_REASON, written, over)


def _cut_down(wire: Wire, body: bytes, job: PrepareJob) -> LargeResult:
    """Cut a request down to about its budget by sizes alone, then compress what is left in memory."""
    whole = orjson.loads(body)
    found = whole[wire.key]
    messages = [{"role": "user", "content": found}] if isinstance(found, str) else list(found)
    model = whole.get("model")
    window = job.window or job.config.budget(model_info(model if isinstance(model, str) else None)).window
    kept = choose_by_size(messages, window * _BYTES_PER_TOKEN)
    small = orjson.dumps({**whole, wire.key: kept})
    made = _compress(read_request(wire, small), job)
    return replace(made, written=small if made.written is None else made.written, edits=max(1, made.edits))


def trim_to_fit(wire: Wire, body: bytes, job: PrepareJob, tokens_max: int | None = None) -> LargeResult:
    """Return the newest part of a request by sizes alone: within its budget, and within ``tokens_max`` if given.

    ``written`` is None if all of it fits.
    """
    model = parse_json(body).get("model")
    named = model if isinstance(model, str) else None
    counter, config = counter_for(named, job.config.tokenizer), limit_config(job.config, job.window, job.reserve)
    room = config.budget(model_info(named), counter.margin).hard
    written, before, after = trim(wire, body, min(room, tokens_max or room), counter.count_text)
    return LargeResult(after, before, 1, NO_REASON, written)
