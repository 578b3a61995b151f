"""Unfold and fold again, one fold at a time (S3.6, S3.10)."""

from __future__ import annotations

from refold.manager.undoing import Switched
from refold.server.interface import Access


def unfold(access: Access, name: str, edit_id: str) -> Switched:
    """Take one fold back, with all that was made from it; the originals are in view again."""
    return access.manager.undo(access.need(name).id, edit_id)


def refold(access: Access, name: str, edit_id: str) -> Switched:
    """Put a fold that was undone in force again."""
    return access.manager.redo(access.need(name).id, edit_id)
