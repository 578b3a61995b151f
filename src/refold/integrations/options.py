"""The options of ``refold.wrap`` and of every adapter, and the clients that ``wrap`` returns, as types.

A type checker finds a wrong name or value; at run time, construction does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from refold.manager import ContextCompressionManager

if TYPE_CHECKING:
    import anthropic
    import openai

    from refold.manager.managed import ManagedSession

    class WrappedOpenAI(openai.OpenAI):
        """A client whose conversations fit; ``refold`` is the session."""

        refold: ManagedSession

    class WrappedAsyncOpenAI(openai.AsyncOpenAI):
        """The same, async."""

        refold: ManagedSession

    class WrappedAnthropic(anthropic.Anthropic):
        """The same for Anthropic."""

        refold: ManagedSession

    class WrappedAsyncAnthropic(anthropic.AsyncAnthropic):
        """The same for Anthropic, async."""

        refold: ManagedSession


Share: TypeAlias = float | None
Count: TypeAlias = int | str | None
Stage: TypeAlias = Mapping[str, Any] | object


class Settings(TypedDict, total=False):
    """The settings of ``CompressionConfig``."""

    preset_name: str
    model: str | None
    window: int | str | None
    context_window_tokens: Count
    reserve: Count
    tokenizer: str | None
    auto_compress: bool
    context_compression_enabled: bool | None
    warn_ratio: float
    trigger_ratio: Share
    compact_trigger: Share
    context_threshold: Share
    context_compression_threshold: Share
    threshold_rounds: Count
    threshold_tokens: Count
    max_turns: Count
    economic: bool
    economic_ratio: float
    economic_tokens: int
    tune: Literal["off", "auto"]
    compact_on_length: bool
    max_compaction_attempts: int
    observations: str | None
    target_ratio: Share
    depth: Literal["thrifty", "balanced", "generous"] | None
    target_tokens: Count
    compact_target: Share
    retention_count: Count
    compact_preserve_count: Count
    keep_last: Count
    keep_recent: Count
    keep_last_turns: Count
    importance_threshold: Share
    max_tool_output: Count
    language: Literal["en", "zh"] | None
    summary_max_chars: Count
    compact_target_tokens: Count
    compact_trigger_threshold: Count
    compact_model: str | None
    compact_retry_count: int
    compact_url: str | None
    compact_timeout_s: float
    summariser: Literal["auto", "llm", "extract"]
    redact: bool
    background: bool
    ledger: Any
    ladder: Sequence[str]
    plugins: Mapping[str, Mapping[str, Any]]
    write_files: bool
    densify: Stage
    truncate: Stage
    dedupe: Stage
    offload: Stage
    mask: Stage
    fold: Stage
    score: Stage
    prune: Stage
    window_stage: Stage
    clamp: Stage
    recall: Stage
    memory: Stage
    eval: Stage


class SessionOptions(Settings, total=False):
    """What every adapter takes besides the name of a session."""

    workspace: str | Path
    manager: ContextCompressionManager | None
    is_observation: Callable[[Any], bool] | None


class WrapOptions(SessionOptions, total=False):
    """What ``refold.wrap`` takes."""

    session: str | Callable[[], str]
