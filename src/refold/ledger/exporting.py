"""A whole session as one JSON value: all that belongs to it, in an order that only its content decides. Pure.

Two ledgers that hold the same session tell the same bytes, whatever store they are; that is how a copy is proved.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from refold.ledger.encode import encode_edit, load_json
from refold.ledger.records import StoredEdit, StoredMessage, Whole

MARK = "refold_session"
VERSION = 2


def tell_whole(whole: Whole) -> dict[str, object]:
    """Return all of a session as plain values; a forgotten message has ``null`` for its content."""
    return {
        MARK: VERSION,
        "id": whole.row.id,
        "wire": whole.row.wire,
        "model": whole.row.model,
        "settings": dict(whole.row.settings),
        "created_at": whole.row.created_at,
        "messages": [_tell_message(message) for message in whole.messages],
        "path": list(whole.path),
        "edits": [_tell_edit(one) for one in whole.edits],
        "batches": [
            {
                "id": batch.id,
                "reason": batch.reason.to_json(),
                "tokens_before": batch.tokens_before,
                "tokens_after": batch.tokens_after,
                "created_at": batch.created_at,
            }
            for batch in whole.batches
        ],
        "facts": [
            {
                "kind": one.fact.kind,
                "text": one.fact.text,
                "handle": one.fact.handle,
                "batch": one.batch_id,
                "created_at": one.created_at,
            }
            for one in whole.facts
        ],
        "events": [
            {"kind": event.kind, "created_at": event.created_at, "fields": dict(event.fields)} for event in whole.events
        ],
        "usage": [asdict(usage) for usage in whole.usages],
    }


def _tell_message(message: StoredMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "parent": message.parent,
        "digest": message.digest,
        "role": message.role,
        "raw": None if message.is_forgotten else load_json(message.raw),
        "tokens": message.tokens,
        "created_at": message.created_at,
    }


def _tell_edit(one: StoredEdit) -> dict[str, Any]:
    return {
        "id": one.edit.id,
        "covers": list(one.edit.covers),
        "batch": one.batch_id,
        "is_active": one.is_active,
        "created_at": one.created_at,
        "edit": load_json(encode_edit(one.edit)),
    }
