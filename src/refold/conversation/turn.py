"""Turns, units and legal cuts; the common prefix of two sequences.

A unit is an assistant message with its calls and the results of those calls; any other message is a unit by itself.
A cut may fall only between two units. Calls and results pair by position, never by id alone: real traces use an id
twice. If the provider runs a tool, the result is in the message of its call; an opaque part with a call_id pairs with
the next one of that id. A message that only holds thinking belongs to the step after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import ne

from refold.conversation.message import Message, Spoken, is_user_turn, read_words
from refold.conversation.speaker import judge_speaker


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


def count_common(left: Sequence[object], right: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences."""
    return next(compress(count(), map(ne, left, right)), min(len(left), len(right)))


def find_turns(items: Sequence[Spoken]) -> list[int]:
    """Return the index of every real user message."""
    return [at for at, item in enumerate(items) if is_user_turn(item.role, item.parts)]


def find_task(messages: Sequence[Message], is_observation: Callable[[Message], bool]) -> Message | None:
    """Return the message that states the work in hand: the newest task of a person, if there is one."""
    found: Message | None = None
    stated = ""
    for at, message in enumerate(messages):
        if message.starts_turn and not (at and is_observation(message)):
            words = read_words(message.parts)
            if judge_speaker(words, stated) == "task":
                found, stated = message, words
    return found


def starts_round(item: Spoken, before: Spoken | None) -> bool:
    """Return whether a round begins here: with a user message, or with an agent's step after the results of another."""
    if is_user_turn(item.role, item.parts):
        return True
    return item.role == "assistant" and (before is None or before.role == "system" or _brings_results(before))


def find_rounds(items: Sequence[Spoken]) -> list[int]:
    """Return where each round begins. Without tools a round is a turn; an agent makes many rounds in one turn."""
    return [at for at, item in enumerate(items) if starts_round(item, items[at - 1] if at else None)]


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
    last = find_units(items[start:end])[-1]
    return Unit(start + last.start, start + last.stop)


def _brings_results(item: Spoken) -> bool:
    return item.role == "tool" or any(part.kind == "result" for part in item.parts)


def _is_assistant_side(item: Spoken) -> bool:
    return item.role == "assistant" or _brings_results(item)


def _continues(items: Sequence[Spoken], at: int) -> bool:
    """True if the item may belong to a unit that began before it: results, or one step in several items."""
    item, before = items[at], items[at - 1]
    if item.role != "assistant" and _brings_results(item):
        return _is_assistant_side(before)
    return item.role == "assistant" and before.role == "assistant"


def _unit_stop(items: Sequence[Spoken], start: int) -> int:
    at = start
    while at < len(items) and _is_thinking_only(items[at]):
        at += 1
    if at == len(items) or items[at].role != "assistant":
        return max(at, start + 1)
    calls: set[str] = set()
    answered = False
    is_thought = at > start
    while at < len(items):
        item = items[at]
        asked, given = _unpaired_ids(item, calls)
        if given:
            if not given & calls:
                break
            answered = True
            # A linked pair is complete: its id may come again.
            calls -= {part.call_id for part in item.parts if part.kind == "opaque"} & given
        elif answered or not _joins_step(items, at, calls, is_first=at == start or is_thought):
            break
        calls |= asked
        at += 1
        if not calls and not is_thought:
            break
    return max(at, start + 1)


def _unpaired_ids(item: Spoken, calls: set[str]) -> tuple[set[str], set[str]]:
    """Return the ids of calls that wait for a result after this item, and those of results for calls before it."""
    asked: set[str] = set()
    given: set[str] = set()
    for part in item.parts:
        is_linked = part.kind == "opaque" and bool(part.call_id)
        if part.call_id in asked and (part.kind == "result" or is_linked):
            asked.discard(part.call_id)
        elif part.kind == "result" or (is_linked and part.call_id in calls):
            given.add(part.call_id)
        elif part.kind == "call" or is_linked:
            asked.add(part.call_id)
    return asked, given


def _joins_step(items: Sequence[Spoken], at: int, calls: set[str], *, is_first: bool) -> bool:
    """True if an item without results belongs to the current step, which has made these calls."""
    item = items[at]
    if item.role != "assistant" or is_first or not calls:
        return item.role == "assistant" and is_first
    kinds = {part.kind for part in item.parts}
    if "call" in kinds or kinds <= {"thinking", "opaque"}:
        return bool(kinds)
    # Words between a call and its result, where a step is several items.
    return at + 1 < len(items) and bool(_unpaired_ids(items[at + 1], calls)[1] & calls)


def _is_thinking_only(item: Spoken) -> bool:
    return item.role == "assistant" and {part.kind for part in item.parts} == {"thinking"}
