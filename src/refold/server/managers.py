"""The manager behind the gateway, and managers like it with a smaller window, for models that state one themselves.

All of them share one ledger, so a fold made by one is seen by the others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from refold.config import CompressionConfig
from refold.config.schema import block_of
from refold.errors import ConfigError
from refold.manager import ContextCompressionManager
from refold.manager.notices import Listener
from refold.server.limits import NO_LIMITS, LearnedLimits, LimitKey, Limits, limit_window
from refold.stages.stage import acts_on_arrival
from refold.tokens import counter_for

LIMITED_MAX = 16
_SIDES = ("openai", "anthropic")


class Managers:
    """One manager, and others that differ in the window."""

    def __init__(self, main: ContextCompressionManager, llm: object = None) -> None:
        self.main = main
        self._llm = llm
        self._listeners: list[tuple[str, Listener]] = []
        self._limited: OrderedDict[tuple[int, int], tuple[CompressionConfig, ContextCompressionManager]] = OrderedDict()
        self.limits = LearnedLimits()
        self._guard = threading.Lock()

    def on(self, event: str, listener: Listener) -> None:
        """Listen to all of them."""
        self._listeners.append((event, listener))
        self.main.on(event, listener)

    def find_limits(self, key: LimitKey, output_tokens: int = 0) -> Limits:
        """Return what an upstream was found to take; ``output_tokens`` is the room that is asked for the answer."""
        keys = [key] if key.side else [LimitKey(key.tenant, side, key.model) for side in _SIDES]
        keys = [one for one in keys if self.limits.has_limit(one)]
        if not keys:
            return NO_LIMITS
        found = [self.limits.find(one, output_tokens) for one in keys]
        known = [limits for limits in found if limits.window is not None]
        return min(known, key=lambda limits: limits.window or 0) if known else NO_LIMITS

    def find_margin(self, model: str) -> float:
        """Return how far the counter of a model may undercount."""
        return counter_for(model or None, self.main.config.tokenizer).margin

    def choose(self, model: str) -> ContextCompressionManager:
        """Return the manager for a model."""
        limits = self.find_limits(LimitKey("", "", model))
        return self.main if limits.window is None else self.limit(limits.window, 0)

    def limit(self, window: int, reserve: int) -> ContextCompressionManager:
        """Return a manager whose window is this; ``reserve`` tokens of it at least stay free for the answer."""
        limits = limit_window(window, reserve)
        window, reserve = limits.window or window, limits.reserve or reserve
        with self._guard:
            known = self._limited.get((window, reserve))
            if known is None or known[0] is not self.main.config:
                known = self.main.config, self._make(window, reserve)
                self._limited[window, reserve] = known
                while len(self._limited) > LIMITED_MAX:
                    self._limited.popitem(last=False)
            self._limited.move_to_end((window, reserve))
            return known[1]

    def _make(self, window: int, reserve: int) -> ContextCompressionManager:
        config = self.main.config
        try:
            config = config.replace(window=window, reserve=reserve)
        except ConfigError:
            config = CompressionConfig(window=window, reserve=reserve)
        made = ContextCompressionManager(config, self.main.workspace_path, llm=self._llm, ledger=self.main.ledger)
        for event, listener in self._listeners:
            made.on(event, listener)
        return made


def settle_arrival(config: CompressionConfig, *, is_on: bool) -> CompressionConfig:
    """Return the settings with long tool results cut on arrival, or with no stage that renders on arrival."""
    return config.cut_on_arrival() if is_on else without_arrival(config)


def without_arrival(config: CompressionConfig) -> CompressionConfig:
    """Return the settings without the stages that render on arrival: behind a gateway an agent has no way to get the
    rest of a shortened tool result back, so nothing is shortened before it must be."""
    kept = [name for name in config.ladder if not acts_on_arrival(getattr(config, block_of(name)))]
    return config.replace(ladder=kept) if len(kept) < len(config.ladder) else config
