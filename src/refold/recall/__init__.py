"""Recall: find anything that left the view, page through it, know what was decided. Heavy parts load when used."""

from refold.recall.facade import Recall, index_path
from refold.recall.options import EmbeddingOptions, RecallOptions
from refold.recall.search import Recalled

__all__ = ["EmbeddingOptions", "Recall", "RecallOptions", "Recalled", "index_path"]
