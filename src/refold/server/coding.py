"""Compressed bodies: which content codings can be read, and how. A body in any other coding passes through unread.

Every decoder stops at a limit, so that a small body cannot become a large one.
"""

from __future__ import annotations

import sys
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd")


class CodingError(Exception):
    """The bytes are not in the coding that they claim."""


class Decoder(Protocol):
    """Reads compressed bytes, some at a time."""

    @property
    def eof(self) -> bool:
        """True once the end was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What came after the end."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return what these bytes hold, not much more than ``max_length``; raise CodingError if they are malformed."""
        ...


def make_decoder(coding: str) -> Decoder | None:
    """Return the decoder of a coding as a header names it; None for one that cannot be read here."""
    named = coding.strip().lower()
    if named in ("gzip", "x-gzip"):
        return _Stream(zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), zlib.error)
    if named == "deflate":
        return _Stream(zlib.decompressobj(wbits=zlib.MAX_WBITS), zlib.error)
    if named == "zstd":
        # The standard library has it since 3.14.
        zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        return _Stream(zstd.ZstdDecompressor(), (zstd.ZstdError, EOFError))
    return _Brotli() if named == "br" else None


class _Stream:
    """A decoder with the interface of the standard library's."""

    def __init__(self, decoder: Any, errors: type[Exception] | tuple[type[Exception], ...]) -> None:
        self._decoder = decoder
        self._errors = errors

    @property
    def eof(self) -> bool:
        return bool(self._decoder.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decoder.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            return bytes(self._decoder.decompress(data, max_length))
        except self._errors as error:
            raise CodingError(type(error).__name__) from None


class _Brotli:
    """Brotli's decoder, which takes a limit as advice and says nothing about what follows the end."""

    unused_data = b""

    def __init__(self) -> None:
        import brotli  # type: ignore[import-untyped]

        self._decoder = brotli.Decompressor()
        self._error: type[Exception] = brotli.error
        self._process: Callable[..., bytes] = self._decoder.process

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            made = bytearray(self._process(data, output_buffer_limit=max_length))
            while len(made) < max_length and not self._decoder.can_accept_more_data():
                made += self._process(b"", output_buffer_limit=max_length - len(made))
        except self._error as error:
            raise CodingError(type(error).__name__) from None
        return bytes(made)
