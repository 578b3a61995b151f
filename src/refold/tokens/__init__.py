"""Token counts, exact or estimated with a margin, and a table of models. Pure and offline."""

from refold.tokens.counter import Calibration, Counter, MessageCounter, TokenCounter, counter_for
from refold.tokens.models import CacheRules, Cliff, ModelInfo, Prices, model_info

__all__ = [
    "CacheRules",
    "Calibration",
    "Cliff",
    "Counter",
    "MessageCounter",
    "ModelInfo",
    "Prices",
    "TokenCounter",
    "counter_for",
    "model_info",
]
