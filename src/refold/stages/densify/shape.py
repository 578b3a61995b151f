"""The shape of a table: its columns, where they sit in a row, and what of them the rows need not say."""

from __future__ import annotations

from dataclasses import dataclass, field

from refold.stages.densify.values import Value

Path = tuple[str | int, ...]
KEY = "@key"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a text is made: the text before and after the key of its row (``KEY``) or another column's text."""

    before: str
    source: Path | str | None
    after: str


@dataclass(slots=True)
class Column:
    """One column: where its value sits in a row, and how it is written.

    ``table`` is set where cells hold rows of their own, ``constant`` where all rows have one value (``held``),
    ``recipe`` where the value is made from another column (``has_rest``: and from what the cell adds), ``is_text``
    where all are strings and some look like numbers.
    """

    path: Path
    table: Table | None = None
    held: bool = False
    constant: Value = None
    recipe: Recipe | None = None
    has_rest: bool = False
    is_text: bool = False

    @property
    def is_free(self) -> bool:
        """True if rows have a cell for this column."""
        return not self.held and (self.recipe is None or self.has_rest)


@dataclass(slots=True)
class Record:
    """The fields of a row in order; a field is a column or a record of its own, with a column for what is no record."""

    fields: dict[str | int, Column | Record] = field(default_factory=dict)
    other: Column | None = None
    is_list: bool = False


@dataclass(slots=True)
class Table:
    """Rows of one kind. Without a record, each row is one plain value."""

    keyed: bool
    record: Record | None
    columns: list[Column]
