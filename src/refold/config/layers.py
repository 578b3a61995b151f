"""Layers of settings: names, YAML, presets, and the merge that tracks the source of each value.

preset < user < project < environment < session < call. A layer is a flat table (``fold.keep_turns``) with the place
of each value; ``merge`` lays layers over each other. Five documents name one idea in several ways (``window``,
``contextWindowTokens``): ``MEANINGS`` is the one table of those names. Nothing here reads a user's file or the
environment, and nothing checks the type of a value: the schema does that.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePath
from reprlib import Repr
from typing import TYPE_CHECKING, Literal

from refold.errors import ConfigError, Sentence

if TYPE_CHECKING:
    from yaml import SafeLoader
    from yaml.nodes import Node


_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Blocks of a settings file that do not configure compression; ``load_block`` reads them.
OTHER_BLOCKS = frozenset({"chat", "gateway", "mcp"})
# Short spellings that people use; each is the same setting, not another name for its meaning.
SPELLINGS = {"auto": "auto_compress"}
LayerName = Literal["preset", "user", "project", "environment", "session", "call"]
ORDER: tuple[LayerName, ...] = ("preset", "user", "project", "environment", "session", "call")
_NODES_MAX = 500_000
_PASSWORD = re.compile(r"(://[^\s:/@]{0,300}:)\S{0,1000}@")
_SHORT = Repr()
DEFAULT = "default"
PRESETS: dict[str, str] = {
    "default": "for most uses: folds when the window is nearly full or to save money; needs no model",
    "archive": "at 100 messages or 4,000 tokens, all but the newest 50 become a summary",
    "importance": "above 20 messages, old ones are scored; important ones stay beside a short summary",
    "offload": "old tool results go to files; if that frees little, the history is summarised",
    "hybrid": "at 80% of the window, all but the last 6 messages become a summary",
    "turns": "at 75% of the window, all but the last 6 turns become a summary",
}
# The settings of the document that preset ``archive`` comes from, and the file it keeps them in.
ARCHIVE_FIELDS = ("threshold_rounds", "threshold_tokens", "retention_count")
ARCHIVE_FILE = "x-agent.yaml"
# Settings that do not decide when to compress or what stays, so they do not change which preset is implied.
_NEUTRAL = frozenset(
    (
        *("model", "window", "reserve", "tokenizer", "auto_compress", "language", "ledger", "write_files"),
        *("compact_model", "compact_retry_count", "compact_url", "compact_timeout_s"),
        *("summariser", "redact", "background"),
    )
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """One idea and every name for it, ours first.

    Within one layer, two names of one meaning must agree. A higher layer that sets any name of a ``family`` overrides
    what lower layers set under every name of that family.
    """

    idea: str
    names: tuple[str, ...]
    family: str = ""


MEANINGS = (
    Meaning("the window of the model in tokens", ("window", "context_window_tokens")),
    Meaning(
        "the share of the window at which compression begins",
        ("trigger_ratio", "compact_trigger", "context_threshold", "context_compression_threshold"),
    ),
    Meaning("the share of the window that a compression aims at", ("target_ratio", "compact_target")),
    Meaning("whether to compress automatically", ("auto_compress", "context_compression_enabled")),
    Meaning(
        "how many of the newest messages a fold keeps",
        ("fold.keep_messages", "retention_count", "compact_preserve_count", "keep_last"),
        family="keep",
    ),
    Meaning("how many of the newest turns a fold keeps", ("fold.keep_turns", "keep_last_turns"), family="keep"),
    Meaning("how many of the newest rounds a fold keeps", ("fold.keep_rounds", "keep_recent"), family="keep"),
    Meaning("the length of one tool output in characters", ("truncate.chars_max", "max_tool_output")),
    Meaning("the length of a summary in tokens", ("fold.summary_tokens_max", "compact_target_tokens")),
    Meaning("the score from which a message is kept", ("fold.importance_threshold", "importance_threshold")),
)


def read_name(key: str) -> str:
    """Return a setting's name in our spelling: ``keepRecent`` and ``KEEP_RECENT`` are ``keep_recent``."""
    snake = key.lower() if key.isupper() else _CAPITAL.sub("_", key).lower()
    snake = snake.replace("-", "_")
    return SPELLINGS.get(snake, snake)


def suggest(name: str, known: Iterable[str], near: float = 0.6) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest known name, or an empty string if none is as near as ``near``."""
    found = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=near)
    return Sentence(" (did you mean '{name}'?)", name=found[0]) if found else ""


def family_of(name: str) -> tuple[str, ...]:
    """Return every name that a new value under this name replaces, the name itself included."""
    own = next((meaning for meaning in MEANINGS if name in meaning.names), None)
    if own is None:
        return (name,)
    if not own.family:
        return own.names
    return tuple(name for meaning in MEANINGS if meaning.family == own.family for name in meaning.names)


@dataclass(frozen=True, slots=True)
class SettingSource:
    """The source of a value: its layer, and the file and line, variable or argument within it."""

    layer: LayerName
    place: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.place}" if self.place else self.layer


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one place, flat, by name. ``places`` has the place of each setting, ``place`` that of the rest."""

    name: LayerName
    values: Mapping[str, object]
    place: str = ""
    places: Mapping[str, str] = field(default_factory=dict)

    def rank(self) -> int:
        return ORDER.index(self.name)

    def source(self, name: str) -> SettingSource:
        """Return where this layer sets a name."""
        return SettingSource(self.name, self.places.get(name, self.place))


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of all layers: values and their sources, flat, by name."""

    values: dict[str, object]
    sources: dict[str, SettingSource]

    def where(self, name: str) -> str:
        """Return the place of a setting for an error message."""
        source = self.sources.get(name)
        return f"{source.place}: " if source and source.place else ""


def merge(layers: Sequence[Layer]) -> Merged:
    """Merge layers, lowest first; a name replaces every other name of its meaning in lower layers."""
    values: dict[str, object] = {}
    sources: dict[str, SettingSource] = {}
    for layer in layers:
        refuse_conflicts(layer)
        for name in layer.values:
            for other in family_of(name):
                if other not in layer.values:
                    values.pop(other, None)
                    sources.pop(other, None)
        for name, value in layer.values.items():
            values[name] = value
            sources[name] = layer.source(name)
    return Merged(values, sources)


def refuse_conflicts(layer: Layer) -> None:
    """Raise a ConfigError that names both settings if a layer gives one meaning two different values."""
    for meaning in MEANINGS:
        given = [(name, layer.values[name]) for name in meaning.names if layer.values.get(name) is not None]
        for name, value in given[1:]:
            first, other = given[0]
            if _plain(value) != _plain(other):
                raise ConfigError(
                    "{first} = {other!r} ({where}) and {name} = {value!r} ({here}) both set {idea}; keep one",
                    first=first,
                    other=other,
                    where=layer.source(first),
                    name=name,
                    value=value,
                    here=layer.source(name),
                    idea=Sentence(meaning.idea),
                )


def _plain(value: object) -> object:
    """Return one form for a value that can be written in several: ``75%``, ``"0.75"`` and ``0.75``."""
    if isinstance(value, bool) or not isinstance(value, str):
        return value
    text = value.strip().lower()
    if text in {"on", "true", "yes"}:
        return True
    if text in {"off", "false", "no"}:
        return False
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return text


_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxdict, _SHORT.maxlist, _SHORT.maxlevel = 3, 4, 2


@dataclass(frozen=True, slots=True)
class Known:
    """All known names: settings, and for each block (one per stage) its options."""

    settings: frozenset[str]
    blocks: Mapping[str, frozenset[str]]


def show(value: object) -> str:
    """Return a value for an error message: shortened, and an address without its password."""
    return _SHORT.repr(_PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value)


def flatten(
    settings: Mapping[object, object], known: Known, places: Mapping[str, str], place: str
) -> dict[str, object]:
    """Return settings by their flat names; raise ConfigError for an unknown key or one that is given twice."""
    flat: dict[str, object] = {}
    written: dict[str, str] = {}
    for key, value in settings.items():
        name = _check_key(key, {*known.settings, *known.blocks}, places, place)
        if name in known.blocks and value is None:
            continue
        if name not in known.blocks:
            _put(flat, written, name, value, key=str(key), place=places.get(name, place))
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(
                "{where}{name} must be a block of options ({listed}), not {shown}",
                where=_where(places, name, place),
                name=name,
                listed=", ".join(sorted(known.blocks[name])) or "it has none",
                shown=show(value),
            )
        for option, inner in value.items():
            inner_name = f"{name}.{_check_key(option, known.blocks[name], places, place, prefix=f'{name}.')}"
            _put(flat, written, inner_name, inner, key=f"{key}.{option}", place=places.get(inner_name, place))
    return flat


def refuse_two(first: str, value: object, second: str, other: object) -> ConfigError:
    """Return the error for one setting that has two values, under names that say where they were written."""
    return ConfigError(
        "{first} = {shown} and {second} = {shown2} are one setting; keep one of them",
        first=first,
        shown=show(value),
        second=second,
        shown2=show(other),
    )


def _put(flat: dict[str, object], written: dict[str, str], name: str, value: object, *, key: str, place: str) -> None:
    if name in flat and flat[name] != value:
        at = f"{place}: " if place else ""
        raise refuse_two(f"{at}{written[name]}", flat[name], key, value)
    flat[name] = value
    written[name] = key


def _check_key(
    key: object, known: frozenset[str] | set[str], places: Mapping[str, str], place: str, *, prefix: str = ""
) -> str:
    name = read_name(key) if isinstance(key, str) else ""
    if name in known:
        return name
    shown = f"{prefix}{key}" if isinstance(key, str) else show(key)
    others = () if prefix else OTHER_BLOCKS
    hint = suggest(f"{prefix}{name}", [*(f"{prefix}{one}" for one in known), *others])
    if not hint:
        options = ", ".join(sorted(known)) or "no options"
        hint = (
            Sentence("; {block} has {options}", block=prefix[:-1], options=options)
            if prefix
            else Sentence("; 'refold config explain --all' lists what there is")
        )
    where = _where(places, f"{prefix}{name}", place)
    raise ConfigError("{where}unknown setting '{name}'{hint}", where=where, name=shown[:80], hint=hint)


def _where(places: Mapping[str, str], name: str, place: str) -> str:
    at = places.get(name, place)
    return f"{at}: " if at else ""


def read_yaml(text: str, place: str) -> tuple[dict[object, object], dict[str, int]]:
    """Return a YAML mapping and the line of each key, by dotted path in our spelling; invalid YAML is a ConfigError."""
    import yaml

    try:
        loader = _open_loader(text)
        node = loader.get_single_node()
        _check_weight(node, place)
        lines: dict[str, int] = {}
        _note_lines(node, "", lines, place)  # Before it is constructed, which merges what ``<<`` names into the nodes.
        loaded = loader.construct_document(node) if node is not None else None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            "{place}:{line}: not valid YAML: the character {shown}",
            place=place,
            line=line,
            shown=show(chr(error.character)),
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ConfigError("{place}{at}: not valid YAML: {problem}", place=place, at=at, problem=problem) from None
    except RecursionError:
        raise ConfigError("{place}: not valid YAML: nested too deeply", place=place) from None
    if loaded is None:
        return {}, {}
    if not isinstance(loaded, dict):
        raise ConfigError(
            "{place}:1: expected settings as 'name: value' lines, not {shown}", place=place, shown=show(loaded)
        )
    return loaded, lines


def _open_loader(text: str) -> SafeLoader:
    import yaml

    class Loader(yaml.SafeLoader):
        """Reports the line of a date or number that does not exist, such as 2024-02-31."""

        def construct_object(self, node: Node, deep: bool = False) -> object:
            try:
                return super().construct_object(node, deep)
            except (ValueError, TypeError):
                problem = f"{show(node.value)} is not a valid value; put it in quotes if it is text"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    return Loader(text)


def _check_weight(node: Node | None, place: str) -> None:
    """Refuse aliases that expand to more than a file could hold: a few lines of them would take hours to read."""
    weights: dict[int, int] = {}

    def weigh(one: object) -> int:
        if isinstance(one, tuple):
            return sum(map(weigh, one))
        inner = getattr(one, "value", None)
        if not isinstance(inner, list):
            return 1
        if id(one) not in weights:
            weights[id(one)] = _NODES_MAX + 1  # Until the sum is known: an alias within its own anchor never ends.
            weights[id(one)] = 1 + sum(map(weigh, inner))
        return weights[id(one)]

    if weigh(node) > _NODES_MAX:
        raise ConfigError(
            "{place}: its aliases expand to more than {nodes_max:,} values; write them out",
            place=place,
            nodes_max=_NODES_MAX,
        )


def _note_lines(node: Node | None, prefix: str, lines: dict[str, int], place: str) -> None:
    """Note the line of each key, two levels deep. A repeated key is refused, because YAML would keep only the last."""
    from yaml.nodes import MappingNode, ScalarNode

    seen: dict[Hashable, int] = {}
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if not isinstance(key, ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in seen:
            raise ConfigError(
                "{place}:{line}: '{prefix}{value}' is set twice, first on line {seen}",
                place=place,
                line=line,
                prefix=prefix,
                value=key.value,
                seen=seen[key.value],
            )
        seen[key.value] = line
        path = f"{prefix}{read_name(key.value)}"
        lines[path] = line
        if not key.tag.endswith(":str"):
            lines.setdefault(prefix, line)  # Not a setting's name: YAML reads it as a number, a boolean or null.
        if isinstance(value, MappingNode) and path.count(".") < 2:
            _note_lines(value, f"{path}.", lines, place)


def find_implied(layers: Sequence[Layer]) -> Layer | None:
    """Return a layer with the preset ``archive`` if its document's file, or its three settings alone, imply it."""
    named = {name: layer for layer in layers for name in layer.values}
    if "preset" in named:
        return None
    file = next(
        (layer for layer in layers if layer.name == "project" and PurePath(layer.place).name == ARCHIVE_FILE), None
    )
    if file is not None:
        return Layer("project", {"preset": "archive"}, Sentence("implied by {what}", what=file.place))
    decisive = [name for name in named if name not in _NEUTRAL and not name.startswith("recall")]
    if sorted(decisive) != sorted(ARCHIVE_FIELDS):
        return None
    highest = max((named[name] for name in decisive), key=Layer.rank)
    return Layer(highest.name, {"preset": "archive"}, Sentence("implied by {what}", what=", ".join(ARCHIVE_FIELDS)))


def check_preset(name: str, where: str = "") -> None:
    """Raise ConfigError if there is no such preset; ``where`` is the file or variable that names it."""
    if name not in PRESETS:
        raise ConfigError(
            "{where}unknown preset '{name}'{hint}; there are {listed}",
            where=where,
            name=name,
            hint=suggest(name, PRESETS),
            listed=", ".join(PRESETS),
        )


def preset_layers(name: str, read_layer: Callable[..., Layer]) -> list[Layer]:
    """Return the layers of a preset: ``default``, then the preset's own file, which states only differences."""
    check_preset(name)
    chosen = [DEFAULT] if name == DEFAULT else [DEFAULT, name]
    return [read_layer("preset", _read_preset(one), one) for one in chosen]


@lru_cache
def _read_preset(name: str) -> dict[object, object]:
    text = files("refold").joinpath("presets", f"{name}.yaml").read_text(encoding="utf-8")
    settings, _ = read_yaml(text, f"preset {name}")
    return {**settings, "preset": name}
