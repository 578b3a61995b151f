"""A table of models: window, tokenizer, cache rules, prices.

A model matches the longest row that its name begins with; provider prefixes, dates and suffixes do not matter, and a
version that is not in the table is never mistaken for an older one. An unknown model is not an error: it gets a window
of 128k and ``is_known=False``, so that a report can say so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from refold.tokens.images import ImageRule

UNKNOWN_WINDOW = 128_000
OUTPUT_RESERVE_MAX = 32_000


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The prices of a repeated prefix, as multiples of the input price.

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
    """Above this many input tokens the whole request costs more, by these factors."""

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


# A provider's name before a colon, as pydantic-ai and others write it. In an Ollama tag (llama3:8b) the colon is later.
_PROVIDER = r"(?:(?:openai|anthropic|google|xai|x-ai|groq|mistral|deepseek|bedrock|azure|ollama|openrouter)[a-z-]*:)?"
_PREFIX = re.compile(
    rf"^(?:.*/)?{_PROVIDER}(?:(?:us|eu|apac|jp|au|global)-)?(?:anthropic-|openai-|amazon-|meta-(?=llama)|models-|ft:)?"
)
# Ollama writes llama3.1, everybody else llama-3.1.
_LLAMA = re.compile(r"^llama(?=\d)")
# A row's name may be followed by nothing, or by a suffix that is not another version number (dates have four digits).
_SUFFIX = re.compile(r"$|[-@:\[](?!\d{1,2}(?:-|$))")


def reserve_for(window: int) -> int:
    """Return the default room for an answer: an eighth of the window, 32,000 tokens at most."""
    return min(OUTPUT_RESERVE_MAX, window // 8)


def normalize_name(model: str) -> str:
    """Return a model's name in the form of the table: lower case, no provider prefix, dashes for dots."""
    flat = model.strip().lower().replace(".", "-").replace("_", "-")
    return _LLAMA.sub("llama-", _PREFIX.sub("", flat, count=1))


@lru_cache(maxsize=256)
def model_info(model: str | None) -> ModelInfo:
    """Return what is known about a model; never fails. ``None`` and unknown names get the stated defaults."""

    if not model:
        return ModelInfo(name="", is_known=False)
    name = normalize_name(model)[:200]
    found = max((row for row in MODELS if name.startswith(row) and _SUFFIX.match(name, len(row))), key=len, default="")
    if found:
        row = replace(MODELS[found], name=model)
        return _widen(row) if "[1m]" in name else row
    family = next((key for key in FAMILIES if name.startswith(key)), "")
    if family:  # An unknown version of a known vendor: its tokenizer and cache rules, but no promise on the window.
        return replace(FAMILIES[family], name=model, is_known=False)
    return ModelInfo(name=model, is_known=False)


def _widen(row: ModelInfo) -> ModelInfo:
    """Return the row of a model asked for with a window of a million tokens."""
    window = max(row.window, 1_000_000)
    return replace(row, window=window, output_reserve=reserve_for(window))


# The rows. Prices are list prices in US dollars per million tokens. A figure we are not sure of is left out rather than
# guessed; windows are those of the plain API. Names are in the form of ``normalize_name``.
AS_OF = "2026-11"

_MINUTE = 60
_HOUR = 3_600

_ANTHROPIC = CacheRules(read=0.1, write=1.25, lifetime_s=5 * _MINUTE, tokens_min=1_024, breakpoints=4)
# Before GPT-5.6 a write costs no more than plain input.
_OPENAI = CacheRules(read=0.5, lifetime_s=5 * _MINUTE, tokens_min=1_024, step_tokens=128)
_OPENAI_QUARTER = replace(_OPENAI, read=0.25)
_OPENAI_TENTH = replace(_OPENAI, read=0.1)
_OPENAI_56 = CacheRules(read=0.1, write=1.25, lifetime_s=30 * _MINUTE, tokens_min=1_024)
_OPENAI_61 = replace(_OPENAI_56, read=0.05)
_GEMINI = CacheRules(read=0.1, lifetime_s=5 * _MINUTE, tokens_min=2_048)
_GEMINI_4 = replace(_GEMINI, read=0.05)
_DEEPSEEK = CacheRules(read=0.26, lifetime_s=_HOUR, tokens_min=64, step_tokens=64)
_DEEPSEEK_4 = replace(_DEEPSEEK, read=0.033)
_KIMI = CacheRules(read=0.1, lifetime_s=5 * _MINUTE, tokens_min=256)
_GROK = CacheRules(read=0.25, lifetime_s=5 * _MINUTE, tokens_min=1_024)
_MISTRAL = CacheRules(read=0.1, lifetime_s=5 * _MINUTE, tokens_min=1_024)

_GPT_CLIFF = (Cliff(272_000, 2.0, 1.5),)
_GEMINI_CLIFF = (Cliff(200_000, 2.0, 1.5),)
_GROK_CLIFF = (Cliff(200_000, 2.0, 2.0),)
_SONNET_45_CLIFF = (Cliff(200_000, 2.0, 1.5),)
_HAIKU_55_CLIFF = (Cliff(100_000, 5.0, 5.0),)

_M = 1_000_000
_GPT_5_WINDOW = 400_000
_GPT_54_WINDOW = 1_050_000


def _row(
    window: int,
    cache: CacheRules = NO_CACHE,
    prices: tuple[float, float] | None = None,
    cliffs: tuple[Cliff, ...] = (),
    *,
    family: str = "generic",
    encoding: str | None = None,
    image_rule: ImageRule | None = None,
) -> ModelInfo:
    priced = Prices(*prices) if prices else None
    return ModelInfo("", True, encoding, family, window, reserve_for(window), cache, priced, cliffs, image_rule)


_gpt = partial(_row, family="gpt", encoding="o200k_base", image_rule="tiles")
_gemini = partial(_row, family="gemini", image_rule="fixed")


def _claude(
    window: int,
    prices: tuple[float, float],
    cliffs: tuple[Cliff, ...] = (),
    *,
    read: float = 0.1,
    tokens_min: int = 1_024,
    image_rule: ImageRule = "area",
) -> ModelInfo:
    cache = replace(_ANTHROPIC, read=read, tokens_min=tokens_min)
    return _row(window, cache, prices, cliffs, family="claude", image_rule=image_rule)


_OPENAI_MODELS: dict[str, ModelInfo] = {
    "gpt-3-5-turbo": _gpt(16_385, NO_CACHE, (0.5, 1.5), encoding="cl100k_base"),
    "gpt-4": _gpt(8_192, NO_CACHE, (30, 60), encoding="cl100k_base"),
    "gpt-4-32k": _gpt(32_768, NO_CACHE, (60, 120), encoding="cl100k_base"),
    "gpt-4-turbo": _gpt(128_000, NO_CACHE, (10, 30), encoding="cl100k_base"),
    "gpt-4o": _gpt(128_000, _OPENAI, (2.5, 10)),
    "gpt-4o-mini": _gpt(128_000, _OPENAI, (0.15, 0.6)),
    "chatgpt-4o": _gpt(128_000, NO_CACHE, (5, 15)),
    "gpt-4-1": _gpt(1_047_576, _OPENAI_QUARTER, (2, 8)),
    "gpt-4-1-mini": _gpt(1_047_576, _OPENAI_QUARTER, (0.4, 1.6), image_rule="patches"),
    "gpt-4-1-nano": _gpt(1_047_576, _OPENAI_QUARTER, (0.1, 0.4), image_rule="patches"),
    "o1": _gpt(200_000, _OPENAI, (15, 60)),
    "o1-mini": _gpt(128_000, _OPENAI, (1.1, 4.4)),
    "o3": _gpt(200_000, _OPENAI_QUARTER, (2, 8)),
    "o3-mini": _gpt(200_000, _OPENAI, (1.1, 4.4)),
    "o4-mini": _gpt(200_000, _OPENAI_QUARTER, (1.1, 4.4), image_rule="patches"),
    "gpt-oss": _gpt(131_072, NO_CACHE, None),
    "gpt-5": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (1.25, 10)),
    "gpt-5-mini": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (0.25, 2), image_rule="patches"),
    "gpt-5-nano": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (0.05, 0.4), image_rule="patches"),
    "gpt-5-pro": _gpt(_GPT_5_WINDOW, NO_CACHE, (15, 120)),
    "gpt-5-1": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (1.25, 10)),
    "gpt-5-1-codex-mini": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (0.25, 2), image_rule="patches"),
    "gpt-5-2": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (1.75, 14)),
    "gpt-5-2-pro": _gpt(_GPT_5_WINDOW, NO_CACHE, (21, 168)),
    "gpt-5-3": _gpt(128_000, _OPENAI_TENTH, (1.75, 14)),
    "gpt-5-3-codex": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (1.75, 14)),
    "gpt-5-4": _gpt(_GPT_54_WINDOW, _OPENAI_TENTH, (2.5, 15), _GPT_CLIFF, image_rule="patches"),
    "gpt-5-4-mini": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (0.75, 4.5), image_rule="patches"),
    "gpt-5-4-nano": _gpt(_GPT_5_WINDOW, _OPENAI_TENTH, (0.2, 1.25), image_rule="patches"),
    "gpt-5-4-pro": _gpt(_GPT_54_WINDOW, NO_CACHE, (30, 180), _GPT_CLIFF, image_rule="patches"),
    "gpt-5-5": _gpt(_M, _OPENAI_TENTH, (5, 30), _GPT_CLIFF, image_rule="patches"),
    "gpt-5-5-pro": _gpt(_M, NO_CACHE, (30, 180), _GPT_CLIFF, image_rule="patches"),
    "gpt-5-6-sol": _gpt(_GPT_54_WINDOW, _OPENAI_56, None, _GPT_CLIFF, image_rule="patches"),
    "gpt-5-6-terra": _gpt(_GPT_54_WINDOW, _OPENAI_56, (2, 12), _GPT_CLIFF, image_rule="patches"),
    "gpt-5-6-luna": _gpt(_GPT_54_WINDOW, _OPENAI_56, None, _GPT_CLIFF, image_rule="patches"),
    "gpt-6-astra": _gpt(_GPT_54_WINDOW, _OPENAI_56, (10, 50), _GPT_CLIFF, image_rule="patches"),
    "gpt-6-sol": _gpt(_GPT_54_WINDOW, _OPENAI_56, (2, 10), _GPT_CLIFF, image_rule="patches"),
    "gpt-6-luna": _gpt(_GPT_54_WINDOW, _OPENAI_56, (0.1, 0.5), _GPT_CLIFF, image_rule="patches"),
    "gpt-6-1-sol": _gpt(_GPT_54_WINDOW, _OPENAI_61, (2, 10), _GPT_CLIFF, image_rule="patches"),
    "gpt-6-1-terra": _gpt(_GPT_54_WINDOW, _OPENAI_61, (1, 5), _GPT_CLIFF, image_rule="patches"),
}

_ANTHROPIC_MODELS: dict[str, ModelInfo] = {
    "claude-3-haiku": _claude(200_000, (0.25, 1.25), tokens_min=2_048),
    "claude-3-opus": _claude(200_000, (15, 75)),
    "claude-3-5-haiku": _claude(200_000, (0.8, 4), tokens_min=2_048),
    "claude-3-5-sonnet": _claude(200_000, (3, 15)),
    "claude-3-7-sonnet": _claude(200_000, (3, 15)),
    "claude-opus-4": _claude(200_000, (15, 75)),
    "claude-opus-4-0": _claude(200_000, (15, 75)),
    "claude-opus-4-1": _claude(200_000, (15, 75)),
    "claude-opus-4-5": _claude(200_000, (5, 25), tokens_min=4_096),
    "claude-opus-4-6": _claude(_M, (5, 25), tokens_min=4_096),
    "claude-opus-4-7": _claude(_M, (5, 25), tokens_min=2_048, image_rule="area-large"),
    "claude-opus-4-8": _claude(_M, (5, 25), image_rule="area-large"),
    "claude-opus-5": _claude(_M, (5, 25), tokens_min=512, image_rule="area-large"),
    "claude-opus-5-5": _claude(_M, (4, 20), read=0.05, tokens_min=512, image_rule="area-large"),
    "claude-sonnet-4": _claude(200_000, (3, 15)),
    "claude-sonnet-4-0": _claude(200_000, (3, 15)),
    "claude-sonnet-4-5": _claude(200_000, (3, 15), cliffs=_SONNET_45_CLIFF),
    "claude-sonnet-4-6": _claude(_M, (3, 15), tokens_min=2_048),
    "claude-sonnet-5": _claude(_M, (2, 10), image_rule="area-large"),
    "claude-sonnet-5-5": _claude(_M, (2, 10), read=0.05, image_rule="area-large"),
    "claude-haiku-4-5": _claude(200_000, (1, 5), tokens_min=4_096),
    "claude-haiku-5-5": _claude(_M, (0.1, 0.5), tokens_min=4_096, cliffs=_HAIKU_55_CLIFF),
    "claude-fable-5": _claude(_M, (10, 50), tokens_min=512, image_rule="area-large"),
    "claude-fable-5-1": _claude(_M, (10, 50), read=0.025, tokens_min=512, image_rule="area-large"),
}

_OTHER_MODELS: dict[str, ModelInfo] = {
    "gemini-2-5-flash": _gemini(1_048_576, _GEMINI, (0.3, 2.5)),
    "gemini-2-5-flash-lite": _gemini(_M, _GEMINI, (0.1, 0.4)),
    "gemini-2-5-pro": _gemini(1_048_576, _GEMINI, (1.25, 10), _GEMINI_CLIFF),
    "gemini-3-flash": _gemini(_M, _GEMINI, (0.5, 3)),
    "gemini-3-pro": _gemini(1_048_576, _GEMINI, (2, 12), _GEMINI_CLIFF),
    "gemini-3-1-pro": _gemini(1_048_576, _GEMINI, (2, 12), _GEMINI_CLIFF),
    "gemini-3-1-flash-lite": _gemini(_M, _GEMINI, (0.25, 1.5)),
    "gemini-3-5-flash": _gemini(_M, _GEMINI, (1.5, 9)),
    "gemini-3-5-flash-lite": _gemini(_M, _GEMINI, (0.3, 2.5)),
    "gemini-3-6-flash": _gemini(_M, _GEMINI, (0.75, 3.75)),
    "gemini-4-argon": _gemini(1_048_576, _GEMINI_4, (4, 20)),
    "deepseek-chat": _row(128_000, _DEEPSEEK, (0.27, 1.1), encoding="deepseek_v3"),
    "deepseek-reasoner": _row(128_000, _DEEPSEEK, None, encoding="deepseek_v3"),
    "deepseek-v3": _row(128_000, _DEEPSEEK, None, encoding="deepseek_v3"),
    "deepseek-v3-1": _row(128_000, _DEEPSEEK, None, encoding="deepseek_v3"),
    "deepseek-v3-2": _row(128_000, _DEEPSEEK, None, encoding="deepseek_v3"),
    "deepseek-r1": _row(128_000, _DEEPSEEK, None, encoding="deepseek_v3"),
    "deepseek-v4-flash": _row(_M, _DEEPSEEK_4, None),
    "deepseek-v4-pro": _row(_M, _DEEPSEEK_4, None),
    "qwen2-5": _row(131_072, encoding="qwen3"),
    "qwen3": _row(131_072, encoding="qwen3"),
    "qwen3-coder": _row(262_144, encoding="qwen3"),
    "llama-3": _row(8_192, encoding="llama3"),
    "llama-3-1": _row(131_072, encoding="llama3"),
    "llama-3-2": _row(131_072, encoding="llama3"),
    "llama-3-3": _row(131_072, encoding="llama3"),
    "kimi-k2": _row(262_144, replace(_KIMI, read=0.25), (0.6, 2.5), encoding="kimi_k2"),
    "kimi-k2-5": _row(262_144, replace(_KIMI, read=0.17), (0.6, 3)),
    "kimi-k2-6": _row(262_144, replace(_KIMI, read=0.17), (0.95, 4)),
    "kimi-k3": _row(1_048_576, _KIMI, (3, 15)),
    "kimi-k3-1-pro": _row(1_048_576, _KIMI, (2, 10)),
    "glm-4-5": _row(131_072, encoding="glm4"),
    "mistral-large-4": _row(1_048_576, _MISTRAL, (1.36, 4.18)),
    "mistral-large-latest": _row(1_048_576, _MISTRAL, (1.36, 4.18)),
    "mistral-large-2512": _row(262_144, _MISTRAL, (0.5, 1.5)),
    "mistral-medium-3-5": _row(262_144, _MISTRAL, (1.5, 7.5)),
    "grok-4": _row(256_000, _GROK, (3, 15)),
    "grok-4-0709": _row(256_000, _GROK, (3, 15)),
    "grok-4-fast": _row(2_000_000, _GROK, (0.2, 0.5)),
    "grok-4-1-fast": _row(2_000_000, _GROK, (0.2, 0.5)),
    "grok-4-7": _row(500_000, _GROK, (2, 6), _GROK_CLIFF),
    "smollm2-135m": _row(2_048),  # As `refold local` runs it; elsewhere it has another name.
    "grok-code-fast-1": _row(256_000, replace(_GROK, read=0.1), (0.2, 1.5)),
}

MODELS: dict[str, ModelInfo] = {**_OPENAI_MODELS, **_ANTHROPIC_MODELS, **_OTHER_MODELS}

# A version that is not in the table: what all models of this maker have in common.
FAMILIES: dict[str, ModelInfo] = {
    "gpt": ModelInfo(name="", encoding="o200k_base", family="gpt", cache=_OPENAI_56, image_rule="patches"),
    "chatgpt": ModelInfo(name="", encoding="o200k_base", family="gpt", cache=_OPENAI, image_rule="tiles"),
    "codex": ModelInfo(name="", encoding="o200k_base", family="gpt", cache=_OPENAI_TENTH, image_rule="patches"),
    "claude": ModelInfo(name="", family="claude", cache=replace(_ANTHROPIC, tokens_min=4_096), image_rule="area-large"),
    "gemini": ModelInfo(name="", family="gemini", cache=_GEMINI, image_rule="fixed"),
    "gemma": ModelInfo(name="", family="gemini"),
    "deepseek": ModelInfo(name="", cache=_DEEPSEEK),
    "kimi": ModelInfo(name="", cache=_KIMI),
    "mistral": ModelInfo(name="", cache=_MISTRAL),
    "grok": ModelInfo(name="", cache=_GROK),
}
