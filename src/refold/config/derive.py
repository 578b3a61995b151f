"""What follows from settings: options of stages, tiers, thresholds, the budget. Pure functions of a config.

The documents' names (``retention_count``) are mapped onto the stage that does it (``fold.keep_messages``) here and
nowhere else. Contradictions that no single value shows are refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields as stage_fields
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from refold.budget import Budget, Thresholds, Tiers, window_budget
from refold.config.layers import Merged, Source
from refold.config.names import MEANINGS, suggest
from refold.config.reading import Known
from refold.config.values import TOKENS_MAX, share_of
from refold.errors import ConfigError
from refold.stages import STAGES
from refold.tokens.models import ModelInfo

if TYPE_CHECKING:
    from refold.config.schema import CompressionConfig

# What else a document's setting stands for: options of stages, as functions of its value.
_FOLLOWERS: dict[str, dict[str, Callable[[Any], object]]] = {
    "retention_count": {"fold.min_messages": lambda count: count},
    "compact_preserve_count": {"fold.min_messages": lambda count: count},  # S2.10
    "keep_last": {"fold.min_messages": lambda count: count + 1},  # S3.5
    "keep_recent": {"fold.min_messages": lambda turns: turns * 2},  # S1.3
    "keep_last_turns": {"window_stage.keep_turns": lambda turns: turns},  # S4.5
    "summary_max_chars": {"fold.summary_chars_max": lambda chars: chars},
    "compact_trigger_threshold": {"fold.offload_freed_min": lambda tokens: tokens},
}
# The documents fold everything but the newest; the first message stays only where nobody counts what stays.
_COUNTS = ("retention_count", "compact_preserve_count", "keep_last", "keep_recent", "keep_last_turns")
for _name in _COUNTS:
    _FOLLOWERS[_name]["fold.keep_first_user"] = lambda _: False
# Between two compressions by count there come at least so many of the messages that are kept: one in five.
SPACING_SHARE = 5
_TRIGGERS = ("compact_trigger", "context_threshold", "context_compression_threshold")
TIERS = Tiers()


def fill_options(merged: Merged, known: Known) -> Merged:
    """Return the settings with every stage option that a document's name stands for filled in."""
    values, sources = dict(merged.values), dict(merged.sources)

    def fill(option: str, name: str, follow: Callable[[Any], object]) -> None:
        block, _, key = option.partition(".")
        if option in merged.values or key not in known.blocks.get(block, ()):
            return
        values[option] = _follow(merged, name, follow)
        source = merged.sources[name]
        sources[option] = Source(source.layer, f"{source.place} ({name})" if source.place else name)

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
    """Return what follows from a setting; one that is no number is left for the schema to refuse by its own name."""
    value = merged.values[name]
    try:
        return follow(int(value) if isinstance(value, str) and value.strip().isdigit() else value)
    except (TypeError, ValueError):  # ValueError: more digits than Python reads as a number.
        return None


def check_agreement(config: CompressionConfig, merged: Merged) -> None:
    """Raise ConfigError if the settings, each fine by itself, cannot hold together."""
    known = {stage.name for block in config.known.blocks if hasattr(stage := getattr(config, block), "name")}
    seen: set[str] = set()
    for name in config.ladder:
        if name not in known:
            known |= _plugin_names()
        if name not in known:
            raise ConfigError(
                f"{merged.where('ladder')}ladder names an unknown stage '{name}'{suggest(name, known)}; "
                f"there are {', '.join(sorted(known))}"
            )
        if name in seen:
            raise ConfigError(f"{merged.where('ladder')}ladder names '{name}' twice; a stage runs once")
        seen.add(name)
    _check_plugins(config, merged)
    _check_options(config, merged)
    window = window_of(config, config.model or "")
    if window is not None and config.reserve is not None and config.reserve >= window:
        raise ConfigError(
            f"{merged.where('reserve')}reserve is {config.reserve:,} but the window is {window:,}; lower reserve"
        )
    _check_target(config, merged, window)


def _plugin_names() -> set[str]:
    from refold.plugins import find_plugins  # Only who names a plugin pays for looking.

    return {one.name for one in find_plugins("stage")}


def _check_plugins(config: CompressionConfig, merged: Merged) -> None:
    """Refuse options for a plugin that nobody has, or that it does not take (S1.11)."""
    for name in config.plugins:
        if name not in (there := _plugin_names()):
            raise ConfigError(
                f"{merged.where('plugins')}plugins names '{name}'{suggest(name, there)}, which is not installed"
            )
    for name in config.ladder:
        if name not in STAGES:
            from refold.plugins import make_stage

            try:
                make_stage(name, config.plugins.get(name, {}))
            except ConfigError as error:
                raise ConfigError(f"{merged.where('plugins')}{error}") from None


def _check_options(config: CompressionConfig, merged: Merged) -> None:
    """Hold the numbers in stages' blocks to limits (L9): whole numbers are counts, fractions are shares."""
    for block in config.known.blocks:
        stage = getattr(config, block)
        for option in stage_fields(stage):
            name, value = f"{block}.{option.name}", getattr(stage, option.name)
            given = merged.values.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if isinstance(given, bool):
                raise ConfigError(f"{merged.where(name)}{name} is {given}; give a number")
            # What is no stage has weights, and a weight may count against.
            least, most = (0, TOKENS_MAX) if isinstance(value, int) else (0 if hasattr(stage, "name") else -1, 1)
            if not least <= value <= most:
                raise ConfigError(f"{merged.where(name)}{name} is {value}; give a number from {least} to {most:,}")


def _check_target(config: CompressionConfig, merged: Merged, window: int | None) -> None:
    """Refuse a target above the trigger if one hand set both; else the older one gives way (see find_tiers)."""
    names = [name for name in ("trigger_ratio", *_TRIGGERS) if getattr(config, name) is not None]
    targets = [name for name in ("target_ratio", "compact_target") if getattr(config, name) is not None]
    if not names or not targets:
        return
    trigger, target = names[0], targets[0]
    if merged.sources[trigger].layer != merged.sources[target].layer:
        return
    high, low = getattr(config, trigger), getattr(config, target)
    if window is None and (high > 1) is not (low > 1):
        return  # A share and a number of tokens: only the window can tell.
    if window is not None:
        high, low = share_of(high, window), share_of(low, window)
    if low > high:
        raise ConfigError(
            f"{merged.where(target)}{target} is {getattr(config, target):g}, above {trigger} "
            f"{getattr(config, trigger):g}; compression must come down below where it begins"
        )


def window_of(config: CompressionConfig, model: str) -> int | None:
    """Return the window that the settings give a model, or None."""
    window = config.window if config.window is not None else config.context_window_tokens
    if isinstance(window, dict):
        found = [name for name in window if name != "*" and model.startswith(name)]
        return window[max(found, key=len)] if found else window.get("*")
    return window


def find_tiers(config: CompressionConfig) -> Tiers:
    """Return the tiers as shares; those that a document measures by the window count as shares of it."""
    window = window_of(config, config.model or "")
    soft = _find_share(config, ("trigger_ratio", *_TRIGGERS), window, TIERS.soft)
    target = _find_share(config, ("target_ratio", "compact_target"), window, TIERS.target)
    # Someone lowered the trigger below a preset's target: half of the trigger keeps the distance between two cuts.
    # A share that somebody set is meant as it is: a preset's limit in tokens does not hold for it.
    ratio, tokens = config.source("target_ratio"), config.source("target_tokens")
    is_own = ratio is not None and ratio.layer != "preset" and tokens is not None and tokens.layer == "preset"
    target_tokens = None if is_own or config.compact_target is not None else config.target_tokens
    target = target if target <= soft else soft / 2
    return Tiers(min(config.warn_ratio, soft), soft, target, target_tokens)


def _find_share(config: CompressionConfig, names: tuple[str, ...], window: int | None, fallback: float) -> float:
    for name in names:
        limit: float | None = getattr(config, name)
        if limit is not None:
            if limit > 1 and window is None:
                continue
            return share_of(limit, window or 1)
    return fallback


def find_thresholds(config: CompressionConfig) -> Thresholds:
    """Return the counts of S0.3, S1.1, S1.3 and S3.4 that are set."""
    # Twice the recent turns is a trigger of the importance document, and only where importance decides what stays.
    is_scored = config.importance_threshold is not None and config.keep_recent is not None
    return Thresholds(
        rounds=config.threshold_rounds,
        messages=config.fold.min_messages if is_scored else None,
        tokens=config.threshold_tokens,
        turns=config.max_turns,
        reported_ratio=config.context_compression_threshold,
        kept=config.fold.min_messages,
        spacing=config.keep_recent or 0 if is_scored else config.fold.min_messages // SPACING_SHARE,
    )


def find_budget(config: CompressionConfig, model: ModelInfo, margin: float) -> Budget:
    """Return the tiers in tokens. A trigger or target that a document states of the window is taken of the window."""
    window = window_of(config, model.name) or model.window
    if config.reserve is not None:
        reserve = config.reserve
    else:
        # A window that someone set small must not drown in a reserve made for a large one.
        reserve = min(model.output_reserve, window // 8 if window != model.window else window // 2)
    budget = window_budget(window, reserve, find_tiers(config), margin=margin)
    soft, target = budget.soft, budget.target
    trigger = next((limit for name in _TRIGGERS if (limit := getattr(config, name)) is not None), None)
    if trigger is not None:
        soft = max(1, min(budget.hard, int(share_of(trigger, window) * window)))
    if config.compact_target is not None:
        target = max(1, int(share_of(config.compact_target, window) * window))
    if target > soft:
        target = max(1, soft // 2)
    # Shares of the room are taken of what system prompt and tools leave of it; the documents say "of the window".
    is_of_room = trigger is None and config.compact_target is None
    is_ruled = trigger is not None and config.fold.keeps_by_count
    tiers = replace(budget, soft=soft, target=target, warn=min(budget.warn, soft))
    spacing = soft - target if config.fold.is_paced else 0
    return replace(tiers, is_of_room=is_of_room, is_ruled=is_ruled, spacing=spacing)
