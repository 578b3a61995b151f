"""A session's row after one more request, computed where it is not read: one rule for memory and store. Pure."""

from __future__ import annotations

from refold.ledger.ledger import Extension, SessionRow


def extend_row(row: SessionRow, extension: Extension) -> SessionRow:
    """Return a row with what an extension adds to it."""
    settings = row.settings
    if extension.settings:
        merged = {**settings, **extension.settings}
        settings = {name: value for name, value in merged.items() if value is not None}
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
        settings,
    )
