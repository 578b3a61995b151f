"""Runs a command in the workspace: asked for first, bounded in time and output, with its exit status.

The command gets a process group of its own, so that all it started ends with it. What it prints is drained as it comes:
head and tail are kept, whatever its size. A shell is not confined to the workspace; that is why a person is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from refold.agent.tools import Tool, make_tool
from refold.agent.workspace import Workspace

HEAD_BYTES = 20_000
TAIL_BYTES = 60_000
TIMEOUT_S = 120.0
TIMEOUT_S_MAX = 900.0
_DRAIN_S = 2.0


class Kept:
    """The first and the last bytes of a stream, and how many there were."""

    def __init__(self, head_max: int = HEAD_BYTES, tail_max: int = TAIL_BYTES) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0
        self._head_max, self._tail_max = head_max, tail_max

    def add(self, piece: bytes) -> None:
        """Take what came; the middle of what is too long goes."""
        self.total += len(piece)
        room = self._head_max - len(self.head)
        self.head += piece[:room]
        self.tail += piece[room:] if room < len(piece) else b""
        if len(self.tail) > 2 * self._tail_max:
            del self.tail[: -self._tail_max]

    def read(self) -> str:
        """Return what was kept, with a line that says exactly how many bytes are missing."""
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
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=workspace.root,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        kept = Kept()
        reading = asyncio.ensure_future(_drain(process, kept))
        ending = ""
        try:
            async with asyncio.timeout(limit):
                await process.wait()
            ending = f"[exit status {process.returncode}]"
        except TimeoutError:
            ending = f"[stopped after {limit:g} s]"
        finally:
            _end_group(process.pid)
            # A child that left the group may hold the pipe open.
            await asyncio.wait({reading}, timeout=_DRAIN_S)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await process.wait()
        said = kept.read().rstrip("\n")
        return f"{said}\n{ending}" if said else ending

    return make_tool(run_command, asks=True, timeout_s=TIMEOUT_S_MAX + 10 * _DRAIN_S)


async def _drain(process: asyncio.subprocess.Process, kept: Kept) -> None:
    assert process.stdout is not None
    while piece := await process.stdout.read(65_536):
        kept.add(piece)


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
