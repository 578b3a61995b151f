"""The request that goes upstream, and the record of what its answer cost.

``Reporter`` hands usage back to the manager: with the session's next request, or in a thread if none follows soon. A
report that arrives after another request was prepared is dropped, because it would spoil calibration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item
from refold.errors import LedgerError, RefoldError, SessionNotFound
from refold.formats import place_messages
from refold.formats.streamed import StreamedAnswer
from refold.ledger.records import Event
from refold.llm.choose import GATEWAY
from refold.llm.errors import find_overflow
from refold.manager import ContextCompressionManager
from refold.manager.append import Request
from refold.manager.background import Ticket
from refold.manager.prepare import PreparedView
from refold.manager.session_state import HELD
from refold.manager.usage import ReportedUsage
from refold.server.body import Places, ReadRequest
from refold.server.session_lookup import KnownSession, store_known

if TYPE_CHECKING:
    from refold.server.fallback import SmallerBody
    from refold.server.overflow import Limits
    from refold.server.request_memory import Continued

log = logging.getLogger("refold.server")
WAIT_S = 5.0
# An agent's next request often follows at once; then one transaction stores both.
LINGER_S = 0.1
# Events that wait for a ledger that cannot be written.
EVENTS_MAX = 1_000


@dataclass(slots=True)
class Outgoing:
    """The request that goes upstream. ``session`` is None for a request that passes through.

    ``held`` is a request that is only stored, because the provider holds part of it: it has a session, but no
    ``request``. ``is_over``: the smallest possible context is still over the budget. ``output``: the client's
    ``max_tokens``, and the lowered value.
    """

    body: bytes = field(repr=False)
    reason: Reason = NO_REASON
    session: KnownSession | None = None
    request: ReadRequest | None = field(default=None, repr=False)
    generation: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    edits: int = 0
    seconds: float = 0.0
    is_failed_open: bool = False
    is_over: bool = False
    output: tuple[int, int] | None = None
    ticket: Ticket | None = field(default=None, repr=False)
    held: ReadRequest | None = field(default=None, repr=False)

    @property
    def is_estimated(self) -> bool:
        """True if its size is an estimate that says nothing about limits."""
        return self.reason.code == because.TRIMMED.code

    def own_headers(self) -> list[tuple[str, object]]:
        """Return the ``x-refold-…`` headers of the answer, without their prefix."""
        headers: list[tuple[str, object]] = []
        if self.session is not None:
            headers.append(("session", self.session.name))
        if self.tokens_after:
            headers.append(("tokens", f"{self.tokens_before}->{self.tokens_after}"))
            headers.append(("edits", str(self.edits)))
        if self.output is not None:
            headers.append(("max-tokens", f"{self.output[0]}->{self.output[1]}"))
        headers.append(("reason", self.reason.to_header()))
        return headers


def find_pieces(items: Sequence[Item], request: ReadRequest) -> list[int | object] | None:
    """Return a view as indexes into the client's messages and objects that compression made; None if one is missing."""
    digests = request.all_digests
    pieces: list[int | object] = []
    at = 0
    for item in items:
        if item.edits:
            pieces.append(item.raw)
            continue
        while at < len(digests) and digests[at] != item.message.digest:
            at += 1
        if at == len(digests):
            return None
        pieces.append(at)
        at += 1
    return pieces


def splice_body(places: Places, items: Sequence[Item], request: ReadRequest) -> bytes | None:
    """Return the client's bytes with the view in place of the messages; None if that is not possible."""
    if len(places.spans) != request.count:
        return None
    pieces = find_pieces(items, request)
    if pieces is None or any(isinstance(piece, int) and piece >= len(places.spans) for piece in pieces):
        return None
    if any(item.role == "system" for item in items):
        known = {id(item.raw): piece for item, piece in zip(items, pieces, strict=True)}
        pieces = [known.get(id(raw), raw) for raw in place_messages(request.wire.name, [item.raw for item in items])]
    return places.write(pieces)


@dataclass(slots=True)
class Attempt:
    """One attempt to prepare a request: its session, the limits it must fit, and the client's bytes.

    ``continued`` is set if it extends a remembered request, ``ticket`` once its new messages are being stored. ``due``:
    usage of earlier answers, to be stored with it.
    """

    session: KnownSession
    request: ReadRequest = field(repr=False)
    limits: Limits
    body: bytes = field(repr=False)
    continued: Continued | None = field(default=None, repr=False)
    due: list[ReportedUsage] = field(default_factory=list)
    ticket: Ticket | None = field(default=None, repr=False)

    @property
    def is_synced(self) -> bool:
        """True if it extends a remembered request, and its session is as that request left it."""
        if self.continued is None or not self.session.is_stored:
            return False
        return self.session.synced is self.continued.remembered.request.digests

    def make_request(self, **messages: Any) -> Request:
        """Return the manager's request; ``messages`` are its fields about them, without which the ledger's count."""
        request, limits = self.request, self.limits
        return Request(
            self.session.id,
            system="" if request.system is None else request.system,
            tools=request.tools,
            model=request.model or None,
            format=request.wire.name,
            window=limits.window,
            reserve=limits.reserve,
            **messages,
        )

    def make_whole_request(self) -> Request:
        """Return the manager's request for the whole history."""
        return self.make_request(messages=self.request.messages, digests=self.request.all_digests)

    def make_tail_request(self) -> Request:
        """Return the manager's request for new messages that follow known ones."""
        request = self.request
        known = request.known - request.lead
        last = request.digests[known - 1] if known > 0 else request.lead_digests[-1]
        follows, digests = (request.known, last), request.digests[known:]
        return self.make_request(messages=request.messages, follows=follows, digests=digests, reports=self.due)

    def make_outgoing(self, made: PreparedView | SmallerBody, written: bytes | None) -> Outgoing:
        """Return the request that goes upstream; ``written`` replaces the client's bytes if it is given."""
        session, kept = self.session, because.SENT_UNCHANGED if written is None else because.SENT_KEPT
        session.synced = self.request.digests
        return Outgoing(
            self.body if written is None else written,
            made.reason or kept(),
            session,
            self.request,
            session.generation,
            tokens_before=made.tokens if written is None else max(made.tokens, made.tokens_before),
            tokens_after=made.tokens,
            edits=made.edits,
            ticket=self.ticket,
        )


@dataclass(frozen=True, slots=True)
class LedgerProblem:
    """The ledger could not be written since then; requests are served without storing them."""

    since: float
    error: str


class Reporter:
    """Records what answers cost and what failed; ``problem`` is set while the ledger cannot be written."""

    def __init__(self, manager: ContextCompressionManager) -> None:
        self._manager = manager
        self._running: set[asyncio.Task[None]] = set()
        self._due: dict[str, tuple[KnownSession, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unstored: deque[tuple[str, Event]] = deque(maxlen=EVENTS_MAX)
        self.problem: LedgerProblem | None = None

    def note_written(self, error: Exception | None = None) -> None:
        """Note that the ledger was written, or the error that prevented it."""
        if error is None:
            self.problem = None
        elif self.problem is None and isinstance(error, LedgerError) and not isinstance(error, SessionNotFound):
            self.problem = LedgerProblem(time.time(), str(error)[:300])

    def observe(self, outgoing: Outgoing, answered: StreamedAnswer, *, is_extra: bool = False) -> None:
        """Record what an answer cost; ``is_extra``: its request held more than the prepared context."""
        session = outgoing.session
        if session is None or outgoing.is_failed_open or session.generation != outgoing.generation:
            return  # Another request was prepared meanwhile, or this one was not prepared.
        is_extra = is_extra or outgoing.reason.code == because.SENT_WHOLE.code
        if answered.has_usage:
            finish_reason = None if is_extra else answered.finish_reason or None
            session.due.append(ReportedUsage(answered.usage, finish_reason, is_extra=is_extra))
        elif answered.error_text and find_overflow(answered.error_text) is not None:
            session.due.append(ReportedUsage(0, is_overflow=True))
        else:
            return
        loop = asyncio.get_running_loop()
        self._due[session.id] = session, loop.time() + LINGER_S
        if self._timer is None:
            self._timer = loop.call_later(LINGER_S, self._flush)

    def take_due(self, session: KnownSession) -> list[ReportedUsage]:
        """Return the reports of a session that are not stored yet; the caller must store them."""
        if not session.due:
            return []
        due, session.due = session.due, []
        self._due.pop(session.id, None)
        return due

    def _flush(self, *, is_last: bool = False) -> None:
        """Store overdue reports in one thread; with ``is_last`` all of them."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = [session for session, until in self._due.values() if is_last or until <= now]
        taken = [(session, self.take_due(session)) for session in late]
        if self._due:
            self._timer = loop.call_later(LINGER_S, self._flush)
        if not taken:
            return
        manager = self._manager

        def record() -> None:
            try:
                manager.observe_together({session.id: reports for session, reports in taken})
            finally:
                self._store_events()

        self.start(record, *late)

    def report_failure(self, session: KnownSession, reason: Reason, error: Exception | None = None) -> None:
        """Log how a failure was handled, and store it as an event. Only the type of foreign errors is logged."""
        fields: dict[str, object] = {"session": session.id, "reason": reason.code}
        if error is not None:
            self.note_written(error)
            fields["error"] = type(error).__name__
            fields["said"] = str(error)[:300] if isinstance(error, RefoldError) else ""
        log.error(reason.code, extra={"fields": fields})
        self._unstored.append((session.id, Event("failed", time.time(), {"reason": reason.to_json(), "by": "gateway"})))
        self.start(self._store_events, session)

    def _store_events(self) -> None:
        """Store events, oldest first; keep them if the ledger still fails. Blocks."""
        ledger = self._manager.ledger
        while self._unstored:
            session_id, event = self._unstored.popleft()
            try:
                if ledger.read_session(session_id) is not None:
                    ledger.add_event(session_id, event)
            except RefoldError:
                self._unstored.appendleft((session_id, event))
                raise

    def start(self, record: Callable[[], object], *sessions: KnownSession) -> asyncio.Task[None]:
        """Run something in a thread; the next requests of these sessions wait for it."""
        task = asyncio.ensure_future(_run_quietly(record))
        for tasks in (self._running, *(session.reports for session in sessions)):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    async def run(self, session: KnownSession, record: Callable[[], object]) -> None:
        """Run something for a session and wait for it, within a limit."""
        await asyncio.wait({self.start(record, session)}, timeout=WAIT_S)

    async def drain(self) -> None:
        """Wait, within a limit, until everything due or started is done."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush(is_last=True)
        if self._running:
            _, late = await asyncio.wait(set(self._running), timeout=WAIT_S)
            if late:
                log.warning("stopped before everything was stored", extra={"fields": {"waiting": len(late)}})

    async def wait(self, session: KnownSession) -> None:
        """Wait, within a limit, until everything started for a session is done."""
        if session.reports:
            await asyncio.wait(set(session.reports), timeout=WAIT_S)


def store_held(
    manager: ContextCompressionManager, session: KnownSession, request: ReadRequest, reason: Reason, *, is_new: bool
) -> None:
    """Store a request that passes through, and once per session why. Blocks. ``is_new``: it has only new messages."""
    ledger, wire = manager.ledger, request.wire.name
    digests = request.all_digests
    if not is_new:
        wanted = Request(session.id, request.messages, model=request.model or None, format=wire, digests=digests)
        manager.store(wanted)
    elif ledger.read_path(session.id).digests[-len(digests) :] != digests:
        manager.append(session.id, request.messages, format=wire)
    row = ledger.read_session(session.id)
    if row is None:
        return
    if GATEWAY not in row.settings and not session.is_stored:
        store_known(ledger, session, request)
    if request.model and row.model != request.model:
        ledger.update_session(session.id, {"model": request.model}, time.time())
    if HELD not in row.settings:
        ledger.update_session(session.id, {"settings": {HELD: reason.to_json()}}, time.time())
        ledger.add_event(session.id, Event("skipped", time.time(), {"reason": reason.to_json(), "by": "gateway"}))
        log.warning(
            "requests pass through: the provider holds part of them",
            extra={"fields": {"session": session.id, "reason": reason.code}},
        )


async def _run_quietly(record: Callable[[], Any]) -> None:
    try:
        await asyncio.to_thread(record)
    except Exception as error:  # noqa: BLE001 - losing figures must not fail a request
        log.warning("an answer or its cost was not stored", extra={"fields": {"error": type(error).__name__}})
