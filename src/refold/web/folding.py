"""Unfold and fold again, one fold at a time (S3.6, S3.10)."""

from __future__ import annotations

from refold.manager.undo import Switched
from refold.server.api.interface import Access


def unfold(access: Access, name: str, edit_id: str) -> Switched:
    """Take one fold back, with all that was made from it; the originals are in view again."""
    row = access.need(name)
    return access.manager.undo(row.id, edit_id)


def refold(access: Access, name: str, edit_id: str) -> Switched:
    """Put a fold that was undone in force again."""
    row = access.need(name)
    return access.manager.redo(row.id, edit_id)
