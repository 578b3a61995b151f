"""Reads an answer while it passes, whatever bytes it is cut at; never changes or delays one of them.

Events may be split anywhere, also inside a character; a body may be compressed. What cannot be read, or is larger than
the limit, is given up silently: reading is for figures only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from refold.server.request import CodingError, make_decoder
from refold.server.wires import Answered

BYTES_MAX = 16_000_000
ReadPayload = Callable[[Mapping[str, Any], Answered], None]
# Only events that can hold figures are parsed.
_WORDS = (b'"usage"', b'_reason"', b'"error"')


class AnswerReader:
    """Takes in the bytes of one answer and keeps what it says of usage."""

    def __init__(self, read_payload: ReadPayload, content_type: str = "", coding: str = "") -> None:
        self.answered = Answered()
        self._read_payload = read_payload
        self._is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self.is_finished = False
        self._decoder = make_decoder(coding)
        self._is_given_up = self._decoder is None and coding.strip().lower() not in ("", "identity")
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes."""
        if self._is_given_up:
            return
        if self._decoder is not None:
            try:
                chunk = self._decoder.decompress(chunk, BYTES_MAX)
            except CodingError:
                self._give_up()
                return
        self._rest += chunk
        if self._is_stream and (b"\n" in chunk or b"\r" in chunk):
            self._read_lines()
        if len(self._rest) > BYTES_MAX:
            self._give_up()

    def finish(self) -> Answered:
        """Return what was read, the end of the answer included."""
        if not self._is_given_up and self._rest:
            if self._is_stream:
                self._read_line(bytes(self._rest))
            else:
                self._read_json(bytes(self._rest))
        self._give_up()
        self.is_finished = True
        return self.answered

    def _give_up(self) -> None:
        self._is_given_up = True
        self._rest.clear()

    def _read_lines(self) -> None:
        end = max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r")) + 1
        if not end:
            return
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        # An event without our words is the common case: one search, no split.
        if any(word in whole for word in _WORDS):
            for line in whole.splitlines():
                self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"data:") and any(word in line for word in _WORDS):
            self._read_json(line[5:])

    def _read_json(self, text: bytes) -> None:
        try:
            payload = orjson.loads(text)
        except orjson.JSONDecodeError:
            return
        if isinstance(payload, dict):
            self._read_payload(payload, self.answered)
