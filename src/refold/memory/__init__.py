"""What people read of past sessions: daily pages and the folder of summaries. The ledger stays the truth."""

from refold.memory.compression_folder import CompressionFolder, ContextSummary
from refold.memory.daily import MarkdownSync

__all__ = ["CompressionFolder", "ContextSummary", "MarkdownSync"]
