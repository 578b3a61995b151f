"""Signing in and out: a plain form, without the framework, so that a stranger reaches as little as possible.

Answers ``/ui`` (to ``/ui/``), ``/ui/login``, ``/ui/leave`` and the few files the form needs. A key is never put into an
address, a log or a page.
"""

from __future__ import annotations

import asyncio
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from refold.server.request import BodyTooLarge, ClientGone, ClientStalled, Receive, Scope, Send, find_header, read_body
from refold.web.door import COOKIE, VISIT_S, Door, Visitor
from refold.web.links import PREFIX
from refold.web.words import Tongue, choose_tongue, say_in

FORM_BYTES_MAX = 4_000
FORM_STALL_S = 10.0
# Guessing 256 bits is hopeless; waiting keeps a guesser from keeping the gateway busy.
WRONG_KEY_S = 0.5
_STYLE = Path(__file__).parent / "static" / "page.css"


async def answer_login(scope: Scope, receive: Receive, send: Send, door: Door, visitor: Visitor | None) -> bool:
    """Answer what belongs to signing in and out; False if this is something else."""
    if scope["type"] != "http":
        return False
    path, method = scope["path"], scope["method"]
    if path == PREFIX:
        await send_redirect(send, f"{PREFIX}/")
    elif path == f"{PREFIX}/login" and method == "POST":
        await _take_key(scope, receive, send, door)
    elif path == f"{PREFIX}/login":
        await (send_redirect(send, f"{PREFIX}/") if visitor else _send_form(scope, send))
    elif path == f"{PREFIX}/leave" and method == "POST":
        await send_redirect(send, f"{PREFIX}/login", [_write_cookie(scope, "", 0)])
    else:
        return False
    return True


async def _take_key(scope: Scope, receive: Receive, send: Send, door: Door) -> None:
    try:
        body = await read_body(receive, scope["headers"], bytes_max=FORM_BYTES_MAX, stall_s=FORM_STALL_S)
    except (BodyTooLarge, ClientStalled):
        await _send_form(scope, send, is_wrong=True)
        return
    except ClientGone:
        return
    given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=5).get("key", [""])[0]
    cookie = door.let_in(given)
    if cookie is None:
        await asyncio.sleep(WRONG_KEY_S)
        await _send_form(scope, send, is_wrong=True)
        return
    await send_redirect(send, f"{PREFIX}/", [_write_cookie(scope, cookie, VISIT_S)])


def _write_cookie(scope: Scope, value: str, seconds: int) -> tuple[bytes, bytes]:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    cookie = f"{COOKIE}={value}; Path={PREFIX}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", cookie.encode("ascii")


async def _send_form(scope: Scope, send: Send, *, is_wrong: bool = False) -> None:
    tongue = choose_tongue("", find_header(scope["headers"], b"accept-language"))
    body = _write_form(tongue, is_wrong=is_wrong).encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": 401 if is_wrong else 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _write_form(tongue: Tongue, *, is_wrong: bool) -> str:
    def word(key: str) -> str:
        return escape(say_in(tongue, f"shell.{key}"))

    problem = f'<p class="problem" role="alert">{word("key_wrong")}</p>' if is_wrong else ""
    colours = 'matchMedia("(prefers-color-scheme: dark)").matches?"dark":"light"'
    return (
        f'<!doctype html><html lang="{"zh-CN" if tongue == "zh" else "en"}"><head><meta charset="utf-8">'
        f'<title>{word("sign_in")} · refold</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><script>document.documentElement.dataset.colours={colours}</script>'
        f'<style>{_STYLE.read_text("utf-8")}</style></head><body><main class="main">'
        f'<form class="sheet" style="margin:12vh auto 0" method="post" action="{PREFIX}/login">'
        '<div class="brand"><span class="brand-mark"></span>refold</div>'
        f'<h1>{word("sign_in")}</h1><p class="soft">{word("sign_in_why")}</p>{problem}'
        f'<label class="field"><span>{word("key")}</span><input class="input mono" name="key" type="password" '
        'autocomplete="current-password" required autofocus></label>'
        f'<button class="button primary" type="submit">{word("sign_in")}</button></form></main></body></html>'
    )


async def send_redirect(send: Send, target: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Send the browser to another page of ours."""
    told: list[Any] = [(b"location", target.encode()), (b"content-length", b"0"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 303, "headers": [*told, *(headers or ())]})
    await send({"type": "http.response.body", "body": b""})
