"""Compression on the way: from a client's request to the bytes that go upstream, and what to tell about it.

Whatever goes wrong here, the original bytes go through (fail open), with a header and an event that say so. All that
blocks runs in threads; the requests of one session take their turn in the order they came.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from refold.errors import RefoldError
from refold.formats import make_format
from refold.ledger.ledger import Event
from refold.manager import ContextCompressionManager
from refold.prepared import PreparedContext
from refold.server.answered import Answered
from refold.server.asking import Asked
from refold.server.cache_marks import move_marks
from refold.server.identity import Identities, KnownSession
from refold.server.managers import Managers
from refold.server.reading import ReadRequest, Unreadable, dump_json, read_request, write_request
from refold.server.settings import GatewaySettings
from refold.server.wires import Wire
from refold.tokens import counter_for

log = logging.getLogger("refold.server")
LEAD_SETTING = "gateway"
HARDER = 0.7
REPORT_WAIT_S = 5.0
_FIXED_KEPT = 256


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What goes upstream for a request. ``session`` is None for one that passes through."""

    body: bytes = field(repr=False)
    reason: str = ""
    session: KnownSession | None = None
    request: ReadRequest | None = field(default=None, repr=False)
    manager: ContextCompressionManager | None = field(default=None, repr=False)
    generation: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    edits: int = 0
    seconds: float = 0.0
    is_failed_open: bool = False

    def own_headers(self) -> list[tuple[str, object]]:
        """Return what the answer's headers say of it, without their prefix."""
        headers: list[tuple[str, object]] = []
        if self.session is not None:
            headers.append(("session", self.session.name))
        if self.tokens_after:
            headers.append(("tokens", f"{self.tokens_before}->{self.tokens_after}"))
            headers.append(("edits", str(self.edits)))
        headers.append(("reason", self.reason))
        return headers


class Preparer:
    """Prepares requests and takes in what their answers cost."""

    def __init__(self, settings: GatewaySettings, managers: Managers, identities: Identities) -> None:
        self._settings = settings
        self._managers = managers
        self._identities = identities
        self._fixed: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def prepare(self, asked: Asked, wire: Wire, body: bytes) -> Outgoing:
        """Return what goes upstream for a request; never raises but for a session name that is none."""
        started = time.perf_counter()
        if asked.header("x-refold-bypass") not in ("", "0"):
            return Outgoing(body, "bypass")
        if not self._settings.compress:
            return Outgoing(body, "compression-off")
        try:
            request = await asyncio.to_thread(read_request, wire, body)
        except Unreadable as reason:
            return Outgoing(body, str(reason))
        named = asked.header("x-refold-session")
        choose = self._identities
        session = choose.choose_named(asked.tenant, named, request) if named else choose.choose(asked.tenant, request)
        session.in_flight += 1
        try:
            manager = self._managers.choose(request.model)
            outgoing = await self._run_bounded(session, request, manager, body)
        except BaseException:
            session.in_flight -= 1
            raise
        return replace(outgoing, seconds=time.perf_counter() - started)

    async def prepare_harder(self, outgoing: Outgoing, limit: int | None) -> Outgoing | None:
        """Return a smaller request after an upstream refused this one as too long; None if it cannot be made smaller.

        ``limit`` is the window that the upstream stated.
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
        await self._report(session, lambda: manager.observe_usage(session.id, 0, is_overflow=True))
        again = await self._run_bounded(session, request, manager, b"")
        if again.is_failed_open or not again.body or again.tokens_after >= max(1, outgoing.tokens_after):
            return None
        return replace(again, reason="overflow-retried", tokens_before=max(again.tokens_before, outgoing.tokens_before))

    async def _run_bounded(
        self, session: KnownSession, request: ReadRequest, manager: ContextCompressionManager, body: bytes
    ) -> Outgoing:
        """Prepare within the time there is; what takes longer goes on by itself, and this request goes without."""
        task = asyncio.ensure_future(self._run(session, request, manager, body))
        done, _ = await asyncio.wait({task}, timeout=self._settings.prepare_s_max)
        if done:
            return task.result()
        task.add_done_callback(_forget_result)
        return self._fail_open(session, request, body, "timeout")

    async def _run(
        self, session: KnownSession, request: ReadRequest, manager: ContextCompressionManager, body: bytes
    ) -> Outgoing:
        try:
            async with session.turn:
                if session.reports:
                    # What the last answer cost comes before the next request is judged by it.
                    await asyncio.wait(set(session.reports), timeout=REPORT_WAIT_S)
                session.generation += 1
                generation = session.generation
                prepared = await manager.prepare_context(
                    session.id,
                    request.messages,
                    "" if request.system is None else request.system,
                    tools=request.tools,
                    model=request.model or None,
                    format=request.wire.name,
                )
            written = await asyncio.to_thread(self._write, session, request, prepared, body, generation)
            return replace(written, manager=manager)
        except Exception as error:  # noqa: BLE001 - whatever fails in refold must not fail the client's request
            kind = type(error).__name__
            self._tell_failure(session, error)
            return self._fail_open(session, request, body, kind)

    def _write(
        self, session: KnownSession, request: ReadRequest, prepared: PreparedContext, body: bytes, generation: int
    ) -> Outgoing:
        if not session.is_stored:
            settings = {LEAD_SETTING: {"lead": request.lead, "system": request.system_digest, "tenant": session.tenant}}
            self._managers.main.ledger.update_session(session.id, {"settings": settings}, time.time())
            session.is_stored = True
        messages = prepared.messages
        written = write_request(request, messages)
        if written is not None and self._settings.cache_marks == "auto" and request.wire.name == "anthropic":
            written = dump_json(move_marks(request.body, messages))
        report = prepared.report
        tokens = prepared.total_tokens
        is_new = report is not None and bool(report.stages)
        before = self._count_original(session, request, tokens) if prepared.edits else tokens
        return Outgoing(
            body if written is None else written,
            reason=report.reason if is_new and report is not None else "kept" if written is not None else "unchanged",
            session=session,
            request=request,
            generation=generation,
            tokens_before=max(before, tokens),
            tokens_after=tokens,
            edits=len(prepared.edits),
        )

    def _count_original(self, session: KnownSession, request: ReadRequest, tokens: int) -> int:
        row = self._managers.main.ledger.read_session(session.id)
        return row.tokens + self._count_fixed(request) if row else tokens

    def _count_fixed(self, request: ReadRequest) -> int:
        """Return the tokens of system prompt and tools; counted once as long as they stay the same."""
        key = request.model, request.system_digest
        known = self._fixed.get(key)
        if known is None:
            counter = counter_for(request.model or None, self._managers.main.config.tokenizer)
            text = make_format(request.wire.name).read_system(request.system)
            known = self._fixed[key] = 2 + counter.count_text(text) + counter.count_tools(request.tools)
            while len(self._fixed) > _FIXED_KEPT:
                self._fixed.popitem(last=False)
        return known

    def _fail_open(self, session: KnownSession, request: ReadRequest, body: bytes, why: str) -> Outgoing:
        return Outgoing(body, f"failed-open: {why}", session, request, is_failed_open=True)

    def _tell_failure(self, session: KnownSession, error: Exception) -> None:
        """Log a failure of ours, without content: our own errors may name places, others only their kind."""
        said = str(error)[:300] if isinstance(error, RefoldError) else ""
        log.error("failed open", extra={"fields": {"session": session.id, "error": type(error).__name__, "said": said}})
        ledger = self._managers.main.ledger

        def record() -> None:
            event = Event("failed", time.time(), {"reason": f"failed open: {type(error).__name__}", "by": "gateway"})
            if ledger.read_session(session.id) is not None:
                ledger.add_event(session.id, event)

        self._start_report(session, record)

    def observe(self, outgoing: Outgoing, answered: Answered) -> None:
        """Take in what an answer cost, in a thread; what no longer concerns the context prepared last is left out."""
        session = outgoing.session
        if session is None or outgoing.is_failed_open or not (answered.has_usage or answered.error_text):
            return

        def record() -> None:
            # A report of usage speaks of the context prepared last: another request in between makes it wrong.
            if session.generation == outgoing.generation:
                self._observe(session, outgoing.manager or self._managers.main, answered)

        self._start_report(session, record)

    def _observe(self, session: KnownSession, manager: ContextCompressionManager, answered: Answered) -> None:
        from refold.llm.overflow import find_overflow

        if answered.has_usage:
            manager.observe_usage(session.id, answered.usage, finish_reason=answered.finish_reason or None)
        elif find_overflow(answered.error_text) is not None:
            manager.observe_usage(session.id, 0, is_overflow=True)

    async def _report(self, session: KnownSession, record: Any) -> None:
        await asyncio.wait({self._start_report(session, record)}, timeout=REPORT_WAIT_S)

    def _start_report(self, session: KnownSession, record: Any) -> asyncio.Task[None]:
        task = asyncio.ensure_future(_run_quietly(record))
        session.reports.add(task)
        task.add_done_callback(session.reports.discard)
        return task

    def leave(self, outgoing: Outgoing) -> None:
        """A request is over, however it ended."""
        if outgoing.session is not None:
            outgoing.session.in_flight -= 1

    async def load_known(self) -> int:
        """Make stored sessions known again, so that clients go on after a restart; return how many."""
        found = await asyncio.to_thread(self._read_known)
        for session_id, tenant, wire, digests, system in found:
            self._identities.add(session_id, tenant, wire, digests, system)
        return len(found)

    def _read_known(self) -> list[tuple[str, str, str, tuple[str, ...], str]]:
        ledger = self._managers.main.ledger
        rows = ledger.list_sessions(limit=self._settings.sessions_known_max)
        found: list[tuple[str, str, str, tuple[str, ...], str]] = []
        for row in reversed(rows):
            made = row.settings.get(LEAD_SETTING)
            if not isinstance(made, dict) or not isinstance(made.get("lead"), int):
                continue
            digests = ledger.read_path(row.id).digests[made["lead"] :]
            found.append((row.id, str(made.get("tenant", "")), row.wire, digests, str(made.get("system", ""))))
        return found


async def _run_quietly(record: Any) -> None:
    try:
        await asyncio.to_thread(record)
    except Exception as error:  # noqa: BLE001 - figures that cannot be stored cost nothing but their use
        log.warning("a report was lost", extra={"fields": {"error": type(error).__name__}})


def _forget_result(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
