"""The summary without a model: user words, rules, facts, what was done, and the index of exact values.

Rules only, no network, no model, no clock. Everything it writes is verbatim from the source or inside the frame.
"""

from refold.stages.extract.index import Index, find_artifacts, merge_artifacts, rank, write_index
from refold.stages.extract.summary import Extract, ExtractOptions, extract_summary

__all__ = [
    "Extract",
    "ExtractOptions",
    "Index",
    "extract_summary",
    "find_artifacts",
    "merge_artifacts",
    "rank",
    "write_index",
]
