"""What upstreams accept, learned from their answers: per tenant, side and model, for as long as the process lives.

A limit that an upstream states is believed within bounds: never below a size that it accepted, nor above the size that
it refused. Where it states none, the sizes it accepted and refused narrow the limit down. One tenant's requests never
change another tenant's window.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from refold.errors import ContextOverflow

ENTRIES_MAX = 10_000
WINDOW_MIN = 1_000
# Between an accepted and a refused size this close, the accepted one is the limit.
_CLOSE = 0.05
# Where the room for the answer has to be lowered, it keeps this part of the window: a third.
_ANSWER_SHARE = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """The window of one request and what of it stays free for the answer; None where the model's own holds."""

    window: int | None = None
    reserve: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class LimitKey:
    """Whose limit it is: a tenant's, at one upstream, for one model."""

    tenant: str
    side: str
    model: str


@dataclass(slots=True)
class _Sizes:
    """Sizes by our own count, but for ``window``, which the upstream stated in its own."""

    accepted: int = 0
    refused: int = 0
    window: int = 0
    counts_output: bool = False
    lowers_output: bool = False

    def find_ceiling(self) -> int:
        """Return the largest size worth sending, by our own count; 0 if nothing is known."""
        if not self.refused or self.accepted >= self.refused:
            return 0
        if self.refused - self.accepted <= self.refused * _CLOSE:
            return self.accepted
        return (self.accepted + self.refused) // 2


class LearnedLimits:
    """The limits that upstreams were found to have. For one event loop."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[LimitKey, _Sizes] = OrderedDict()

    def note_accepted(self, key: LimitKey, tokens: int) -> None:
        """An upstream accepted a request of this size."""
        sizes = self._sizes.get(key)
        if sizes is None or tokens > sizes.accepted:
            sizes = self._need(key)
            sizes.accepted = max(sizes.accepted, tokens)

    def note_refused(self, key: LimitKey, tokens: int, overflow: ContextOverflow, output_tokens: int = 0) -> bool:
        """An upstream refused a request of this size as too long; return whether that taught us something new.

        ``output_tokens`` is the room that the request asked for its answer.
        """
        if overflow.is_quoted:
            return False
        sizes = self._need(key)
        before = (sizes.refused, sizes.window, sizes.counts_output)
        sizes.counts_output |= overflow.counts_output
        stated = overflow.tokens_max
        if stated is not None and stated >= max(WINDOW_MIN, sizes.accepted):
            window = min(stated, tokens + output_tokens) if tokens else stated
            sizes.window = min(sizes.window or window, max(WINDOW_MIN, window))
        elif tokens >= WINDOW_MIN:
            sizes.refused = min(sizes.refused or tokens, tokens)
        return before != (sizes.refused, sizes.window, sizes.counts_output)

    def find(self, key: LimitKey, output_tokens: int = 0) -> Limits:
        """Return what an upstream was found to take."""
        sizes = self._sizes.get(key)
        if sizes is None:
            return NO_LIMITS
        ceiling = sizes.find_ceiling()
        if sizes.window:
            limits = limit_window(sizes.window, self.find_reserve(key, output_tokens))
            if not ceiling or count_room(limits) <= ceiling:
                return limits
        return limit_exactly(ceiling) if ceiling else NO_LIMITS

    def has_limit(self, key: LimitKey) -> bool:
        """Tell whether a limit is known, without working it out."""
        sizes = self._sizes.get(key)
        return sizes is not None and bool(sizes.window or sizes.refused)

    def find_reserve(self, key: LimitKey, output_tokens: int) -> int:
        """Return what of the window has to stay free for an answer of so many tokens."""
        sizes = self._sizes.get(key)
        if sizes is None or not sizes.counts_output:
            return 0
        return min(output_tokens, sizes.window // _ANSWER_SHARE) if sizes.lowers_output else output_tokens

    def lower_output(self, key: LimitKey) -> bool:
        """Note that the room for the answer has to be lowered for anything to fit; False if that helps nothing."""
        sizes = self._sizes.get(key)
        if sizes is None or not (sizes.counts_output and sizes.window) or sizes.lowers_output:
            return False
        sizes.lowers_output = True
        return True

    def find_accepted(self, key: LimitKey) -> int:
        """Return the largest size that was accepted, 0 if none was."""
        sizes = self._sizes.get(key)
        return sizes.accepted if sizes is not None else 0

    def find_window(self, key: LimitKey) -> int:
        """Return the window that an upstream stated, 0 if it stated none that can be believed."""
        sizes = self._sizes.get(key)
        return sizes.window if sizes is not None else 0

    def counts_output(self, key: LimitKey) -> bool:
        """Tell whether the upstream counts the room for the answer towards its limit."""
        sizes = self._sizes.get(key)
        return sizes is not None and sizes.counts_output

    def _need(self, key: LimitKey) -> _Sizes:
        sizes = self._sizes.setdefault(key, _Sizes())
        self._sizes.move_to_end(key)
        while len(self._sizes) > ENTRIES_MAX:
            self._sizes.popitem(last=False)
        return sizes


def limit_window(window: int, reserve: int) -> Limits:
    """Return a window that leaves room for a request; at least ``reserve`` tokens of it stay free for the answer."""
    window = max(2_000, window)
    return Limits(window, min(max(reserve, min(32_000, window // 8)), window * 3 // 4))


def limit_exactly(tokens: int, margin: float = 0.0) -> Limits:
    """Return the limits under which a context of so many tokens by our own count is the largest that fits.

    With the ``margin`` of an estimating counter it certainly fits; without it, the limit may be lower by that margin.
    """
    return Limits(int(max(1, tokens) * (1.0 + margin)) + 2, 0)


def count_room(limits: Limits) -> int:
    """Return the tokens that a context may have under these limits."""
    return (limits.window or 0) - (limits.reserve or 0)
