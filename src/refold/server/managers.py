"""The manager behind the gateway, and its like with a smaller window: for when an upstream says what it really takes.

All of them share one ledger, so what one folds the others see. What an upstream stated as its limit is remembered per
model, for as long as the process lives.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from refold.config import CompressionConfig
from refold.config.schema import block_of
from refold.errors import ConfigError
from refold.manager import ContextCompressionManager
from refold.manager.notices import Listener
from refold.tokens import model_info

LIMITED_MAX = 16
MODELS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The window of one request and what of it stays free for the answer; None where the model's own holds."""

    window: int | None = None
    reserve: int | None = None


NO_LIMITS = Limits()


class Managers:
    """One manager, and others that differ in the window."""

    def __init__(self, main: ContextCompressionManager, llm: object = None) -> None:
        self.main = main
        self._llm = llm
        self._listeners: list[tuple[str, Listener]] = []
        self._limited: OrderedDict[tuple[int, int], tuple[CompressionConfig, ContextCompressionManager]] = OrderedDict()
        self._learned: OrderedDict[str, int] = OrderedDict()
        self._guard = threading.Lock()

    def on(self, event: str, listener: Listener) -> None:
        """Listen to all of them."""
        self._listeners.append((event, listener))
        self.main.on(event, listener)

    def learn(self, model: str, window: int) -> bool:
        """Remember that an upstream takes less for a model than we thought; False if that is nothing new."""
        with self._guard:
            if window >= self._learned.get(model, self._window_of(model)) or window < 1_000:
                return False
            self._learned[model] = window
            while len(self._learned) > MODELS_MAX:
                self._learned.popitem(last=False)
            return True

    def find_limits(self, model: str) -> Limits:
        """Return what an upstream was found to take for a model."""
        window = self._learned.get(model)
        return NO_LIMITS if window is None else limit_window(window, 0)

    def choose(self, model: str) -> ContextCompressionManager:
        """Return the manager for a model."""
        window = self._learned.get(model)
        return self.main if window is None else self.limit(window, 0)

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

    def _window_of(self, model: str) -> int:
        return self.main.config.budget(model_info(model or None)).window


def limit_window(window: int, reserve: int) -> Limits:
    """Return a window that leaves room for a request; ``reserve`` tokens of it at least stay free for the answer."""
    window = max(2_000, window)
    return Limits(window, min(max(reserve, min(32_000, window // 8)), window * 3 // 4))


def without_arrival(config: CompressionConfig) -> CompressionConfig:
    """Return the settings without the stages that render on arrival: behind a gateway an agent has no way to get the
    rest of a shortened tool result back, so nothing is shortened before it must be."""
    kept = [name for name in config.ladder if getattr(config, block_of(name)).when != "arrival"]
    return config.replace(ladder=kept) if len(kept) < len(config.ladder) else config
