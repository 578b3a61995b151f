"""Names that five design documents give to settings, and what each of them stands for in the schema.

``DocumentNames`` are the settings that exist because a document names them so; the schema has one name for each idea.
``fill_options`` is applied before the schema: it sets the option that a document's name means, unless it is set itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field

from refold.config.layers import ARCHIVE_FIELDS, MEANINGS, Known, Merged, SettingSource
from refold.config.values import Attempts, Count, Limit, Positive, Score, Share


class DocumentNames(BaseModel):
    """Settings under the names of the documents; refold's own names do the same and more."""

    context_window_tokens: Positive | None = Field(None, description="another name for window, in tokens")
    context_compression_enabled: bool | None = Field(None, description="another name for auto_compress")
    compact_trigger: Limit | None = Field(
        None, description="share of the window, or tokens, at which compression starts"
    )
    context_threshold: Share | None = Field(None, description="share of the window at which compression starts")
    context_compression_threshold: Share | None = Field(
        None, description="share of the window, by reported input tokens, at which compression starts"
    )
    max_turns: Positive | None = Field(None, description="the most rounds in the view; compression starts above")
    compact_target: Limit | None = Field(None, description="share of the window, or tokens, that a compression aims at")
    compact_preserve_count: Positive | None = Field(None, description="newest messages that a fold keeps")
    keep_last: Positive | None = Field(None, description="newest messages that a fold keeps")
    keep_last_turns: Positive | None = Field(None, description="newest turns that a fold keeps")
    importance_threshold: Score | None = Field(None, description="old messages that score at least this are kept")
    summary_max_chars: Positive | None = Field(None, description="most characters of a summary")
    compact_target_tokens: Positive | None = Field(None, description="length of a summary in tokens")
    compact_trigger_threshold: Count | None = Field(
        None, description="if offloading freed this many tokens, nothing is folded"
    )
    compact_retry_count: Attempts = Field(3, description="attempts to get a summary from a model")
    max_compaction_attempts: Attempts = Field(2, description="compressions in a row that may fail to help")


DOCUMENT_NAMES = frozenset(DocumentNames.model_fields)
# The settings that each document names, in its order.
DOCUMENT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "archive": ARCHIVE_FIELDS,
    "offload": (
        *("context_threshold", "compact_trigger_threshold", "compact_target_tokens", "compact_preserve_count"),
        *("compact_model", "compact_retry_count"),
    ),
    "hybrid": ("context_compression_enabled", "context_compression_threshold", "keep_last"),
    "turns": (
        *("context_window_tokens", "compact_trigger", "compact_target", "keep_last_turns", "max_compaction_attempts"),
    ),
}
# The variables of the document that preset `offload` comes from.
ALIASES = {
    f"SYNAPSE_COMPACT_{name}": f"REFOLD_COMPACT_{name}"
    for name in ("TRIGGER_THRESHOLD", "TARGET_TOKENS", "PRESERVE_COUNT", "MODEL", "RETRY_COUNT")
}
# Further settings that a document's name implies, as functions of its value.
_FOLLOWERS: dict[str, dict[str, Callable[[Any], object]]] = {
    "context_window_tokens": {"window": lambda tokens: tokens},
    "context_compression_enabled": {"auto_compress": lambda is_on: is_on},
    "retention_count": {"fold.min_messages": lambda count: count},
    "compact_preserve_count": {"fold.min_messages": lambda count: count},
    "keep_last": {"fold.min_messages": lambda count: count + 1},
    "keep_recent": {"fold.min_messages": lambda rounds: rounds * 2},
    "max_turns": {"fold.rounds_max": lambda rounds: rounds},
    "keep_last_turns": {"window_stage.keep_turns": lambda turns: turns},
    "summary_max_chars": {"fold.summary_chars_max": lambda chars: chars},
    "compact_trigger_threshold": {"fold.offload_freed_min": lambda tokens: tokens},
}
# The documents fold everything but the newest messages, so a setting that counts those also folds the first message.
for _name in ("retention_count", "compact_preserve_count", "keep_last", "keep_recent", "keep_last_turns"):
    _FOLLOWERS[_name]["fold.keep_first_user"] = lambda _: False


def fill_options(merged: Merged, known: Known) -> Merged:
    """Return the settings with everything filled in that a document's name implies."""
    values, sources = dict(merged.values), dict(merged.sources)

    def fill(option: str, name: str, follow: Callable[[Any], object]) -> None:
        block, dot, key = option.partition(".")
        if option in merged.values or (dot and key not in known.blocks.get(block, ())):
            return
        values[option] = _follow(merged, name, follow)
        source = merged.sources[name]
        sources[option] = SettingSource(source.layer, f"{source.place} ({name})" if source.place else name)

    for meaning in MEANINGS:
        for name in meaning.names[1:] if "." in meaning.names[0] else ():
            if merged.values.get(name) is not None:
                fill(meaning.names[0], name, lambda value: value)
    for name, options in _FOLLOWERS.items():
        if merged.values.get(name) is not None:
            for option, follow in options.items():
                fill(option, name, follow)
    return Merged(values, sources)


def _follow(merged: Merged, name: str, follow: Callable[[Any], object]) -> object:
    """Return the implied value; None if the setting is not a number, which the schema then refuses by its own name."""
    value = merged.values[name]
    try:
        return follow(int(value) if isinstance(value, str) and value.strip().isdigit() else value)
    except (TypeError, ValueError):  # ValueError: more digits than Python reads as a number.
        return None
