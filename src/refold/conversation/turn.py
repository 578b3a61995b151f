"""Turns, units and legal cuts.

A unit is an assistant message with its calls and the results of those calls; anything else is a unit of its
own. A cut may fall only between two units. Calls and results pair by position, never by id alone: real
traces use an id twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refold.conversation.format import Spoken
from refold.conversation.message import is_user_turn
from refold.conversation.part import Part


@dataclass(frozen=True, slots=True)
class Unit:
    """Items ``start`` up to, not including, ``stop``: they stay or go together."""

    start: int
    stop: int


def find_units(items: Sequence[Spoken]) -> list[Unit]:
    """Split a sequence into units, in order, leaving nothing out."""
    units: list[Unit] = []
    at = 0
    while at < len(items):
        stop = _unit_stop(items, at)
        units.append(Unit(at, stop))
        at = stop
    return units


def find_cuts(items: Sequence[Spoken]) -> list[int]:
    """Return every index where the sequence may be cut, both ends included."""
    return [0, *(unit.stop for unit in find_units(items))]


def find_turns(items: Sequence[Spoken]) -> list[int]:
    """Return the index of every real user message."""
    return [at for at, item in enumerate(items) if is_user_turn(item.role, item.parts)]


def newest_user(items: Sequence[Spoken]) -> int | None:
    """Return the index of the newest real user message, if there is one."""
    for at in range(len(items) - 1, -1, -1):
        if is_user_turn(items[at].role, items[at].parts):
            return at
    return None


def newest_step(items: Sequence[Spoken]) -> Unit | None:
    """Return the last unit in which the assistant speaks, with its results, if there is one."""
    end = len(items)
    while end and not _is_assistant_side(items[end - 1]):
        end -= 1
    if not end:
        return None
    # Walk back to where this unit can begin, then split only the tail: O(newest step), not O(history).
    start = end - 1
    while start and _continues(items, start):
        start -= 1
    for unit in find_units(items[start:end]):
        last = Unit(start + unit.start, start + unit.stop)
    return last


def _is_assistant_side(item: Spoken) -> bool:
    return item.role in ("assistant", "tool") or any(part.kind == "result" for part in item.parts)


def _continues(items: Sequence[Spoken], at: int) -> bool:
    """True if the item belongs to something that began before it: results, or parallel calls in a row."""
    item, before = items[at], items[at - 1]
    if any(part.kind == "result" for part in item.parts):
        return _is_assistant_side(before)
    return item.role == "assistant" and before.role == "assistant" and (_has_calls(before) or _is_thinking_only(before))


def _unit_stop(items: Sequence[Spoken], start: int) -> int:
    at = start
    while at < len(items) and _is_thinking_only(items[at]):
        at += 1
    if at == len(items) or items[at].role != "assistant":
        return max(at, start + 1)
    calls: set[str] = set()
    answered = False
    while at < len(items):
        item = items[at]
        ids = {part.call_id for part in item.parts if part.kind == "result"}
        if ids:
            if not ids & calls:
                break
            answered = True
        elif answered or not _joins_calls(item, bool(calls), is_first=at == start or _is_thinking_only(items[at - 1])):
            break
        calls |= {part.call_id for part in item.parts if part.kind == "call"}
        at += 1
        if not calls:
            break
    return max(at, start + 1)


def _joins_calls(item: Spoken, has_calls: bool, is_first: bool) -> bool:
    if item.role != "assistant":
        return False
    return is_first or (has_calls and (_has_calls(item) or _is_thinking_only(item)))


def _has_calls(item: Spoken) -> bool:
    return any(part.kind == "call" for part in item.parts)


def _is_thinking_only(item: Spoken) -> bool:
    parts: tuple[Part, ...] = item.parts
    return item.role == "assistant" and bool(parts) and all(part.kind == "thinking" for part in parts)
