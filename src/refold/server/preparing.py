"""Compression on the way: from a client's request to the bytes that go upstream, and what to tell about it.

Whatever goes wrong here, the original bytes go through (fail open), with a header and an event that say so. All that
blocks runs in threads; the requests of one session take their turn in the order they came.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from refold.manager import ContextCompressionManager
from refold.prepared import PreparedContext
from refold.server.answered import Answered
from refold.server.asking import Asked
from refold.server.cache_marks import move_marks
from refold.server.fixed import FixedCounter
from refold.server.identity import Identities, KnownSession, check_name, make_id
from refold.server.known import read_known, store_known
from refold.server.managers import Managers
from refold.server.memory import Continued, Remembered, RequestMemory, Start, name_start
from refold.server.outgoing import Outgoing
from refold.server.places import Places, find_places
from refold.server.reading import ReadRequest, Unreadable, dump_json, read_request, write_request
from refold.server.reporting import Reporter, run_all
from refold.server.settings import GatewaySettings
from refold.server.stored import append_new, describe_stored, prepare_stored, splice_view
from refold.server.wires import Wire

log = logging.getLogger("refold.server")
HARDER = 0.7
# Handing a small body to a thread takes longer than reading it.
INLINE_BYTES_MAX = 65_536
REMEMBER_WAIT_S = 1.0


class Preparer:
    """Prepares requests and takes in what their answers cost."""

    def __init__(self, settings: GatewaySettings, managers: Managers, identities: Identities) -> None:
        self._settings = settings
        self._managers = managers
        self._identities = identities
        self._reporter = Reporter(managers)
        self._memory = RequestMemory(settings.memory_bytes_max)
        self._remembering: dict[Start, set[asyncio.Task[None]]] = {}
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
        continued = await self._find_continued(asked.tenant, wire, body, session_id)
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

    async def _find_continued(self, tenant: str, wire: Wire, body: bytes, session_id: str) -> Continued | None:
        continued = self._memory.find(tenant, wire, body, session_id)
        under_way = self._remembering.get(name_start(tenant, wire.name, body))
        if continued is None and under_way:
            # The request before is being looked at; waiting for that is shorter than the long way.
            await asyncio.wait(set(under_way), timeout=REMEMBER_WAIT_S)
            continued = self._memory.find(tenant, wire, body, session_id)
        return continued

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
                due = self._reporter.take_due(session)
                session.generation += 1
                outgoing = None
                if continued is not None:
                    outgoing = await self._run_continued(session, request, manager, body, continued, due)
                if due:
                    await asyncio.to_thread(run_all, due)
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
        prepared = await manager.prepare_context(session.id, request.messages, **describe_stored(request))
        if session.is_stored and not prepared.edits:
            written = None
        else:
            written = await asyncio.to_thread(self._write, session, request, prepared)
        self._remember_later(session, request, body)
        return self._make_outgoing(session, request, prepared, body, written, generation)

    async def _run_continued(
        self,
        session: KnownSession,
        request: ReadRequest,
        manager: ContextCompressionManager,
        body: bytes,
        continued: Continued,
        due: list[Callable[[], None]],
    ) -> Outgoing | None:
        """Prepare a request by what is new in it; None if the session is not as it was left. Does what is ``due``."""
        if session.synced is not continued.remembered.request.digests or not session.is_stored:
            return None
        if self._managers.has_model:
            await asyncio.to_thread(append_new, session, request, manager, due)
            prepared = await manager.prepare_context(session.id, **describe_stored(request))
        else:
            prepared = await asyncio.to_thread(prepare_stored, session, request, manager, due)
        if prepared.report is None or prepared.report.messages_before != request.count:
            return None
        if not prepared.edits and len(prepared.messages) != request.count:
            return None
        places = find_places(body, request.wire.key, continued.remembered.places, continued.kept)
        written = None
        if prepared.edits:
            if places is None or self._settings.cache_marks == "auto":
                return None
            spliced = await asyncio.to_thread(splice_view, session, request, manager, prepared, places)
            if spliced is None:
                return None
            written = spliced.body, spliced.tokens + self._fixed.count(request)
        self._remember(session, request, places)
        return self._make_outgoing(session, request, prepared, body, written, session.generation)

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

    def _remember_later(self, session: KnownSession, request: ReadRequest, body: bytes) -> None:
        """Find where the messages stand, in a thread and after the request went on its way."""
        loop = asyncio.get_running_loop()
        key = name_start(session.tenant, session.wire, body)

        def look() -> None:
            places = find_places(body, request.wire.key)
            loop.call_soon_threadsafe(self._remember, session, request, places)

        def leave(task: asyncio.Task[None]) -> None:
            tasks = self._remembering.get(key, set())
            tasks.discard(task)
            if not tasks:
                self._remembering.pop(key, None)

        task = self._reporter.start(session, look)
        self._remembering.setdefault(key, set()).add(task)
        task.add_done_callback(leave)

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


def _forget_result(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
