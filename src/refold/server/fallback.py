"""Compression without the ledger, for when preparing a request fails: a full disk, a damaged file, a timeout.

A request that fits goes through as it came. One that does not is compressed in memory, without a model and without
storing anything, under the edits that the session had: failing must never send more than the upstream takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from refold.compressing import compress
from refold.config import CompressionConfig
from refold.conversation import because
from refold.conversation.edit import Edit
from refold.errors import BudgetTooSmall, RefoldError
from refold.formats import make_format, parse_messages
from refold.ladder.run import answer_nothing
from refold.prepared import PreparedContext
from refold.server.identity import KnownSession
from refold.server.limits import LimitKey, Limits, limit_exactly
from refold.server.managers import Managers
from refold.server.outgoing import Outgoing
from refold.server.reading import ReadRequest, read_request, write_request
from refold.server.settings import GatewaySettings
from refold.tokens import counter_for

log = logging.getLogger("refold.server")


def find_limit_key(session: KnownSession, request: ReadRequest) -> LimitKey:
    """Return under which name the limits of a request's upstream are learned."""
    return LimitKey(session.tenant, request.wire.side, request.model)


class Fallback:
    """Makes what goes upstream when preparing failed."""

    def __init__(self, settings: GatewaySettings, managers: Managers) -> None:
        self._settings = settings
        self._managers = managers

    async def prepare(
        self, session: KnownSession, request: ReadRequest, limits: Limits, body: bytes, why: str
    ) -> Outgoing:
        """Return a request that fits, or the original if that fits or nothing can be made of it. Never raises."""
        original = Outgoing(body, because.FAILED_OPEN(error=why), session, request, is_failed_open=True)
        work = asyncio.ensure_future(asyncio.to_thread(self._compress, session, request, limits, body))
        done, _ = await asyncio.wait({work}, timeout=self._settings.prepare_s_max)
        if not done:
            work.add_done_callback(lambda task: task.cancelled() or task.exception())
            return original
        error = work.exception()
        if error is not None:
            fields = {"session": session.id, "error": type(error).__name__}
            log.error("the request could not be compressed in memory", extra={"fields": fields})
            return original
        prepared, written, tokens = work.result()
        original.tokens_before = original.tokens_after = prepared.total_tokens
        if written is None:
            return original
        session.spare_edits = prepared.edits
        return Outgoing(
            written,
            because.IN_MEMORY(error=why),
            session,
            request,
            tokens_before=max(tokens, prepared.total_tokens),
            tokens_after=prepared.total_tokens,
            edits=len(prepared.edits),
            is_failed_open=True,
        )

    def _compress(
        self, session: KnownSession, request: ReadRequest, limits: Limits, body: bytes
    ) -> tuple[PreparedContext, bytes | None, int]:
        """Return the context, the request with it if anything changed, and the tokens of the original."""
        whole = read_request(request.wire, body) if request.known else request
        edits = _find_edits(self._managers, session)
        if not edits and session.folded_tokens:
            # The edits are lost; the size that was accepted under them is not.
            limits = limit_exactly(session.folded_tokens)
        try:
            prepared = self._run(whole, self._find_config(limits), edits)
        except BudgetTooSmall as error:
            smallest = limit_exactly(error.tokens, self._managers.find_margin(request.model))
            prepared = self._run(whole, self._find_config(smallest), edits)
        return prepared, write_request(whole, prepared.messages), self._count(whole)

    def _count(self, request: ReadRequest) -> int:
        counter = counter_for(request.model or None, self._managers.main.config.tokenizer)
        form = make_format(request.wire.name)
        parsed = parse_messages(form, request.messages)
        tokens = sum(counter.count_parts(one.role, one.parts, one.name) for one in parsed)
        return tokens + counter.count_text(form.read_system(request.system)) + counter.count_tools(request.tools)

    def _find_config(self, limits: Limits) -> CompressionConfig:
        config = self._managers.main.config
        if limits.window is None:
            return config
        return config.model_copy(update={"window": limits.window, "reserve": limits.reserve})

    def _run(self, request: ReadRequest, config: CompressionConfig, edits: Sequence[Edit]) -> PreparedContext:
        return compress(
            request.messages,
            system=request.system,
            tools=request.tools,
            model=request.model or None,
            config=config,
            format=request.wire.name,
            edits=edits,
            answer=answer_nothing,
        )


def _find_edits(managers: Managers, session: KnownSession) -> Sequence[Edit]:
    """Return the edits of the session's last view: those made in memory since, else those that are stored."""
    if session.spare_edits:
        return session.spare_edits
    try:
        return [stored.edit for stored in managers.main.ledger.read_edits(session.id)]
    except RefoldError:
        return ()
