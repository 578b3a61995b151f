"""Preparing a request when the ledger fails or preparing takes too long.

A request that fits passes through unchanged. Any other is compressed in memory, without a model, under the edits that
the session had; a large one is cut down by sizes first, in a worker process. If that fails, too, only its newest part
is sent: never more than the last view that the upstream accepted.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

from refold.conversation import because
from refold.conversation.reason import Reason
from refold.errors import RefoldError
from refold.llm.choose import read_conversation_model
from refold.manager import ContextCompressionManager
from refold.manager.batch import WorkLimit
from refold.server.body import TooManyValues, Unreadable, read_request
from refold.server.cut import SmallerBody, compress_to_fit, limit_config, trim
from refold.server.outgoing import Attempt, Outgoing
from refold.server.overflow import Limits, limit_exactly
from refold.server.settings import GatewaySettings
from refold.server.wires import Wire
from refold.server.worker import BodyWorkers, NoWorker, PrepareJob, WorkerFailed

log = logging.getLogger("refold.server")
THREADS_MAX = 2


def make_job(manager: ContextCompressionManager, session_id: str, limits: Limits) -> PrepareJob:
    """Return what a worker process needs to prepare a request as this process would."""
    return PrepareJob(
        session_id,
        manager.config,
        str(manager.workspace_path),
        manager.ledger_place,
        limits,
        read_conversation_model(),
    )


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
        done, _ = await asyncio.wait({work}, timeout=self._settings.prepare_s_max)
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
            # Rather hold up others for a moment than send what the upstream refuses.
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
        except Exception as error:  # noqa: BLE001 - nothing else is left to try
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
