"""A table that sorts by a click on a heading and shows a page of its rows at a time.

Cells are text, or a function that draws the cell; what a column sorts by is a value of its own, so that 1,000 comes
after 20. Sorting and paging happen on the server: a tab holds the elements of one page only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from nicegui import ui

from refold.web.icons import icon
from refold.web.shell import button, guarded, text
from refold.web.visit import say

T = TypeVar("T")
PAGE_ROWS = 12


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column: its heading, the text of a row's cell, what it sorts by (else the text), or how it is drawn."""

    title: str
    write: Callable[[T], str]
    sort_by: Callable[[T], Any] | None = None
    draw: Callable[[T], object] | None = None
    is_number: bool = False
    classes: str = ""


@dataclass
class SortedTable(Generic[T]):
    """A table of rows. ``sorted_by`` is the column it starts with, ``is_down`` its direction."""

    columns: Sequence[Column[T]]
    rows: Sequence[T]
    label: str
    sorted_by: int = 0
    is_down: bool = True
    page_rows: int = PAGE_ROWS
    classes: str = ""
    at: int = 0
    _body: ui.element = field(init=False)

    def __post_init__(self) -> None:
        self._body = ui.element("div").classes("table-scroll card")
        self._draw()

    def _draw(self) -> None:
        self._body.clear()
        with self._body:
            with ui.element("table").classes(f"list sorted {self.classes}") as table:
                table._props["aria-label"] = self.label
                self._draw_head()
                with ui.element("tbody"):
                    for row in self._sort()[self.at : self.at + self.page_rows]:
                        self._draw_row(row)
            if len(self.rows) > self.page_rows:
                self._draw_pager()

    def _draw_head(self) -> None:
        with ui.element("thead"), ui.element("tr"):
            for number, column in enumerate(self.columns):
                is_chosen = number == self.sorted_by
                with ui.element("th").classes(f"{'num' if column.is_number else ''} {column.classes}") as head:
                    head._props["scope"] = "col"
                    head._props["aria-sort"] = ("descending" if self.is_down else "ascending") if is_chosen else "none"
                    with ui.element("button").classes("sort").props("type=button") as made:
                        text("span", column.title)
                        if is_chosen:
                            text("span", "↓" if self.is_down else "↑").props("aria-hidden=true")
                    made.on("click", guarded(self._make_sort(number)))

    def _make_sort(self, number: int) -> Callable[[], None]:
        def sort() -> None:
            self.is_down = not self.is_down if number == self.sorted_by else self.columns[number].is_number
            self.sorted_by, self.at = number, 0
            self._draw()

        return sort

    def _sort(self) -> list[T]:
        column = self.columns[self.sorted_by]
        return sorted(self.rows, key=column.sort_by or column.write, reverse=self.is_down)

    def _draw_row(self, row: T) -> None:
        with ui.element("tr"):
            for column in self.columns:
                with ui.element("td").classes(f"{'num' if column.is_number else ''} {column.classes}"):
                    if column.draw is not None:
                        column.draw(row)
                    else:
                        text("span", column.write(row))

    def _draw_pager(self) -> None:
        last = min(self.at + self.page_rows, len(self.rows))
        with ui.element("div").classes("pager"):
            text("span", say("table.shown", first=self.at + 1, last=last, total=len(self.rows)), "faint num")
            for label, name, step in (("table.before", "before", -1), ("table.after", "open", 1)):
                at = self.at + step * self.page_rows
                can_go = 0 <= at < len(self.rows)
                with button("", self._make_turn(at) if can_go else None, kind="quiet small square") as made:
                    icon("open").classes("flipped" if name == "before" else "")
                made._props.update({"aria-label": say(label), "title": say(label), "disabled": not can_go})

    def _make_turn(self, at: int) -> Callable[[], None]:
        def turn() -> None:
            self.at = at
            self._draw()

        return turn
