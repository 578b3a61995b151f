"""Which exact values will be needed again: evidence of each, and the odds that recorded sessions taught.

``weights.toml`` is written by ``benchmarks/fit_weights.py``, which names the sessions it learned from and how well the
weights do on others. A weight is the logarithm of odds for one unit of a feature; ``describe`` has all features.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from refold.reading.events import FileChange, ReadEvent, Value
from refold.reading.rules import load_weights

# A call with so many values carries a script or a file; only what a short call names was asked for.
SCRIPT_VALUES = 25
# What a person names in the first messages is the task, which stays in view anyway.
TASK_MESSAGES = 3


@dataclass(slots=True)
class SeenValue:
    """The occurrences of a value: in how many messages of each kind, among how many others, and when last."""

    value: Value
    by_person: int = 0
    by_assistant: int = 0
    by_call: int = 0
    times: int = 0
    first_at: int = 0
    last_at: int = 0
    spoken_at: int = -1
    crowd: int = 1_000_000
    is_changed: bool = False


def note_message(seen: dict[str, SeenValue], at: int, events: Sequence[ReadEvent]) -> None:
    """Add what one message shows of its values."""
    values = [event for event in events if isinstance(event, Value)]
    crowds = Counter([(value.part, value.source) for value in values])
    for value in values:
        _note_value(seen, at, value, crowds[value.part, value.source])
    for event in events:
        if isinstance(event, FileChange) and event.path in seen:
            seen[event.path].is_changed = True


def _note_value(seen: dict[str, SeenValue], at: int, event: Value, crowd: int) -> None:
    known = seen.get(event.text)
    if known is None:
        known = seen[event.text] = SeenValue(event, first_at=at)
    # An owner that a record or a person gave is better than none.
    if event.owner and not known.value.owner:
        known.value = event
    known.times += event.times
    known.last_at = at
    if event.source != "result":
        known.spoken_at = at
    known.crowd = min(known.crowd, crowd)
    known.by_person += event.source == "person"
    known.by_assistant += event.source == "assistant"
    known.by_call += event.source == "call" and not (crowd >= SCRIPT_VALUES and event.sort == "identifier")


def describe_text(text: str, sort: str) -> dict[str, float]:
    """Return the features that a value has wherever it occurs: its length, its sort and its spelling."""
    small = float(text.isdecimal() and len(text) < 5)
    features = {"length": math.log2(len(text)), "small number": small, f"sort {sort}": 1.0}
    if sort == "file":
        features |= {"form depth": float(text.count("/")), "form absolute": float(text.startswith("/"))}
    elif sort == "identifier":
        features |= {
            "form dotted": float("." in text or "::" in text),
            "form special": float(text.startswith("__")),
            "form constant": float(text.isupper()),
            "form class": float(text[:1].isupper() and not text.isupper()),
        }
    return features


def describe_use(seen: SeenValue, size: int) -> dict[str, float]:
    """Return the features of where and how often a value occurs in ``size`` messages."""
    age = (size - seen.last_at) / max(1, size)
    crowd = math.log2(1 + seen.crowd)
    features = {
        "person": float(seen.by_person > 0),
        "task": float(seen.by_person > 0 and seen.first_at < TASK_MESSAGES),
        "assistant": float(seen.by_assistant > 0),
        "call": float(seen.by_call > 0),
        "calls": math.log2(1 + seen.by_call),
        "times": math.log2(1 + seen.times),
        "age": age,
        "crowd": crowd,
        "changed": float(seen.is_changed),
    }
    if seen.spoken_at >= 0:
        features["spoken age"] = (size - seen.spoken_at) / max(1, size)
    else:
        # Only tools have named it so far.
        features |= {"unspoken": 1.0, "unspoken age": age, "unspoken crowd": crowd, f"unspoken {seen.value.sort}": 1.0}
    return features


@lru_cache(32_768)
def _weigh_text(text: str, sort: str) -> float:
    return load_weights("values")["bias"] + _sum_odds(describe_text(text, sort))


def _sum_odds(features: Mapping[str, float]) -> float:
    weights = load_weights("values")
    return sum([weights[name] * amount for name, amount in features.items() if amount and name in weights])


class Evidence:
    """The values of a conversation: what it shows of each, and how likely it is used again, computed once."""

    def __init__(self, messages: Sequence[Sequence[ReadEvent]]) -> None:
        self._seen: dict[str, SeenValue] = {}
        for at, events in enumerate(messages):
            note_message(self._seen, at, events)
        self._size = len(messages)
        self._likely: dict[str, float] = {}

    def rank(self, texts: Iterable[str]) -> list[tuple[float, Value]]:
        """Return values with their likelihood of being used again, likeliest first; the order is always the same."""
        found = [(-self._weigh(text), text) for text in texts]
        return [(round(-weight, 6), self._seen[text].value) for weight, text in sorted(found)]

    def _weigh(self, text: str) -> float:
        if (likely := self._likely.get(text)) is None:
            seen = self._seen[text]
            odds = _weigh_text(seen.value.text, seen.value.sort) + _sum_odds(describe_use(seen, self._size))
            likely = self._likely[text] = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, odds))))
        return likely
