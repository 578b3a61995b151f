"""The shell tool: runs a command after approval, bounded in time and output, and reports its exit status.

The command gets its own process group, so that its children end with it. Of its output only head and tail are kept.
It sees an allow-list of environment variables, so the model cannot read keys. A shell is not confined to the
workspace, which is why every command needs approval.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from refold.agent.builtin.workspace import Workspace
from refold.agent.tools import Tool, make_tool
from refold.config.load import copy_environment

HEAD_BYTES = 20_000
TAIL_BYTES = 60_000
TIMEOUT_S = 120.0
TIMEOUT_S_MAX = 900.0
_ROUNDS_MAX = 100
_DRAIN_S = 2.0
ALLOWED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "VIRTUAL_ENV"),
        *("LANG", "LANGUAGE", "TZ"),
        *("SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP"),
    )
)


class Kept:
    """The first and the last bytes of a stream, and how many there were."""

    def __init__(self, head_max: int = HEAD_BYTES, tail_max: int = TAIL_BYTES) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0
        self._head_max, self._tail_max = head_max, tail_max

    def add(self, piece: bytes) -> None:
        """Add output; the middle is dropped once it is too long."""
        self.total += len(piece)
        room = self._head_max - len(self.head)
        self.head += piece[:room]
        self.tail += piece[room:] if room < len(piece) else b""
        if len(self.tail) > 2 * self._tail_max:
            del self.tail[: -self._tail_max]

    def read(self) -> str:
        """Return head and tail with a line that states the number of missing bytes."""
        tail = bytes(self.tail[-self._tail_max :])
        missing = self.total - len(self.head) - len(tail)
        head = bytes(self.head).decode("utf-8", "replace")
        if not missing:
            return (bytes(self.head) + tail).decode("utf-8", "replace")
        return f"{head}\n... [truncated {missing} bytes] ...\n{tail.decode('utf-8', 'replace')}"


def make_run_command(workspace: Workspace) -> Tool:
    """Return the tool that runs commands."""

    async def run_command(command: str, timeout_s: float = TIMEOUT_S) -> str:
        """Run a shell command in the workspace; the user is asked first. The answer ends with the exit status.

        Args:
            command: what to run
            timeout_s: seconds after which it is stopped
        """
        limit = max(0.1, min(TIMEOUT_S_MAX, timeout_s))
        kept = Kept()
        process, output = await _start(command, str(workspace.root))
        reading = asyncio.ensure_future(_drain(output, kept))
        ending = ""
        try:
            async with asyncio.timeout(limit):
                await process.wait()
            ending = f"[exit status {process.returncode}]"
        except TimeoutError:
            ending = f"[stopped after {limit:g} s]"
        finally:
            _end_group(process.pid)
            # A child that left the group may hold the pipe open; its further output is ignored.
            await asyncio.wait({reading}, timeout=_DRAIN_S)
            reading.cancel()
            await output.close()
            with contextlib.suppress(asyncio.CancelledError):
                await process.wait()
        said = kept.read().rstrip("\n")
        return f"{said}\n{ending}" if said else ending

    return make_tool(run_command, asks=True, timeout_s=TIMEOUT_S_MAX + 10 * _DRAIN_S)


@dataclass(frozen=True, slots=True)
class _Output:
    """The read end of a command's output pipe."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport
    file: io.FileIO

    async def close(self) -> None:
        """Close the pipe at once: the transport alone would close it in a later loop iteration, if any."""
        self.transport.close()
        for _ in range(_ROUNDS_MAX):
            if self.file.closed:
                return
            await asyncio.sleep(0)


async def _start(command: str, folder: str) -> tuple[asyncio.subprocess.Process, _Output]:
    """Start a command that prints to our own pipe.

    With asyncio's pipe, waiting for the command would also wait for every child that holds the pipe.
    """
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    file = io.FileIO(ours, "rb")
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=folder,
            env=choose_variables(copy_environment()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except BaseException:
        transport.close()
        raise
    finally:
        os.close(theirs)
    return process, _Output(reader, transport, file)


def choose_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables on the allow-list."""
    return {name: text for name, text in environment.items() if name in ALLOWED or name.startswith("LC_")}


async def _drain(output: _Output, kept: Kept) -> None:
    while piece := await output.reader.read(65_536):
        kept.add(piece)


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
