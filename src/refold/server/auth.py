"""Keys and tenants of the gateway: who may use it, whose sessions they see, how much a tenant may store.

Only hashes of keys are stored. A key is 256 random bits, so a fast hash is enough. The file is read again when it
changes: a revoked key stops working at once. If the file cannot be read, every key is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import unquote_to_bytes

from refold.config.load import open_user_folder
from refold.config.trust import KEYS_FILE
from refold.conversation.message import frozen
from refold.errors import ConfigError, RefoldError
from refold.ledger.sql.ledger import Ledger
from refold.offload import lock_folder, make_folder, write_whole
from refold.recall import family
from refold.server.request import Headers, find_bearer, find_header

PREFIX = "rk-"
KEYS_MAX = 10_000
_TENANT = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_ID_CHARS = 8
TENANT_MARK = family.TENANT_MARK
# A tenant's storage is measured this often, and again this soon before a tenant at its limit is refused.
MEASURE_S, MEASURE_AGAIN_S = 60.0, 1.0
TENANTS_MAX = 10_000
_LOOK_AGAIN_S = 0.5
_ENCODINGS_MAX = 3
_PLACES = (b"x-refold-key", b"authorization", b"x-api-key", b"api-key")
# A key anywhere in a text: 32 random bytes in base64.
_KEY = re.compile(rb"rk-[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as stored: everything except the key itself."""

    id: str
    tenant: str
    hash: str
    created_at: float


@frozen
class Caller:
    """The caller. ``drop`` names the headers that contain a gateway key and must not go upstream."""

    tenant: str
    drop: frozenset[bytes] = frozenset()


def make_id(tenant: str, name: str) -> str:
    """Return a session's id in the ledger. A client's name can never reach another tenant's sessions."""
    return f"{TENANT_MARK}{tenant}/{name}" if tenant else name


def name_session(tenant: str, session_id: str) -> str:
    """Return a session's name as its tenant knows it."""
    return session_id.removeprefix(f"{TENANT_MARK}{tenant}/") if tenant else session_id


def find_tenant(session_id: str) -> str:
    """Return the tenant that a session belongs to by its id; empty for the operator. Imported settings may lie."""
    tenant, mark, _ = session_id.removeprefix(TENANT_MARK).partition("/")
    return tenant if mark and session_id.startswith(TENANT_MARK) else ""


def belongs_to(tenant: str, session_id: str) -> bool:
    """Return whether a session belongs to this tenant; without tenants, all belong to the operator."""
    return session_id.startswith(f"{TENANT_MARK}{tenant}/") if tenant else True


class KeyRing:
    """The keys of a workspace. They are kept outside of it: a folder that came from elsewhere brings no keys."""

    def __init__(self, workspace: str | Path) -> None:
        self.path = open_user_folder(workspace).folder / KEYS_FILE
        self._by_hash: dict[str, StoredKey] = {}
        self._is_required = False
        self._seen: object = None
        self._looked_at = 0.0

    @property
    def is_required(self) -> bool:
        """True once a key was created: from then on every request needs one."""
        self._refresh()
        return self._is_required

    @property
    def has_keys(self) -> bool:
        """True if there is a valid key."""
        self._refresh()
        return bool(self._by_hash)

    def identify(self, headers: Headers) -> Caller | None:
        """Return the caller; None if a key is required and no valid one was sent."""
        drop: frozenset[bytes] = frozenset()
        if contains_key(b"\n".join(chain.from_iterable(headers))):  # Most requests contain no key.
            drop = frozenset(name for name, value in headers if contains_key(value) or contains_key(name))
        if not self.is_required:
            return Caller("", drop)
        for place in _PLACES:
            given = find_bearer(headers) if place == b"authorization" else find_header(headers, place)
            found = self._by_hash.get(hash_key(given)) if given.startswith(PREFIX) else None
            if found is not None:
                return Caller(found.tenant, drop | {place})
        return None

    def find_key(self, key: str) -> StoredKey | None:
        """Return the stored record of a valid key, else None."""
        self._refresh()
        return self._by_hash.get(hash_key(key)) if key.startswith(PREFIX) else None

    def find_id(self, key_id: str) -> StoredKey | None:
        """Return a valid key by its id."""
        self._refresh()
        return next((one for one in self._by_hash.values() if one.id == key_id), None)

    def add(self, tenant: str) -> tuple[StoredKey, str]:
        """Create a key for a tenant; return its record and the key, which is shown only once."""
        if not _TENANT.fullmatch(tenant):
            raise ConfigError(
                "a tenant is up to 64 of a-z 0-9 _ . - and begins with a letter or a digit, not {tenant!r}",
                tenant=tenant[:40],
            )
        key = PREFIX + secrets.token_urlsafe(32)
        hashed = hash_key(key)
        stored = StoredKey(f"k-{hashed[:_ID_CHARS]}", tenant, hashed, round(time.time(), 3))
        with self._locked():
            keys = self.list_keys()
            if len(keys) >= KEYS_MAX:
                raise ConfigError("there are {keys_max} keys; revoke some", keys_max=KEYS_MAX)
            self._write([*keys, stored])
        return stored, key

    def list_keys(self) -> Sequence[StoredKey]:
        """Return every valid key, oldest first."""
        return _read_keys(self.path)

    def revoke(self, key_id: str) -> list[StoredKey]:
        """Revoke a key by its id, or all of a tenant; return what was revoked."""
        with self._locked():
            keys = self.list_keys()
            gone = [key for key in keys if key_id in (key.id, key.tenant)]
            if not gone:
                raise ConfigError(
                    "there is no key or tenant {key_id!r}; 'refold key list' shows them", key_id=key_id[:40]
                )
            self._write([key for key in keys if key not in gone])
        return gone

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            make_folder(self.path.parent)
        except OSError as error:
            raise ConfigError(
                "{parent} cannot be created: {why}", parent=self.path.parent, why=error.strerror or error
            ) from None
        with lock_folder(self.path.parent):
            yield

    def _write(self, keys: Sequence[StoredKey]) -> None:
        text = json.dumps({"version": 1, "keys": [asdict(key) for key in keys]}, indent=1)
        try:
            write_whole(self.path, text.encode())
        except OSError as error:
            raise ConfigError("{path} cannot be written: {why}", path=self.path, why=error.strerror or error) from None
        self._looked_at = 0.0

    def _refresh(self) -> None:
        now = time.monotonic()
        if self._looked_at and now - self._looked_at < _LOOK_AGAIN_S:
            return
        self._looked_at = now
        try:
            status = self.path.stat()
        except FileNotFoundError:
            # If the file disappears while we run, keys are still required.
            self._by_hash, self._seen = {}, None
            return
        except OSError:
            self._by_hash, self._is_required, self._seen = {}, True, None
            return
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen == self._seen:
            return
        self._seen, self._is_required = seen, True
        try:
            self._by_hash = {key.hash: key for key in _read_keys(self.path)}
        except ConfigError:
            self._by_hash = {}


def contains_key(text: bytes) -> bool:
    """Return whether a text contains a gateway key, also percent-encoded (even twice) or in another case."""
    for _ in range(_ENCODINGS_MAX):
        if b"%" not in text:
            break
        text = unquote_to_bytes(text)
    return b"rk-" in text.lower() and _KEY.search(text) is not None


def hide_keys(query: bytes) -> bytes:
    """Return a query without the parameters that contain a gateway key."""
    if not contains_key(query):
        return query
    return b"&".join(one for one in query.split(b"&") if not contains_key(one))


def hash_key(key: str) -> str:
    """Return the hash that is stored for a key."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _read_keys(path: Path) -> list[StoredKey]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return [
            StoredKey(str(one["id"]), str(one["tenant"]), str(one["hash"]), float(one["created_at"]))
            for one in stored["keys"]
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "cannot read the key file {path} ({kind}); repair it, or delete it and run 'refold key add'",
            path=path,
            kind=type(error).__name__,
        ) from None


class StorageFull(RefoldError):
    """The tenant has stored as many bytes as it may."""

    http_status = 507


class TenantStorage:
    """Bytes that each tenant has stored, measured now and then and estimated in between. For one event loop."""

    def __init__(self, ledger: Ledger, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._ledger = ledger
        self._known: dict[str, tuple[float, int]] = {}

    async def is_full(self, tenant: str, more: int) -> bool:
        """Return whether a tenant has reached its limit; ``more`` bytes are about to be stored."""
        if not self.bytes_max or not tenant:
            return False
        measured_at, stored = self._known.get(tenant, (0.0, self.bytes_max))
        age = time.monotonic() - measured_at
        if age > MEASURE_S or (stored >= self.bytes_max and age > MEASURE_AGAIN_S):
            measured_at, stored = time.monotonic(), await asyncio.to_thread(self.measure, tenant)
        is_full = stored >= self.bytes_max
        self._known[tenant] = measured_at, stored + (0 if is_full else more)
        while len(self._known) > TENANTS_MAX:
            del self._known[next(iter(self._known))]
        return is_full

    def measure(self, tenant: str) -> int:
        """Return the bytes that a tenant has stored. Blocks."""
        return self._ledger.measure(make_id(tenant, ""))

    def check(self, tenant: str, more: int = 1) -> None:
        """Raise StorageFull if ``more`` bytes would exceed a tenant's limit. Blocks."""
        if self.bytes_max and tenant and self.measure(tenant) + more > self.bytes_max:
            raise StorageFull(f"this tenant has stored its limit of {self.bytes_max:,} bytes; delete sessions")
