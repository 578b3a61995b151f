"""What whoever continues a conversation needs to know: one expectation for each line of its state.

An expectation is a text that must be found again letter for letter, with the message that it comes from. Everything is
read from originals, by the same readers for every compressor, so that no compressor is measured by what it says itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from refold.reading.same import command_key
from refold.reading.state import CheckResult, FileState, FinalAct, Quote, State

Kind = Literal["task", "finish", "rule", "file", "check", "receipt", "finding", "open", "value"]
KINDS: tuple[Kind, ...] = ("task", "finish", "rule", "file", "check", "receipt", "finding", "open", "value")
# Long tasks state their work at the beginning and how to finish it at the end.
TASK_LINES_MAX = 80
EDIT_LINES_MAX = 12
FINDINGS_MAX = 12
VALUES_MAX = 40
RECEIPT_FIELDS_MAX = 6
# A shorter line of code says nothing by itself.
LINE_CHARS_MIN = 6


@dataclass(frozen=True, slots=True)
class Expectation:
    """A text that must be known at one point. ``owner`` must be found beside it; ``old`` are texts that it replaced."""

    kind: Kind
    text: str
    position: int
    owner: str = ""
    old: tuple[str, ...] = ()


@dataclass(slots=True)
class Expectations:
    """Lists what is expected as a conversation grows; remembers results that newer ones replaced."""

    _results: dict[str, list[str]] = field(default_factory=dict)

    def list_for(self, state: State) -> list[Expectation]:
        """Return what must be known after the messages of this state."""
        return list(dict.fromkeys(one for one in self._list_all(state) if one.text.strip()))

    def note(self, state: State) -> None:
        """Remember the results of this state. Call it after every message, so that replaced results are known."""
        for check in state.checks:
            seen = self._results.setdefault(command_key(check.command), [])
            if check.quote.text not in seen:
                seen.append(check.quote.text)

    def _list_all(self, state: State) -> Iterator[Expectation]:
        if state.task is not None:
            yield from _list_task(state.task.quote)
            if state.task.finish is not None:
                yield _quote("finish", state.task.finish)
        struck = {one.by.text: one.quote.text for one in state.struck}
        for rule in state.rules:
            old = struck.get(rule.quote.text)
            yield Expectation("rule", rule.quote.text, rule.quote.position, old=(old,) if old else ())
        for file in state.files:
            yield from _list_file(file)
        for check in state.checks:
            yield self._expect_result(check)
        for act in state.acts:
            yield from _list_receipt(act)
        for belief in state.beliefs[-FINDINGS_MAX:]:
            yield _quote("finding", belief.quote)
        for item in state.open:
            yield _quote("open", item.quote)
        for value in sorted(state.values, key=lambda one: -one.used)[:VALUES_MAX]:
            yield Expectation("value", value.text, value.quote.position, owner=value.owner.rpartition(".")[2])

    def _expect_result(self, check: CheckResult) -> Expectation:
        earlier = self._results.get(command_key(check.command), [])
        old = tuple(text for text in earlier if text != check.quote.text)
        return Expectation("check", check.quote.text, check.quote.position, old=old)


def _quote(kind: Kind, quote: Quote) -> Expectation:
    return Expectation(kind, quote.text, quote.position)


def _list_task(quote: Quote) -> Iterator[Expectation]:
    lines = [line.strip() for line in quote.text.splitlines() if len(line.strip()) >= LINE_CHARS_MIN]
    half = TASK_LINES_MAX // 2
    for line in lines if len(lines) <= TASK_LINES_MAX else [*lines[:half], *lines[-half:]]:
        yield Expectation("task", line, quote.position)


def _list_file(file: FileState) -> Iterator[Expectation]:
    if file.is_scratch or file.kind == "reverted":
        return
    yield Expectation("file", file.path, file.quote.position)
    last = file.last
    if file.kind == "deleted" or last is None:
        return
    removed = tuple(_list_code(last.removed))
    added = list(dict.fromkeys(_list_code(last.added)))
    for line in added[:EDIT_LINES_MAX]:
        yield Expectation("file", line, last.quote.position, old=tuple(one for one in removed if one not in added))


def _list_code(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if len(line.strip()) >= LINE_CHARS_MIN)


def _list_receipt(act: FinalAct) -> Iterator[Expectation]:
    position = act.result.position if act.result else act.quote.position
    for name, value in act.receipt[:RECEIPT_FIELDS_MAX]:
        yield Expectation("receipt", value, position, owner=name.rpartition(".")[2])
