"""Token counts, exact or estimated with a margin, and a table of models. Pure and offline."""

from refold.tokens.counter import Calibration, Counter, TokenCounter, counter_for
from refold.tokens.models import CacheRules, ModelInfo, model_info

__all__ = [
    "CacheRules",
    "Calibration",
    "Counter",
    "ModelInfo",
    "TokenCounter",
    "counter_for",
    "model_info",
]
