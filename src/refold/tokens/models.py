"""What we know about models: window, tokenizer, cache rules, prices. The rows are in ``model_table``.

A model is found by the longest row its name begins with; provider prefixes, dates and suffixes do not matter, a
version that is not in the table never passes for an older one. An unknown model is not an error: it gets a window
of 128k and ``is_known=False``, so that a report can say so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from refold.tokens.images import ImageRule

UNKNOWN_WINDOW = 128_000
OUTPUT_RESERVE_MAX = 32_000


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How a provider bills a repeated prefix, as multiples of the input price.

    ``breakpoints`` is how many the client may set, 0 where the provider caches by itself. ``lifetime_s`` counts from
    the last use.
    """

    read: float = 1.0
    write: float = 1.0
    lifetime_s: int = 0
    tokens_min: int = 0
    step_tokens: int = 1
    breakpoints: int = 0

    @property
    def is_active(self) -> bool:
        """True if a kept prefix is cheaper than a new one."""
        return self.read < 1.0 and self.lifetime_s > 0


NO_CACHE = CacheRules()


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens, uncached input and output. Cache prices follow from the cache rules."""

    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Cliff:
    """Above so many input tokens the whole request costs more, by these factors."""

    above_tokens: int
    input_factor: float
    output_factor: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model. Either ``encoding`` names a public vocabulary or ``family`` names how to estimate."""

    name: str
    is_known: bool = True
    encoding: str | None = None
    family: str = "generic"
    window: int = UNKNOWN_WINDOW
    output_reserve: int = 16_000
    cache: CacheRules = NO_CACHE
    prices: Prices | None = None
    cliffs: tuple[Cliff, ...] = ()
    image_rule: ImageRule | None = None


# A provider's name before a colon, as pydantic-ai and others write it; an Ollama tag (llama3:8b) has its colon behind.
_PROVIDER = r"(?:(?:openai|anthropic|google|xai|x-ai|groq|mistral|deepseek|bedrock|azure|ollama|openrouter)[a-z-]*:)?"
_PREFIX = re.compile(
    rf"^(?:.*/)?{_PROVIDER}(?:(?:us|eu|apac|jp|au|global)-)?(?:anthropic-|openai-|amazon-|meta-(?=llama)|models-|ft:)?"
)
# Ollama writes llama3.1, everybody else llama-3.1.
_LLAMA = re.compile(r"^llama(?=\d)")
# What may follow a row's name: nothing, or a suffix that is not another version number. Dates have four digits or more.
_SUFFIX = re.compile(r"$|[-@:\[](?!\d{1,2}(?:-|$))")


def reserve_for(window: int) -> int:
    """Return the room left for an answer where nothing else is said: an eighth of the window, 32,000 at most."""
    return min(OUTPUT_RESERVE_MAX, window // 8)


def normalize_name(model: str) -> str:
    """Return a model's name in the form of the table: lower case, no provider prefix, dashes for dots."""
    flat = model.strip().lower().replace(".", "-").replace("_", "-")
    return _LLAMA.sub("llama-", _PREFIX.sub("", flat, count=1))


@lru_cache(maxsize=256)
def model_info(model: str | None) -> ModelInfo:
    """Return what is known about a model; never fails. ``None`` and unknown names get the stated defaults."""
    from refold.tokens.model_table import FAMILIES, MODELS

    if not model:
        return ModelInfo(name="", is_known=False)
    name = normalize_name(model)[:200]
    found = max((row for row in MODELS if name.startswith(row) and _SUFFIX.match(name, len(row))), key=len, default="")
    if found:
        row = replace(MODELS[found], name=model)
        return _widen(row) if "[1m]" in name else row
    family = next((key for key in FAMILIES if name.startswith(key)), "")
    if family:  # A version we do not know, of a maker we do: its tokenizer and cache, but no promise on the window.
        return replace(FAMILIES[family], name=model, is_known=False)
    return ModelInfo(name=model, is_known=False)


def _widen(row: ModelInfo) -> ModelInfo:
    """Return the row of a model asked for with a window of a million tokens."""
    window = max(row.window, 1_000_000)
    return replace(row, window=window, output_reserve=reserve_for(window))
