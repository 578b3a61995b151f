"""The row of a session, the same in every store: its columns, what they mean, what may change in them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from refold.errors import LedgerError
from refold.ledger.codec import load_json
from refold.ledger.records import SessionRow

SELECT = (
    "SELECT key, id, created_at, updated_at, wire, model, message_count, tokens, compression_count, path_version, "
    "edits_version, settings, seq_last FROM session"
)
# Tables that hold rows of a session, by the name of the column that says so.
TABLES = ("path", "cover", "edit", "batch", "fact", "event", "usage", "lease", "message")


@dataclass(frozen=True, slots=True)
class Found:
    """A session with what only the store needs: its key and the number of its newest message."""

    key: int
    seq_last: int
    row: SessionRow


def read_found(row: Sequence[Any], decode: Callable[[Any], str]) -> Found:
    """Return what SELECT gave; ``decode`` reads a text as this store writes it."""
    key, session_id, created_at, updated_at, wire, model, *counts, settings, seq_last = row
    messages, tokens, compressions, path_version, edits_version = counts
    shown = SessionRow(
        id=decode(session_id),
        created_at=created_at,
        updated_at=updated_at,
        wire=decode(wire),
        model=decode(model),
        messages=messages,
        tokens=tokens,
        compression_count=compressions,
        path_version=path_version,
        edits_version=edits_version,
        settings=load_json(settings if isinstance(settings, bytes) else settings.encode()),
    )
    return Found(key, seq_last, shown)


def explain_missing(session_id: str) -> LedgerError:
    """Return the error for a session that somebody wants to change and that is not there (any more)."""
    return LedgerError(f"session {session_id!r} is not in the ledger; it was never opened, or it was deleted")
