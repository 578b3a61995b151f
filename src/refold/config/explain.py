"""Every setting, its value, and where it came from: what ``refold config explain`` shows. Values only, no layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as stage_fields
from typing import get_type_hints

from refold.config.names import MEANINGS, find_said
from refold.config.schema import CompressionConfig
from refold.config.values import is_share, write_share
from refold.ledger.place import LedgerPlace


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. ``layer`` is ``built in`` where nobody set it; ``means`` says what it is for.

    ``is_share``: people read and write it as a percentage (S3.9).
    """

    name: str
    value: object
    layer: str
    place: str
    means: str
    is_share: bool = False

    @property
    def is_set(self) -> bool:
        """True if a value is in force."""
        return self.value is not None

    @property
    def share(self) -> str:
        """The value as a percentage; empty if it is none."""
        return write_share(self.value) if self.is_share and isinstance(self.value, int | float) else ""

    def to_dict(self) -> dict[str, object]:
        """Return the row as plain values, for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "is_share"}


def explain(config: CompressionConfig) -> list[Row]:
    """Return a row for every setting and every option of every stage, in the order of the schema."""
    return [*_explain_settings(config), *_explain_blocks(config)]


def _explain_settings(config: CompressionConfig) -> Iterator[Row]:
    hints = get_type_hints(type(config), include_extras=True)
    for attribute, field in type(config).model_fields.items():
        if attribute not in config.known.blocks:
            name = field.alias or attribute
            row = _row(config, name, getattr(config, attribute), field.description or "")
            yield replace(row, is_share=is_share(hints[attribute]))


def _explain_blocks(config: CompressionConfig) -> Iterator[Row]:
    for block in config.known.blocks:
        stage = getattr(config, block)
        for option in stage_fields(stage):
            if "block" in option.metadata:
                continue
            name = f"{block}.{option.name}"
            yield _row(config, name, getattr(stage, option.name), _describe_option(name))


def find_row(rows: Mapping[str, Row], name: str) -> Row:
    """Return the row that decides what ``name`` means: a preset may set it under another document's name."""
    return rows[find_said(name, lambda one: rows[one].is_set and rows[one].layer != "built in")]


def _row(config: CompressionConfig, name: str, value: object, means: str) -> Row:
    if isinstance(value, LedgerPlace):
        value = str(value)  # Without its password.
    source = config.source(name)
    if source is None:
        return Row(name, value, "built in", "", means)
    return Row(name, value, source.layer, source.place, means)


def _describe_option(name: str) -> str:
    return next((meaning.idea for meaning in MEANINGS if meaning.names[0] == name), "")
