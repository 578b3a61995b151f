"""A cache of values that were computed from a text, keyed by a hash of the text.

A later fold analyses texts that an earlier one analysed, and some are analysed ahead of a fold. A memo is bounded in
bytes and holds no text, only hashes: entries of content that changed or was forgotten are never found again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")
Key = tuple[object, ...]
_ENTRY_BYTES = 300


class Memo(Generic[Value]):
    """Values by the text that they were computed from; those not used for long are dropped.

    There are two generations, each with half of the bytes: a full one replaces the older one. So threads may share a
    memo without a lock; at worst, two of them compute the same value.
    """

    def __init__(self, bytes_max: int, measure: Callable[[Value], int] = lambda _: 0) -> None:
        self._bytes_max = bytes_max
        self._measure = measure
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}
        self._bytes = 0

    def recall(self, read: Callable[[], Value], text: str, *beside: object) -> Value:
        """Return the cached value for a text and ``beside``, its other inputs; call ``read`` if there is none."""
        key = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16], *beside)
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is None:
                value = read()
            self._keep(key, value)
        return value

    def _keep(self, key: Key, value: Value) -> None:
        self._young[key] = value
        self._bytes += _ENTRY_BYTES + self._measure(value)
        if self._bytes * 2 > self._bytes_max:
            self._old, self._young, self._bytes = self._young, {}, 0
