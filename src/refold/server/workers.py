"""Several processes for one gateway: a session's connections go to the process that has it in memory.

The first process listens, looks at the beginning of each connection and hands it over; it reads nothing, so nothing is
parsed twice. All processes use one ledger: a connection in the wrong process is answered as well, only more slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import re
import signal
import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from refold.errors import ConfigError
from refold.server.app import PAGE_PREFIX, Application
from refold.server.beacon import PATH as RUNS
from refold.server.beacon import Beacon
from refold.server.serve import BACKLOG, make_server, tune_process
from refold.server.session_lookup import CONVERSATION_HEADERS

PEEK_BYTES = 65_536
# How long a connection may be silent, and how long it may take from its first byte on to say whose it is.
IDLE_S, PEEK_S, STEP_S = 5.0, 0.1, 0.005
RESTART_S = 1.0
_HEADERS = re.compile(
    rb"\r\n(?:x-refold-session|%s):[ \t]*([^\r\n]+)" % b"|".join(map(re.escape, CONVERSATION_HEADERS)), re.I
)
_RUN = re.compile(rb"\A\w+ (%s/[0-9a-f]{8,32})" % re.escape(RUNS.encode()))
_OWN = re.compile(rb"\A\w+ /(?:%s|api/|metrics|[ ?])" % re.escape(PAGE_PREFIX.encode()[1:]))
# The first text of a person: the first string after the first role of a user, or after ``input``.
_USER = re.compile(rb'"user"|"input"\s*:\s*(?=")')
_STRING = re.compile(rb'"((?:[^"\\]|\\.){0,200})("?)')
_NAMES = frozenset((b"content", b"role", b"type", b"text", b"input_text"))
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.I)


def find_route(seen: bytes) -> bytes | None:
    """Return what decides about a connection, by the beginning of its first request; None if more has to be seen.

    The page and the interface have one route, b"". A client that names no conversation is known by the first
    words of its person.
    """
    head, end, body = seen.partition(b"\r\n\r\n")
    if not end:
        return None
    if _OWN.match(head):
        return b""
    if found := _RUN.match(head) or _HEADERS.search(head):
        return found[1]
    user = _USER.search(body)
    if user is not None:
        strings = _STRING.finditer(body, user.end())
        text = next((one for one in strings if one[1] not in _NAMES), None)
        if text is not None and (text[2] or text.end() < len(body)):  # Otherwise the rest of it has not come yet.
            return text[1]
    length = _LENGTH.search(head)
    return None if length is not None and len(body) < int(length[1]) else head[:200]


@dataclass(slots=True)
class _Worker:
    """One process, and the socket through which connections are handed to it."""

    process: BaseProcess
    channel: socket.socket


class Workers:
    """The processes of one gateway. ``make`` returns their application and is called in each of them."""

    def __init__(self, make: Callable[[], Application], count: int, beacon: Beacon) -> None:
        self._make = make
        self._count = count
        self._beacon = beacon
        self._workers: list[_Worker] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, bound: socket.socket, shutdown_s: float) -> None:
        """Serve until SIGINT or SIGTERM; requests in progress are finished first."""
        try:
            self._workers = [self._start() for _ in range(self._count)]
            asyncio.run(self._accept(bound))
        finally:
            for worker in self._workers:
                worker.channel.close()  # The process ends when it has answered everything.
            for worker in self._workers:
                worker.process.join(shutdown_s + 10)
                worker.process.kill()

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = socket.socketpair()
        process = context.Process(target=_work, args=(self._make, theirs, self._beacon), daemon=True)
        process.start()
        theirs.close()
        ours.setblocking(False)
        return _Worker(process, ours)

    async def _accept(self, bound: socket.socket) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        for worker in self._workers:
            if not await loop.sock_recv(worker.channel, 1):
                raise ConfigError("a process of the gateway did not start; its log says why")
        bound.listen(BACKLOG)
        bound.setblocking(False)
        loop.add_reader(bound, self._take, bound)
        keeping = asyncio.create_task(self._keep_running())
        await stopped.wait()
        keeping.cancel()
        loop.remove_reader(bound)

    def _take(self, bound: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = bound.accept()
            task = asyncio.ensure_future(self._hand_over(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, connection: socket.socket) -> None:
        """Give a connection to the process that its first request belongs to; if that one is gone, to another."""
        with connection:
            connection.setblocking(False)
            at = zlib.crc32(await _look(connection)) % self._count
            for worker in (*self._workers[at:], *self._workers[:at]):
                with contextlib.suppress(OSError):
                    socket.send_fds(worker.channel, [b"c"], [connection.fileno()])
                    return

    async def _keep_running(self) -> None:
        """Start a process that has ended again."""
        while True:
            await asyncio.sleep(RESTART_S)
            for at, worker in enumerate(self._workers):
                if not worker.process.is_alive():
                    worker.channel.close()
                    self._workers[at] = self._start()


async def _look(connection: socket.socket) -> bytes:
    """Return the route of a connection; that of the page if it does not say whose it is in time."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        async with asyncio.timeout(IDLE_S):
            await readable.wait()
    except TimeoutError:
        return b""
    finally:
        loop.remove_reader(connection)
    until = loop.time() + PEEK_S
    while loop.time() < until:
        try:
            seen = connection.recv(PEEK_BYTES, socket.MSG_PEEK)
        except OSError:
            return b""
        route = find_route(seen)
        if route is not None or not seen or len(seen) == PEEK_BYTES:
            return route or b""
        await asyncio.sleep(STEP_S)
    return b""


def _work(make: Callable[[], Application], channel: socket.socket, beacon: Beacon) -> None:
    """Serve the connections that come through a socket, until its other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The first process decides when to end.
    application = make()
    application.follow(beacon)
    server = make_server(application, channel)
    tune_process()
    server.run(sockets=[])
