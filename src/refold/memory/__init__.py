"""What people read about past sessions: daily pages and a folder of summaries. The ledger is authoritative."""

from refold.memory.compression_folder import CompressionFolder, ContextSummary
from refold.memory.daily import MarkdownSync

__all__ = ["CompressionFolder", "ContextSummary", "MarkdownSync"]
