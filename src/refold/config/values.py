"""The values of settings: how each kind is written, and what follows from them.

A share is ``0.75`` or ``75%``; a switch is on or off; a count is a whole number within stated limits (L9). An invalid
value raises ValueError, which the schema turns into a ConfigError with the setting's name and place. The rest are pure
functions of a config: stage options, tiers, thresholds, the budget, and ``explain``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator

from refold.budget import Budget, Thresholds, Tiers, read_tokens, window_budget
from refold.config.layers import MEANINGS, Merged, suggest
from refold.errors import ConfigError
from refold.ledger.place import LedgerPlace
from refold.stages import STAGES
from refold.tokens.models import ModelInfo, model_info

if TYPE_CHECKING:
    from refold.config.schema import CompressionConfig


TOKENS_MAX = 1_000_000_000
LanguageName = Literal["en", "zh"]
# An address may hold a password, which a LedgerPlace never prints.
Place = Annotated[
    LedgerPlace | None,
    PlainValidator(lambda value: None if value is None else LedgerPlace(value), json_schema_input_type=str | None),
    PlainSerializer(str, when_used="unless-none"),
]
# At least a fifth of the kept messages must be new between two compressions by count.
SPACING_SHARE = 5
_TRIGGERS = ("compact_trigger", "context_threshold", "context_compression_threshold")
TIERS = Tiers()
# Tokens for the question for a note and its answer; at most a quarter of a window.
NOTE_ROOM = 4_500
# What a compression leaves in a large room, in tokens: measured on long sessions, see docs/benchmarks.md.
DEPTHS = {"thrifty": 9_000, "balanced": 12_000, "generous": 25_000}


def _refuse_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"give a number, not {'on' if value else 'off'}")
    if isinstance(value, str):
        # People write 64_000 and 64,000; the environment has only strings.
        return value.strip().replace(",", "").replace("_", "")
    return value


def _read_count(value: object) -> object:
    """Read a whole number, which may be written 64k or 0.2M."""
    value = _refuse_switch(value)
    if isinstance(value, str) and value[-1:].lower() in ("k", "m"):
        try:
            return read_tokens(value)
        except ConfigError:
            raise ValueError("give a number such as 64000 or 64k") from None
    return value


def _read_share(value: object) -> object:
    value = _refuse_switch(value)
    if isinstance(value, str) and value.endswith("%"):
        try:
            return float(value[:-1]) / 100
        except ValueError:
            raise ValueError("give a share such as 0.75 or 75%") from None
    return value


def _read_limit(value: object) -> object:
    """Read a share of the window, or tokens. 75 could be either, so it is refused."""
    read = _read_share(value)
    if isinstance(read, str):
        try:
            read = float(read)
        except ValueError:
            raise ValueError("give a share such as 0.75 or 75%, or a number of tokens") from None
    if isinstance(read, int | float) and 1 < read <= 100:
        raise ValueError(f"{read:g} could be tokens or percent; write 0.75 or 75% for a share, or tokens above 100")
    return read


def _refuse_set(value: object) -> object:
    if isinstance(value, set | frozenset):
        raise ValueError("give a list: a set has no order")
    return value


def _check_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"give a regular expression: {error}") from None
    return value


Pattern = Annotated[str, AfterValidator(_check_pattern)]
Names = Annotated[tuple[str, ...], BeforeValidator(_refuse_set)]
Count = Annotated[int, BeforeValidator(_read_count), Field(ge=0, le=TOKENS_MAX)]
Positive = Annotated[int, BeforeValidator(_read_count), Field(ge=1, le=TOKENS_MAX)]
Share = Annotated[float, BeforeValidator(_read_share), Field(gt=0, le=1)]
Score = Annotated[float, BeforeValidator(_read_share), Field(ge=0, le=1)]
Limit = Annotated[float, BeforeValidator(_read_limit), Field(gt=0, le=TOKENS_MAX)]
Attempts = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=1, le=20)]
Seconds = Annotated[float, BeforeValidator(_refuse_switch), Field(gt=0, le=3_600)]


def share_of(limit: float, window: int) -> float:
    """Return a limit as a share of the window, whichever way it was written."""
    return limit if limit <= 1 else min(1.0, limit / window)


def check_agreement(config: CompressionConfig, merged: Merged) -> None:
    """Raise ConfigError if settings that are valid by themselves contradict each other."""
    known = {stage.name for block in config.known.blocks if hasattr(stage := getattr(config, block), "name")}
    seen: set[str] = set()
    for name in config.ladder:
        if name not in known:
            known |= _plugin_names()
        if name not in known:
            raise ConfigError(
                "{where}ladder names an unknown stage '{name}'{hint}; there are {listed}",
                where=merged.where("ladder"),
                name=name,
                hint=suggest(name, known),
                listed=", ".join(sorted(known)),
            )
        if name in seen:
            raise ConfigError(
                "{where}ladder names '{name}' twice; a stage runs once", where=merged.where("ladder"), name=name
            )
        seen.add(name)
    _check_plugins(config, merged)
    _check_options(config, merged)
    window = window_of(config, config.model or "")
    if window is not None and config.reserve is not None and config.reserve >= window:
        raise ConfigError(
            "{where}reserve is {reserve:,} but the window is {window:,}; lower reserve",
            where=merged.where("reserve"),
            reserve=config.reserve,
            window=window,
        )
    _check_target(config, merged, window)


def _plugin_names() -> set[str]:
    from refold.plugins import find_plugins  # Searching is slow, so only settings that name a plugin pay for it.

    return {one.name for one in find_plugins("stage")}


def _check_plugins(config: CompressionConfig, merged: Merged) -> None:
    """Refuse options for a plugin that is not installed, and options that a plugin does not take."""
    for name in config.plugins:
        if name not in (there := _plugin_names()):
            raise ConfigError(
                "{where}plugins names '{name}'{hint}, which is not installed",
                where=merged.where("plugins"),
                name=name,
                hint=suggest(name, there),
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
        for option in fields(stage):
            name, value = f"{block}.{option.name}", getattr(stage, option.name)
            given = merged.values.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if isinstance(given, bool):
                raise ConfigError(
                    "{where}{name} is {given}; give a number", where=merged.where(name), name=name, given=given
                )
            # Blocks that are not stages hold weights, and a weight may be negative.
            least, most = (0, TOKENS_MAX) if isinstance(value, int) else (0 if hasattr(stage, "name") else -1, 1)
            if not least <= value <= most:
                raise ConfigError(
                    "{where}{name} is {value}; give a number from {least} to {most:,}",
                    where=merged.where(name),
                    name=name,
                    value=value,
                    least=least,
                    most=most,
                )


def _check_target(config: CompressionConfig, merged: Merged, window: int | None) -> None:
    """Refuse a target above the trigger if one layer set both; otherwise the lower layer gives way (see find_tiers)."""
    names = [name for name in ("trigger_ratio", *_TRIGGERS) if getattr(config, name) is not None]
    targets = [name for name in ("target_ratio", "compact_target") if getattr(config, name) is not None]
    if not names or not targets:
        return
    trigger, target = names[0], targets[0]
    if merged.sources[trigger].layer != merged.sources[target].layer:
        return
    high, low = getattr(config, trigger), getattr(config, target)
    if window is None and (high > 1) is not (low > 1):
        return  # A share and a number of tokens cannot be compared without the window.
    if window is not None:
        high, low = share_of(high, window), share_of(low, window)
    if low > high:
        raise ConfigError(
            "{where}{target} is {value:g}, above {trigger} {value2:g}; lower the target below the threshold",
            where=merged.where(target),
            target=target,
            value=getattr(config, target),
            trigger=trigger,
            value2=getattr(config, trigger),
        )


def window_of(config: CompressionConfig, model: str) -> int | None:
    """Return the window that the settings give a model, or None."""
    window = config.window
    if isinstance(window, dict):
        found = [name for name in window if name != "*" and model.startswith(name)]
        return window[max(found, key=len)] if found else window.get("*")
    return window


def find_tiers(config: CompressionConfig) -> Tiers:
    """Return the tiers as shares of the room; those that a document states of the window are shares of the window."""
    window = window_of(config, config.model or "")
    soft = _find_share(config, ("trigger_ratio", *_TRIGGERS), window, TIERS.soft)
    target = _find_share(config, ("target_ratio", "compact_target"), window, TIERS.target)
    # A share that a user set is taken as it is: a preset's limit in tokens does not apply to it.
    ratio, depth = config.source("target_ratio"), config.source("depth")
    is_own = ratio is not None and ratio.layer != "preset" and depth is not None and depth.layer == "preset"
    by_depth = None if is_own or config.compact_target is not None else DEPTHS.get(config.depth or "")
    target_tokens = config.target_tokens or by_depth
    # If the trigger was lowered below a preset's target, half of it keeps a distance between two compressions.
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
    """Return the counts that trigger a compression, where they are set."""
    # Twice the recent rounds is a trigger only if importance decides what stays.
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


_SLACK_SHARE = 100


def _reserve_of(model: ModelInfo, window: int) -> int:
    # A reserve made for the model's window would take up most of a window that was set much smaller.
    return min(model.output_reserve, window // 8 if window != model.window else window // 2)


def follow_output(
    config: CompressionConfig, model: str | None, output_tokens: int | None, window: int | None = None
) -> int | None:
    """Return the reserve of a request that limits its answer to less than the usual reserve; None for all others.

    A request that asks for more keeps the usual reserve: only some providers count the limit towards the window.
    """
    if not output_tokens or output_tokens < 1 or config.reserve is not None:
        return None
    info = model_info(model or config.model)
    window = window or window_of(config, info.name) or info.window
    # Even an exact count misses some tokens of tools and images, and a refused request costs more than this room.
    wanted = max(output_tokens, window // _SLACK_SHARE)
    return wanted if wanted < _reserve_of(info, window) else None


def leave_room(
    config: CompressionConfig, model: str | None, output_tokens: int | None, window: int | None = None
) -> int | None:
    """Return the reserve of a request that limits its answer: that limit, at most half of the window; None without one.

    It raises a reserve in the settings and never lowers one, unless that was made for a larger window.
    """
    if not output_tokens:
        return None
    info = model_info(model or config.model)
    window = window or window_of(config, info.name) or info.window
    stated = config.reserve if config.reserve is not None and config.reserve < window else 0
    return follow_output(config, model, output_tokens, window) or max(stated, min(output_tokens, window // 2))


def find_budget(config: CompressionConfig, model: ModelInfo, margin: float) -> Budget:
    """Return the tiers in tokens. A trigger or target that a document states of the window is a share of the window."""
    window = window_of(config, model.name) or model.window
    reserve = _reserve_of(model, window) if config.reserve is None else config.reserve
    budget = window_budget(window, reserve, find_tiers(config), margin=margin)
    soft, target = budget.soft, budget.target
    trigger = next((limit for name in _TRIGGERS if (limit := getattr(config, name)) is not None), None)
    if trigger is not None:
        soft = max(1, min(budget.hard, int(share_of(trigger, window) * window)))
    if config.compact_target is not None:
        target = max(1, int(share_of(config.compact_target, window) * window))
    if config.has_model:
        # The request for a note is the last view, a question and its answer: they must fit, too.
        most = model.window if model.is_known else window
        soft = max(1, min(soft, most - min(NOTE_ROOM, most // 4)))
    if target > soft:
        target = max(1, soft // 2)
    # Shares of the room exclude the system prompt and tools; the documents' shares are of the whole window.
    is_of_room = trigger is None and config.compact_target is None
    is_ruled = trigger is not None and config.fold.keeps_by_count
    tiers = replace(budget, soft=soft, target=target, warn=min(budget.warn, soft))
    spacing = soft - target if config.fold.is_paced else 0
    return replace(tiers, is_of_room=is_of_room, is_ruled=is_ruled, spacing=spacing)


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. ``layer`` is ``built in`` if no layer sets it; ``means`` describes it, ``hint`` is its type."""

    name: str
    value: object
    layer: str
    place: str
    means: str
    hint: object = field(default=str, repr=False)

    @property
    def is_set(self) -> bool:
        return self.value is not None

    @property
    def share(self) -> str:
        """The value as a percentage, 0.8 as ``80%``; a limit in tokens stays a number. Empty if it is not a share."""
        is_share = not {Share, Limit}.isdisjoint((self.hint, *get_args(self.hint)))
        if not is_share or not isinstance(self.value, int | float):
            return ""
        return f"{self.value * 100:.6g}%" if self.value <= 1 else f"{self.value:,g}"

    def to_dict(self) -> dict[str, object]:
        return {one.name: getattr(self, one.name) for one in fields(Row) if one.name != "hint"}


RowKind = TypeVar("RowKind", bound=Row)


def explain(config: CompressionConfig) -> list[Row]:
    """Return a row for every setting and every stage option, in the order of the schema."""
    hints = get_type_hints(type(config), include_extras=True)
    rows = [
        _row(config, field.alias or name, getattr(config, name), field.description or "", hint=hints[name])
        for name, field in type(config).model_fields.items()
        if name not in config.known.blocks
    ]
    ideas = {meaning.names[0]: meaning.idea for meaning in MEANINGS}
    for block in config.known.blocks:
        stage = getattr(config, block)
        hints = get_type_hints(type(stage))
        for option in fields(stage):
            if "block" not in option.metadata:
                name, value = f"{block}.{option.name}", getattr(stage, option.name)
                rows.append(_row(config, name, value, ideas.get(name, ""), hint=hints[option.name]))
    return rows


def find_row(rows: Mapping[str, RowKind], name: str) -> RowKind:
    """Return the row that is in effect for ``name``: a preset may set it under another document's name."""
    own = next((meaning.names for meaning in MEANINGS if name in meaning.names), ())
    said = (rows[one] for one in (name, *own) if rows[one].is_set and rows[one].layer != "built in")
    return next(said, rows[name])


def _row(config: CompressionConfig, name: str, value: object, means: str, *, hint: object) -> Row:
    if isinstance(value, LedgerPlace):
        value = str(value)  # Without its password.
    source = config.source(name)
    layer, place = ("built in", "") if source is None else (source.layer, source.place)
    return Row(name, value, layer, place, means, hint)
