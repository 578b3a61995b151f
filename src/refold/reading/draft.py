"""A state while messages are folded into it: lists instead of tuples, and the bound of every section."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from itertools import islice

from refold.conversation.message import Message, message_handle
from refold.reading.events import ReadEvent
from refold.reading.state import (
    Belief,
    CheckResult,
    FailedTry,
    FileState,
    FinalAct,
    OpenItem,
    OpenKind,
    OwnedValue,
    PendingCall,
    Quote,
    Said,
    StandingRule,
    State,
    Struck,
)

# Entries per section. A page of this size is read in a minute, a record takes the newest of each; far longer sessions
# than those recorded (2,300 messages) reach a bound only in files, values and what a person said.
BOUNDS = {
    "rules": 40,
    "files": 150,
    "checks": 30,
    "acts": 100,
    "beliefs": 80,
    "failed": 30,
    "open": 40,
    "said": 80,
    "values": 300,
    "struck": 20,
    "pending": 64,
    "found_files": 200,
}
# What is dropped of these is no loss to a reader.
_SILENT = ("pending", "found_files")
QUOTE_CHARS = 600
BLOCK_CHARS = 1_200
ASK_CHARS = 1_200
TASK_CHARS = 200_000
PEOPLE_MAX = 20


class StateDraft:
    """The sections of a state as lists, and the message that is being folded in."""

    def __init__(self, state: State) -> None:
        self.messages = state.messages
        self.task = state.task
        self.rules: list[StandingRule] = list(state.rules)
        self.files: list[FileState] = list(state.files)
        self.checks: list[CheckResult] = list(state.checks)
        self.acts: list[FinalAct] = list(state.acts)
        self.beliefs: list[Belief] = list(state.beliefs)
        self.failed: list[FailedTry] = list(state.failed)
        self.open: list[OpenItem] = list(state.open)
        self.said: list[Said] = list(state.said)
        self.values: dict[str, OwnedValue] = {value.text: value for value in state.values}
        self.struck: list[Struck] = list(state.struck)
        self.pending: list[PendingCall] = list(state.pending)
        self.people: list[str] = list(state.people)
        self.is_talk = state.is_talk
        self.has_text_results = state.has_text_results
        self.found_files: list[str] = list(state.found_files)
        self.acted = state.acted
        self.opening = state.opening
        self.heard = state.heard
        self.proposal = state.proposal
        self.omitted: Counter[str] = Counter(dict(state.omitted))
        self._message: Message | None = None
        self._handles: dict[int, str] = {}

    def open_message(self, message: Message) -> None:
        """Make a message the source of the quotes that follow."""
        self._message = message
        self._handles.clear()
        if message.name and message.role in ("user", "assistant"):
            self.is_talk = self.is_talk or message.role == "assistant"
            if message.name not in self.people and len(self.people) < PEOPLE_MAX:
                self.people.append(message.name)

    def close_message(self) -> None:
        """Count the message and drop what exceeds the bounds, so that the chunks of an advance do not matter."""
        self.messages += 1
        for section, bound in BOUNDS.items():
            entries = getattr(self, section)
            excess = len(entries) - bound
            if excess <= 0:
                continue
            if section not in _SILENT:
                self.omitted[section] += excess
            if section == "values":
                self._drop_values(excess)
            else:
                del entries[:excess]

    def _drop_values(self, excess: int) -> None:
        """Drop the oldest values that only one message has, then those that were used longest ago."""
        once = (text for text, value in self.values.items() if value.used == value.quote.position)
        for text in list(islice(once, excess)):
            del self.values[text]
        for text in list(islice(self.values, max(0, len(self.values) - BOUNDS["values"]))):
            del self.values[text]

    def quote(self, event: ReadEvent, text: str | None = None, limit: int = QUOTE_CHARS) -> Quote:
        """Return an event's words, or these, with the place of the current message."""
        message = self._message
        assert message is not None
        words, cut = cut_middle(event.text if text is None else text, limit)
        part = event.part if event.part < len(message.parts) else 0
        handle = self._handles.get(part)
        if handle is None:
            handle = self._handles[part] = message_handle(message, part)
        return Quote(text=words, handle=handle, position=self.messages, speaker=message.name or message.role, cut=cut)

    def strike(self, quote: Quote, by: Quote) -> None:
        """Note that an entry no longer holds."""
        self.struck.append(Struck(quote=quote, by=by))

    def drop_open(self, *kinds: OpenKind) -> None:
        """Close all open items of these kinds."""
        self.open = [item for item in self.open if item.kind not in kinds]

    def freeze(self) -> State:
        """Return the state."""
        values = {one.name: getattr(self, one.name) for one in fields(State)}
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return State(**values | {"values": tuple(self.values.values()), "omitted": tuple(sorted(self.omitted.items()))})


def cut_middle(text: str, limit: int) -> tuple[str, int]:
    """Return a text within the limit, and how many characters were removed from its middle; the text names them."""
    text = text.strip()
    if len(text) <= limit:
        return text, 0
    head = limit * 2 // 3
    tail = limit - head
    cut = len(text) - head - tail
    return f"{text[:head].rstrip()} [… {cut:,} …] {text[-tail:].lstrip()}", cut


def cut_lines(text: str, limit: int = BLOCK_CHARS) -> tuple[str, int]:
    """Return the first and last whole lines of a text within the limit, and how many lines between them were cut."""
    if len(text) <= limit:
        return text, 0
    lines = text.splitlines()
    room, head, tail = limit, 0, 0
    while head + tail < len(lines):
        takes_head = head <= tail * 2
        line = lines[head] if takes_head else lines[-1 - tail]
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        head, tail = (head + 1, tail) if takes_head else (head, tail + 1)
    cut = len(lines) - head - tail
    if head == 0:
        return cut_middle(text, limit)[0], 0
    kept = [*lines[:head], f"[… {cut:,} lines …]", *lines[len(lines) - tail :]]
    return "\n".join(kept), cut


def touch(check: CheckResult) -> CheckResult:
    """Return a check whose result is one change of a file older."""
    return replace(check, changes_after=check.changes_after + 1)


def join_block(text: str, block: str) -> str:
    """Return a sentence with the list or code that it introduces, unless it contains it already."""
    block, _ = cut_lines(block)
    return f"{text.rstrip()}\n{block}" if block and block not in text else text
