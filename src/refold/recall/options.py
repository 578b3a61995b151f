"""How recall behaves: limits, vectors, injection. One frozen value, handed in; nothing here reads the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from refold.errors import ConfigError

InjectMode = Literal["off", "auto", "always"]

LIMIT_MAX = 200


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """Where vectors come from.

    ``source`` is "off", "static" (offline, the extra ``recall``), "auto" (static where it is installed) or the base
    address of an OpenAI-compatible service, of which ``/embeddings`` is asked.
    """

    source: str = "auto"
    model: str = ""
    key: str = ""
    dimensions: int | None = None
    timeout_s: float = 20.0
    batch: int = 64


@dataclass(frozen=True, slots=True)
class RecallOptions:
    """What an answer may cost, and whether one is added by itself."""

    limit: int = 10
    tokens_max: int = 1_500
    inject: InjectMode = "auto"
    inject_tokens_max: int = 600
    inject_snippets_max: int = 3
    embeddings: EmbeddingOptions = EmbeddingOptions()

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise ConfigError(f"recall.limit is {self.limit}; give 1 to {LIMIT_MAX}")
        if self.tokens_max < 1 or self.inject_tokens_max < 1 or self.inject_snippets_max < 1:
            raise ConfigError("recall's limits of tokens and snippets are at least 1; 'inject: off' adds nothing")
        if self.inject not in ("off", "auto", "always"):
            raise ConfigError(f"recall.inject is {self.inject!r}; give off, auto or always")
