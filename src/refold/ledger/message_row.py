"""A stored message and the ids of one, the same in every store: hex outside, bytes in a column. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from refold.conversation.message import chain_id
from refold.ledger.checks import checksum
from refold.ledger.covering import is_within
from refold.ledger.records import StoredMessage
from refold.ledger.runs import Span

_DIGEST_HEX = 32


def read_message(row: Sequence[Any], folded: Sequence[Span], decode: Callable[[Any], str] = str) -> StoredMessage:
    """Return what was selected: seq, id, parent, digest, role, tokens, created_at, body (None: forgotten)."""
    seq, message_id, parent, digest, role, tokens, created_at, body = row
    return StoredMessage(
        id=message_id.hex(),
        parent=parent.hex(),
        digest=digest.hex(),
        role=decode(role),  # type: ignore[arg-type]
        raw=body or b"",
        tokens=tokens,
        created_at=created_at,
        is_compressed=is_within(seq, folded),
        is_forgotten=body is None,
        seq=seq,
    )


def write_content(message: StoredMessage) -> tuple[bytes | None, bytes | None]:
    """Return body and checksum as they are stored: both None for a forgotten message."""
    if message.is_forgotten:
        return None, None
    return message.raw, checksum(bytes.fromhex(message.digest), message.raw)


def check_chain(messages: Iterable[StoredMessage]) -> None:
    """Refuse a message whose id does not follow from its parent and its digest."""
    for message in messages:
        if message.id != chain_id(message.parent, message.digest):
            raise ValueError(f"message {message.id!r} is not chained to its parent and its digest")


def from_hex(text: str) -> bytes:
    """Return an id as bytes; empty, which no message has, if it is none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def find_digests(prefix: str) -> tuple[bytes, bytes] | None:
    """Return the least and the greatest digest that begin with these hex digits; None if they are none."""
    low, high = from_hex(prefix.ljust(_DIGEST_HEX, "0")), from_hex(prefix.ljust(_DIGEST_HEX, "f"))
    return (low, high) if low and high else None
