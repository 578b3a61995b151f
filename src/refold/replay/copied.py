"""Text that the assistant copied from earlier messages, and whether the request still showed it.

A recording continues as if the agent had seen everything. A real agent that no longer sees a text it is about to copy
reads it again. So each assistant message is split into *runs*: ten consecutive words or signs (a Chinese character is
a sign) of its text or of the strings in its call arguments. A run is *copied* if an earlier message holds it, one that
is newer than the first user message and older than the newest step. Text that the newest step shows is not counted:
it is always in view. Each run counts once per assistant message.

``find_copied`` says how many copied runs were in view, and which messages would have to be read again for the others.
If several messages hold a run, the first one counts as its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from refold.conversation.message import Message, Part
from refold.conversation.turn import find_turns, newest_step
from refold.conversation.view import Item

RUN_WORDS = 10
_CHINESE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_CHINESE}]|[^\W{_CHINESE}]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Copied:
    """The copied runs of one answer: how many, how many were in view, and where the others come from."""

    runs: int = 0
    in_view: int = 0
    sources: tuple[int, ...] = ()


class CopyIndex:
    """Knows which messages of one session hold which runs. Every message is read once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._numbers: dict[str, int] = {}
        self._place = {id(message.raw): at for at, message in enumerate(messages)}
        self._first = next(iter(find_turns(messages)), -1)
        self._spoken = {
            at: self._hash_runs(part for part in message.parts if part.kind in ("text", "call"))
            for at, message in enumerate(messages)
            if message.role == "assistant"
        }
        # Only runs that an assistant message contains are ever asked for.
        self._wanted = frozenset().union(*self._spoken.values())
        self._holders: dict[int, list[int]] = {}
        for at, message in enumerate(messages):
            for run in self._hash_runs(message.parts) & self._wanted:
                self._holders.setdefault(run, []).append(at)
        self._changed: dict[int, tuple[Item, frozenset[int]]] = {}

    def find_copied(self, at: int, stop: int, items: Sequence[Item]) -> Copied:
        """Return what the answer ``messages[at:stop]`` copied, given the items that were sent before it."""
        step = newest_step(self._messages[:at])
        newest = step.start if step else at
        sources: dict[int, list[int]] = {}
        for run in frozenset().union(*(self._spoken.get(one, frozenset()) for one in range(at, stop))):
            holders = [one for one in self._holders[run] if one < at]
            is_new = bool(holders) and holders[-1] >= newest
            if not is_new and any(one > self._first for one in holders):
                sources[run] = holders
        if not sources:
            return Copied()
        plain, changed = self._read_items(items)
        missing = [
            next(one for one in holders if one > self._first)
            for run, holders in sources.items()
            if run not in changed and not any(one in plain for one in holders)
        ]
        return Copied(len(sources), len(sources) - len(missing), tuple(sorted(set(missing))))

    def _read_items(self, items: Sequence[Item]) -> tuple[set[int], set[int]]:
        """Return the messages that are sent as they came, and the runs of everything else that is sent."""
        plain: set[int] = set()
        changed: set[int] = set()
        for item in items:
            at = self._place.get(id(item.raw))
            if at is not None:
                plain.add(at)
                continue
            known = self._changed.get(id(item.raw))
            if known is None:
                known = self._changed[id(item.raw)] = (item, self._hash_runs(item.parts) & self._wanted)
            changed |= known[1]
        return plain, changed

    def _hash_runs(self, parts: Iterable[Part]) -> frozenset[int]:
        """Return a hash for each run of ten words; numbers instead of words make it the same on every machine."""
        numbers = self._numbers
        runs: set[int] = set()
        for text in _read_texts(parts):
            words = [numbers.setdefault(word, len(numbers)) for word in _WORDS.findall(text)]
            runs.update(map(hash, zip(*(words[start:] for start in range(RUN_WORDS)), strict=False)))
        return frozenset(runs)


def _read_texts(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the texts of parts; of a call, the strings in its arguments."""
    for part in parts:
        if part.kind != "call":
            yield part.text
            continue
        try:
            arguments = json.loads(part.text)
        except (ValueError, RecursionError):
            yield part.text
        else:
            yield from _read_strings(arguments)


def _read_strings(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
