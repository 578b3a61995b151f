"""From what people write (YAML, JSON, keyword arguments) to flat settings with their places.

``read_yaml`` keeps the line of every key; ``flatten`` puts names into our spelling and refuses unknown ones with a
suggestion. Nothing here opens a file, and nothing judges whether a value is a good one.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from reprlib import Repr
from typing import TYPE_CHECKING

from refold.config.names import OTHER_BLOCKS, read_name, suggest
from refold.errors import ConfigError, Sentence

if TYPE_CHECKING:
    from yaml import SafeLoader
    from yaml.nodes import Node

_NODES_MAX = 500_000
_PASSWORD = re.compile(r"(://[^\s:/@]{0,300}:)\S{0,1000}@")
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxdict, _SHORT.maxlist, _SHORT.maxlevel = 3, 4, 2


@dataclass(frozen=True, slots=True)
class Known:
    """The names there are: settings, and for each block (one per stage) its options."""

    settings: frozenset[str]
    blocks: Mapping[str, frozenset[str]]


def show(value: object) -> str:
    """Return a value for an error message, never long, and an address without its password."""
    return _SHORT.repr(_PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value)


def flatten(
    settings: Mapping[object, object], known: Known, places: Mapping[str, str], place: str
) -> dict[str, object]:
    """Return settings by their flat names; raise ConfigError for a key that nobody declares or that comes twice."""
    flat: dict[str, object] = {}
    written: dict[str, str] = {}
    for key, value in settings.items():
        name = _check_key(key, "", {*known.settings, *known.blocks}, places, place)
        if name in known.blocks and value is None:
            continue
        if name not in known.blocks:
            _put(flat, written, name, value, str(key), places.get(name, place))
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{_where(places, name, place)}{name} must be a block of options "
                f"({', '.join(sorted(known.blocks[name])) or 'it has none'}), not {show(value)}"
            )
        for option, inner in value.items():
            inner_name = f"{name}.{_check_key(option, f'{name}.', known.blocks[name], places, place)}"
            _put(flat, written, inner_name, inner, f"{key}.{option}", places.get(inner_name, place))
    return flat


def _put(flat: dict[str, object], written: dict[str, str], name: str, value: object, key: str, place: str) -> None:
    if name in flat and flat[name] != value:
        at = f"{place}: " if place else ""
        raise ConfigError(
            f"{at}{written[name]} = {show(flat[name])} and {key} = {show(value)} are one setting; keep one of them"
        )
    flat[name] = value
    written[name] = key


def _check_key(
    key: object, prefix: str, known: frozenset[str] | set[str], places: Mapping[str, str], place: str
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
    raise ConfigError(Sentence("{where}unknown setting '{name}'{hint}", where=where, name=shown[:80], hint=hint))


def _where(places: Mapping[str, str], name: str, place: str) -> str:
    at = places.get(name, place)
    return f"{at}: " if at else ""


def read_yaml(text: str, place: str) -> tuple[dict[object, object], dict[str, int]]:
    """Return a YAML mapping and the line of each key, by dotted path in our spelling; broken YAML is a ConfigError."""
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
        raise ConfigError(f"{place}:{line}: not valid YAML: the character {show(chr(error.character))}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ConfigError(f"{place}{at}: not valid YAML: {problem}") from None
    except RecursionError:
        raise ConfigError(f"{place}: not valid YAML: nested too deeply") from None
    if loaded is None:
        return {}, {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{place}:1: expected settings as 'name: value' lines, not {show(loaded)}")
    return loaded, lines


def _open_loader(text: str) -> SafeLoader:
    import yaml

    class Loader(yaml.SafeLoader):
        """Says on which line a date or a number stands that there is not."""

        def construct_object(self, node: Node, deep: bool = False) -> object:
            try:
                return super().construct_object(node, deep)
            except (ValueError, TypeError):
                problem = f"{show(node.value)} is no value; put it in quotes if it is a text"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    return Loader(text)


def _check_weight(node: Node | None, place: str) -> None:
    """Refuse aliases that stand for more than a file could say: a few lines of them would be read for hours."""
    weights: dict[int, int] = {}

    def weigh(one: object) -> int:
        if isinstance(one, tuple):
            return sum(map(weigh, one))
        inner = getattr(one, "value", None)
        if not isinstance(inner, list):
            return 1
        if id(one) not in weights:
            weights[id(one)] = _NODES_MAX + 1  # Until it is known; an alias within its own anchor never ends.
            weights[id(one)] = 1 + sum(map(weigh, inner))
        return weights[id(one)]

    if weigh(node) > _NODES_MAX:
        raise ConfigError(f"{place}: its aliases stand for more than {_NODES_MAX:,} values; write them out")


def _note_lines(node: Node | None, prefix: str, lines: dict[str, int], place: str) -> None:
    """Note where each key stands, two levels deep; a key written twice is refused, since YAML keeps only the last."""
    from yaml.nodes import MappingNode, ScalarNode

    seen: dict[Hashable, int] = {}
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if not isinstance(key, ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in seen:
            raise ConfigError(f"{place}:{line}: '{prefix}{key.value}' is set twice, first on line {seen[key.value]}")
        seen[key.value] = line
        path = f"{prefix}{read_name(key.value)}"
        lines[path] = line
        if not key.tag.endswith(":str"):
            lines.setdefault(prefix, line)  # No name of a setting: YAML reads it as a number, a switch or nothing.
        if isinstance(value, MappingNode) and path.count(".") < 2:
            _note_lines(value, f"{path}.", lines, place)
