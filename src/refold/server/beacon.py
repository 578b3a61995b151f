"""The file by which programs of this user find a workspace's running gateway; it is kept outside the workspace.

A gateway writes it when it starts and removes it when it ends. A killed gateway leaves it behind, and another program
may have the port by then. So ``find_running`` asks the address for a proof that only the writer of the file can give,
for this folder alone. Clients send their provider's keys to that address: anything doubtful counts as no gateway, such
as an address that is not this machine's, a process that has ended, or a file that somebody else could have written.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from refold.config.load import open_user_folder
from refold.config.trust import BEACON_FILE
from refold.errors import ConfigError
from refold.llm.http import request_json
from refold.server.settings import is_local_host

PATH = "/wrap"
ASK_S = 5.0
_ANSWER_BYTES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Beacon:
    """The content of the file. ``secret`` never leaves this machine's files; only proofs made with it do."""

    url: str
    pid: int
    started: float
    secret: str = field(repr=False)

    def prove(self, nonce: str, workspace: str | Path) -> str:
        """Return the proof that a gateway of this workspace gives for a caller's ``nonce``."""
        text = f"{nonce}\n{Path(workspace).resolve()}"
        return hmac.new(self.secret.encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that proved to belong to the workspace. ``needs_key`` is true if it did not accept the caller's key."""

    beacon: Beacon
    needs_key: bool
    described: Mapping[str, Any]


def make_beacon(url: str) -> Beacon:
    """Return the beacon of a gateway in this process."""
    return Beacon(url, os.getpid(), round(time.time(), 3), secrets.token_hex(32))


@contextmanager
def lit(beacon: Beacon, workspace: str | Path) -> Iterator[None]:
    """Keep the beacon's file inside the block; if it cannot be written, the gateway is not found."""
    with suppress(OSError, ConfigError):
        open_user_folder(workspace).write(BEACON_FILE, json.dumps(asdict(beacon)).encode())
    try:
        yield
    finally:
        if read_beacon(workspace) == beacon:  # Otherwise a gateway that was started later has written its own.
            with suppress(OSError, ConfigError):
                (open_user_folder(workspace).folder / BEACON_FILE).unlink()


def read_beacon(workspace: str | Path) -> Beacon | None:
    """Return the beacon of a workspace; None if there is none, it cannot be believed, or its process has ended."""
    try:
        stored = json.loads(open_user_folder(workspace).read(BEACON_FILE) or b"")
        found = Beacon(str(stored["url"]), int(stored["pid"]), float(stored["started"]), str(stored["secret"]))
        is_here = is_local_host(urlsplit(found.url).hostname or "")
    except (ConfigError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return found if is_here and _is_alive(found.pid) else None


def _is_alive(pid: int) -> bool:
    """Return whether a process of this user runs; on Windows, where asking would end it, the proof alone counts."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return pid > 0


def find_running(workspace: str | Path, key: str = "") -> RunningGateway | None:
    """Return the running gateway of a workspace; None if there is none. ``key`` is sent only after the proof."""
    beacon = read_beacon(workspace)
    if beacon is None:
        return None
    nonce = secrets.token_hex(16)
    status, answer = ask_gateway(f"{beacon.url}{PATH}?nonce={nonce}")
    given, wanted = str(answer.get("proof", "")), beacon.prove(nonce, workspace)
    if status not in (200, 401) or not hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
        return None
    if status == 401 and key:
        status, answer = ask_gateway(f"{beacon.url}{PATH}?nonce={nonce}", key)
    return RunningGateway(beacon, status != 200, answer)


def ask_gateway(url: str, key: str = "") -> tuple[int, Mapping[str, Any]]:
    """Return the status and the JSON object that a gateway on this machine answers; 0 if there is no answer."""
    if not url.startswith("http://"):
        return 0, {}
    headers = {"x-refold-key": key} if key else {}
    try:
        status, answer = request_json(url, headers=headers, timeout_s=ASK_S, bytes_max=_ANSWER_BYTES_MAX, is_local=True)
    except (OSError, ValueError):
        return 0, {}
    return status, answer if isinstance(answer, dict) else {}
