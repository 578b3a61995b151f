"""Handles: the short stable names that placeholders carry and that ``expand`` accepts.

A handle is a prefix of a content hash, never a position: ``⟨m:4f2a91c3⟩`` is a message,
``⟨m:4f2a91c3.2⟩`` its third part, ``⟨f:09c1b2aa⟩`` the span behind a fold. The same content has the
same handle in every fork. Text of a conversation may look like a handle; only lookup decides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from refold.conversation.message import Message

DIGITS = 8
_HANDLE = re.compile(r"[mf]:[0-9a-f]{4,32}(?:\.\d{1,5})?")
_MARK = re.compile(f"⟨({_HANDLE.pattern})⟩")


def message_handle(message: Message, part: int | None = None) -> str:
    """Return the handle of a message, or of one of its parts when it has several."""
    handle = f"m:{message.digest[:DIGITS]}"
    return handle if part is None or len(message.parts) == 1 else f"{handle}.{part}"


def fold_handle(messages: Iterable[Message]) -> str:
    """Return the handle of the span that these messages make."""
    hasher = hashlib.blake2b(digest_size=16)
    for message in messages:
        hasher.update(message.digest.encode())
    return f"f:{hasher.hexdigest()[:DIGITS]}"


def mark(handle: str) -> str:
    """Return a handle as it stands in a placeholder."""
    return f"⟨{handle}⟩"


def find_marks(text: str) -> list[str]:
    """Return every handle that is marked in a text, in order."""
    return _MARK.findall(text)


def read_handle(text: str) -> str | None:
    """Return the handle in what a person or a model typed, with or without its brackets; None if it is none."""
    stripped = text.strip().strip("⟨⟩<>[]() ").lower()
    return stripped if _HANDLE.fullmatch(stripped) else None
