"""Who may open the page: everybody on this machine while there are no keys, else whoever shows one.

A key is shown once, in a form; from then on a signed cookie names it, never holds it. The cookie is for this site only
(``SameSite=Strict``), out of reach of scripts, and worth nothing once the key is revoked. A request that a page of
another site makes is refused, whatever it carries; that includes the opening of a websocket.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from refold.errors import ConfigError
from refold.server.auth import Caller, KeyRing
from refold.server.request import Headers, find_header

COOKIE = "refold_visit"
SECRET_FILE = ".refold/page.secret"
VISIT_S = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at the page; ``key_id`` is empty where no keys are needed."""

    caller: Caller
    key_id: str = ""

    def is_welcome(self, keys: KeyRing) -> bool:
        """Tell whether the visitor may still see anything."""
        if not keys.is_required:
            return not self.key_id
        found = keys.find_id(self.key_id) if self.key_id else None
        return found is not None and found.tenant == self.caller.tenant


def read_secret(workspace: Path) -> bytes:
    """Return the secret that signs cookies, made when there is none; only its owner can read the file."""
    path = workspace / SECRET_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
        except FileExistsError:
            pass
        found = path.read_text(encoding="ascii").strip().encode()
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{path} cannot be used ({type(error).__name__}); the page needs it to sign cookies"
        ) from None
    if len(found) < 32:
        raise ConfigError(f"{path} is too short to be a secret; remove it, a new one is made")
    return found


class Door:
    """Lets visitors in and tells who they are."""

    def __init__(self, keys: KeyRing, secret: bytes) -> None:
        self._keys = keys
        self._secret = secret

    def identify(self, headers: Headers) -> Visitor | None:
        """Return who asks; None if a key is needed and nothing here stands for one that works."""
        if not self._keys.is_required:
            return Visitor(Caller(""))
        visitor = self._read_cookie(find_header(headers, b"cookie"))
        return visitor if visitor is not None and visitor.is_welcome(self._keys) else None

    def let_in(self, key: str) -> str | None:
        """Return the cookie for whoever shows this key; None if it does not work."""
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
    """Tell whether a browser's request comes from this very site. A websocket must say where it comes from."""
    host = find_header(headers, b"host").lower()
    origin = find_header(headers, b"origin")
    if not origin:
        return not must_name_origin
    try:
        return urlsplit(origin).netloc.lower() == host and bool(host)
    except ValueError:
        return False
