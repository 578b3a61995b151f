"""A wire that breaks: a proxy on loopback that cuts a connection after so many bytes, once, in one direction.

What a network, a balancer or a server's crash does to a client, at every place of a conversation with the server.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType


class CuttingProxy:
    """Passes bytes on between a client and a port; once armed, it hangs up on both after so many more of them."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._left: dict[str, int | None] = {"up": None, "down": None}
        self._guard = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port = int(self._listener.getsockname()[1])
        self.passed = {"up": 0, "down": 0}
        self.has_cut = False
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._listener.close()
        for one in self._open:
            one.close()

    def arm(self, way: str, after: int) -> None:
        """Cut the connection ``after`` more bytes, "up" to the server or "down" from it, the last of them passed on."""
        with self._guard:
            self._left[way] = after
            self.has_cut = False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for source, target, way in ((client, server, "up"), (server, client, "down")):
                    threading.Thread(target=self._pass, args=(source, target, way), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65_536):
                with self._guard:
                    self.passed[way] += len(content)
                    left = self._left[way]
                    cuts = left is not None and not self.has_cut and len(content) >= left
                    if left is not None:
                        self._left[way] = left - len(content)
                    self.has_cut = self.has_cut or cuts
                if cuts:
                    target.sendall(content[:left])
                    break
                target.sendall(content)
        for one in (source, target):
            with contextlib.suppress(OSError):
                # Hang up at once, as a crash does, without waiting for what is still on its way.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)
