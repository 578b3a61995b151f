"""Fingerprints of a history that is handed in again and again, so that what did not change is not hashed anew.

A stateless client resends everything. One fingerprint over the JSON bytes of some messages in a row costs a fraction
of their canonical hashes. Equal bytes are equal messages; other bytes only mean that the canonical hashes decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import orjson

CHUNK = 64
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class Prints:
    """The fingerprint of every full chunk of the path, as it was last handed in."""

    def __init__(self) -> None:
        self._prints: dict[int, bytes] = {}
        self._seen: dict[int, bytes] = {}

    def digest_all(
        self, raws: Sequence[object], known: Sequence[str], digest: Callable[[object, int], str]
    ) -> list[str]:
        """Return the content hash of every message; ``known`` are those of the path, ``digest`` computes one."""
        digests: list[str] = []
        prints: dict[int, bytes] = {}
        for start in range(0, len(raws), CHUNK):
            chunk = raws[start : start + CHUNK]
            is_full = len(chunk) == CHUNK
            print_now = _print(chunk) if is_full else None
            if print_now is not None:
                prints[start] = print_now
                if self._prints.get(start) == print_now and start + CHUNK <= len(known):
                    digests += known[start : start + CHUNK]
                    continue
            digests += [digest(raw, at) for at, raw in enumerate(chunk, start)]
        self._seen = prints
        return digests

    def settle(self) -> None:
        """Say that what was handed in last is the path now. Before that it could still be refused."""
        self._prints = self._seen


def _print(chunk: Sequence[object]) -> bytes | None:
    try:
        return hashlib.blake2b(orjson.dumps(chunk, option=_OPTIONS), digest_size=16).digest()
    except TypeError:  # Not plain JSON: the canonical form says what it is, or that it is none.
        return None
