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
            raise ConfigError(
                "recall.embeddings.url is {url!r}; give an address with http:// or https://", url=self.url[:80]
            )
        if not self.model:
            raise ConfigError("recall.embeddings names a service but no model; set its model")
        if not 1 <= self.batch <= _BATCH_MAX or not 0 < self.timeout_s <= _SECONDS_MAX:
            raise ConfigError(
                "recall.embeddings: batch is 1 to {batch_max} texts, timeout_s at most {seconds_max} seconds",
                batch_max=_BATCH_MAX,
                seconds_max=_SECONDS_MAX,
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
            raise ConfigError("recall.limit is {limit}; give 1 to {limit_max}", limit=self.limit, limit_max=LIMIT_MAX)
        if not (1 <= self.tokens_max <= TOKENS_MAX and 1 <= self.inject_tokens <= TOKENS_MAX):
            raise ConfigError(
                "recall.tokens_max and recall.inject_tokens are 1 to {tokens_max:,}; 'inject: off' adds nothing",
                tokens_max=TOKENS_MAX,
            )


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Notes of earlier sessions for a new one: none unless ``inject`` is on, at most ``inject_tokens``."""

    inject: bool = False
    inject_tokens: int = 800

    def __post_init__(self) -> None:
        if not 1 <= self.inject_tokens <= TOKENS_MAX:
            raise ConfigError(
                "memory.inject_tokens is {inject_tokens}; give 1 to {tokens_max:,}",
                inject_tokens=self.inject_tokens,
                tokens_max=TOKENS_MAX,
            )


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
        raise ConfigError(
            "recall.embeddings is {shown}; give offline, off, or url and model of a service", shown=_show(embeddings)
        )
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
            raise ConfigError(
                "recall.embeddings has no option {shown}; it has {listed}",
                shown=_show(name),
                listed=", ".join(map(str, kinds)),
            )
        if isinstance(one, bool) or not isinstance(one, kinds[name]):
            raise ConfigError(
                "recall.embeddings.{name} is {shown}, which is not a valid value", name=name, shown=_show(one)
            )
    missing = [name for name in ("url", "model") if name not in given]
    if missing:
        raise ConfigError("recall.embeddings names a service without its {listed}", listed=" and ".join(missing))
    return EmbeddingService(**{str(name): one for name, one in given.items()})  # type: ignore[arg-type]


def _show(value: object) -> str:
    return repr(value)[:80]
