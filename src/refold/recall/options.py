"""Options of recall: limits, vectors, injection. Frozen values; nothing here reads the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from refold.errors import ConfigError

InjectMode = Literal["off", "auto", "always"]

LIMIT_MAX = 200
TOKENS_MAX = 100_000
_BATCH_MAX = 2_048
_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class EmbeddingService:
    """An OpenAI-compatible service with ``/embeddings``; ``key_env`` names the environment variable with its key."""

    url: str
    model: str
    key_env: str = ""
    dimensions: int | None = None
    timeout_s: float = 20.0
    batch: int = 64

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"recall.embeddings.url is {self.url[:80]!r}; give an address with http:// or https://")
        if not self.model:
            raise ConfigError("recall.embeddings names a service but no model; set its model")
        if not 1 <= self.batch <= _BATCH_MAX or not 0 < self.timeout_s <= _SECONDS_MAX:
            raise ConfigError(
                f"recall.embeddings: batch is 1 to {_BATCH_MAX} texts, timeout_s at most {_SECONDS_MAX} seconds"
            )
        if self.dimensions is not None and self.dimensions < 1:
            raise ConfigError("recall.embeddings.dimensions is at least 1; leave it out for the model's own")


Embeddings = Literal["offline", "off"] | EmbeddingService


@dataclass(frozen=True, slots=True)
class RecallOptions:
    """The size of a search result, and whether recalled text is added automatically.

    ``embeddings`` is "offline" (static vectors of the extra ``recall``, words alone without it), "off" or a service.
    """

    limit: int = 10
    tokens_max: int = 1_500
    inject: InjectMode = "auto"
    inject_tokens: int = 600
    embeddings: Embeddings = "offline"

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise ConfigError(f"recall.limit is {self.limit}; give 1 to {LIMIT_MAX}")
        if not (1 <= self.tokens_max <= TOKENS_MAX and 1 <= self.inject_tokens <= TOKENS_MAX):
            raise ConfigError(
                f"recall.tokens_max and recall.inject_tokens are 1 to {TOKENS_MAX:,}; 'inject: off' adds nothing"
            )
        if self.inject not in ("off", "auto", "always"):
            raise ConfigError(f"recall.inject is {self.inject!r}; give off, auto or always")
        if not isinstance(self.embeddings, EmbeddingService) and self.embeddings not in ("offline", "off"):
            raise ConfigError(
                f"recall.embeddings is {str(self.embeddings)[:80]!r}; give offline, off, or url and model of a service"
            )


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Notes of earlier sessions for a new one: none unless ``inject`` is on, at most ``inject_tokens``."""

    inject: bool = False
    inject_tokens: int = 800

    def __post_init__(self) -> None:
        if not isinstance(self.inject, bool):
            raise ConfigError(f"memory.inject is {_show(self.inject)}; give on or off")
        if not 1 <= self.inject_tokens <= TOKENS_MAX:
            raise ConfigError(f"memory.inject_tokens is {self.inject_tokens}; give 1 to {TOKENS_MAX:,}")


def read_recall(value: object) -> object:
    """Return a block of settings as people write it: YAML reads ``off`` and ``on`` as switches."""
    if not isinstance(value, dict):
        return value
    words = {"inject": ("off", "auto"), "embeddings": ("off", "offline")}
    read = {name: words[name][one] if name in words and isinstance(one, bool) else one for name, one in value.items()}
    embeddings = read.get("embeddings")
    if isinstance(embeddings, dict):
        read["embeddings"] = _read_service(embeddings)
    elif "embeddings" in read and not isinstance(embeddings, EmbeddingService) and embeddings not in ("offline", "off"):
        raise ConfigError(f"recall.embeddings is {_show(embeddings)}; give offline, off, or url and model of a service")
    return read


def _read_service(given: dict[object, object]) -> EmbeddingService:
    """Return the service that a table describes; an error names the first setting that is wrong."""
    kinds: dict[object, tuple[type, ...]] = {
        **dict.fromkeys(("url", "model", "key_env"), (str,)),
        **dict.fromkeys(("dimensions", "batch"), (int,)),
        "timeout_s": (int, float),
    }
    for name, one in given.items():
        if name not in kinds:
            raise ConfigError(f"recall.embeddings has no option {_show(name)}; it has {', '.join(map(str, kinds))}")
        if isinstance(one, bool) or not isinstance(one, kinds[name]):
            raise ConfigError(f"recall.embeddings.{name} is {_show(one)}, which is not a valid value")
    missing = [name for name in ("url", "model") if name not in given]
    if missing:
        raise ConfigError(f"recall.embeddings names a service without its {' and '.join(missing)}")
    return EmbeddingService(**{str(name): one for name, one in given.items()})  # type: ignore[arg-type]


def _show(value: object) -> str:
    return repr(value)[:80]
