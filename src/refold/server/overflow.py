"""Smaller requests after an upstream refused one as too long, and what each refusal teaches about its limit.

A refusal is answered up to three times: within the limit that the upstream stated (or well below the size it refused),
then with less, then with the smallest context there is. The room that the client asked for its answer is lowered only
if the upstream counts it and nothing else helps; a header says so.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from refold.conversation import because
from refold.errors import ContextOverflow
from refold.server.fallback import find_limit_key
from refold.server.limits import LimitKey, Limits, count_room, limit_exactly, limit_window
from refold.server.managers import Managers
from refold.server.outgoing import Outgoing
from refold.server.prepare import Preparer
from refold.server.reading import ReadRequest, Unreadable, dump_json, parse_json

log = logging.getLogger("refold.server")
RETRIES_MAX = 3
# Without a stated limit: the share of the refused size that the first and the second retry may have.
_SHARES = (0.7, 0.5)
# An answer shorter than this helps nobody.
_OUTPUT_MIN = 1_024


class OverflowRecovery:
    """Answers refusals."""

    def __init__(self, preparer: Preparer, managers: Managers) -> None:
        self._preparer = preparer
        self._managers = managers

    def note_accepted(self, outgoing: Outgoing) -> None:
        """Take in that an upstream accepted a request."""
        session, request = outgoing.session, outgoing.request
        if session is None or request is None or not outgoing.tokens_after:
            return
        self._managers.limits.note_accepted(find_limit_key(session, request), outgoing.tokens_after)
        session.folded_tokens = outgoing.tokens_after if outgoing.edits else 0
        if not outgoing.is_failed_open:
            session.spare_edits = ()

    async def shrink(
        self, outgoing: Outgoing, original: bytes, overflow: ContextOverflow, retry: int
    ) -> Outgoing | None:
        """Return a smaller request after a refusal; None if there is none. ``original`` is the client's request."""
        session, request = outgoing.session, outgoing.request
        if session is None or request is None or retry >= RETRIES_MAX:
            return None
        key = find_limit_key(session, request)
        self._learn(key, outgoing, request, overflow)
        limits = self._choose(key, outgoing, request, overflow, retry)
        again = await self._preparer.prepare_again(outgoing, original, limits)
        again = self.fit_output(again, is_last=retry == RETRIES_MAX - 1)
        is_smaller = 0 < again.tokens_after < (outgoing.tokens_after or again.tokens_after + 1)
        if again.output is None and not (is_smaller and again.edits):
            return None
        reason = again.reason if again.is_failed_open else because.RETRIED()
        return replace(again, reason=reason)

    def fit_output(self, outgoing: Outgoing, *, is_last: bool = False) -> Outgoing:
        """Lower the room that a request asks for its answer if it has to be, so that both fit the window."""
        session, request = outgoing.session, outgoing.request
        if session is None or request is None:
            return outgoing
        key, limits = find_limit_key(session, request), self._managers.limits
        wanted = request.output_tokens_max
        is_lowered = limits.find_reserve(key, wanted) < wanted or is_last or outgoing.is_over
        if not limits.counts_output(key) or not is_lowered:
            return outgoing
        return _lower_output(outgoing, request, limits.find_window(key)) or outgoing

    def _learn(self, key: LimitKey, outgoing: Outgoing, request: ReadRequest, overflow: ContextOverflow) -> None:
        limits = self._managers.limits
        if limits.note_refused(key, outgoing.tokens_after, overflow, request.output_tokens_max):
            fields = {"model": key.model[:80], "window": limits.find_window(key), "refused": outgoing.tokens_after}
            log.warning("learned a limit", extra={"fields": fields})

    def _choose(
        self, key: LimitKey, outgoing: Outgoing, request: ReadRequest, overflow: ContextOverflow, retry: int
    ) -> Limits:
        """Return the limits of the next try."""
        learned = self._managers.limits
        tokens, wanted = outgoing.tokens_after, request.output_tokens_max
        if retry == RETRIES_MAX - 1:
            return limit_exactly(1)
        if (window := learned.find_window(key)) and overflow.tokens_max is not None and not overflow.is_quoted:
            reserve = learned.find_reserve(key, wanted) or (wanted if wanted <= window // 4 else 0)
            limits = limit_window(window, reserve)
            if count_room(limits) < tokens:
                return limits
        accepted = learned.find_accepted(key)
        if retry == 0 and tokens // 2 < accepted < tokens:
            return limit_exactly(accepted)
        return limit_exactly(int(max(1, tokens) * _SHARES[min(retry, 1)]))


def _lower_output(outgoing: Outgoing, request: ReadRequest, window: int) -> Outgoing | None:
    """Return a request that asks for a shorter answer, so that both fit the window; None if that cannot be."""
    wanted = request.output_tokens_max
    # Our count may be an estimate: a tenth of the request stays free beside the answer.
    room = window - int(outgoing.tokens_after * 1.1) - 64
    if not window or room < _OUTPUT_MIN or room >= wanted:
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
