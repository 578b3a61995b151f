"""Requests that cannot be prepared in the normal way: the ledger fails, or preparing takes too long.

A request that fits passes through unchanged. Any other is compressed in memory, without a model, under the edits that
the session had; a large one is cut down by sizes first, in a worker process. If that fails, too, only its newest part
is sent: never more than the last view that the upstream accepted. Cutting by sizes counts samples of the text alone: it
is the last resort where there is no time or no memory to compress.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from refold.compressing import compress
from refold.config import CompressionConfig
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Edit
from refold.errors import BudgetTooSmall, RefoldError
from refold.formats import place_messages
from refold.ladder.run import answer_nothing
from refold.llm.choose import Endpoint, read_conversation_model
from refold.manager import ContextCompressionManager
from refold.manager.batch import WorkLimit
from refold.memory import PageWriting
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
from refold.server.outgoing import Attempt, Outgoing
from refold.server.overflow import NO_LIMITS, Limits, limit_exactly
from refold.server.settings import GatewaySettings
from refold.server.wires import Wire, move_marks
from refold.stages.stage import check_nothing
from refold.tokens import counter_for, model_info

if TYPE_CHECKING:
    from refold.server.worker import BodyWorkers

log = logging.getLogger("refold.server")
THREADS_MAX = 2
# The time limit of a request is looked at this often; a process that ran for less of a step than this share waited.
STEP_S, WAITING_SHARE = 0.1, 0.05
# A compression in memory is not stored, so nothing can be recalled from it: it removes no more than it must.
_KEEP_MOST = {"trigger_ratio": 0.98, "target_ratio": 0.85, "depth": None, "target_tokens": None, "compact_target": None}
# No provider's tokens are longer than this on average, whatever the text: a cut by bytes keeps at least the budget.
_BYTES_PER_TOKEN = 6
# How much of a request is counted to estimate the rest.
_SAMPLES, _SAMPLE_BYTES = 16, 1_000
# Fields that are useless if they are cut: signed or encoded content, and addresses.
_WHOLE_FIELDS = frozenset(
    ("signature", "thinking", "encrypted_content", "data", "file_data", "url", "image_url", "id", "call_id")
)
# The smallest piece of a message that is worth keeping.
_PIECE_CHARS_MIN = 200
# About the size of one element of a list or field of an object, and the bounds on how many of them are kept.
_ELEMENT_CHARS, _ELEMENTS_MIN, _ELEMENTS_MAX = 16, 16, 1_000


class WorkerFailed(Exception):
    """A worker died, ran out of memory or took too long; the text says which."""


class NoWorker(WorkerFailed):
    """No process could be started: the machine has no memory, no process or no file left."""


@dataclass(frozen=True, slots=True)
class SmallerBody:
    """A request made to fit. ``written`` is its new body; None if it goes upstream unchanged.

    ``over`` has its tokens and the budget if not even its smallest form fits; ``made`` are its edits, if known.
    """

    written: bytes | None = field(repr=False)
    tokens: int
    tokens_before: int
    edits: int
    reason: Reason = NO_REASON
    over: tuple[int, int] | None = None
    made: Sequence[Edit] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        request: ReadRequest,
        prepared: PreparedContext,
        over: tuple[int, int] | None = None,
        *,
        moves_marks: bool = False,
    ) -> SmallerBody:
        """Return a request as it was prepared; ``moves_marks``: with the client's cache marks in better places."""
        report, tokens = prepared.report, prepared.total_tokens
        reason = report.reason if report is not None and report.stages else NO_REASON
        before, edits = max(tokens, prepared.original_tokens), prepared.edits
        written = write_request(request, prepared.messages)
        if written is not None and moves_marks:
            written = dump_json(move_marks(request.body, prepared.messages))
        return cls(written, tokens, before, len(edits), reason, over, edits)


@dataclass(frozen=True, slots=True)
class PrepareJob:
    """Input for preparing a body. ``ledger`` None: compress in memory. ``learned`` has limits by model."""

    session_id: str
    config: CompressionConfig
    workspace: str
    ledger: str | None
    limits: Limits
    endpoint: Endpoint | None = field(default=None, repr=False)
    tenant: str = ""
    learned: Mapping[str, Limits] = field(default_factory=dict)
    pages: PageWriting = "later"


def make_job(manager: ContextCompressionManager, session_id: str, limits: Limits) -> PrepareJob:
    """Return what a worker process needs to prepare a request as this process would."""
    return PrepareJob(
        session_id,
        manager.config,
        str(manager.workspace_path),
        manager.ledger_place,
        limits,
        read_conversation_model(),
        pages=manager.pages,
    )


class WorkClock:
    """Seconds of work for a time limit: processor time while a process computes, real time while it waits.

    On a busy machine a process gets a part of the processor, and a limit in real time would cut down requests that are
    prepared as they should be. A step in which the process hardly ran is a wait, for a lock, a disk or a server. A step
    counts at most its own length: the process may have been suspended.
    """

    def __init__(self, read_cpu: Callable[[], float] = time.process_time) -> None:
        self.spent = 0.0
        self._read_cpu = read_cpu
        self._cpu = read_cpu()

    def choose_step(self, limit_s: float) -> float:
        """Return how long to wait before the next count."""
        return min(STEP_S, max(min(STEP_S / 10, limit_s), limit_s - self.spent))

    def count(self, step_s: float) -> float:
        """Count a step of this length; return the seconds so far."""
        before, self._cpu = self._cpu, self._read_cpu()
        used = self._cpu - before
        self.spent += min(used, step_s) if used > step_s * WAITING_SHARE else step_s
        return self.spent


async def wait_working(task: asyncio.Future[Any], limit_s: float) -> bool:
    """Wait for a task that this process works on; return whether it was done within so many seconds of work."""
    clock = WorkClock()
    while not task.done() and clock.spent < limit_s:
        step_s = clock.choose_step(limit_s)
        await asyncio.wait({task}, timeout=step_s)
        clock.count(step_s)
    return task.done()


class Fallback:
    """Prepares requests in memory when the normal way failed."""

    def __init__(self, settings: GatewaySettings, manager: ContextCompressionManager, workers: BodyWorkers) -> None:
        self._settings = settings
        self._manager = manager
        self._workers = workers
        self._threads = ThreadPoolExecutor(THREADS_MAX, "refold-trim")

    async def prepare(self, attempt: Attempt, why: str) -> Outgoing:
        """Return a request that fits; the original if it fits or cannot be read. Never raises."""
        session, request, limits, body = attempt.session, attempt.request, attempt.limits, attempt.body
        original = Outgoing(body, because.FAILED_OPEN(error=why), session, request, is_failed_open=True)
        if len(body) > self._settings.worker_bytes_min:
            return await self.cut_down(session.tenant, original, request.wire, limits, why)
        work = asyncio.ensure_future(asyncio.to_thread(self._compress, attempt))
        done = await wait_working(work, self._settings.prepare_s_max)
        error = work.exception() if done else None
        if error is not None:
            fields = {"session": session.id, "error": type(error).__name__}
            log.error("the request could not be compressed in memory", extra={"fields": fields})
        if error is not None or not done:
            work.add_done_callback(lambda task: task.cancelled() or task.exception())
            return await self._trim(original, request.wire, limits, why, tokens_max=session.folded_tokens)
        result = work.result()
        if result.written is not None:
            session.spare_edits = result.made
            return _take(original, result, because.IN_MEMORY(error=why))
        return replace(original, tokens_before=result.tokens, tokens_after=result.tokens)

    async def cut_down(self, tenant: str, original: Outgoing, wire: Wire, limits: Limits, why: str) -> Outgoing:
        """Return a large request cut down in a worker process; the original only if no worker can read it."""
        job, reason = make_job(self._manager, "", limits), because.IN_MEMORY(error=why)
        try:
            try:
                result = await self._workers.run("cut", tenant, wire, original.body, job=job)
            except NoWorker:
                raise
            except (WorkerFailed, TooManyValues) as error:
                log.error("a large request could not be cut down", extra={"fields": {"error": str(error)[:100]}})
                result = await self._workers.run("trim", tenant, wire, original.body, job=job)
                reason = because.TRIMMED(error=why)
        except NoWorker:
            # Delaying other requests for a moment is better than sending one that the upstream refuses.
            return await self._trim(original, wire, limits, why)
        except (WorkerFailed, Unreadable) as error:
            log.error("a large request could not be trimmed", extra={"fields": {"error": str(error)[:100]}})
            return original
        return _take(original, result, reason)

    async def _trim(self, original: Outgoing, wire: Wire, limits: Limits, why: str, *, tokens_max: int = 0) -> Outgoing:
        """Return the newest part of a request by sizes alone, made in threads that no slow request occupies."""
        work = partial(trim, wire, original.body, self._manager.config, limits, tokens_max=tokens_max)
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Exception as error:  # noqa: BLE001 - there is no further fallback
            log.error("a request could not be trimmed", extra={"fields": {"error": type(error).__name__}})
            return original
        return _take(original, result, because.TRIMMED(error=why))

    def _compress(self, attempt: Attempt) -> SmallerBody:
        session, request, limits = attempt.session, attempt.request, attempt.limits
        whole = read_request(request.wire, attempt.body) if request.known else request
        # The edits of the session's last view: those made in memory, else the stored ones.
        edits = session.spare_edits
        if not edits:
            with suppress(RefoldError):
                edits = [stored.edit for stored in self._manager.ledger.read_edits(session.id)]
        if not edits and session.folded_tokens:
            # The edits are lost, but the size accepted with them is known.
            limits = limit_exactly(session.folded_tokens)
        return compress_to_fit(whole, limit_config(self._manager.config, limits), edits, WorkLimit().check)


def _take(original: Outgoing, result: SmallerBody, reason: Reason) -> Outgoing:
    """Return a request with the body that was made of it; the original if all of it fits."""
    if result.written is None:
        return original
    before, after = result.tokens_before, result.tokens
    return replace(
        original, body=result.written, reason=reason, tokens_before=before, tokens_after=after, edits=result.edits
    )


def limit_config(config: CompressionConfig, limits: Limits) -> CompressionConfig:
    """Return a config with these limits, where they are set, that keeps as much as fits."""
    given = {name: value for name, value in asdict(limits).items() if value is not None}
    return config.model_copy(update=_KEEP_MOST | given)


def find_margin(model: str, config: CompressionConfig) -> float:
    """Return how far the counter of a model may undercount."""
    return counter_for(model or None, config.tokenizer).margin


def compress_to_fit(
    request: ReadRequest,
    config: CompressionConfig,
    edits: Sequence[Edit] = (),
    check: Callable[[], None] = check_nothing,
) -> SmallerBody:
    """Compress a request in memory, under the edits it had; one that cannot fit comes as small as possible."""
    over = None
    while True:
        try:
            prepared = compress(
                request.messages,
                system=request.system,
                tools=request.tools,
                model=request.model or None,
                config=config,
                format=request.wire.name,
                edits=edits,
                answer=answer_nothing,
                check=check,
            )
        except BudgetTooSmall as error:
            if not error.tokens or over is not None:
                raise
            over = error.tokens, error.budget
            smallest = limit_exactly(error.tokens, find_margin(request.model, config))
            config = config.model_copy(update=asdict(smallest))
        else:
            return SmallerBody.of(request, prepared, over)


async def prepare_whole(
    manager: ContextCompressionManager, attempt: Attempt, *, may_be_over: bool = True, moves_marks: bool = False
) -> SmallerBody:
    """Prepare a request through a manager; one that cannot fit comes as small as possible if it ``may_be_over``."""
    over, request = None, attempt.request
    try:
        prepared = await manager.prepare(attempt.make_whole_request())
    except BudgetTooSmall as error:
        if not error.tokens or not may_be_over:
            raise
        over = error.tokens, error.budget
        smallest = limit_exactly(error.tokens, find_margin(request.model, manager.config))
        prepared = await manager.prepare(replace(attempt, limits=smallest).make_whole_request())
    assert prepared is not None, "a whole history follows nothing"
    return await asyncio.to_thread(SmallerBody.of, request, prepared, over, moves_marks=moves_marks)


def cut_down(wire: Wire, body: bytes, config: CompressionConfig, limits: Limits) -> SmallerBody:
    """Cut a request down to about its budget by sizes alone, then compress what is left in memory."""
    whole = orjson.loads(body)
    room = limits.window or config.budget(model_info(_read_model(whole))).window
    kept = choose_by_size(list(_list_messages(whole[wire.key])), room * _BYTES_PER_TOKEN)
    small = orjson.dumps({**whole, wire.key: kept})
    made = compress_to_fit(read_request(wire, small), limit_config(config, limits))
    return replace(made, written=made.written or small, edits=max(1, made.edits), made=())


def trim(
    wire: Wire, body: bytes, config: CompressionConfig, limits: Limits = NO_LIMITS, *, tokens_max: int = 0
) -> SmallerBody:
    """Return the newest part of a request, estimated by samples: within its budget, and ``tokens_max`` if given."""
    whole = parse_json(body)
    counter = counter_for(_read_model(whole), config.tokenizer)
    room = limit_config(config, limits).budget(model_info(_read_model(whole)), counter.margin).hard
    tokens_max = min(room, tokens_max or room)
    messages, data = _list_messages(whole[wire.key]), dump_json(whole)
    density = _estimate_density(data, counter.count_text)
    before = int(len(data) * density)
    if len(data) * density <= tokens_max:
        return SmallerBody(None, before, before, 0)
    room = max(2 * _PIECE_CHARS_MIN, int(tokens_max / density) - len(data) + _measure(messages))
    bytes_max, kept = room, messages
    while (size := _measure(kept)) > room and bytes_max > _PIECE_CHARS_MIN:
        # Sizes shrink about as the limit does, so a few tries are enough.
        bytes_max = room if kept is messages else min(bytes_max * 3 // 4, bytes_max * room // size)
        kept = choose_by_size(messages, max(_PIECE_CHARS_MIN, bytes_max))
    made = dump_json({**whole, wire.key: place_messages(wire.name, kept)})
    return SmallerBody(made, int(len(made) * density), before, 1)


def _read_model(whole: dict[str, Any]) -> str | None:
    model = whole.get("model")
    return model if isinstance(model, str) else None


def _list_messages(given: Any) -> list[Any]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def choose_by_size(messages: list[Any], bytes_max: int) -> list[Any]:
    """Return leading system messages, the first user message and the newest messages, shortened, within a limit.

    The newest part begins with a user message (the last one before it, if necessary), never with a tool result.
    """
    lead = 0
    while lead < len(messages) - 1 and _role_of(messages[lead]) in ("system", "developer"):
        lead += 1
    piece = max(_PIECE_CHARS_MIN, bytes_max // 4)
    head = [shorten(message, piece // 2) for message in messages[:lead]]
    first = next((at for at in range(lead, len(messages)) if _starts_turn(messages[at])), len(messages))
    asked = [shorten(message, piece // 2) for message in messages[first : first + 1]]
    room = bytes_max - sum(map(_measure, head + asked))
    newest: list[Any] = []
    start = len(messages)
    while start > lead:
        message = shorten(messages[start - 1], piece)
        room -= _measure(message) + 1
        if newest and room < 0:
            break
        newest.append(message)
        start -= 1
    while newest and (_is_result(newest[-1]) or _is_open(messages[start - 1])):
        newest.pop()
        start += 1
    kept = newest[::-1]
    if not kept or not _starts_turn(kept[0]):
        opener = next((one for one in reversed(messages[first + 1 : start]) if _starts_turn(one)), None)
        kept = kept if opener is None else [shorten(opener, piece // 2), *kept]
    return [*head, *(asked if first < start else ()), *kept]


def _estimate_density(data: bytes, count_text: Callable[[str], int]) -> float:
    """Estimate the tokens per byte of a request, on the high side."""
    step = max(_SAMPLE_BYTES, len(data) // _SAMPLES)
    sample = b"".join(data[at : at + _SAMPLE_BYTES] for at in range(0, len(data), step))
    return 1.1 * max(1, count_text(sample.decode("utf-8", "replace"))) / max(1, len(sample))


def shorten(value: Any, chars_max: int) -> Any:
    """Return a value with long strings, lists and objects cut in the middle, so that it stays near a size."""
    if isinstance(value, str):
        half = max(_PIECE_CHARS_MIN, chars_max) // 2
        if len(value) <= 2 * half:
            return value
        gone = len(value) - 2 * half
        return f"{value[:half]}\n[… {gone:,} characters left out: the request was too large …]\n{value[-half:]}"
    if not isinstance(value, list | dict) or not value:
        return value
    if chars_max < 2:
        return type(value)()
    half = max(_ELEMENTS_MIN, min(_ELEMENTS_MAX, chars_max // _ELEMENT_CHARS)) // 2
    if isinstance(value, list):
        kept = value if len(value) <= 2 * half else [*value[:half], *value[-half:]]
        return [shorten(one, chars_max // len(kept)) for one in kept]
    named = list(value.items())[: 2 * half]
    share = chars_max // max(1, sum(isinstance(one, list | dict) for _, one in named))
    return {name: one if name in _WHOLE_FIELDS else _shorten_field(name, one, share) for name, one in named}


def _shorten_field(name: str, value: Any, chars_max: int) -> Any:
    """Return one field of an object, shortened; a call's arguments stay valid JSON."""
    if name == "arguments" and isinstance(value, str) and len(value) > chars_max:
        return dump_json({"left_out": f"{len(value):,} characters"}).decode()
    return shorten(value, chars_max)


def _measure(value: Any) -> int:
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return len(repr(value))


def _role_of(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else ""
    return role if isinstance(role, str) else ""


def _starts_turn(message: Any) -> bool:
    return _role_of(message) == "user" and not _is_result(message)


def _is_open(message: Any) -> bool:
    """Return whether the next item belongs to the same step as this one (Responses)."""
    kind = str(message.get("type", "")) if isinstance(message, dict) else ""
    return kind == "reasoning" or kind.endswith("_call")


def _is_result(message: Any) -> bool:
    """Return whether a message answers a tool call, in any wire format."""
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    if isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    ):
        return True
    return _role_of(message) == "tool" or str(message.get("type", "")).endswith("_output")
