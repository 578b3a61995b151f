"""Recall: find anything that left the view, page through it, know what was decided. Everything loads when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.ledger.port import index_path
    from refold.recall.options import EmbeddingService, RecallOptions
    from refold.recall.recall import Recall
    from refold.recall.search import Recalled

__all__ = ["EmbeddingService", "Recall", "RecallOptions", "Recalled", "index_path"]

_HOMES = {
    "EmbeddingService": "refold.recall.options",
    "Recall": "refold.recall.recall",
    "RecallOptions": "refold.recall.options",
    "Recalled": "refold.recall.search",
    "index_path": "refold.ledger.port",
}

if not TYPE_CHECKING:  # Otherwise a type checker would accept any name.

    def __getattr__(name: str) -> object:
        """Import a public name on first use: settings need no database."""
        if name not in _HOMES:
            raise AttributeError(f"module 'refold.recall' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
