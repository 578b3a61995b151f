"""Language models: the ports, the clients of the providers, and the summariser.

A failed summary is no error: ``answer_async`` and ``answer_sync`` return a Reply that carries the reason. The SDKs are
imported with the first request. Keys appear in no repr, message or log.
"""

from refold.llm.choose import Choice, Endpoint, choose_model, read_endpoint
from refold.llm.errors import RetryLimits
from refold.llm.port import Completion, Model, Usage
from refold.llm.redact import redact_text
from refold.llm.summariser import answer_async, answer_sync

__all__ = [
    "Choice",
    "Completion",
    "Endpoint",
    "Model",
    "RetryLimits",
    "Usage",
    "answer_async",
    "answer_sync",
    "choose_model",
    "read_endpoint",
    "redact_text",
]
