"""The application: one callable that sends each request to the gateway, the interface or the probes.

It is plain ASGI, because a request through the gateway must cost next to nothing; only the interface under ``/api``
uses a framework. Creating it opens nothing: connections and files are opened when the server starts.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from refold.conversation import because
from refold.errors import RefoldError
from refold.llm.choose import name_conversation
from refold.llm.errors import show_url
from refold.manager import ContextCompressionManager
from refold.patterns import compile_all
from refold.reading.tools import load_rules
from refold.reading.values import classify_word
from refold.server.auth import Caller, KeyRing, contains_key, hide_keys
from refold.server.beacon import PATH as RUNS
from refold.server.beacon import Beacon, lit, make_beacon
from refold.server.gateway import Gateway
from refold.server.monitoring import Metrics
from refold.server.overflow import LearnedLimits, OverflowRecovery
from refold.server.prepare import Preparer
from refold.server.request import (
    Asked,
    BodyTooLarge,
    ClientGone,
    ClientStalled,
    Receive,
    Scope,
    Send,
    TookTooLong,
    Watch,
    find_header,
    read_body,
    replay_body,
    send_json,
    send_whole,
)
from refold.server.session_lookup import Identities
from refold.server.settings import GatewaySettings, find_missing_switch
from refold.server.upstream import Upstreams
from refold.server.wires import find_side, write_error
from refold.server.worker import FairThreads, request_owner
from refold.tokens import counter_for

if TYPE_CHECKING:
    from refold.otel import Telemetry

_LOCAL_NAMES = frozenset(("127.0.0.1", "localhost", "::1", ""))
# Content types that a browser sends to any site without a preflight request.
_FORM_TYPES = frozenset(("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"))
log = logging.getLogger("refold.server")
PAGE_PREFIX = "/ui"
# Seconds for which a successful test write is not repeated: anybody may request /readyz.
CHECK_S = 1.0
# How long a probe waits while the patterns for the first fold are still being compiled.
WARM_S = 5.0
# Seconds between attempts to read a ledger that could not be read at startup.
LOAD_S = 5.0
SIDECAR_PATH, CHAT_PATH = "/v1/compress", "/api/chat/compress"
_INTERFACE = frozenset((SIDECAR_PATH, "/v1/usage"))  # And everything under /api/; other paths belong to the upstream.
# The interface parses most bodies on the event loop. A chat is parsed in a thread, a large sidecar request in a worker.
INTERFACE_BYTES_MAX, CHAT_BYTES_MAX = 1_000_000, 16_000_000
_RUN = re.compile(rf"{RUNS}/([0-9a-f]{{8,32}})(?=/|$)")


@lru_cache(maxsize=64)
def _find_name(host: str) -> str | None:
    """Return the name in a Host header without its port; None if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return None


def _may_be_form(headers: Any) -> bool:
    """Return whether a page of another site could have sent this without a preflight: a form without a key."""
    if find_header(headers, b"content-type").partition(";")[0].strip().lower() not in _FORM_TYPES:
        return False
    return not any(name in (b"authorization", b"x-api-key", b"api-key", b"anthropic-version") for name, _ in headers)


def _split_run(scope: Scope) -> tuple[str, Scope]:
    """Return the run id at the start of a request's path (empty if there is none), and the request without it."""
    found = _RUN.match(scope["path"])
    if found is None:
        return "", scope
    raw = scope.get("raw_path") or scope["path"].encode()
    rest = raw.removeprefix(found[0].encode())  # The id has no character that clients escape.
    return found[1], {**scope, "path": scope["path"][found.end() :] or "/", "raw_path": rest or b"/"}


def _warm() -> None:
    """Compile the patterns, and load the tables, of a first fold."""
    compile_all()
    for kind in ("tool", "command"):
        load_rules(kind)
    classify_word("v1.2.3")  # Any word that may be a value loads the table of sorts.


class Application:
    """The gateway, its interface, its page and the probes."""

    def __init__(
        self,
        manager: ContextCompressionManager,
        settings: GatewaySettings | None = None,
        *,
        keys: KeyRing | None = None,
        make_page: Callable[[Application], Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings or GatewaySettings()
        self.manager = manager
        manager.pages = "later"
        self.limits = LearnedLimits()
        self.keys = keys or KeyRing(Path(manager.workspace_path))
        telemetry: Telemetry | None = None
        if self.settings.otel != "off":
            from refold.otel import open_telemetry

            address = "" if self.settings.otel == "on" else self.settings.otel
            telemetry = open_telemetry(address, has_metrics=self.settings.otel_metrics)
            telemetry.listen(manager)
        self.metrics = Metrics(telemetry)
        manager.on("compressed", lambda _: self.metrics.compressions.inc())
        self.identities = Identities(self.settings.sessions_known_max)
        self.preparer = Preparer(self.settings, manager, self.limits, self.identities)
        self.upstreams = Upstreams(self.settings, environ)
        overflow = OverflowRecovery(self.preparer, self.limits)
        self.gateway = Gateway(self.settings, self.upstreams, self.preparer, overflow, self.metrics)
        self.is_ready = False
        self.is_stopping = False
        self.ends_with_runs = False  # It lives as long as a wrapped program.
        self.streams: Counter[str] = Counter()
        self._interface: Any = None
        self._making = threading.Lock()
        self.page: Any = make_page(self) if make_page is not None else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._checked_at = float("-inf")
        self._check: asyncio.Future[None] | None = None
        self._beacon: Beacon | None = None
        self._loading: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None

    @contextmanager
    def announce(self, url: str) -> Iterator[Beacon]:
        """Let ``refold wrap`` on this machine find the gateway by a file in its workspace."""
        self._beacon = make_beacon(url)
        with lit(self._beacon, self.manager.workspace_path):
            yield self._beacon

    def follow(self, beacon: Beacon) -> None:
        """Answer for a gateway that another process has announced."""
        self._beacon = beacon

    async def start(self) -> None:
        """Open connections, load vocabulary and known sessions; start to compile the patterns for the first fold."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(FairThreads())
        self.upstreams.open()
        if (missing := find_missing_switch(self.manager.config, self.settings)) is not None:
            log.warning("rules write the summaries", extra={"fields": {"said": str(missing)}})
        # Loading a vocabulary holds the interpreter lock: the first request would block all others.
        counter_for("gpt-5", self.manager.config.tokenizer).count_text("a")
        self._warming = asyncio.create_task(asyncio.to_thread(_warm))
        if not await self._load_known():
            self._loading = asyncio.create_task(self._load_later())

    async def _load_known(self) -> bool:
        """Load known sessions and be ready; return False if the ledger cannot be read."""
        try:
            await self.identities.load(self.manager.ledger, self.settings.sessions_known_max)
        except RefoldError as error:  # In a damaged file, values may be unreadable.
            self.preparer.reporter.note_written(error)
            log.error("the ledger cannot be read", extra={"fields": {"said": str(error)[:300]}})
            return False
        self.preparer.reporter.note_written()
        self.is_ready = True
        return True

    async def _load_later(self) -> None:
        # Until then, requests are compressed in memory.
        await asyncio.sleep(LOAD_S)
        while not await self._load_known():
            await asyncio.sleep(LOAD_S)

    async def stop(self) -> None:
        """Close everything once no request is in flight."""
        self.is_ready, self.is_stopping = False, True
        if self._loading is not None:
            self._loading.cancel()
        if self._warming is not None:
            await self._warming
        if self.page is not None:
            await self.page.stop()
        await self.preparer.drain()
        await self.upstreams.close()
        await asyncio.to_thread(self.manager.close)
        if self.metrics.telemetry is not None:
            await asyncio.to_thread(self.metrics.telemetry.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Each request names its own model for summaries: clients must not spend keys of the environment.
        name_conversation(None)
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            if self._is_for_page(scope) and self._may_look(scope["headers"]):
                await self.page(scope, receive, send)
            else:
                await self._decline_websocket(scope, send)

    async def _decline_websocket(self, scope: Scope, send: Send) -> None:
        """Answer 426: clients that prefer a websocket (Codex) then use plain HTTP at once."""
        log.info("declined a websocket", extra={"fields": {"path": scope["path"][:200]}})
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1000})
            return
        body = b'{"error":{"message":"refold: plain HTTP only, no websockets","type":"invalid_request_error"}}'
        await send_whole(send, 426, [(b"content-type", b"application/json")], body, kind="websocket.http")

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        run, scope = _split_run(scope)
        path = scope["path"]
        if path in ("/livez", "/readyz", "/metrics"):
            await self._probe(path, scope, send)
            return
        headers = scope["headers"]
        if path == "/" and scope["method"] == "HEAD":
            await send_whole(send, 200)  # Claude Code checks reachability this way.
            return
        if not run and self._is_for_page(scope) and self._may_look(headers):
            if path == "/":
                await send_whole(send, 303, [(b"location", f"{PAGE_PREFIX}/".encode())])
            else:
                await self.page(scope, receive, send)
            return
        refusal, caller = self._admit(scope["method"], headers)
        raw = scope.get("raw_path") or path.encode()
        is_misplaced = caller is not None and contains_key(raw)
        if is_misplaced:
            refusal, caller = "a gateway key must not be part of a path", None
        request_owner.set(caller.tenant if caller is not None else "")
        if path == RUNS:
            await self._identify(scope, caller, send)
        elif caller is None:
            side = find_side(path, bool(find_header(headers, b"anthropic-version")))
            status = 401 if self.keys.is_required and not is_misplaced else 403
            own = [("reason", because.REFUSED_REQUEST(detail=refusal).to_header())]
            await send_json(send, status, write_error(side, status, f"refold: {refusal}"), own)
        elif run and path == "/":
            await send_json(send, 200, asdict(self.metrics.find_run(caller.tenant, run)))
        elif path in _INTERFACE or path.startswith("/api/"):
            scope["refold.caller"] = caller
            with self.gateway.count(caller.tenant):
                await self._ask_interface(scope, receive, send)
        else:
            asked = Asked(
                scope["method"],
                raw.decode("latin-1"),
                hide_keys(scope.get("query_string", b"")),
                headers,
                caller.tenant,
                caller.drop,
                run,
            )
            await self.gateway.serve(asked, receive, send)

    async def _identify(self, scope: Scope, caller: Caller | None, send: Send) -> None:
        """Prove to a program on this machine which workspace this gateway serves; describe it to admitted callers."""
        nonce = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("nonce", [""])[0][:64]
        if self._beacon is None or not self.is_ready or self.is_stopping:
            await send_json(send, 503, {"error": "not announced"})
            return
        answer: dict[str, object] = {"proof": self._beacon.prove(nonce, self.manager.workspace_path)}
        if caller is not None:
            answer |= {
                "openai_upstream": show_url(self.settings.openai_upstream),
                "anthropic_upstream": show_url(self.settings.anthropic_upstream),
                "preset": self.manager.config.preset_name,
                "started": self._beacon.started,
                "ends_with_runs": self.ends_with_runs,
            }
        await send_json(send, 200 if caller is not None else 401, answer)

    def _admit(self, method: str, headers: Any) -> tuple[str, Caller | None]:
        """Return why a request is refused, or its caller."""
        caller = self.keys.identify(headers)
        if caller is None:
            return "a gateway key is required: send it as x-refold-key, as bearer token or as x-api-key", None
        if self.keys.is_required:
            return "", caller
        if not self._is_from_here(headers):
            return "requests from other sites are refused while the gateway has no keys", None
        if method == "POST" and _may_be_form(headers):
            return "send JSON with content-type: application/json while the gateway has no keys", None
        return "", caller

    def _is_for_page(self, scope: Scope) -> bool:
        """Return whether a request is for the page, which checks keys itself."""
        path = scope["path"]
        return self.page is not None and (path in ("/", PAGE_PREFIX) or path.startswith(f"{PAGE_PREFIX}/"))

    def _may_look(self, headers: Any) -> bool:
        return self.keys.is_required or self._is_from_here(headers)

    def _is_from_here(self, headers: Any) -> bool:
        """Return whether a request names this machine as its host and does not come from a page of another site."""
        host, origin = find_header(headers, b"host"), find_header(headers, b"origin")
        name = _find_name(host)
        if name is None or name not in {*_LOCAL_NAMES, self.settings.host}:
            return False
        # Another site may link to this page, but must not load it by a script or an image.
        is_link = find_header(headers, b"sec-fetch-mode") == "navigate"
        if find_header(headers, b"sec-fetch-site") in ("cross-site", "same-site") and not is_link:
            return False
        return not origin or origin.partition("://")[2].lower() == host.lower()

    async def _ask_interface(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body within limits, then pass the request to the interface, which has no limits itself."""
        settings = self.settings
        if limit := self.gateway.find_limit(scope["refold.caller"].tenant):
            await self._refuse_interface(send, *limit)
            return
        own = {SIDECAR_PATH: settings.body_bytes_max, CHAT_PATH: CHAT_BYTES_MAX}
        bytes_max = min(settings.body_bytes_max, own.get(scope["path"], INTERFACE_BYTES_MAX))
        watch = Watch(receive, stall_s=settings.client_stall_s, request_s_max=settings.request_s_max)
        try:
            body = await watch.run(read_body(watch.receive, scope["headers"], bytes_max=bytes_max))
        except BodyTooLarge:
            await self._refuse_interface(send, 413, f"the request is larger than {bytes_max:,} bytes")
        except (ClientStalled, TookTooLong):
            await self._refuse_interface(send, 408, "the request did not arrive in time")
        except ClientGone:
            return
        else:
            interface = self._interface or await asyncio.to_thread(self._find_interface)
            await interface(scope, replay_body(body, receive), send)

    async def _refuse_interface(self, send: Send, status: int, message: str) -> None:
        error = {"error": {"kind": "FormatError", "message": message}}
        await send_json(send, status, error, retry_after_s=1 if status in (429, 503) else 0)

    def forget_known(self, session_id: str) -> None:
        """Forget a session that was erased; safe from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.preparer.forget, session_id)

    def _find_interface(self) -> Any:
        """Return the interface, made on first use. Blocks: loading the framework takes a second."""
        with self._making:
            if self._interface is None:
                from refold.server.api.interface import make_interface

                self._interface = make_interface(self)
            return self._interface

    async def _probe(self, path: str, scope: Scope, send: Send) -> None:
        if path == "/livez":
            await send_json(send, 200, {"status": "ok"})
        elif path == "/readyz":
            is_ready, why = await self._check_ready()
            await send_json(send, 200 if is_ready else 503, {"status": "ok" if is_ready else why})
        elif self._admit("GET", scope["headers"])[1] is None:
            is_required = self.keys.is_required
            needed = "metrics need a gateway key: send it as bearer token, as x-refold-key or as x-api-key"
            why = needed if is_required else "without keys, metrics are only served to this machine"
            await send_json(send, 401 if is_required else 403, {"error": why})
        else:
            kind = b"text/plain; version=0.0.4; charset=utf-8"
            await send_whole(send, 200, [(b"content-type", kind)], self.metrics.write())

    async def _check_ready(self) -> tuple[bool, str]:
        is_warm = self._warming is None or self._warming.done()
        if self._warming is not None and not is_warm and not self.is_stopping:
            is_warm = bool((await asyncio.wait((self._warming,), timeout=WARM_S))[0])
        if not self.is_ready or self.is_stopping or not is_warm:
            is_unread = self.preparer.reporter.problem is not None
            return False, "stopping" if self.is_stopping else "the ledger cannot be read" if is_unread else "starting"
        now = time.monotonic()
        if now - self._checked_at < CHECK_S and self.preparer.reporter.problem is None:
            return True, ""
        if self._check is None or self._check.done():
            # All probes share one test: while the ledger does not respond, each test blocks a thread.
            self._checked_at = now
            self._check = asyncio.ensure_future(asyncio.to_thread(self.manager.check_ledger))
            self._check.add_done_callback(lambda check: check.cancelled() or check.exception())
        try:
            async with asyncio.timeout(5):
                await asyncio.shield(self._check)
        except Exception as error:  # noqa: BLE001 - whatever it is, we are not ready
            self.preparer.reporter.note_written(error)
            return False, f"the ledger cannot be written ({type(error).__name__})"
        self.preparer.reporter.note_written()
        return True, ""
