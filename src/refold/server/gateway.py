"""One request through the gateway: read it, prepare it, forward it, relay the answer, record what it cost.

Upstream errors are relayed with status and body; only an overflow is retried, with a smaller request. Errors of the
gateway itself have the shape that the client's library expects, and never quote a request.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import aiohttp

from refold.conversation import because
from refold.errors import ContextOverflow, FormatError, ProviderError
from refold.formats.streamed import ResponseAnswer, StreamedAnswer
from refold.server.chains import Chained, Chains, store_response
from refold.server.monitoring import Metrics, log_request
from refold.server.outgoing import Outgoing
from refold.server.overflow import OverflowRecovery
from refold.server.prepare import Preparer
from refold.server.recall_tool import ROUNDS_MAX, RecallTool, TurnRecalls, TurnRelay, find_calls, make_recall_tool
from refold.server.request import (
    Asked,
    BodyTooLarge,
    ClientGone,
    ClientStalled,
    Receive,
    Send,
    TookTooLong,
    Watch,
    decode_body,
    read_body,
    send_json,
    write_own,
)
from refold.server.session_lookup import name_provided
from refold.server.settings import INLINE_BYTES_MAX, GatewaySettings
from refold.server.upstream import AnswerReader, AnswerStart, BrokenOff, Upstreams, look_for_refusal, relay_answer
from refold.server.wires import RESPONSES, Side, Wire, find_path, find_side, find_wire, is_for_tenants, write_error

# Statuses with which providers refuse a request as too long.
REFUSED = (400, 413, 422)


@dataclass(slots=True)
class Exchange:
    """State of one request in flight.

    ``coded`` is the body as the client compressed it, and decompressed. ``whole`` is a Responses request with its whole
    conversation; ``chained`` is set if the client sent only what is new. After a recall there are several ``answers``.
    """

    asked: Asked
    side: Side
    wire: Wire | None
    started: float
    outgoing: Outgoing = field(default_factory=lambda: Outgoing(b""))
    coded: tuple[bytes, bytes] | None = field(default=None, repr=False)
    chained: Chained | None = None
    whole: bytes = field(default=b"", repr=False)
    bytes_in: int = 0
    bytes_out: int = 0
    status: int = 0
    problem: str = ""
    retries: int = 0
    has_begun: bool = False
    recall: RecallTool | None = None
    sent: bytes = field(default=b"", repr=False)
    answers: list[StreamedAnswer] = field(default_factory=list, repr=False)


class Gateway:
    """Forwards requests to the upstreams."""

    def __init__(
        self,
        settings: GatewaySettings,
        upstreams: Upstreams,
        preparer: Preparer,
        overflow: OverflowRecovery,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._overflow = overflow
        self._upstreams = upstreams
        self._preparer = preparer
        self._metrics = metrics
        self._chains = Chains(preparer.manager.ledger, sessions_max=settings.sessions_known_max)
        self.requests = 0
        metrics.in_flight.set_function(lambda: self.requests)
        self._by_tenant: Counter[str] = Counter()

    async def serve(self, asked: Asked, receive: Receive, send: Send) -> None:
        """Answer a client's request."""
        path = find_path(asked.path)
        is_anthropic = bool(asked.header("anthropic-version"))
        exchange = Exchange(
            asked,
            find_side(path or "", is_anthropic),
            find_wire(asked.method, path or ""),
            time.perf_counter(),
        )
        try:
            with self.count(asked.tenant), self._metrics.follow(exchange):
                await self._serve_limited(exchange, path, receive, send)
        finally:
            if exchange.outgoing.session is not None:
                self._preparer.leave(exchange.outgoing.session)
            self._metrics.count_passage(exchange)
            log_request(exchange)

    @contextmanager
    def count(self, tenant: str) -> Iterator[None]:
        """Count a request of a tenant while it is under way."""
        self.requests += 1
        self._by_tenant[tenant] += 1
        try:
            yield
        finally:
            self.requests -= 1
            self._by_tenant[tenant] -= 1
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]

    def find_limit(self, tenant: str) -> tuple[int, str] | None:
        """Return status and message if there are too many requests, including the current one."""
        own = self._by_tenant.get(tenant, 0)
        if tenant and own > self._settings.tenant_requests_max:
            return 429, f"this tenant has {own - 1} requests in flight; try again"
        if self.requests > self._settings.requests_max:
            return 503, "the gateway is at its limit of concurrent requests; try again"
        return None

    async def _serve_limited(self, exchange: Exchange, path: str | None, receive: Receive, send: Send) -> None:
        asked, settings = exchange.asked, self._settings
        if path is None:
            await self._refuse(exchange, send, 404, "the gateway does not serve this path")
        elif (
            asked.tenant
            and settings.find_held_key(exchange.side)
            and not is_for_tenants(asked.method, path, settings.paths_for_tenants)
        ):
            await self._refuse(exchange, send, 403, "this path is not open to tenants; gateway.tenant_paths opens it")
        elif full := self.find_limit(asked.tenant):
            await self._refuse(exchange, send, *full, retry_after_s=1)
        else:
            try:
                watch = Watch(receive, stall_s=settings.client_stall_s, request_s_max=settings.request_s_max)
                await watch.run(self._pass_on(exchange, path, send, watch))
            except ClientGone:
                exchange.problem = "client gone"
            except ClientStalled:
                exchange.problem = "client stalled"
                if not exchange.has_begun:
                    await self._refuse(exchange, send, 408, "the request did not arrive in time")
            except BrokenOff as broken:
                exchange.problem = str(broken)
            except TookTooLong:
                exchange.problem = "the request took longer than gateway.request_s_max"
                if not exchange.has_begun:
                    await self._refuse(exchange, send, 504, "the upstream did not answer in time")
            except BodyTooLarge:
                too_large = f"the request exceeds the limit of {settings.body_bytes_max:,} bytes"
                await self._refuse(exchange, send, 413, too_large)
            except (FormatError, ProviderError) as error:
                await self._refuse(exchange, send, error.http_status, str(error))

    async def _pass_on(self, exchange: Exchange, path: str, send: Send, watch: Watch) -> None:
        wire = exchange.wire
        body = await read_body(watch.receive, exchange.asked.headers, bytes_max=self._settings.body_bytes_max)
        watch.body_is_read = True
        exchange.bytes_in = len(body)
        exchange.outgoing = Outgoing(body)
        if wire is not None and (coding := exchange.asked.header("content-encoding").lower()) not in ("", "identity"):
            plain = await asyncio.to_thread(decode_body, body, coding, self._settings.body_bytes_max)
            if plain is None:
                wire, exchange.outgoing = None, Outgoing(body, because.UNREADABLE_CODING())
            else:
                exchange.coded, body = (body, plain), plain
        if wire is RESPONSES:
            body = self._chains.resolve(exchange.asked.tenant, body)
            exchange.outgoing = Outgoing(body)
            exchange.chained = await self._chains.unroll(exchange.asked.tenant, body)
            body = body if exchange.chained is None else exchange.chained.whole
            exchange.whole = body
        if wire is not None:
            prepared = self._overflow.fit_output(await self._prepare(exchange, wire, body))
            exchange.outgoing = prepared if exchange.chained is None else exchange.chained.settle(prepared)
            # Not if the provider adds requests to its conversation: a recall would add a second one for the same turn.
            is_added = exchange.chained is not None and exchange.chained.is_added_by(exchange.outgoing)
            if self._settings.recall_tool and prepared.request is not None and not is_added:
                exchange.recall = make_recall_tool(wire)
        async with self._send_until_it_fits(exchange, path, body) as (response, start):
            if exchange.recall is not None and response.status == 200:
                await self._relay_turn(exchange, path, response, start.head, send, watch)
            else:
                await self._relay(exchange, response, start.head, send, watch)

    @asynccontextmanager
    async def _send_until_it_fits(
        self, exchange: Exchange, path: str, body: bytes
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, AnswerStart]]:
        """Send the request, and smaller ones while the upstream refuses it as too long; yield an answer."""
        response, start = await self._send(exchange, path), AnswerStart()
        try:
            await self._preparer.settle(exchange.outgoing, body)
            while exchange.outgoing.session is not None:
                start = await look_for_refusal(response, self._settings.client_stall_s, body)
                smaller = await self._shrink(exchange, start.overflow, body) if start.overflow is not None else None
                if smaller is None:
                    break
                response.close()
                exchange.outgoing, exchange.retries, start = smaller, exchange.retries + 1, AnswerStart()
                response = await self._send(exchange, path)
            if response.status == 200 and start.overflow is None:
                self._overflow.note_accepted(exchange.outgoing)
            yield response, start
        finally:
            response.close()

    async def _prepare(self, exchange: Exchange, wire: Wire, body: bytes) -> Outgoing:
        """Return what goes upstream; a chain that cannot be sent without the provider's part is only stored."""
        if exchange.asked.header("x-refold-bypass") not in ("", "0"):
            return Outgoing(body, because.BYPASS())
        if not self._settings.compress:
            return Outgoing(body, because.COMPRESSION_OFF())
        chained = exchange.chained
        name = name_provided(chained.conversation) if chained is not None and chained.conversation else ""
        if chained is None or chained.is_replayable:
            return await self._preparer.prepare(exchange.asked, wire, body, name)
        reason = because.PREVIOUS_RESPONSE() if chained.is_partial else because.PROVIDER_ITEMS()
        return await self._preparer.hold(exchange.asked, wire, body, reason, name=name)

    async def _send(self, exchange: Exchange, path: str) -> aiohttp.ClientResponse:
        is_read = exchange.outgoing.session is not None
        body, asked = exchange.outgoing.body, exchange.asked
        exchange.sent = b""
        if exchange.recall is not None:
            add_tool = exchange.recall.add_to
            made = add_tool(body) if len(body) <= INLINE_BYTES_MAX else await asyncio.to_thread(add_tool, body)
            exchange.sent = made or b""
        if exchange.sent:
            return await self._send_plain(exchange, path, exchange.sent)
        exchange.recall = None
        if exchange.coded is not None:
            coded, plain = exchange.coded
            if body is plain:
                body = coded
            else:  # It differs from the request that the client compressed: send it uncompressed.
                asked = replace(asked, drop=asked.drop | {b"content-encoding"})
        return await self._upstreams.send(exchange.side, asked, path, body, is_read=is_read)

    async def _send_plain(self, exchange: Exchange, path: str, body: bytes) -> aiohttp.ClientResponse:
        """Send a request whose answer is read and may be continued, so neither direction uses the client's coding."""
        asked = replace(exchange.asked, drop=exchange.asked.drop | {b"content-encoding", b"accept-encoding"})
        return await self._upstreams.send(exchange.side, asked, path, body, is_read=True)

    async def _shrink(self, exchange: Exchange, overflow: ContextOverflow, body: bytes) -> Outgoing | None:
        """Return a smaller request after a refusal; None if nothing smaller is possible."""
        self._metrics.overflows.inc()
        if exchange.chained is not None and not exchange.chained.is_replayable:
            return None
        return await self._overflow.shrink(exchange.outgoing, body, overflow, exchange.retries)

    async def _relay(
        self, exchange: Exchange, response: aiohttp.ClientResponse, head: bytes, send: Send, watch: Watch
    ) -> None:
        outgoing, wire = exchange.outgoing, exchange.wire
        reader = None
        if wire is not None and outgoing.session is not None and response.status == 200:
            reader = AnswerReader(wire.answer(), response.headers)
        elif exchange.asked.method != "GET" and response.status < 300:
            reader = self._watch_conversations(exchange, response)
        exchange.status, exchange.has_begun = response.status, True
        own = write_own(outgoing.own_headers())

        def finish() -> None:
            if reader is not None and not reader.is_finished:
                answered = reader.finish()
                if wire is None:
                    self._chains.begin(exchange.asked.tenant, answered.message, outgoing.body)
                    return
                exchange.answers.append(answered)
                self._preparer.reporter.observe(outgoing, answered, is_extra=outgoing.request is None)
                self._remember(exchange, answered)

        try:
            exchange.bytes_out = await relay_answer(
                response, send, watch, own=own, head=head, reader=reader, at_end=finish
            )
        finally:
            finish()

    def _watch_conversations(self, exchange: Exchange, response: aiohttp.ClientResponse) -> AnswerReader | None:
        """Return a reader of the answer that creates a conversation at the provider; note changes of existing ones."""
        _, _, kind, *rest = [*(find_path(exchange.asked.path) or "").split("/"), "", ""]
        if kind != "conversations":
            return None
        if rest[0]:
            self._chains.distrust(exchange.asked.tenant, rest[0])
            return None
        return AnswerReader(ResponseAnswer(), response.headers)

    def _remember(self, exchange: Exchange, answered: StreamedAnswer) -> None:
        """Remember a response that the client may continue by its id, or by the provider's conversation."""
        chained, outgoing, tenant = exchange.chained, exchange.outgoing, exchange.asked.tenant
        if exchange.wire is not RESPONSES:
            return
        names: dict[str, bool] = {}
        if chained is not None and chained.conversation:
            is_detached = not chained.is_added_by(outgoing)
            self._chains.continue_conversation(tenant, chained, answered, is_detached=is_detached)
            if answered.response_id:
                names[chained.conversation] = is_detached
        is_partial = chained.is_partial if chained is not None else outgoing.reason.code == because.CONVERSATION.code
        if self._chains.remember(tenant, exchange.whole, answered, is_partial=is_partial):
            names[answered.response_id] = False
        session, request = outgoing.session, outgoing.request or outgoing.held
        if not names or session is None or request is None or outgoing.is_failed_open:
            return
        manager = self._preparer.manager
        store: Callable[[], object] = partial(
            store_response, manager.ledger, session.id, request, answered, names=names
        )
        if outgoing.reason.code == because.CONVERSATION.code:  # The session has the items themselves.
            store = partial(manager.append, session.id, answered.output, format=request.wire.name)
        self._preparer.reporter.start(store, session)

    async def _relay_turn(
        self, exchange: Exchange, path: str, response: aiohttp.ClientResponse, head: bytes, send: Send, watch: Watch
    ) -> None:
        """Relay an answer; answer its recall calls and ask again until an answer has none."""
        tool, outgoing = exchange.recall, exchange.outgoing
        assert tool is not None, "the tool was offered"
        assert outgoing.session is not None, "the request was prepared"
        relay = TurnRelay(tool, response, send, watch, write_own(outgoing.own_headers()))
        exchange.status = response.status
        model = outgoing.request.model if outgoing.request else ""
        recalls = TurnRecalls(self._preparer.manager, outgoing.session.id, outgoing.tokens_after, model)
        for turn in range(ROUNDS_MAX + 1):
            answered = await relay.read(response, head)
            exchange.has_begun, head = relay.has_begun, b""
            exchange.answers.append(answered)
            self._preparer.reporter.observe(outgoing, answered, is_extra=turn > 0)
            calls = find_calls(answered)
            if not calls:
                self._remember(exchange, answered)
                self._chains.rename(exchange.asked.tenant, relay.shown_id, answered.response_id)
                break
            if turn == ROUNDS_MAX:
                why = "the model did not stop calling the recall tool"
                raise BrokenOff(why) if relay.has_begun else ProviderError(why)
            self._metrics.recalls.inc(len(calls))
            results = await asyncio.to_thread(recalls.answer, calls)
            response.close()
            is_last = turn == ROUNDS_MAX - 1
            response = await self._ask_again(exchange, path, answered.message, results, is_last=is_last)
            if response.status in REFUSED:
                response.close()
                without = recalls.refuse(results)
                response = await self._ask_again(exchange, path, answered.message, without, is_last=is_last)
            if response.status != 200:
                await relay.fail(response)
                exchange.status = response.status
                return
            relay.go_on()
        exchange.bytes_out = await relay.finish()
        response.close()

    async def _ask_again(
        self, exchange: Exchange, path: str, answer: dict[str, Any], results: dict[str, str], *, is_last: bool
    ) -> aiohttp.ClientResponse:
        """Ask the model again with the results of its recall calls."""
        tool = exchange.recall
        assert tool is not None, "the tool was offered"
        body = tool.follow_up(exchange.sent, tool.write_exchange(answer, results), is_last=is_last)
        response = await self._send_plain(exchange, path, body)
        if response.status == 200:
            exchange.sent = body
        return response

    async def _refuse(self, exchange: Exchange, send: Send, status: int, message: str, retry_after_s: int = 0) -> None:
        exchange.status, exchange.problem = status, exchange.problem or message
        error = write_error(exchange.side, status, f"refold: {message}")
        own = [("reason", because.REFUSED_REQUEST(detail=message).to_header())]
        await send_json(send, status, error, own, retry_after_s=retry_after_s)
