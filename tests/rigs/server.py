"""Starts gateways for tests, and the conversations that go through them."""

import asyncio
import gzip
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import uvicorn.server

from refold.config import CompressionConfig
from refold.manager import ContextCompressionManager
from refold.server.app import Application
from refold.server.serve import BackgroundServer
from refold.server.settings import GatewaySettings, choose_summariser, settle_arrival
from refold.testing import ScriptedProvider
from tests.rigs.watchdog import watch_loop

PATHS = {"openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages"}


@dataclass(frozen=True)
class Rig:
    """A gateway and the provider behind it."""

    url: str
    provider: ScriptedProvider
    application: Application
    http: httpx2.Client

    def post(self, wire: str, body: object, **headers: str) -> httpx2.Response:
        """Send a request of a wire format as JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if wire == "anthropic":
            named = {"anthropic-version": "2023-06-01", **named}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(PATHS[wire], content=content, headers={"content-type": "application/json", **named})

    @property
    def manager(self) -> ContextCompressionManager:
        return self.application.manager


def look_often() -> None:
    """Make uvicorn look every millisecond whether all clients are gone; its 100 ms would cost each test as long."""
    often = ModuleType("asyncio")
    often.__dict__.update(vars(asyncio), sleep=lambda seconds: asyncio.sleep(seconds / 100))
    vars(uvicorn.server)["asyncio"] = often


look_often()


@contextmanager
def start_rig(
    workspace: Path,
    script: Any = "ok",
    *,
    config: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    upstream: str = "",
    ledger: Any = None,
    **provider: Any,
) -> Iterator[Rig]:
    """Run a provider and a gateway in front of it."""
    with ScriptedProvider(script, **provider) as upstreams:
        base = upstream or upstreams.url
        gateway = GatewaySettings(port=0, openai_upstream=f"{base}/v1", anthropic_upstream=base, shutdown_s=2).change(
            settings or {}
        )
        chosen = CompressionConfig(**(config or {}))
        chosen = choose_summariser(settle_arrival(chosen), gateway)
        manager = ContextCompressionManager(chosen, workspace, ledger=ledger)
        application = Application(manager, gateway)
        with (
            BackgroundServer(application) as server,
            httpx2.Client(base_url=server.url, timeout=60, trust_env=False, verify=False) as http,
            watch_loop() as dog,
        ):
            yield Rig(server.url, upstreams, application, http)
        assert not dog.findings, "\n".join(dog.findings[:20])


def make_dialog(turns: int, words: int = 120, *, end: bool = True) -> list[dict[str, Any]]:
    """Return a plain conversation of so many turns; ``end``: with a request that waits for its answer.

    It refers to nothing that was said: with a user's defaults a question that does would get it below its words.
    """
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        filler = " ".join(f"w{turn}x{number}" for number in range(words))
        messages.append({"role": "user", "content": f"Question {turn}: please look at file_{turn}.py. {filler}"})
        messages.append({"role": "assistant", "content": f"Answer {turn}: file_{turn}.py is fine. {filler}"})
    if end:
        messages.append({"role": "user", "content": f"Thanks. Please go on with step {turns}."})
    return messages


def make_body(wire: str, messages: Sequence[Any], model: str = "scripted-1", **fields: Any) -> dict[str, Any]:
    """Return a request of a wire format."""
    if wire == "openai-responses":
        return {"model": model, "input": list(messages), **fields}
    if wire == "anthropic":
        return {"model": model, "max_tokens": 100, "messages": list(messages), **fields}
    return {"model": model, "messages": list(messages), **fields}


def pack(coding: str, body: bytes) -> bytes:
    """Return bytes in a content coding, as a header names it."""
    if coding == "br":
        import brotli  # type: ignore[import-untyped]

        return bytes(brotli.compress(body))
    if coding == "zstd":
        zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        return bytes(zstd.compress(body))
    return {"gzip": gzip.compress, "deflate": zlib.compress}.get(coding.lower(), bytes)(body)


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is so; fail if it does not happen."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)
