"""Layers of settings: who said what, where, and which word counts.

preset < user < project < environment < session < call. A layer is a flat table (``fold.keep_turns``) with the place
of each value. ``merge`` lays them over each other and remembers where each value came from. It reads no file and no
environment, and it judges no value's type: that is the schema's part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from refold.config.names import MEANINGS, family_of
from refold.errors import ConfigError, Sentence

LayerName = Literal["preset", "user", "project", "environment", "session", "call"]
ORDER: tuple[LayerName, ...] = ("preset", "user", "project", "environment", "session", "call")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value came from: the layer, and the file and line, variable or argument within it."""

    layer: LayerName
    place: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.place}" if self.place else self.layer


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one place, flat, by name; ``places`` says where each stands, ``place`` where all of them do."""

    name: LayerName
    values: Mapping[str, object]
    place: str = ""
    places: Mapping[str, str] = field(default_factory=dict)

    def source(self, name: str) -> Source:
        """Return where this layer sets a name."""
        return Source(self.name, self.places.get(name, self.place))


@dataclass(frozen=True, slots=True)
class Merged:
    """What counts after all layers: values and where each came from, flat, by name."""

    values: dict[str, object]
    sources: dict[str, Source]

    def where(self, name: str) -> str:
        """Return the place of a setting for an error message."""
        source = self.sources.get(name)
        return f"{source.place}: " if source and source.place else ""


def merge(layers: Sequence[Layer]) -> Merged:
    """Lay layers over each other, lowest first; a name replaces every other name of its meaning below it."""
    values: dict[str, object] = {}
    sources: dict[str, Source] = {}
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
    """Raise a ConfigError that names both, if two settings of a layer claim one meaning with different values."""
    for meaning in MEANINGS:
        told = [(name, layer.values[name]) for name in meaning.names if layer.values.get(name) is not None]
        for name, value in told[1:]:
            first, other = told[0]
            if _plain(value) != _plain(other):
                raise ConfigError(
                    Sentence(
                        "{first} = {other!r} ({where}) and {name} = {value!r} ({here}) both say {idea}; "
                        "keep one of them",
                        first=first,
                        other=other,
                        where=layer.source(first),
                        name=name,
                        value=value,
                        here=layer.source(name),
                        idea=Sentence(meaning.idea),
                    )
                )


def _plain(value: object) -> object:
    """Bring one value written in two ways to one form: ``75%``, ``"0.75"`` and ``0.75``."""
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
