"""Compression on the way: from a client's request to the bytes that go upstream, and what to tell about it.

Whatever goes wrong here, the original bytes go through (fail open), with a header and an event that say so. All that
blocks runs in threads; the requests of one session take their turn in the order they came.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

from refold.manager import ContextCompressionManager
from refold.manager.session import FORGOTTEN
from refold.prepared import PreparedContext
from refold.server.answered import Answered
from refold.server.asking import Asked
from refold.server.cache_marks import move_marks
from refold.server.fixed import FixedCounter
from refold.server.identity import Identities, KnownSession, check_name, make_id
from refold.server.known import read_known, store_known
from refold.server.managers import Managers
from refold.server.memory import Continued, Remembered, RequestMemory
from refold.server.outgoing import Outgoing, splice_body
from refold.server.places import Places, find_places
from refold.server.reading import ReadRequest, Unreadable, dump_json, read_request, write_request
from refold.server.reporting import Reporter
from refold.server.settings import GatewaySettings
from refold.server.wires import Wire

log = logging.getLogger("refold.server")
HARDER = 0.7
# Handing a small body to a thread takes longer than reading it.
INLINE_BYTES_MAX = 65_536


class Preparer:
    """Prepares requests and takes in what their answers cost."""

    def __init__(self, settings: GatewaySettings, managers: Managers, identities: Identities) -> None:
        self._settings = settings
        self._managers = managers
        self._identities = identities
        self._reporter = Reporter(managers)
        self._memory = RequestMemory(settings.memory_bytes_max)
        self._fixed = FixedCounter(managers)

    async def prepare(self, asked: Asked, wire: Wire, body: bytes) -> Outgoing:
        """Return what goes upstream for a request; never raises but for a session name that is none."""
        started = time.perf_counter()
        if asked.header("x-refold-bypass") not in ("", "0"):
            return Outgoing(body, "bypass")
        if not self._settings.compress:
            return Outgoing(body, "compression-off")
        named = asked.header("x-refold-session")
        session_id = make_id(asked.tenant, check_name(named)) if named else ""
        continued = self._memory.find(asked.tenant, wire, body, session_id)
        if continued is not None:
            session, request = continued.session, continued.request
            self._identities.go_on(session, request)
        else:
            try:
                request = await self._read(wire, body)
            except Unreadable as reason:
                return Outgoing(body, str(reason))
            choose = self._identities
            session = (
                choose.choose_named(asked.tenant, named, request) if named else choose.choose(asked.tenant, request)
            )
        session.in_flight += 1
        try:
            manager = self._managers.choose(request.model)
            outgoing = await self._run_bounded(session, request, manager, body, continued)
        except BaseException:
            session.in_flight -= 1
            raise
        return replace(outgoing, seconds=time.perf_counter() - started)

    async def _read(self, wire: Wire, body: bytes) -> ReadRequest:
        if len(body) <= INLINE_BYTES_MAX:
            return read_request(wire, body)
        return await asyncio.to_thread(read_request, wire, body)

    async def prepare_harder(self, outgoing: Outgoing, original: bytes, limit: int | None) -> Outgoing | None:
        """Return a smaller request after an upstream refused this one as too long; None if it cannot be made smaller.

        ``original`` is the client's request, ``limit`` the window that the upstream stated.
        """
        session, request = outgoing.session, outgoing.request
        if session is None or request is None:
            return None
        wanted = request.output_tokens_max
        if limit is not None:
            if self._managers.learn(request.model, limit):
                log.warning("learned a window", extra={"fields": {"model": request.model[:80], "window": limit}})
            window = limit
        else:
            window = int(max(1, outgoing.tokens_after) * HARDER) + wanted
        manager = self._managers.limit(window, wanted)
        await self._reporter.run(session, lambda: manager.observe_usage(session.id, 0, is_overflow=True))
        whole = await self._read(request.wire, original) if request.known else request
        again = await self._run_bounded(session, whole, manager, original)
        is_smaller = again.tokens_after < max(1, outgoing.tokens_after) and again.edits
        if again.is_failed_open or not is_smaller:
            return None
        return replace(again, reason="overflow-retried", tokens_before=max(again.tokens_before, outgoing.tokens_before))

    async def _run_bounded(
        self,
        session: KnownSession,
        request: ReadRequest,
        manager: ContextCompressionManager,
        body: bytes,
        continued: Continued | None = None,
    ) -> Outgoing:
        """Prepare within the time there is; what takes longer goes on by itself, and this request goes without."""
        task = asyncio.ensure_future(self._run(session, request, manager, body, continued))
        done, _ = await asyncio.wait({task}, timeout=self._settings.prepare_s_max)
        if done:
            return task.result()
        task.add_done_callback(_forget_result)
        return self._fail_open(session, request, body, "timeout")

    async def _run(
        self,
        session: KnownSession,
        request: ReadRequest,
        manager: ContextCompressionManager,
        body: bytes,
        continued: Continued | None,
    ) -> Outgoing:
        try:
            async with session.turn:
                # What the last answer cost comes before the next request is judged by it.
                await self._reporter.wait(session)
                session.generation += 1
                outgoing = None
                if continued is not None:
                    outgoing = await self._run_continued(session, request, manager, body, continued)
                if outgoing is None:
                    whole = await self._read(request.wire, body) if request.known else request
                    outgoing = await self._run_whole(session, whole, manager, body)
                return replace(outgoing, manager=manager)
        except Exception as error:  # noqa: BLE001 - whatever fails in refold must not fail the client's request
            session.synced = ()
            self._reporter.tell_failure(session, error)
            return self._fail_open(session, request, body, type(error).__name__)

    async def _run_whole(
        self, session: KnownSession, request: ReadRequest, manager: ContextCompressionManager, body: bytes
    ) -> Outgoing:
        """Prepare a request by its whole history."""
        generation = session.generation
        prepared = await manager.prepare_context(session.id, request.messages, **_describe_stored(request))
        if session.is_stored and not prepared.edits:
            written = None
        else:
            written = await asyncio.to_thread(self._write, session, request, prepared)
        loop = asyncio.get_running_loop()
        self._reporter.start(session, lambda: self._remember_later(loop, session, request, body))
        return self._make_outgoing(session, request, prepared, body, written, generation)

    async def _run_continued(
        self,
        session: KnownSession,
        request: ReadRequest,
        manager: ContextCompressionManager,
        body: bytes,
        continued: Continued,
    ) -> Outgoing | None:
        """Prepare a request by what is new in it; None if the session is not as it was left."""
        if session.synced is not continued.remembered.request.digests or not session.is_stored:
            return None
        if self._managers.has_model:
            await asyncio.to_thread(_append_new, session, request, manager)
            prepared = await manager.prepare_context(session.id, **_describe_stored(request))
        else:
            prepared = await asyncio.to_thread(_prepare_stored, session, request, manager)
        if prepared.report is None or prepared.report.messages_before != request.count:
            return None
        if not prepared.edits and len(prepared.messages) != request.count:
            return None
        places = find_places(body, request.wire.key, continued.remembered.places, continued.kept)
        written = None
        if prepared.edits:
            if places is None or self._settings.cache_marks == "auto":
                return None
            written = await asyncio.to_thread(self._splice, session, request, manager, prepared, places)
            if written is None:
                return None
        self._remember(session, request, places)
        return self._make_outgoing(session, request, prepared, body, written, session.generation)

    def _splice(
        self,
        session: KnownSession,
        request: ReadRequest,
        manager: ContextCompressionManager,
        prepared: PreparedContext,
        places: Places,
    ) -> tuple[bytes, int] | None:
        """Return the client's bytes with the view in them, and the tokens of the original."""
        row = manager.ledger.read_session(session.id)
        items = manager.read_view(session.id)
        is_same = len(items) == len(prepared.messages) and all(
            item.raw is raw for item, raw in zip(items, prepared.messages, strict=True)
        )
        if row is None or FORGOTTEN in row.settings or not is_same:
            return None
        written = splice_body(places, items, request)
        return None if written is None else (written, row.tokens + self._fixed.count(request))

    def _write(
        self, session: KnownSession, request: ReadRequest, prepared: PreparedContext
    ) -> tuple[bytes, int] | None:
        """Return the request with the view in it, and the tokens of the original; None if nothing was changed."""
        ledger = self._managers.main.ledger
        if not session.is_stored:
            store_known(ledger, session, request)
        written = write_request(request, prepared.messages)
        if written is None:
            return None
        if self._settings.cache_marks == "auto" and request.wire.name == "anthropic":
            written = dump_json(move_marks(request.body, prepared.messages))
        row = ledger.read_session(session.id)
        return written, row.tokens + self._fixed.count(request) if row else prepared.total_tokens

    def _make_outgoing(
        self,
        session: KnownSession,
        request: ReadRequest,
        prepared: PreparedContext,
        body: bytes,
        written: tuple[bytes, int] | None,
        generation: int,
    ) -> Outgoing:
        report, tokens = prepared.report, prepared.total_tokens
        reason = "unchanged" if written is None else "kept"
        if report is not None and report.stages:
            reason = report.reason
        session.synced = request.digests
        return Outgoing(
            body if written is None else written[0],
            reason,
            session=session,
            request=request,
            generation=generation,
            tokens_before=tokens if written is None else max(tokens, written[1]),
            tokens_after=tokens,
            edits=len(prepared.edits),
        )

    def _remember_later(
        self, loop: asyncio.AbstractEventLoop, session: KnownSession, request: ReadRequest, body: bytes
    ) -> None:
        """Find where the messages stand, in a thread and after the request went on its way."""
        places = find_places(body, request.wire.key)
        loop.call_soon_threadsafe(self._remember, session, request, places)

    def _remember(self, session: KnownSession, request: ReadRequest, places: Places | None) -> None:
        if places is None or len(places.spans) != request.count:
            self._memory.forget(session.id)
        elif session.digests is request.digests:
            self._memory.remember(Remembered(session, places, replace(request, messages=[], body={})))

    def _fail_open(self, session: KnownSession, request: ReadRequest, body: bytes, why: str) -> Outgoing:
        return Outgoing(body, f"failed-open: {why}", session, request, is_failed_open=True)

    def observe(self, outgoing: Outgoing, answered: Answered) -> None:
        """Take in what an answer cost."""
        self._reporter.observe(outgoing, answered)

    def leave(self, outgoing: Outgoing) -> None:
        """A request is over, however it ended."""
        if outgoing.session is not None:
            outgoing.session.in_flight -= 1

    async def drain(self) -> None:
        """Wait until what answers cost is stored, but not for ever."""
        await self._reporter.drain()

    def forget(self, session_id: str) -> None:
        """Forget a session that was erased."""
        self._identities.forget(session_id)
        self._memory.forget(session_id)

    async def load_known(self) -> int:
        """Make stored sessions known again, so that clients go on after a restart; return how many."""
        ledger, limit = self._managers.main.ledger, self._settings.sessions_known_max
        found = await asyncio.to_thread(read_known, ledger, limit)
        for one in found:
            self._identities.add(one)
        return len(found)


def _append_new(session: KnownSession, request: ReadRequest, manager: ContextCompressionManager) -> None:
    if request.messages:
        manager.append(session.id, request.messages, format=request.wire.name)


def _prepare_stored(session: KnownSession, request: ReadRequest, manager: ContextCompressionManager) -> PreparedContext:
    """Add what is new and prepare, in one go: a change of threads costs more than either."""
    _append_new(session, request, manager)
    return manager.prepare_context_sync(session.id, **_describe_stored(request))


def _describe_stored(request: ReadRequest) -> dict[str, Any]:
    """Return a request as the manager takes it when all messages are in the ledger."""
    return {
        "system_prompt": "" if request.system is None else request.system,
        "tools": request.tools,
        "model": request.model or None,
        "format": request.wire.name,
    }


def _forget_result(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
