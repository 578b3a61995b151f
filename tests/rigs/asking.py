"""Asking a model without an event loop, as a summariser does."""

from typing import Any

from refold.llm.errors import RetryLimits
from refold.llm.summariser import LIMITS, answer_async, wait_for_reply
from refold.stages.stage import Ask, Reply


def answer_sync(ask: Ask, model: Any, *, limits: RetryLimits = LIMITS) -> Reply:
    return wait_for_reply(answer_async(ask, model, limits=limits), limits.timeout_s)
