"""Mounts the page on the gateway: everything under ``/ui`` comes here, after the door has looked at it.

The framework is loaded in a thread when the page is opened for the first time: a gateway that nobody looks at never
pays for it. It is one per process, as the framework is. What leaves here says that nothing may be loaded from outside.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refold.server.request import Receive, Scope, Send, find_header
from refold.web.door import Door, Visitor, is_own_request, read_secret
from refold.web.links import PREFIX
from refold.web.login import answer_login, send_redirect

if TYPE_CHECKING:
    from fastapi import FastAPI

    from refold.server.app import Application

log = logging.getLogger("refold.web")
RECONNECT_S = 10.0
BUILD_S_MAX = 15.0
STOP_S_MAX = 10.0
_STATIC = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'self'; img-src 'self' data:; font-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    # The framework compiles its templates in the browser.
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; connect-src 'self' ws://{host} wss://{host}; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def is_installed() -> bool:
    """Tell whether the page can be served: the framework is an extra."""
    return find_spec("nicegui") is not None


class Page:
    """The page as one ASGI application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._door = Door(application.keys, read_secret(Path(application.manager.workspace_path)))
        self._app: FastAPI | None = None
        self._life: AbstractAsyncContextManager[Any] | None = None
        self._turn = asyncio.Lock()
        self._sample: asyncio.Task[bool] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        is_socket = scope["type"] == "websocket"
        if not is_own_request(headers, must_name_origin=is_socket):
            await _refuse(scope, send)
            return
        visitor = self._door.identify(headers)
        send = _add_headers(scope, send)
        if await answer_login(scope, receive, send, self._door, visitor):
            return
        if visitor is None:
            await (_refuse(scope, send) if is_socket else send_redirect(send, f"{PREFIX}/login"))
            return
        app = await self._find_app()
        await app(self._tell(scope, visitor), receive, send)

    def _tell(self, scope: Scope, visitor: Visitor) -> Scope:
        # The framework would write a client's X-Forwarded-Prefix into its pages.
        kept = [(name, value) for name, value in scope["headers"] if name.lower() != b"x-forwarded-prefix"]
        return {**scope, "headers": kept, "refold.application": self._application, "refold.caller": visitor}

    async def _find_app(self) -> FastAPI:
        if self._app is None:
            async with self._turn:
                if self._app is None:
                    app = await asyncio.to_thread(_make_app)
                    self._life = app.router.lifespan_context(app)
                    await self._life.__aenter__()
                    self._app = app
                    self._start_sample()
        return self._app

    def _start_sample(self) -> None:
        """Make the sample session if this is the first look at an empty workspace; nobody waits for it."""
        from refold.web.sample import make_sample

        if not self._application.keys.is_required:
            self._sample = asyncio.create_task(asyncio.to_thread(make_sample, self._application.manager))

    @property
    def is_making_sample(self) -> bool:
        """True while the sample session is being made."""
        return self._sample is not None and not self._sample.done()

    async def stop(self) -> None:
        """Say goodbye to open tabs; answers that are being written are stopped, and what was said of them is kept."""
        if self._sample is not None:
            await asyncio.wait({self._sample}, timeout=STOP_S_MAX)
        if self._life is not None:
            from refold.web.talking import find_rooms

            await find_rooms(self._application).close()
            await self._life.__aexit__(None, None, None)
            self._life = None


def _make_app() -> FastAPI:
    from fastapi import FastAPI, Response
    from nicegui import app as framework
    from nicegui import ui
    from nicegui.storage import Storage

    from refold.web.bring import PATH as BRING_PATH
    from refold.web.bring import take_files
    from refold.web.exporting import PATH as EXPORT_PATH
    from refold.web.exporting import send_export
    from refold.web.icons import write_styles
    from refold.web.pages import PAGES
    from refold.web.serving import show_guarded, show_missing

    # Nothing of ours is kept there; if anything ever is, it must not land in the folder refold was started in.
    Storage.path = _STATIC.parent / ".unused"
    look = "\n".join([*((_STATIC / name).read_text("utf-8") for name in sorted(_list_styles())), write_styles()])
    tree = (_STATIC.parent / "parts" / "tree.js").read_text("utf-8")

    @framework.get("/look.css", include_in_schema=False)
    def send_look() -> Response:
        return Response(look, media_type="text/css", headers={"cache-control": "no-cache"})

    @framework.get("/parts/tree.js", include_in_schema=False)
    def send_tree() -> Response:
        return Response(tree, media_type="text/javascript", headers={"cache-control": "no-cache"})

    framework.add_api_route(EXPORT_PATH, send_export, include_in_schema=False)
    framework.add_api_route(BRING_PATH, take_files, methods=["POST"], include_in_schema=False)
    for entry in PAGES:
        show = import_module(entry.module).show
        ui.page(entry.path, response_timeout=BUILD_S_MAX)(show_guarded(entry, show))
    ui.page("/{missing:path}", response_timeout=BUILD_S_MAX)(show_missing)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        app,
        mount_path=PREFIX,
        title="refold",
        favicon=_STATIC / "favicon.svg",
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_S,
        show_welcome_message=False,
    )
    return app


def _list_styles() -> list[str]:
    return [path.name for path in _STATIC.glob("*.css")]


def _add_headers(scope: Scope, send: Send) -> Send:
    """Return a send that tells the browser to load nothing from outside and to frame the page nowhere."""
    host = "".join(char for char in find_header(scope["headers"], b"host") if char.isalnum() or char in ".:-[]")
    extra = [
        (b"content-security-policy", _POLICY.format(host=host).encode("latin-1", "ignore")),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]

    async def send_more(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return send_more


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = b"refold: requests of other sites are not answered"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
