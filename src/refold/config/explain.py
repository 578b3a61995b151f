"""Every setting, its value, and where it came from: what ``refold config explain`` shows. Values only, no layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from dataclasses import fields as stage_fields

from refold.config.names import MEANINGS
from refold.config.schema import CompressionConfig
from refold.ledger.place import LedgerPlace


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. ``layer`` is ``built in`` where nobody set it; ``means`` says what it is for."""

    name: str
    value: object
    layer: str
    place: str
    means: str

    @property
    def is_set(self) -> bool:
        """True if a value is in force."""
        return self.value is not None

    def to_dict(self) -> dict[str, object]:
        """Return the row as plain values, for JSON."""
        return asdict(self)


def explain(config: CompressionConfig) -> list[Row]:
    """Return a row for every setting and every option of every stage, in the order of the schema."""
    return [*_explain_settings(config), *_explain_blocks(config)]


def _explain_settings(config: CompressionConfig) -> Iterator[Row]:
    for attribute, field in type(config).model_fields.items():
        if attribute not in config.known.blocks:
            name = field.alias or attribute
            yield _row(config, name, getattr(config, attribute), field.description or "")


def _explain_blocks(config: CompressionConfig) -> Iterator[Row]:
    for block in config.known.blocks:
        stage = getattr(config, block)
        for option in stage_fields(stage):
            if "block" in option.metadata:
                continue
            name = f"{block}.{option.name}"
            yield _row(config, name, getattr(stage, option.name), _describe_option(name))


def _row(config: CompressionConfig, name: str, value: object, means: str) -> Row:
    if isinstance(value, LedgerPlace):
        value = str(value)  # Without its password.
    source = config.source(name)
    if source is None:
        return Row(name, value, "built in", "", means)
    return Row(name, value, source.layer, source.place, means)


def _describe_option(name: str) -> str:
    return next((meaning.idea for meaning in MEANINGS if meaning.names[0] == name), "")
