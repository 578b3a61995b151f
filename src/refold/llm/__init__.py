"""Models that write summaries: one port, the official clients behind it, and what may go wrong with them.

A summary is never worth an error: ``answer_async`` and ``answer_sync`` return a Reply, with a reason where there is no
text. The clients' libraries are imported when a question is asked, never before. Keys stand in no repr, message or log.
"""

from refold.llm.answer import answer_async, answer_sync
from refold.llm.choose import Choice, Endpoint, choose_model, read_endpoint
from refold.llm.model import Completion, Model, Usage
from refold.llm.redact import redact_text
from refold.llm.retry import Limits

__all__ = [
    "Choice",
    "Completion",
    "Endpoint",
    "Limits",
    "Model",
    "Usage",
    "answer_async",
    "answer_sync",
    "choose_model",
    "read_endpoint",
    "redact_text",
]
