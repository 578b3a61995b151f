"""From a client's request to the bytes that go upstream.

A request that extends the previous one by little, with nothing to compress, is prepared in memory on the event loop and
stored while the upstream works. Blocking work runs in threads; requests of one session take turns. If preparing fails,
the request is still forwarded, compressed in memory if it would not fit, and a header and an event report it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

from refold.config.values import follow_output
from refold.conversation import because
from refold.conversation.reason import Reason
from refold.errors import BudgetTooSmall, RefoldError
from refold.manager import ContextCompressionManager
from refold.manager.background import WriteBehind
from refold.manager.batch import WorkLimit
from refold.manager.prepare import PreparedView
from refold.server.auth import TenantStorage, make_id
from refold.server.body import Places, ReadRequest, TooManyValues, Unreadable, find_places, read_request
from refold.server.fallback import (
    Fallback,
    SmallerBody,
    WorkerFailed,
    compress_to_fit,
    limit_config,
    make_job,
    prepare_whole,
    wait_working,
)
from refold.server.outgoing import Attempt, Outgoing, Reporter, splice_body, store_held
from refold.server.overflow import NO_LIMITS, LearnedLimits, Limits, find_limit_key, limit_window
from refold.server.recall_tool import make_recall_tool
from refold.server.request import Asked
from refold.server.request_memory import Continued, RequestMemory
from refold.server.session_lookup import (
    Identities,
    KnownSession,
    Origin,
    find_origin,
    find_provider_conversation,
    name_provided,
    read_conversation,
    read_name,
    store_known,
    store_parent,
)
from refold.server.settings import INLINE_BYTES_MAX, LARGE_BYTES, GatewaySettings, name_payer
from refold.server.wires import Wire, asks_for_summary
from refold.server.worker import BodyWorkers
from refold.stages.stage import OutOfTime

log = logging.getLogger("refold.server")
# Counting the tokens of more new text than this takes longer than handing it to a thread.
NEW_BYTES_MAX = 16_384
ITEMS_MAX = 1_000
# A client's own compaction is the last request of its history: it needs no room to grow.
SHOWN_SHARE = 0.97
# Requests that pass through for these reasons are stored nevertheless.
_HELD = frozenset(
    kind.code for kind in (because.CONVERSATION, because.PROMPT, because.PROVIDER_COMPACTION, because.PREVIOUS_RESPONSE)
)


class Preparer:
    """Prepares requests and records what their answers cost."""

    def __init__(
        self,
        settings: GatewaySettings,
        manager: ContextCompressionManager,
        limits: LearnedLimits,
        identities: Identities,
    ) -> None:
        self._settings = settings
        self.manager = manager
        self._limits = limits
        self._identities = identities
        self.reporter = Reporter(manager)
        self._memory = RequestMemory(
            self.reporter, bytes_max=settings.memory_bytes_max, sessions_max=settings.sessions_known_max
        )
        self.workers = BodyWorkers(settings.prepare_s_max)
        self._fallback = Fallback(settings, manager, self.workers)
        self._writes = WriteBehind(manager.store_prepared)
        # Sessions of conversations at the provider, while a request of them is in flight or a report is to be stored.
        self._provided: WeakValueDictionary[str, KnownSession] = WeakValueDictionary()
        self.storage = TenantStorage(manager.ledger, settings.tenant_bytes)
        self._in_flight = 0

    async def prepare(self, asked: Asked, wire: Wire, body: bytes, name: str = "") -> Outgoing:
        """Return the request that goes upstream; ``name`` is its session's name if the client gives none."""
        started = time.perf_counter()
        named = read_name(asked, name)
        session_id = make_id(asked.tenant, named) if named else ""
        origin = find_origin(asked)
        continued = await self._memory.find(asked.tenant, wire, body, session_id, origin.conversation)
        if continued is not None and not origin.conversation and not named:
            # If only the body names the conversation, another conversation may begin with the same bytes.
            stated = read_conversation(continued.request.body, origin.client)
            continued = continued if stated == continued.remembered.session.conversation else None
        if continued is not None:
            session, request = continued.remembered.session, continued.request
            self._identities.go_on(session, request)
            self._store_moved()
        else:
            try:
                request = await self._read(asked.tenant, wire, body)
            except Unreadable as error:
                if error.reason.code in _HELD:
                    return await self.hold(asked, wire, body, error.reason, name=name)
                return Outgoing(body, error.reason)
            except (WorkerFailed, TooManyValues) as error:
                original = Outgoing(body, because.FAILED_OPEN(error=str(error)), is_failed_open=True)
                return await self._fallback.cut_down(asked.tenant, original, wire, NO_LIMITS, str(error))
            if not origin.conversation:
                origin = replace(origin, conversation=read_conversation(request.body, origin.client))
            session = await self._look_up(asked, request, named, origin)
        outgoing = await self._prepare_known(asked, session, request, body, continued=continued)
        outgoing.seconds = time.perf_counter() - started
        return outgoing

    async def _prepare_known(
        self,
        asked: Asked,
        session: KnownSession,
        request: ReadRequest,
        body: bytes,
        *,
        continued: Continued | None = None,
    ) -> Outgoing:
        """Prepare a request whose session is known."""
        wire = request.wire
        if self._settings.recall_tool and request.tools:
            request = replace(request, own_tools=(make_recall_tool(wire).definition,))
        self._enter(session)
        name_payer(self._settings, asked, wire, request.model)
        try:
            attempt = Attempt(session, request, self._find_limits(session, request), body, continued)
            new_bytes = len(body) - (continued.remembered.places.end if continued is not None else 0)
            if await self.storage.is_full(asked.tenant, new_bytes):
                session.synced = ()
                reason = because.NOT_STORED(limit=self.storage.bytes_max)
                log.warning(reason.code, extra={"fields": {"session": session.id}})
                compressed = await self._fallback.prepare(attempt, "storage-limit")
                return replace(compressed, reason=reason, is_failed_open=True)
            outgoing = self._prepare_now(attempt) or await self._run_bounded(attempt)
            if outgoing.edits and asks_for_summary(request.messages, request.system):
                outgoing = await self._show_originals(attempt, outgoing)
        except BaseException:
            self.leave(session)
            raise
        return outgoing

    async def _show_originals(self, attempt: Attempt, prepared: Outgoing) -> Outgoing:
        """Return a client's own compaction with as much of the originals as fits, instead of the records of folds.

        It is stored as it was prepared. What a person has forgotten stays hidden.
        """
        session, manager = attempt.session, self.manager
        request = attempt.request
        whole = await self._read(session.tenant, request.wire, attempt.body) if request.known else request

        def compress() -> SmallerBody | None:
            if manager.ledger.find_forgotten(session.id) or not whole.messages:
                return None
            config = limit_config(manager.config, attempt.limits).model_copy(update={"target_ratio": SHOWN_SHARE})
            return compress_to_fit(whole, config, (), WorkLimit().check)

        try:
            made = await asyncio.to_thread(compress)
        except (RefoldError, OutOfTime):
            made = None
        if made is None or made.over or made.tokens <= prepared.tokens_after:
            return prepared
        body = attempt.body if made.written is None else made.written
        return replace(prepared, body=body, reason=because.SENT_WHOLE(), tokens_after=made.tokens, edits=made.edits)

    async def hold(self, asked: Asked, wire: Wire, body: bytes, reason: Reason, *, name: str = "") -> Outgoing:
        """Store a request that passes through because the provider holds part of it; say so once per session.

        A request of a provider's conversation brings only what is new and is stored in a session of that name.
        """
        if len(body) > LARGE_BYTES or await self.storage.is_full(asked.tenant, len(body)):
            return Outgoing(body, reason)
        try:
            request = await asyncio.to_thread(read_request, wire, body, is_held=True)
        except (Unreadable, TooManyValues):
            return Outgoing(body, reason)
        origin, named = find_origin(asked), read_name(asked, name)
        provided = find_provider_conversation(request.body) if reason.code == because.CONVERSATION.code else ""
        if provided:
            origin = replace(origin, conversation=provided)
            session_id = make_id(asked.tenant, named or name_provided(provided))
            made = KnownSession(session_id, asked.tenant, wire.name, client=origin.client, conversation=provided)
            session = self._provided.setdefault(session_id, made)
        else:
            session = await self._look_up(asked, request, named, origin)
            if session.folded_tokens and reason.code == because.PROVIDER_COMPACTION.code:
                return await self._prepare_known(asked, session, request, body)
        self._enter(session)
        try:
            async with session.turn:
                # The last answer is stored before the next question.
                await self.reporter.wait(session)
                session.generation, session.synced = session.generation + 1, ()
                await asyncio.to_thread(store_held, self.manager, session, request, reason, is_new=bool(provided))
        except Exception as error:  # noqa: BLE001 - a failure in refold must not fail the client's request
            self.reporter.note_written(error)
            log.warning("a request was not stored", extra={"fields": {"error": type(error).__name__}})
        return Outgoing(body, reason, session, generation=session.generation, held=request)

    async def _look_up(self, asked: Asked, request: ReadRequest, named: str, origin: Origin) -> KnownSession:
        """Return the session that a request continues, or a new one; store the new parent of one that it leads."""
        ledger = self.manager.ledger
        session = await self._identities.look_up(ledger, asked.tenant, request, named=named, origin=origin)
        self._store_moved()
        return session

    def _store_moved(self) -> None:
        for moved in self._identities.take_moved():
            self.reporter.start(partial(store_parent, self.manager.ledger, moved), moved)

    def _find_limits(self, session: KnownSession, request: ReadRequest) -> Limits:
        wanted = request.output_tokens_max
        learned = self._limits.find(find_limit_key(session, request), wanted)
        if learned.window is not None or not wanted:
            return learned
        return Limits(reserve=follow_output(self.manager.config, request.model, wanted))

    async def _read(self, tenant: str, wire: Wire, body: bytes) -> ReadRequest:
        """Return a parsed request; a large one comes without its messages, which stay in a worker process."""
        if len(body) <= INLINE_BYTES_MAX:
            return read_request(wire, body)
        if len(body) <= self._settings.worker_bytes_min:
            return await asyncio.to_thread(read_request, wire, body)
        request: ReadRequest = await self.workers.run("read", tenant, wire, body)
        return replace(request, wire=wire)

    async def prepare_again(self, outgoing: Outgoing, original: bytes, limits: Limits, window: int) -> Outgoing:
        """Prepare a refused request again, under other limits; ``original`` is the client's request.

        ``window`` is the model's window if refusals stated it, else 0. It is stored with the session, for other faces.
        """
        session, request = outgoing.session, outgoing.request
        assert session is not None and request is not None, "only a prepared request can be prepared again"  # noqa: PT018
        manager = self.manager

        def note() -> None:
            manager.observe_usage(session.id, 0, is_overflow=True)
            if window and manager.find_window(session.id, request.model) != window:
                manager.set_window(session.id, request.model, window, limit_window(window, 0).reserve)

        await self.reporter.run(session, note)
        again = await self._run_bounded(Attempt(session, request, limits, original))
        return replace(again, tokens_before=max(again.tokens_before, outgoing.tokens_before))

    def _prepare_now(self, attempt: Attempt) -> Outgoing | None:
        """Prepare a request in memory on the event loop; None if it needs more work than that."""
        session, continued = attempt.session, attempt.continued
        if continued is None or session.turn.locked() or session.reports or not attempt.is_synced:
            return None
        if len(attempt.body) - continued.remembered.places.end > NEW_BYTES_MAX:
            return None
        attempt.due = self.reporter.take_due(session)
        try:
            now = self.manager.prepare_now(attempt.make_tail_request())
            if now is None:
                session.due = attempt.due
                return None
            session.generation += 1
            attempt.ticket = self._writes.add(now.extension, is_alone=self._in_flight == 1)
            outgoing = None
            if now.view is not None and (not now.view.edits or len(now.view.items) <= ITEMS_MAX):
                outgoing = self._finish(attempt, now.view, self._splice(attempt, now.view))
            if outgoing is None:
                self._writes.flush()  # Preparing from the ledger starts from what is stored.
            return outgoing
        except Exception as error:  # noqa: BLE001 - a failure in refold must not fail the client's request
            session.synced = ()
            self.reporter.note_written(error)
            log.error("preparing in memory failed", extra={"fields": {"error": type(error).__name__}})
            return None

    async def _run_bounded(self, attempt: Attempt) -> Outgoing:
        """Prepare within the time limit; after it, preparing continues and the request is compressed in memory."""
        task = asyncio.ensure_future(self._run(attempt))
        if await wait_working(task, self._settings.prepare_s_max):
            return task.result()
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        outgoing = await self._fallback.prepare(attempt, "timeout")
        self.reporter.report_failure(attempt.session, outgoing.reason)
        return outgoing

    async def _run(self, attempt: Attempt) -> Outgoing:
        """Prepare a request through the manager, once the requests of its session before it are prepared."""
        session = attempt.session
        try:
            async with session.turn:
                # Store the last answer's usage first: the next decision depends on it.
                await self.reporter.wait(session)
                session.generation += 1
                run = replace(attempt, due=self.reporter.take_due(session))
                return (await self._run_tail(run) if run.is_synced else None) or await self._run_whole(run)
        except Exception as error:  # noqa: BLE001 - a failure in refold must not fail the client's request
            session.synced = ()
            outgoing = await self._fallback.prepare(attempt, type(error).__name__)
            self.reporter.report_failure(session, outgoing.reason, error)
            return outgoing

    async def _run_tail(self, attempt: Attempt) -> Outgoing | None:
        """Prepare a request from its new messages, stored with due reports; None if the session has changed."""
        if attempt.ticket is not None and not await self._writes.wait(attempt.ticket):
            return None
        wanted = attempt.make_tail_request() if attempt.ticket is None else attempt.make_request()
        prepared = await self.manager.prepare(wanted)
        if prepared is None:
            return None
        attempt.due = attempt.due if attempt.ticket is not None else []
        view = PreparedView.of(prepared)
        return self._finish(attempt, view, await asyncio.to_thread(self._splice, attempt, view))

    async def _run_whole(self, attempt: Attempt) -> Outgoing:
        """Prepare a request from its whole history, a large one in a worker process, which opens the same ledger.

        If nothing fits the budget, the smallest possible context is sent.
        """
        session, manager, is_large = attempt.session, self.manager, len(attempt.body) > self._settings.worker_bytes_min
        if attempt.due:
            await self.reporter.run(session, partial(manager.observe_together, {session.id: attempt.due}))
        request = attempt.request
        if request.known:
            request = await self._read(session.tenant, request.wire, attempt.body)
        run, key = replace(attempt, request=request, ticket=None), find_limit_key(session, request)
        job = make_job(manager, session.id, attempt.limits)
        try:
            if is_large:
                made = await self.workers.run("prepare", session.tenant, request.wire, attempt.body, job=job)
            else:
                moves_marks = self._settings.cache_marks == "auto" and request.wire.name == "anthropic"
                lowers = self._limits.may_lower_output(key)
                made = await prepare_whole(manager, run, may_be_over=not lowers, moves_marks=moves_marks)
        except BudgetTooSmall as error:
            session.synced = ()
            if not error.tokens or not self._limits.lower_output(key):
                raise
            return await self._run_whole(replace(run, limits=self._find_limits(session, request), due=[]))
        is_stored = not is_large or job.ledger is not None
        if is_stored:
            self.reporter.note_written()
            if not session.is_stored:
                await asyncio.to_thread(store_known, manager.ledger, session, request)
        outgoing = run.make_outgoing(made, made.written)
        if is_large:
            self._memory.forget(session.id)
            session.synced = ()  # The worker changed the session, not the copy in this process.
        else:
            self._memory.remember_later(session, request, attempt.body)
        if made.over is not None:
            reason = because.OVER_BUDGET(tokens=made.over[0], limit=made.over[1])
            self.reporter.report_failure(session, reason)
            return replace(outgoing, reason=reason, is_over=True)
        unstored = because.IN_MEMORY(error="no shared ledger")
        return outgoing if is_stored or made.written is None else replace(outgoing, reason=unstored)

    def _splice(self, attempt: Attempt, view: PreparedView) -> tuple[Places | None, bytes | None] | None:
        """Return where the messages are, and the bytes with the view if that differs; None if it cannot be done."""
        request, continued = attempt.request, attempt.continued
        if continued is None or view.messages != request.count:
            return None
        places = find_places(attempt.body, request.wire.key, continued.remembered.places, continued.kept)
        if not view.edits:
            return places, None
        if places is None or not view.items or self._settings.cache_marks == "auto":
            return None
        written = splice_body(places, view.items, request)
        return None if written is None else (places, written)

    def _finish(
        self, attempt: Attempt, view: PreparedView, spliced: tuple[Places | None, bytes | None] | None
    ) -> Outgoing | None:
        """Return the request that goes upstream, and remember it; None if the messages could not be located."""
        if spliced is None:
            attempt.session.synced = ()
            return None
        self._memory.remember(attempt.session, attempt.request, spliced[0])
        return attempt.make_outgoing(view, spliced[1])

    def _enter(self, session: KnownSession) -> None:
        session.in_flight += 1
        self._in_flight += 1

    def leave(self, session: KnownSession) -> None:
        """Note that a request of a session has ended."""
        session.in_flight -= 1
        self._in_flight -= 1

    async def settle(self, outgoing: Outgoing, body: bytes) -> None:
        """Wait until a sent request's messages are stored; if its session has changed, prepare ``body`` again."""
        ticket, session, request = outgoing.ticket, outgoing.session, outgoing.request
        if ticket is None or ticket.is_stored or session is None or request is None:
            return
        if await self._writes.wait(ticket):
            return
        session.synced = ()
        again = await self._run_bounded(Attempt(session, request, self._find_limits(session, request), body))
        if again.is_failed_open:
            outgoing.is_failed_open, outgoing.reason = True, again.reason

    async def drain(self) -> None:
        """Wait, within a limit, until requests and reports are stored."""
        await self._writes.drain()
        await self.reporter.drain()
        await asyncio.to_thread(self.workers.close)

    def forget(self, session_id: str) -> None:
        """Forget a session that was erased."""
        self._identities.forget(session_id)
        self._memory.forget(session_id)
