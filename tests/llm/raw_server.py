"""A server that sends whatever bytes a test hands it, as slowly or as endlessly as it likes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Pieces = Callable[[], Iterator[bytes]]
BYTES_MAX = 400_000_000  # Whoever reads this much has no limit.


@contextmanager
def serve_bytes(pieces: Pieces, *, status: str = "200 OK", headers: tuple[str, ...] = ()) -> Iterator[str]:
    """Answer every request with a head and these pieces; give the address. The connection's end is the body's end."""
    listener = socket.create_server(("127.0.0.1", 0))
    head = "\r\n".join((f"HTTP/1.1 {status}", *headers, "connection: close", "", "")).encode()

    def answer(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _read_request(client)
            client.sendall(head)
            sent = 0
            for piece in pieces():
                client.sendall(piece)
                sent += len(piece)
                if sent > BYTES_MAX:
                    return

    def listen() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=answer, args=(client,), daemon=True).start()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def _read_request(client: socket.socket) -> None:
    """Read a request to its end, so that closing does not look like a reset."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += client.recv(65_536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += client.recv(65_536)


def write_openai(text: str) -> bytes:
    """Return a streamed completion that says a text in one event."""
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said = {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]}
    ended = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = [f"data: {json.dumps(one, ensure_ascii=False)}\n\n" for one in (said, ended)]
    return "".join([*events, "data: [DONE]\n\n"]).encode()


def write_anthropic(text: str) -> bytes:
    """Return a streamed message that says a text in one event."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n" for one in events).encode()
