"""How large things are: exact counts, estimates with a margin, and what is known about models. Pure and offline."""

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
