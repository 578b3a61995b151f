"""Keeps what was read from a text for the next time that the same text is read.

A later fold reads again what an earlier one read, and what a fold needs may be read ahead. A memo is bounded in bytes
and holds no text that is a key, only a hash of it: content that changes, or is forgotten, is never found again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")
Key = tuple[object, ...]
_ENTRY_BYTES = 300


class Memo(Generic[Value]):
    """Values by the text that they were read from; those not used for long are dropped.

    There are two generations, each with half of the bytes: a full one replaces the older one. So threads may share a
    memo without a lock; at worst, two of them read a text that one could have read.
    """

    def __init__(self, bytes_max: int, measure: Callable[[Value], int] = lambda _: 0) -> None:
        self._bytes_max = bytes_max
        self._measure = measure
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}
        self._bytes = 0

    def recall(self, read: Callable[[], Value], text: str, *beside: object) -> Value:
        """Return what ``read`` returns for a text and what it depends on ``beside``, from memory if it is there."""
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
