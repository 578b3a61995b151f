"""Upstream limits: learning them, and retrying refused requests.

A refused request is retried up to three times: within the limit that the upstream stated, or halfway between the
largest accepted size and the refused one; then smaller; then with the smallest possible context. ``max_tokens`` is
lowered only if the upstream counts it and nothing else helps; a header reports it. Limits are learned per tenant,
upstream and model, for as long as the process lives: never below an accepted size, nor above the refused one. The
manager stores the smaller window with the session, for other processes and for the agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from refold.conversation import because
from refold.errors import ContextOverflow
from refold.formats import make_format, parse_messages
from refold.server.body import ReadRequest, Unreadable, dump_json, parse_json
from refold.server.outgoing import Outgoing
from refold.server.session_lookup import KnownSession
from refold.server.settings import LARGE_BYTES
from refold.tokens import counter_for

if TYPE_CHECKING:
    from refold.server.prepare import Preparer

ENTRIES_MAX = 10_000
_SIDES = ("openai", "anthropic")
WINDOW_MIN = 1_000
# If the accepted and the refused size are this close, the accepted one is the limit.
_CLOSE = 0.05
# If max_tokens has to be lowered, the answer keeps a sixth of the window: agents with many tools need the rest, or
# they would be compressed at every step.
_ANSWER_SHARE = 6
# If our count of a refused request is below this share of the stated limit, the count is wrong, not the limit.
_COUNTED_SHARE = 0.5
log = logging.getLogger("refold.server")
RETRIES_MAX = 3
# Without a stated limit or an accepted size: share of the refused size for the first and the second retry.
_SHARES = (0.7, 0.5)
# A shorter answer is useless.
_OUTPUT_MIN = 1_024


@dataclass(frozen=True, slots=True)
class Limits:
    """The window of one request and the part reserved for the answer; None: the model's own."""

    window: int | None = None
    reserve: int | None = None


NO_LIMITS = Limits()


class LimitKey(NamedTuple):
    """A limit belongs to a tenant, an upstream and a model."""

    tenant: str
    side: str
    model: str


@dataclass(slots=True)
class Sizes:
    """What is known of a limit: sizes by our count, the stated ``window``, and whether ``max_tokens`` counts."""

    accepted: int = 0
    refused: int = 0
    window: int = 0
    counts_output: bool = False
    lowers_output: bool = False

    def find_reserve(self, output_tokens: int) -> int:
        """Return the part of the window to reserve for an answer of this many tokens."""
        if not self.counts_output:
            return 0
        return min(output_tokens, self.window // _ANSWER_SHARE) if self.lowers_output else output_tokens

    def find_limits(self, output_tokens: int) -> Limits:
        """Return the limits of a request with this ``max_tokens``."""
        ceiling = 0  # The largest size worth sending, by our own count.
        if self.accepted < self.refused:
            is_close = self.refused - self.accepted <= self.refused * _CLOSE
            ceiling = self.accepted if is_close else (self.accepted + self.refused) // 2
        if self.window:
            limits = limit_window(self.window, self.find_reserve(output_tokens))
            if not self.counts_output and count_room(limits) < self.accepted:
                limits = limit_exactly(self.accepted)
            if not ceiling or count_room(limits) <= ceiling:
                return limits
        return limit_exactly(ceiling) if ceiling else NO_LIMITS


class LearnedLimits:
    """Limits learned from upstreams. For one event loop."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[LimitKey, Sizes] = OrderedDict()

    def note_accepted(self, key: LimitKey, tokens: int) -> None:
        """Record that an upstream accepted a request of this size."""
        if tokens > self.read(key).accepted:
            sizes = self._need(key)
            sizes.accepted = tokens
            sizes.window = max(sizes.window, tokens) if sizes.window else 0

    def note_refused(self, key: LimitKey, tokens: int, overflow: ContextOverflow, output_tokens: int = 0) -> bool:
        """Record that an upstream refused a request of this size and ``max_tokens``; return whether a limit changed."""
        if overflow.is_quoted:
            return False
        sizes = self._need(key)
        before = (sizes.refused, sizes.window, sizes.counts_output)
        sizes.counts_output |= overflow.counts_output
        stated = overflow.tokens_max
        if stated is not None and stated >= max(WINDOW_MIN, sizes.accepted):
            window = min(stated, tokens + output_tokens) if tokens else stated
            if window >= stated * _COUNTED_SHARE:
                sizes.window = max(min(sizes.window or window, window), sizes.accepted, WINDOW_MIN)
        elif tokens >= WINDOW_MIN:
            sizes.refused = min(sizes.refused or tokens, tokens)
        return before != (sizes.refused, sizes.window, sizes.counts_output)

    def find(self, key: LimitKey, output_tokens: int = 0) -> Limits:
        """Return the limits for a key and a ``max_tokens``; without a side, the smaller one of both upstreams."""
        keys = [key] if key.side else [LimitKey(key.tenant, side, key.model) for side in _SIDES]
        found = [self._sizes[one].find_limits(output_tokens) for one in keys if one in self._sizes]
        known = [limits for limits in found if limits.window is not None]
        return min(known, key=lambda limits: limits.window or 0) if known else NO_LIMITS

    def list_learned(self, tenant: str) -> dict[str, Limits]:
        """Return the limits that a tenant's requests taught, by model."""
        models = {key.model for key in self._sizes if key.tenant == tenant}
        return {model: self.find(LimitKey(tenant, "", model)) for model in models}

    def read(self, key: LimitKey) -> Sizes:
        """Return what is known of a limit; zeros if nothing is."""
        return self._sizes.get(key) or Sizes()

    def lower_output(self, key: LimitKey) -> bool:
        """Note that ``max_tokens`` has to be lowered for anything to fit; False if that does not help."""
        if not self.may_lower_output(key):
            return False
        self.read(key).lowers_output = True
        return True

    def may_lower_output(self, key: LimitKey) -> bool:
        """Return whether a lower ``max_tokens`` would make room."""
        sizes = self.read(key)
        return sizes.counts_output and bool(sizes.window) and not sizes.lowers_output

    def _need(self, key: LimitKey) -> Sizes:
        sizes = self._sizes.setdefault(key, Sizes())
        self._sizes.move_to_end(key)
        while len(self._sizes) > ENTRIES_MAX:
            self._sizes.popitem(last=False)
        return sizes


def limit_window(window: int, reserve: int) -> Limits:
    """Return limits with at least ``reserve`` tokens for the answer, and room for a request."""
    window = max(2_000, window)
    return Limits(window, min(max(reserve, min(32_000, window // 8)), _find_reserve_max(window)))


def _find_reserve_max(window: int) -> int:
    return window * 3 // 4


def limit_exactly(tokens: int, margin: float = 0.0) -> Limits:
    """Return limits under which a context of this many tokens is the largest that fits; ``margin`` is the counter's."""
    return Limits(int(max(1, tokens) * (1.0 + margin)) + 2, 0)


def count_room(limits: Limits) -> int:
    """Return the room for a context under these limits."""
    return (limits.window or 0) - (limits.reserve or 0)


def find_limit_key(session: KnownSession, request: ReadRequest) -> LimitKey:
    """Return the key under which a request's limits are learned."""
    return LimitKey(session.tenant, request.wire.side, request.model)


class OverflowRecovery:
    """Makes smaller requests after refusals."""

    def __init__(self, preparer: Preparer, limits: LearnedLimits) -> None:
        self._preparer = preparer
        self._limits = limits

    def note_accepted(self, outgoing: Outgoing) -> None:
        """Record that an upstream accepted a request."""
        session, request = outgoing.session, outgoing.request
        if session is None or request is None or not outgoing.tokens_after or outgoing.is_estimated:
            return
        self._limits.note_accepted(find_limit_key(session, request), outgoing.tokens_after)
        session.folded_tokens = outgoing.tokens_after if outgoing.edits else 0
        if not outgoing.is_failed_open:
            session.spare_edits = ()

    async def shrink(
        self, outgoing: Outgoing, original: bytes, overflow: ContextOverflow, retry: int
    ) -> Outgoing | None:
        """Return a smaller request after a refusal, or None. ``original`` is the client's request."""
        held = outgoing.held
        if held is not None and outgoing.reason.code == because.PROVIDER_COMPACTION.code:
            tokens = await asyncio.to_thread(_count, held, self._preparer.manager.config.tokenizer)
            outgoing = replace(outgoing, request=held, held=None, tokens_before=tokens, tokens_after=tokens)
        session, request = outgoing.session, outgoing.request
        if session is None or request is None or retry >= RETRIES_MAX:
            return None
        key = find_limit_key(session, request)
        is_last = retry == RETRIES_MAX - 1
        if overflow.is_quoted and (is_last or outgoing.tokens_after <= self._limits.read(key).accepted):
            return None  # The error only quotes the request; nothing else indicates that it is too long.
        self._learn(key, outgoing, request, overflow)
        lowered = self._lower_answer(key, outgoing, request)
        if lowered is not None:
            return replace(lowered, reason=because.RETRIED())
        limits = self._choose(key, outgoing, request, overflow, retry)
        # What an account may send in a minute is not the model's window: it is not stored with the session.
        window = 0 if overflow.is_quota else self._limits.read(key).window
        again = await self._preparer.prepare_again(outgoing, original, limits, window)
        again = self.fit_output(again, is_last=is_last)
        is_smaller = 0 < again.tokens_after < (outgoing.tokens_after or again.tokens_after + 1)
        if again.output is None and not (is_smaller and again.edits):
            return None
        reason = again.reason if again.is_failed_open else because.RETRIED()
        return replace(again, reason=reason)

    def fit_output(self, outgoing: Outgoing, *, is_last: bool = False) -> Outgoing:
        """Lower a request's ``max_tokens`` if necessary, so that request and answer fit the window."""
        session, request = outgoing.session, outgoing.request
        if session is None or request is None:
            return outgoing
        sizes, wanted = self._limits.read(find_limit_key(session, request)), request.output_tokens_max
        is_lowered = sizes.find_reserve(wanted) < wanted or is_last or outgoing.is_over
        if not sizes.counts_output or not is_lowered:
            return outgoing
        return _lower_output(outgoing, request, sizes.window) or outgoing

    def _lower_answer(self, key: LimitKey, outgoing: Outgoing, request: ReadRequest) -> Outgoing | None:
        """Return the same request with a lower ``max_tokens`` if no context fits beside an answer of that size."""
        sizes, wanted = self._limits.read(key), request.output_tokens_max
        if wanted <= _find_reserve_max(sizes.window) or not self._limits.lower_output(key):
            return None
        lowered = self.fit_output(outgoing)
        has_room = lowered.output is not None and lowered.output[1] >= sizes.find_reserve(wanted)
        return lowered if has_room else None

    def _learn(self, key: LimitKey, outgoing: Outgoing, request: ReadRequest, overflow: ContextOverflow) -> None:
        limits = self._limits
        if outgoing.is_estimated:
            return
        if limits.note_refused(key, outgoing.tokens_after, overflow, request.output_tokens_max):
            fields = {"model": key.model[:80], "window": limits.read(key).window, "refused": outgoing.tokens_after}
            log.warning("learned a limit", extra={"fields": fields})

    def _choose(
        self, key: LimitKey, outgoing: Outgoing, request: ReadRequest, overflow: ContextOverflow, retry: int
    ) -> Limits:
        """Return the limits of the next attempt."""
        sizes, tokens, wanted = self._limits.read(key), outgoing.tokens_after, request.output_tokens_max
        if retry == RETRIES_MAX - 1:
            return limit_exactly(1)
        if sizes.window and overflow.tokens_max is not None and not overflow.is_quoted:
            reserve = sizes.find_reserve(wanted) or (wanted if wanted <= sizes.window // 4 else 0)
            limits = limit_window(sizes.window, reserve)
            if count_room(limits) < tokens:
                return limits
        if 0 < sizes.accepted < tokens:
            # First the midpoint that later requests get, so that they need no further compression; then the safe size.
            return limit_exactly((sizes.accepted + tokens) // 2 if retry == 0 else sizes.accepted)
        return limit_exactly(int(max(1, tokens) * _SHARES[min(retry, 1)]))


def _count(request: ReadRequest, tokenizer: str | None) -> int:
    """Return the tokens of a request, without edits."""
    counter, form = counter_for(request.model or None, tokenizer), make_format(request.wire.name)
    parsed = parse_messages(form, request.messages)
    tokens = sum(counter.count_parts(one.role, one.parts, one.name) for one in parsed)
    return tokens + counter.count_text(form.read_system(request.system)) + counter.count_tools(request.tools)


def _lower_output(outgoing: Outgoing, request: ReadRequest, window: int) -> Outgoing | None:
    """Return the request with a lower ``max_tokens``, so that both fit the window; None if that is impossible."""
    wanted = request.output_tokens_max
    # Our count may be an estimate: keep a tenth of the request free.
    room = window - int(outgoing.tokens_after * 1.1) - 64
    if not window or room < _OUTPUT_MIN or room >= wanted or len(outgoing.body) > LARGE_BYTES:
        return None
    try:
        body = parse_json(outgoing.body)
    except Unreadable:
        return None
    for name in request.wire.limits:
        if isinstance(body.get(name), int):
            body[name] = room
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and isinstance(thinking.get("budget_tokens"), int):
        if room // 2 < _OUTPUT_MIN:
            return None
        body["thinking"] = {**thinking, "budget_tokens": min(thinking["budget_tokens"], room // 2)}
    return replace(outgoing, body=dump_json(body), output=(wanted, room))
