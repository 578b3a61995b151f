"""The page as an ASGI application under ``/ui``: access, signing in, and loading the framework on first use.

Without keys, everybody on this machine may open the page; otherwise a key is needed. Requests and websockets from
other sites are always refused. The framework is loaded in a thread when the page is first opened, and exists once per
process. Every response forbids the browser to load anything from outside.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from html import escape
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from refold.config.load import open_user_folder
from refold.config.trust import SECRET_FILE
from refold.errors import ConfigError
from refold.offload import make_folder
from refold.sentences import choose_language, tr
from refold.server.auth import Caller, KeyRing
from refold.server.request import (
    BodyTooLarge,
    ClientGone,
    Headers,
    Receive,
    Scope,
    Send,
    find_header,
    read_body,
)
from refold.web.visit import PREFIX

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.responses import Response

    from refold.server.app import Application


COOKIE = "refold_visit"
VISIT_S = 30 * 86_400
FORM_BYTES_MAX = 4_000
FORM_STALL_S = 10.0
# Nobody guesses 256 bits; the delay keeps attempts from loading the gateway.
WRONG_KEY_S = 0.5
log = logging.getLogger("refold.web")
RECONNECT_S = 10.0
# On a busy machine a session of ten thousand messages takes its time; a page that gives up shows nothing.
BUILD_S_MAX = 60.0
STOP_S_MAX = 10.0
_STATIC = Path(__file__).parent / "static"
# Scripts that our components import.
SHARED_PARTS = ("tree.js", "rows.js")
_POLICY = (
    "default-src 'self'; img-src 'self' data:; font-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    # The framework compiles its templates in the browser.
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; connect-src 'self' ws://{host} wss://{host}; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Visitor:
    """The reader of the page; ``key_id`` is empty if no keys are needed."""

    caller: Caller
    key_id: str = ""

    def is_welcome(self, keys: KeyRing) -> bool:
        """Return whether the visitor's key is still valid."""
        if not keys.is_required:
            return not self.key_id
        found = keys.find_id(self.key_id) if self.key_id else None
        return found is not None and found.tenant == self.caller.tenant


def read_secret(workspace: Path) -> bytes:
    """Return the secret that signs cookies, created on first use; only its owner can read the file."""
    path = open_user_folder(workspace).folder / SECRET_FILE
    try:
        make_folder(path.parent)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
        except FileExistsError:
            pass
        found = path.read_text(encoding="ascii").strip().encode()
    except (OSError, UnicodeError) as error:
        why = type(error).__name__
        raise ConfigError(
            "{path} cannot be used ({why}); the page needs it to sign cookies", path=path, why=why
        ) from None
    if len(found) < 32:
        raise ConfigError("{path} is too short to be a secret; delete it, and refold creates a new one", path=path)
    return found


class Door:
    """Checks keys and cookies.

    A key is entered once, in a form. From then on a signed cookie names the key but does not contain it. The cookie is
    for this site only (``SameSite=Strict``), cannot be read by scripts, and is invalid once the key is revoked.
    """

    def __init__(self, keys: KeyRing, secret: bytes) -> None:
        self._keys = keys
        self._secret = secret

    def identify(self, headers: Headers) -> Visitor | None:
        """Return the visitor; None if a key is needed and the cookie does not name a valid one."""
        if not self._keys.is_required:
            return Visitor(Caller(""))
        visitor = self._read_cookie(find_header(headers, b"cookie"))
        return visitor if visitor is not None and visitor.is_welcome(self._keys) else None

    def let_in(self, key: str) -> str | None:
        """Return the cookie for a key; None if the key is invalid."""
        found = self._keys.find_key(key.strip())
        if found is None:
            return None
        claim = f"{found.id}.{found.tenant}.{int(time.time()) + VISIT_S}"
        return f"{claim}.{self._sign(claim)}"

    def _sign(self, claim: str) -> str:
        return hmac.new(self._secret, claim.encode(), hashlib.sha256).hexdigest()

    def _read_cookie(self, header: str) -> Visitor | None:
        try:
            jar = SimpleCookie(header[:8_000])
        except CookieError:
            return None
        value = jar[COOKIE].value if COOKIE in jar else ""
        claim, _, signature = value.rpartition(".")
        if not claim or not hmac.compare_digest(self._sign(claim).encode(), signature.encode()):
            return None
        named, _, until = claim.rpartition(".")
        key_id, _, tenant = named.partition(".")
        if not until.isdecimal() or int(until) < time.time():
            return None
        return Visitor(Caller(tenant), key_id)


def is_own_request(headers: Headers, *, must_name_origin: bool) -> bool:
    """Return whether a browser's request comes from this site. A websocket must have an ``Origin`` header."""
    host = find_header(headers, b"host").lower()
    origin = find_header(headers, b"origin")
    if not origin:
        return not must_name_origin
    try:
        return urlsplit(origin).netloc.lower() == host and bool(host)
    except ValueError:
        return False


async def answer_login(scope: Scope, receive: Receive, door: Door, visitor: Visitor | None) -> Response | None:
    """Return the answer to a request for signing in or out; None for any other request.

    The form is plain HTML without the framework, so that a stranger reaches as little code as possible. A key is never
    part of an address, a log or a page.
    """
    if scope["type"] != "http":
        return None
    path, method = scope["path"], scope["method"]
    if path == f"{PREFIX}/login" and method == "POST":
        return await _take_key(scope, receive, door)
    if path == f"{PREFIX}/login" and visitor is None:
        return _make_form(scope)
    if path in (PREFIX, f"{PREFIX}/login"):
        return redirect(f"{PREFIX}/")
    if path == f"{PREFIX}/leave" and method == "POST":
        return redirect(f"{PREFIX}/login", **_write_cookie(scope, "", 0))
    return None


async def _take_key(scope: Scope, receive: Receive, door: Door) -> Response:
    try:
        async with asyncio.timeout(FORM_STALL_S):
            body = await read_body(receive, scope["headers"], bytes_max=FORM_BYTES_MAX)
    except (BodyTooLarge, TimeoutError, ClientGone):
        return _make_form(scope, is_wrong=True)
    given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=5).get("key", [""])[0]
    cookie = door.let_in(given)
    if cookie is None:
        await asyncio.sleep(WRONG_KEY_S)
        return _make_form(scope, is_wrong=True)
    return redirect(f"{PREFIX}/", **_write_cookie(scope, cookie, VISIT_S))


def _write_cookie(scope: Scope, value: str, seconds: int) -> dict[str, str]:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    cookie = f"{COOKIE}={value}; Path={PREFIX}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return {"set-cookie": cookie}


def _make_form(scope: Scope, *, is_wrong: bool = False) -> Response:
    from starlette.responses import HTMLResponse

    language = choose_language("", find_header(scope["headers"], b"accept-language"))
    keys = ("sign_in", "sign_in_why", "key", "key_wrong")
    words = {key: escape(tr(f"shell.{key}", language)) for key in keys}
    page = (
        (_STATIC / "login.html")
        .read_text("utf-8")
        .format(
            language="zh-CN" if language == "zh" else "en",
            style=(_STATIC / "page.css").read_text("utf-8"),
            target=f"{PREFIX}/login",
            problem=f'<p class="problem" role="alert">{words["key_wrong"]}</p>' if is_wrong else "",
            **words,
        )
    )
    return HTMLResponse(page, 401 if is_wrong else 200, {"cache-control": "no-store"})


def redirect(target: str, **headers: str) -> Response:
    """Return a redirection to another of our pages."""
    from starlette.responses import RedirectResponse

    return RedirectResponse(target, 303, {"cache-control": "no-store", **headers})


def is_installed() -> bool:
    """Return whether the page can be served: the framework is an extra."""
    return find_spec("nicegui") is not None


class WebPage:
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
            await _refuse(scope, receive, send)
            return
        visitor = self._door.identify(headers)
        send = _add_headers(scope, send)
        answer = await answer_login(scope, receive, self._door, visitor)
        if answer is not None:
            await answer(scope, receive, send)
        elif visitor is not None:
            app = await self._find_app()
            # The framework would write a client's X-Forwarded-Prefix into its pages.
            kept = [(name, value) for name, value in headers if name.lower() != b"x-forwarded-prefix"]
            inside = {"headers": kept, "refold.application": self._application, "refold.caller": visitor}
            await app({**scope, **inside}, receive, send)
        elif is_socket:
            await _refuse(scope, receive, send)
        else:
            await redirect(f"{PREFIX}/login")(scope, receive, send)

    async def _find_app(self) -> FastAPI:
        if self._app is None:
            async with self._turn:
                if self._app is None:
                    app = await asyncio.to_thread(_make_app)
                    self._life = app.router.lifespan_context(app)
                    await self._life.__aenter__()
                    self._app = app
                    if not self._application.keys.is_required:
                        from refold.web.sample import make_sample

                        self._sample = asyncio.create_task(asyncio.to_thread(make_sample, self._application.manager))
        return self._app

    @property
    def is_making_sample(self) -> bool:
        return self._sample is not None and not self._sample.done()

    async def stop(self) -> None:
        """Disconnect open tabs and stop running answers; the text written so far is stored."""
        if self._sample is not None:
            await asyncio.wait({self._sample}, timeout=STOP_S_MAX)
        if self._life is not None:
            from refold.web.room import find_rooms

            await find_rooms(self._application).close()
            await self._life.__aexit__(None, None, None)
            self._life = None


def _make_app() -> FastAPI:
    from fastapi import FastAPI, Response
    from nicegui import app as framework
    from nicegui import ui
    from nicegui.storage import Storage

    from refold.web.pages import PAGES
    from refold.web.shell import show_guarded, show_missing, write_styles
    from refold.web.transfer import EXPORT_PATH, IMPORT_PATH, send_export, take_files

    # We store nothing there. If the framework ever does, it must not write to the current folder.
    Storage.path = _STATIC.parent / ".unused"
    look = "\n".join([*(path.read_text("utf-8") for path in sorted(_STATIC.glob("*.css"))), write_styles()])
    shared = {name: (_STATIC.parent / "parts" / name).read_text("utf-8") for name in SHARED_PARTS}

    @framework.get("/look.css", include_in_schema=False)
    def send_look() -> Response:
        return Response(look, media_type="text/css", headers={"cache-control": "no-cache"})

    @framework.get("/parts/{name}", include_in_schema=False)
    def send_part(name: str) -> Response:
        found = shared.get(name)
        headers = {"cache-control": "no-cache"}
        return Response(found or "", 200 if found else 404, headers, media_type="text/javascript")

    framework.add_api_route(EXPORT_PATH, send_export, include_in_schema=False)
    framework.add_api_route(IMPORT_PATH, take_files, methods=["POST"], include_in_schema=False)
    for entry in PAGES:
        module, _, function = entry.show.partition(":")
        show = getattr(import_module(module), function)
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


def _add_headers(scope: Scope, send: Send) -> Send:
    """Return a send that adds security headers: load nothing from outside, allow no framing."""
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


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    from starlette.responses import PlainTextResponse

    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await PlainTextResponse("refold: requests from other sites are refused", 403)(scope, receive, send)
