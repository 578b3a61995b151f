"""An upstream that plays bytes: whatever status line, headers and chunks a test wants, at whatever pace."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

Play = Callable[[socket.socket], None]


class RawUpstream:
    """Listens on loopback; reads each request whole, records it and lets ``play`` answer on the bare socket."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.requests: list[bytes] = []
        self.open = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.open += 1
        try:
            with connection:
                connection.settimeout(30)
                while (request := read_http(connection)) is not None:
                    with self._lock:
                        self.requests.append(request)
                    self.play(connection)
        except OSError:
            pass
        finally:
            with self._lock:
                self.open -= 1


def read_http(connection: socket.socket) -> bytes | None:
    """Return the bytes of one request, head and body; None if the peer is done."""
    taken = b""
    while b"\r\n\r\n" not in taken:
        piece = connection.recv(65_536)
        if not piece:
            return None
        taken += piece
    head, _, body = taken.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0]):
        piece = connection.recv(1_000_000)
        if not piece:
            return None
        body += piece
    return head + b"\r\n\r\n" + body


def play_chunks(chunks: Sequence[bytes], kind: str = "text/event-stream", pause_s: float = 0.0) -> Play:
    """Return a play that answers 200 with these chunks, each in a write of its own."""

    def play(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for chunk in chunks:
            connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if pause_s:
                time.sleep(pause_s)
        connection.sendall(b"0\r\n\r\n")

    return play


def play_bytes(answer: bytes) -> Play:
    """Return a play that sends an answer unchanged, then closes."""

    def play(connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.05)

    return play


def reset(connection: socket.socket) -> None:
    """Close the connection hard."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
