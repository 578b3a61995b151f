"""The likelihood that an agent re-reads folded text, by the kind of the text and its age.

The table was measured on recorded sessions in November 2026 by ``benchmarks/bench_rereads.py``: of all messages of a
kind and age, the share that an assistant message copied from (ten words in a row) within the next 20 requests. It is
used to estimate what a fold costs, never to decide what a fold keeps or says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from refold.budget.economics import Rereads
from refold.conversation.message import Part
from refold.conversation.view import Item
from refold.reading.calls import read_call, read_result
from refold.reading.events import Action, CallOutcome

Kind = Literal["file", "search", "output", "error", "call", "talk"]

# Upper bounds of the columns, in requests since the message came; the last column is for all older ones.
AGES = (10, 20, 40, 80)
TABLE: dict[Kind, tuple[float, ...]] = {
    "call": (0.43, 0.37, 0.25, 0.15, 0.02),
    "talk": (0.23, 0.21, 0.17, 0.12, 0.05),
    "file": (0.22, 0.17, 0.11, 0.10, 0.09),
    "error": (0.12, 0.10, 0.06, 0.04, 0.04),
    "search": (0.07, 0.06, 0.05, 0.05, 0.03),
    "output": (0.01, 0.01, 0.01, 0.00, 0.00),
}
# A call that carries text of its own, such as a file to write.
CALL_CHARS_MIN = 400
_PEEK_CHARS = 600


def expect_rereads(items: Sequence[Item], removed_tokens: int, *, known: ItemKinds | None = None) -> Rereads:
    """Return what is expected to be re-read if this many tokens of the oldest content were folded.

    ``known`` belongs to one growing list of items: with it, only new ones are classified.
    """
    kinds = (known or ItemKinds()).update(items)
    first = next((at for at, item in enumerate(items) if item.role != "system"), 0)
    age = sum([item.role == "assistant" for item in items])
    count = tokens = 0.0
    for item, kind in zip(islice(items, first + 1, None), islice(kinds, first + 1, None), strict=True):
        age -= item.role == "assistant"
        if removed_tokens <= 0:
            break
        if kind is not None:
            removed_tokens -= item.tokens
            chance = find_chance(kind, age)
            count += chance
            tokens += chance * item.tokens
    return Rereads(count, tokens)


def find_chance(kind: Kind, age: int) -> float:
    """Return how likely text of a kind and an age in requests is copied again within the next 20 requests."""
    return TABLE[kind][bisect_left(AGES, age)]


class ItemKinds:
    """The content of each item of a list. The list may grow, and its last item may change; another list starts over."""

    def __init__(self) -> None:
        self._items: Sequence[Item] = ()
        self._last: Item | None = None
        self._kinds: list[Kind | None] = []
        self._calls: dict[str, Action] = {}

    def update(self, items: Sequence[Item]) -> Sequence[Kind | None]:
        """Return the kinds of all items, after classifying those that were not there the last time."""
        done = len(self._kinds)
        if items is not self._items or done > len(items) or (done and items[done - 1] is not self._last):
            self._items, self._last, self._kinds, self._calls = items, None, [], {}
        for item in islice(items, len(self._kinds), None):
            self._kinds.append(self._classify(item))
            self._last = item
        return self._kinds

    def _classify(self, item: Item) -> Kind | None:
        kind: Kind | None = None if item.is_fold or item.role == "system" else "talk"
        for part in item.parts if kind else ():
            if part.kind == "call":
                self._calls.update((event.call_id, event) for event in read_call(part, 0) if isinstance(event, Action))
                kind = "call" if len(part.text) >= CALL_CHARS_MIN else kind
            elif part.kind == "result":
                kind = _classify_result(part, self._calls.get(part.call_id))
        return kind


def _classify_result(part: Part, action: Action | None) -> Kind:
    """Return what a result holds. How a call ended is said at the beginning or at the end of its result."""
    text = part.text
    if len(text) > 2 * _PEEK_CHARS:
        text = f"{text[:_PEEK_CHARS]}\n{text[-_PEEK_CHARS:]}"
    outcome = next(
        event for event in read_result(replace(part, text=text), 0, action) if isinstance(event, CallOutcome)
    )
    if outcome.status == "failed":
        return "error"
    if action is None:
        return "output"
    return "search" if action.verb == "search" else "file" if action.verb == "read" and action.targets else "output"
