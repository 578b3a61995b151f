"""Compression on the way: from a client's request to the bytes that go upstream, and what to tell about it.

A request that goes on from the one before, with little that is new and nothing to compress, is prepared where it
stands. All else that blocks runs in threads; the requests of one session take their turn in the order they came.
Whatever goes wrong here, the request goes through, compressed in memory if it would not fit, with a header and an event
that say so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

from refold.conversation import because
from refold.conversation.reason import NO_REASON
from refold.errors import BudgetTooSmall, RefoldError
from refold.manager.prepare import Billed
from refold.prepared import PreparedContext
from refold.server.answered import Answered
from refold.server.asking import Asked
from refold.server.cache_marks import move_marks
from refold.server.continuing import Continuing
from refold.server.fallback import Fallback, find_limit_key
from refold.server.identity import Identities, KnownSession, check_name, make_id
from refold.server.known import read_alike, read_known, store_known
from refold.server.limits import Limits, limit_exactly
from refold.server.managers import Managers
from refold.server.outgoing import Outgoing
from refold.server.reading import ReadRequest, Unreadable, dump_json, read_request, write_request
from refold.server.remembering import Remembering
from refold.server.reporting import Reporter
from refold.server.request_memory import Continued
from refold.server.settings import GatewaySettings
from refold.server.stored import Ready, append_new, describe_stored, make_outgoing
from refold.server.summaries import name_payer
from refold.server.wires import Wire

log = logging.getLogger("refold.server")
# Handing a small body to a thread takes longer than reading it.
INLINE_BYTES_MAX = 65_536


class Preparer:
    """Prepares requests and takes in what their answers cost."""

    def __init__(self, settings: GatewaySettings, managers: Managers, identities: Identities) -> None:
        self._settings = settings
        self._managers = managers
        self._identities = identities
        self._reporter = Reporter(managers)
        self._remembering = Remembering(self._reporter, settings.memory_bytes_max)
        self._fallback = Fallback(settings, managers)
        self._in_flight = 0
        self._continuing = Continuing(settings, managers, self._reporter, self._remembering, lambda: self._in_flight)

    async def prepare(self, asked: Asked, wire: Wire, body: bytes) -> Outgoing:
        """Return what goes upstream for a request; never raises but for a session name that is none."""
        started = time.perf_counter()
        if asked.header("x-refold-bypass") not in ("", "0"):
            return Outgoing(body, because.BYPASS())
        if not self._settings.compress:
            return Outgoing(body, because.COMPRESSION_OFF())
        named = asked.header("x-refold-session")
        session_id = make_id(asked.tenant, check_name(named)) if named else ""
        continued = self._remembering.find(asked.tenant, wire, body, session_id)
        if continued is None:
            continued = await self._remembering.find_later(asked.tenant, wire, body, session_id)
        if continued is not None:
            session, request = continued.session, continued.request
            self._identities.go_on(session, request, len(continued.remembered.request.digests))
        else:
            try:
                request = await self._read(wire, body)
            except Unreadable as error:
                return Outgoing(body, error.reason)
            session = await self._choose(asked.tenant, named, request)
        session.in_flight += 1
        self._in_flight += 1
        name_payer(self._settings, asked, wire, request.model)
        try:
            limits = self._find_limits(session, request)
            outgoing = self._prepare_now(session, continued, limits, body) if continued is not None else None
            if outgoing is None:
                outgoing = await self._run_bounded(session, request, limits, body, continued)
        except BaseException:
            session.in_flight -= 1
            self._in_flight -= 1
            raise
        outgoing.seconds = time.perf_counter() - started
        return outgoing

    async def _choose(self, tenant: str, named: str, request: ReadRequest) -> KnownSession:
        """Return the session of a request: that which it names, that which it continues, or a new one."""
        identities = self._identities
        if named:
            return identities.choose_named(tenant, named, request)
        # What says nothing yet but its first words is a new conversation more often than not; it is no loss if not.
        if any(request.replies) and identities.find(tenant, request) is None:
            try:
                alike = await asyncio.to_thread(read_alike, self._managers.main.ledger, tenant, request)
            except RefoldError as error:
                log.warning("sessions could not be looked up", extra={"fields": {"error": type(error).__name__}})
            else:
                for one in alike:
                    identities.add(one)
        return identities.choose(tenant, request)

    def _find_limits(self, session: KnownSession, request: ReadRequest) -> Limits:
        return self._managers.find_limits(find_limit_key(session, request), request.output_tokens_max)

    async def _read(self, wire: Wire, body: bytes) -> ReadRequest:
        if len(body) <= INLINE_BYTES_MAX:
            return read_request(wire, body)
        return await asyncio.to_thread(read_request, wire, body)

    async def prepare_again(self, outgoing: Outgoing, original: bytes, limits: Limits) -> Outgoing:
        """Prepare a request that an upstream refused as too long once more, under other limits.

        ``original`` is the client's request.
        """
        session, request = outgoing.session, outgoing.request
        assert session is not None, "only a prepared request can be prepared again"
        assert request is not None, "only a prepared request can be prepared again"
        manager = self._managers.main
        await self._reporter.run(session, lambda: manager.observe_usage(session.id, 0, is_overflow=True))
        whole = await self._read(request.wire, original) if request.known else request
        again = await self._run_bounded(session, whole, limits, original)
        return replace(again, tokens_before=max(again.tokens_before, outgoing.tokens_before))

    def _prepare_now(self, session: KnownSession, continued: Continued, limits: Limits, body: bytes) -> Outgoing | None:
        """Prepare a request where it stands, without a thread; None if it takes more than that."""
        try:
            return self._continuing.prepare_now(session, continued, limits, body)
        except Exception as error:  # noqa: BLE001 - whatever fails in refold must not fail the client's request
            session.synced = ()
            self._reporter.tell_failure(session, error)
            return None

    async def _run_bounded(
        self,
        session: KnownSession,
        request: ReadRequest,
        limits: Limits,
        body: bytes,
        continued: Continued | None = None,
    ) -> Outgoing:
        """Prepare within the time there is; what takes longer goes on by itself, and this request goes without."""
        task = asyncio.ensure_future(self._run(session, request, limits, body, continued))
        done, _ = await asyncio.wait({task}, timeout=self._settings.prepare_s_max)
        if done:
            return task.result()
        task.add_done_callback(_forget_result)
        return await self._fallback.prepare(session, request, limits, body, "timeout")

    async def _run(
        self,
        session: KnownSession,
        request: ReadRequest,
        limits: Limits,
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
                if continued is not None and self._continuing.is_in_step(session, continued):
                    outgoing = await self._continuing.prepare(session, continued, limits, body, due)
                if outgoing is None:
                    whole = await self._read(request.wire, body) if request.known else request
                    outgoing = await self._run_to_fit(session, whole, limits, body, due)
                return outgoing
        except Exception as error:  # noqa: BLE001 - whatever fails in refold must not fail the client's request
            session.synced = ()
            self._reporter.tell_failure(session, error)
            return await self._fallback.prepare(session, request, limits, body, type(error).__name__)

    async def _run_to_fit(
        self, session: KnownSession, request: ReadRequest, limits: Limits, body: bytes, due: list[Billed]
    ) -> Outgoing:
        """Prepare a request by its whole history; if nothing fits the budget, send the smallest context there is."""
        try:
            return await self._run_whole(session, request, limits, body, due)
        except BudgetTooSmall as error:
            if not error.tokens:
                raise
            session.synced = ()
            if self._managers.limits.lower_output(find_limit_key(session, request)):
                return await self._run_to_fit(session, request, self._find_limits(session, request), body, [])
            self._reporter.tell_failure(session, error)
            smallest = limit_exactly(error.tokens, self._managers.find_margin(request.model))
            outgoing = await self._run_whole(session, request, smallest, body, [])
            reason = because.OVER_BUDGET(tokens=error.tokens, limit=error.budget)
            return replace(outgoing, reason=reason, is_over=True)

    async def _run_whole(
        self, session: KnownSession, request: ReadRequest, limits: Limits, body: bytes, due: list[Billed]
    ) -> Outgoing:
        """Prepare a request by its whole history."""
        generation, manager = session.generation, self._managers.main
        if due:
            await asyncio.to_thread(append_new, manager, session, replace(request, messages=[]), due)
        prepared = await manager.prepare_context(session.id, request.messages, **describe_stored(request, limits))
        if session.is_stored and not prepared.edits:
            written = None
        else:
            written = await asyncio.to_thread(self._write, session, request, prepared)
        self._remembering.remember_later(session, request, body)
        report = prepared.report
        reason = report.reason if report is not None and report.stages else NO_REASON
        ready = Ready(prepared.total_tokens, request.count, len(prepared.edits), reason)
        return make_outgoing(session, request, ready, body, written, generation)

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
        return written, row.tokens + self._continuing.fixed.count(request) if row else prepared.total_tokens

    def observe(self, outgoing: Outgoing, answered: Answered) -> None:
        """Take in what an answer cost."""
        self._reporter.observe(outgoing, answered)

    def leave(self, outgoing: Outgoing) -> None:
        """A request is over, however it ended."""
        if outgoing.session is not None:
            outgoing.session.in_flight -= 1
            self._in_flight -= 1

    async def settle(self, outgoing: Outgoing, body: bytes) -> None:
        """Wait until what a request brought is stored; if its session was another than we held, the long way does it.

        ``body`` is the client's request. It has gone upstream by then: all that may change is what is told about it.
        """
        ticket, session, request = outgoing.ticket, outgoing.session, outgoing.request
        if ticket is None or ticket.is_stored or session is None or request is None:
            return
        if await self._continuing.storing.wait(ticket):
            return
        session.synced = ()
        try:
            whole = await self._read(request.wire, body)
        except Unreadable:
            return
        again = await self._run_bounded(session, whole, self._find_limits(session, request), body)
        if again.is_failed_open:
            outgoing.is_failed_open, outgoing.reason = True, again.reason

    async def drain(self) -> None:
        """Wait until what requests brought and what answers cost is stored, but not for ever."""
        await self._continuing.storing.drain()
        await self._reporter.drain()

    def forget(self, session_id: str) -> None:
        """Forget a session that was erased."""
        self._identities.forget(session_id)
        self._remembering.forget(session_id)

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
