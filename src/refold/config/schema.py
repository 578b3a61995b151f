"""``CompressionConfig``: every setting, in one frozen model. Each stage declares the options of its own block.

A config is computed from layers (preset < user < project < environment < session < call) and remembers the source of
each value. An invalid, unknown or contradictory setting raises ConfigError, never pydantic's own error: the sentence
names the first such setting, its place, its value (shortened) and what to write instead. Only ``load`` reads the
environment and users' files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field as StageField
from dataclasses import fields as stage_fields
from dataclasses import is_dataclass
from dataclasses import replace as change
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from refold.budget import Budget, Carry, Economics, Tariff, Thresholds, Tiers
from refold.config import values
from refold.config.layers import (
    Known,
    Layer,
    LayerName,
    Merged,
    SettingSource,
    check_preset,
    find_implied,
    flatten,
    preset_layers,
    show,
)
from refold.config.layers import merge as merge_layers
from refold.config.names import DocumentNames, fill_options
from refold.config.thresholds import EvalOptions
from refold.config.values import (
    Count,
    LanguageName,
    Names,
    Pattern,
    Place,
    Positive,
    Seconds,
    Share,
)
from refold.errors import ConfigError, Sentence
from refold.recall.options import MemoryOptions, RecallOptions, read_recall
from refold.stages import STAGES
from refold.stages.clamp import Clamp
from refold.stages.dedupe import Dedupe
from refold.stages.densify import Densify
from refold.stages.fold import Fold
from refold.stages.mask import Mask
from refold.stages.offload import Offload
from refold.stages.prune import Prune
from refold.stages.score import ScoreOptions
from refold.stages.stage import ArrivalStage, Stage, acts_on_arrival
from refold.stages.truncate import Truncate
from refold.stages.window import Window
from refold.tokens.models import ModelInfo

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_ADVICE = {
    "int_parsing_size": Sentence("give a smaller number"),
    "finite_number": Sentence("give a finite number"),
    "string_type": Sentence("give text"),
    "dict_type": Sentence("give a table"),
    "literal_error": Sentence("give {expected}"),
    "greater_than_equal": Sentence("give {ge:,} or more"),
    "greater_than": Sentence("give more than {gt:,}"),
    "less_than_equal": Sentence("give {le:,} or less"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), Sentence("give a whole number")),
    **dict.fromkeys(("float_parsing", "float_type"), Sentence("give a number")),
    **dict.fromkeys(("bool_parsing", "bool_type"), Sentence("give on or off")),
    **dict.fromkeys(("tuple_type", "list_type"), Sentence("give a list")),
}


class CompressionConfig(DocumentNames):
    """All settings. ``CompressionConfig(threshold_rounds=10)`` sets some on top of a preset, else ``default``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    # The model and its window
    preset_name: str = Field("default", alias="preset", description="the preset that these settings build on")
    model: str | None = Field(None, description="the conversation's model; decides window, tokenizer and prices")
    window: Positive | dict[str, Positive] | None = Field(
        None, description="tokens of the model's window, or a table of model and tokens; '*' is any other model"
    )
    reserve: Count | None = Field(
        None, description="tokens of the window left free for the answer; unset: one eighth, or max_tokens if smaller"
    )
    tokenizer: str | None = Field(None, description="cl100k_base, o200k_base, chars/4 or estimate")

    # When to act
    auto_compress: bool = Field(
        True, description="compress automatically; when off, only what exceeds the window is compressed"
    )
    warn_ratio: Share = Field(0.8, description="share of the room at which refold warns")
    trigger_ratio: Share | None = Field(
        None, description="share of the room (window less reserve) at which compression starts"
    )
    threshold_rounds: Positive | None = Field(None, description="messages in the view at which compression starts")
    threshold_tokens: Positive | None = Field(None, description="tokens in the view at which compression starts")
    economic: bool = Field(False, description="also fold if that saves a tenth of the bill, expected re-reads included")
    economic_ratio: Share = Field(0.45, description="share of the room below which nothing is folded to save money")
    economic_tokens: Count = Field(
        100_000, description="tokens above which folding to save money is allowed in a large room"
    )
    tune: Literal["off", "auto"] = Field("off", description="auto adjusts settings from stored sessions, within bounds")
    compact_on_length: bool = Field(
        False, description="an answer cut off at its length forces a compression, however full the window is"
    )

    # How messages are classified
    observations: Pattern | None = Field(
        None, description="regular expression for the beginning of tool results that a framework sends as user text"
    )

    # How far to compress, and what stays
    target_ratio: Share | None = Field(None, description="share of the room that a compression aims at")
    depth: Literal["thrifty", "balanced", "generous"] | None = Field(
        None, description="how much a compression leaves in a large room: thrifty, balanced or generous"
    )
    target_tokens: Positive | None = Field(
        None, description="the same in tokens, in the place of depth; in large rooms up to twice as many"
    )
    retention_count: Positive | None = Field(None, description="newest messages that a fold keeps")
    keep_recent: Positive | None = Field(None, description="newest rounds that a fold keeps")
    max_tool_output: Positive | None = Field(
        None, description="characters of one tool output; the rest is cut from its middle"
    )

    # The summary
    language: LanguageName | None = Field(
        None, description="en or zh, for summaries and commands; unset: the conversation's, and the terminal's"
    )
    compact_model: str | None = Field(None, description="the model that writes summaries; unset: the one in use")
    compact_url: str | None = Field(None, description="address of the model that writes summaries")
    compact_timeout_s: Seconds = Field(30.0, description="seconds that a summary may take, all attempts together")
    summariser: Literal["auto", "llm", "extract"] = Field(
        "auto", description="who writes summaries: a model if there is one (auto), always a model, or rules alone"
    )
    redact: bool = Field(True, description="mask keys and passwords before a model, a memory page or a log sees them")
    background: bool = Field(True, description="prepare summaries by a model in the background while there is room")

    # Where it is kept
    ledger: Place = Field(None, description="a file, or postgresql://…; unset: .refold/ledger.db of the workspace")

    # The ladder, and one block per stage
    ladder: Names = Field((), description="stages by name, cheapest first")
    plugins: dict[str, dict[str, Any]] = Field({}, description="options of plugins' stages, by name")
    write_files: bool = Field(False, description="whether files may be written; without it the stage offload waits")
    densify: Densify = Field(default_factory=Densify)
    truncate: Truncate = Field(default_factory=Truncate)
    dedupe: Dedupe = Field(default_factory=Dedupe)
    offload: Offload = Field(default_factory=Offload)
    mask: Mask = Field(default_factory=Mask)
    fold: Fold = Field(default_factory=Fold)
    score: ScoreOptions = Field(default_factory=ScoreOptions)
    prune: Prune = Field(default_factory=Prune)
    window_stage: Window = Field(default_factory=Window)  # "window" is the model's.
    clamp: Clamp = Field(default_factory=Clamp)
    recall: Annotated[RecallOptions, BeforeValidator(read_recall)] = Field(default_factory=RecallOptions)
    memory: MemoryOptions = Field(default_factory=MemoryOptions)
    eval: EvalOptions = Field(default_factory=EvalOptions)

    _layers: tuple[Layer, ...] = PrivateAttr(())
    _sources: dict[str, SettingSource] = PrivateAttr(default_factory=dict)
    # The providers' own variables, keys among them: never shown, never stored. Only ``load`` sets them.
    _variables: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _has_model: bool = PrivateAttr(False)
    _prompt_tokens: int | None = PrivateAttr(None)

    known: ClassVar[Known]

    def __init__(self, layers: Sequence[Layer] = (), /, **settings: Any) -> None:
        given = sorted([*layers, *([read_layer("call", settings)] if settings else [])], key=Layer.rank)
        if (implied := find_implied(given)) is not None:
            given.insert(0, implied)
        merged = merge_layers([*preset_layers(_find_preset(given), read_layer), *given])
        ready = fill_options(merged, type(self).known)
        try:
            super().__init__(**nest(ready.values, type(self).known))
        except ValidationError as error:
            raise refuse_values(error, ready) from None
        except ConfigError as error:  # A stage refused its options; it does not know where they were written.
            where = ready.where(str(error.values.get("setting", "")))
            raise ConfigError("{where}{fault}", where=where, fault=error.args[0]) from None
        values.check_agreement(self, merged)
        self._layers = tuple(given)
        self._sources = ready.sources

    @classmethod
    def preset(cls, name: str) -> Self:
        """Return the settings of a preset: default, archive, importance, offload, hybrid or turns."""
        return cls(preset=name)

    def replace(self, **changes: Any) -> Self:
        """Return these settings with some of them changed."""
        return self.with_layer(read_layer("call", changes))

    def with_layer(self, layer: Layer) -> Self:
        """Return these settings with one more layer, above those of the same name."""
        made = type(self)([*self._layers, layer])
        made._variables = self._variables
        made._has_model, made._prompt_tokens = self._has_model, self._prompt_tokens
        return made

    def cut_on_arrival(self) -> Self:
        """Return these settings with long tool outputs cut as they arrive, for agents that can get the rest back."""
        return self.replace(truncate={"on_arrival": True}) if self.truncate.on_arrival is None else self

    def with_variables(self, variables: Mapping[str, str]) -> Self:
        """Return these settings with the variables that say where models are reached."""
        made = self.model_copy()
        made._variables = dict(variables)
        return made

    def with_model(self, prompt_tokens: int | None = None) -> Self:
        """Return these settings for a caller with a summary model, whose prompts may have ``prompt_tokens`` tokens."""
        made = self.model_copy()
        made._has_model, made._prompt_tokens = True, prompt_tokens
        return made

    @property
    def has_model(self) -> bool:
        """True if a model writes the summaries, as ``with_model`` says."""
        return self._settle_fold().summariser == "llm"

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that say where models are reached, keys among them; empty unless ``load`` read them."""
        return self._variables

    def __eq__(self, other: object) -> bool:
        # Two configs with the same values are equal, whatever the sources of the values.
        return isinstance(other, CompressionConfig) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.preset_name, self.ladder, self.fold, repr(self.window)))

    def source(self, name: str) -> SettingSource | None:
        """Return where a setting or a stage option (``fold.keep_turns``) was set; None if it has its built-in value."""
        return self._sources.get(name)

    def stages(self) -> list[Stage]:
        """Return the ladder with every option applied; the stages that guarantee the fit (L1) always come last."""
        names = [*self.ladder, *(name for name in ("window", "clamp") if name not in self.ladder)]
        if not self.write_files:
            # The view may only name files that are written.
            names = [name for name in names if name != "offload"]
        return [self._make_rung(name) for name in names]

    def _make_rung(self, name: str) -> Stage:
        if name == "fold":
            return self._settle_fold()
        if name in STAGES:
            return cast("Stage", getattr(self, block_of(name)))
        from refold.plugins import make_stage  # Searching is slow, so only settings that name a plugin pay for it.

        return cast("Stage", make_stage(name, self.plugins.get(name, {})))

    def _settle_fold(self) -> Fold:
        """Return the fold as it will run: with a model if there is one, unless a setting says otherwise."""
        fold = change(self.fold, score=self.score)
        if self.source("fold.summariser") is None:
            asks = self.summariser == "llm" or (self.summariser == "auto" and self._has_model)
            fold = change(fold, summariser="llm" if asks else "extract")
        if self._prompt_tokens is not None:
            fold = change(fold, prompt_tokens_max=max(500, min(fold.prompt_tokens_max, self._prompt_tokens)))
        return fold

    def arrival_stages(self) -> list[ArrivalStage]:
        """Return the stages that render a message once, when it first appears."""
        return [cast("ArrivalStage", stage) for stage in self.stages() if acts_on_arrival(stage)]

    def tiers(self) -> Tiers:
        return values.find_tiers(self)

    def thresholds(self) -> Thresholds:
        """Return the counts that trigger a compression on their own."""
        return values.find_thresholds(self)

    def economics(self, tariff: Tariff, carry: Carry = Carry()) -> Economics:  # noqa: B008 - a frozen value
        """Return the inputs of the economic trigger, at these prices."""
        return Economics(tariff, carry, share_min=self.economic_ratio, tokens_min=self.economic_tokens)

    def budget(self, model: ModelInfo, margin: float = 0.0) -> Budget:
        """Return the budget of a model's window; ``margin`` is how far the counter may undercount."""
        return values.find_budget(self, model, margin)


def block_of(stage: str) -> str:
    """Return the name of a stage's block of options."""
    return "window_stage" if stage == "window" else stage


def _declare() -> Known:
    blocks = {
        name: frozenset(option.name for option in stage_fields(kind) if "block" not in option.metadata)
        for name, field in CompressionConfig.model_fields.items()
        if is_dataclass(kind := field.annotation) and isinstance(kind, type)
    }
    names = {field.alias or name for name, field in CompressionConfig.model_fields.items() if name not in blocks}
    return Known(frozenset(names), blocks)


CompressionConfig.known = _declare()


def read_layer(
    name: LayerName, settings: Mapping[Any, Any], place: str = "", places: Mapping[str, str] | None = None
) -> Layer:
    """Return a layer from settings as people write them: any spelling, nested blocks, stage objects."""
    plain: dict[Any, object] = {}
    for key, value in settings.items():
        plain[key] = _unfold_stage(value)
        for option in _find_blocks(value):
            plain.setdefault(option.metadata["block"], _unfold_stage(getattr(value, option.name)))
    return Layer(name, flatten(plain, CompressionConfig.known, places or {}, place), place, places or {})


def _unfold_stage(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {o.name: getattr(value, o.name) for o in stage_fields(value) if "block" not in o.metadata}
    return value


def _find_blocks(value: object) -> list[StageField[Any]]:
    """Return the options of a stage object that have a separate block and differ from their default."""
    if not is_dataclass(value) or isinstance(value, type):
        return []
    return [o for o in stage_fields(value) if "block" in o.metadata and getattr(value, o.name) != o.default]


def _find_preset(layers: Sequence[Layer]) -> str:
    named = [(layer, layer.values["preset"]) for layer in layers if layer.values.get("preset") is not None]
    if not named:
        return "default"
    layer, name = named[-1]
    if not isinstance(name, str):
        raise ConfigError("{layer}: preset must be a name, not {shown}", layer=layer.source("preset"), shown=show(name))
    # A caller knows its own arguments; a file's line or a variable has to be named.
    place = "" if layer.name == "call" else layer.source("preset").place
    check_preset(name, f"{place}: " if place else "")
    return name


def nest(values: Mapping[str, object], known: Known) -> dict[str, Any]:
    """Return flat settings as the model takes them: one table per block."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        block, dot, option = name.partition(".")
        if dot and block in known.blocks:
            nested.setdefault(block, {})[option] = value
        elif value is not None:
            nested[name] = value
    return nested


def refuse_values(error: ValidationError, merged: Merged) -> ConfigError:
    """Return a ConfigError for the first value that is not what its setting takes."""
    wrong = error.errors(include_url=False)
    first = wrong[0]
    name = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
    name, given = _find_setting(name, merged)
    if name == "window":
        return ConfigError(
            f"{merged.where(name)}window is {show(given)}; give a number of tokens (1 or more), "
            "or a table of model and tokens"
        )
    return ConfigError(
        "{where}{name} is {value}; {advice}",
        where=merged.where(name),
        name=name,
        value=show(given),
        advice=advise(first),
    )


def _find_setting(path: str, merged: Merged) -> tuple[str, object]:
    """Return the setting that an error's path belongs to: the longest flat name it starts with."""
    parts = path.split(".")
    for length in (2, 1):
        name = ".".join(parts[:length])
        if name in merged.values:
            return name, merged.values[name]
    return path, None


def advise(wrong: ErrorDetails) -> str:
    """Return what to write instead of a value that pydantic refused."""
    context: dict[str, Any] = wrong.get("ctx") or {}
    if wrong["type"] == "value_error":
        return str(context.get("error", wrong["msg"]))
    advice = _ADVICE.get(wrong["type"])
    if advice is None:
        return wrong["msg"][:1].lower() + wrong["msg"][1:]
    return Sentence(advice.template, **context)
