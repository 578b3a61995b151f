"""Compressed bodies: which codings can be read here, and how. What is in another one passes through unread."""

from __future__ import annotations

import zlib
from typing import Protocol

CODINGS = ("gzip", "x-gzip", "deflate")


class Decoder(Protocol):
    """Takes in compressed bytes, some at a time."""

    @property
    def eof(self) -> bool:
        """True once the end was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What came after the end."""
        ...

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        """Return what these bytes hold, at most so many; zlib.error if they are none of its coding."""
        ...


def make_decoder(coding: str) -> Decoder | None:
    """Return what reads a coding, as a header names it; None for one that cannot be read here."""
    named = coding.strip().lower()
    if named not in CODINGS:
        return None
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | (16 if "gzip" in named else 0))
