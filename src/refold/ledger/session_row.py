"""The row of a session, the same in every store: its columns, what they mean, what may change in them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refold.conversation.format import Format
from refold.errors import FormatError, LedgerError
from refold.formats import make_format
from refold.ledger.encode import load_json
from refold.ledger.records import SESSION_ID_MAX, Extension, SessionRow

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


def check_id(session_id: str) -> None:
    """Refuse an id that is empty or too long; else any text is one."""
    if not 1 <= len(session_id) <= SESSION_ID_MAX:
        raise FormatError(f"a session id has 1 to {SESSION_ID_MAX} characters, this one has {len(session_id)}")


def change_row(row: SessionRow, changes: Mapping[str, object]) -> SessionRow:
    """Return the row with wire and model set, and settings merged key by key; None takes a setting away."""
    unknown = set(changes) - {"wire", "model", "settings"}
    if unknown:
        raise ValueError(f"a session has no {', '.join(sorted(unknown))}; it has wire, model and settings")
    patch = changes.get("settings", {})
    if not isinstance(patch, Mapping):
        raise ValueError("settings is a mapping of the keys that change")
    kept = merge_settings(row.settings, patch)
    wire, model = changes.get("wire", row.wire), changes.get("model", row.model)
    return replace(row, wire=str(wire), model=str(model), settings=kept)


def merge_settings(settings: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return settings with some of them changed; None takes one away."""
    return {name: value for name, value in {**settings, **changes}.items() if value is not None}


def extend_row(row: SessionRow, extension: Extension) -> SessionRow:
    """Return a row after one more request: one rule for what is held in memory and what is stored."""
    messages = extension.messages
    return SessionRow(
        row.id,
        row.created_at,
        extension.now,
        row.wire,
        row.model,
        row.messages + len(messages),
        row.tokens + sum(message.tokens for message in messages),
        row.compression_count,
        row.path_version + bool(messages),
        row.edits_version,
        merge_settings(row.settings, extension.settings) if extension.settings else row.settings,
    )


def format_of(row: SessionRow) -> Format:
    """Return the format that a session's messages are in; of one that has none yet, the one most clients write."""
    return make_format(row.wire or "openai-chat")


def is_as_seen(row: SessionRow, seen: SessionRow) -> bool:
    """Tell whether messages, edits, format and model are those that somebody saw."""
    return (row.path_version, row.edits_version, row.wire, row.model) == (
        seen.path_version,
        seen.edits_version,
        seen.wire,
        seen.model,
    )
