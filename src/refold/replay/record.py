"""The record of one session under one preset: numbers per request and per probe, and how both are found.

Records are plain values that convert to JSON and back. Times are kept apart, so that the same input gives the same
record on every machine. Two things are measured besides tokens: exact values that a call reuses, and copied text.

*Probes* are exact values that a call took from an earlier result or user message. If an export names its probes, those
are used. A value counts once per step; its distance is to the newest earlier copy that is not the assistant's own.
``RecallCheck`` asks the product's own search for a value that left the view, by words alone, so that the answer is the
same on any machine.

*Copied text*: a recording continues as if the agent had seen everything. A real agent that no longer sees a text it is
about to copy reads it again. So each assistant message is split into *runs*: ten consecutive words or signs (a Chinese
character is a sign) of its text or of the strings in its call arguments. A run is *copied* if an earlier message holds
it that can be read again, one that is newer than the first user message and older than the newest step: a tool's
result, a person's message, or what the arguments of a call wrote. The assistant's own prose cannot be read again, and
repeating it costs a real agent nothing. Text in the newest step is not counted: it is always in view. Each run counts
once per assistant message. If several messages hold a run, the first one that can be read again is its source.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from refold.budget.economics import BilledRequest, Charge, Tariff, charge_ask, charge_request, sum_charges
from refold.config import CompressionConfig
from refold.conversation.message import Message, Part
from refold.conversation.reason import NO_REASON, Reason, read_reason
from refold.conversation.turn import find_turns, newest_step
from refold.conversation.view import Item
from refold.errors import RefoldError
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.ledger.sqlite import SqliteLedger
from refold.manager import ContextCompressionManager
from refold.readers.session import Probe, Session
from refold.reading.values import find_values

# A tool call that reads something again, in output tokens.
REREAD_OUTPUT_TOKENS = 60
VALUE_CHARS_MIN = 4
PROBES_MAX = 5_000
HITS_MAX = 10
_SESSION = "replayed"
RUN_WORDS = 10
_CHINESE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_CHINESE}]|[^\W{_CHINESE}]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class SummariserCall:
    """One call of the summariser, in tokens; ``cached_tokens`` of the prompt are the conversation as it was sent."""

    prompt_tokens: int
    reply_tokens: int
    cached_tokens: int = 0

    def charge(self, tariff: Tariff) -> Charge:
        """Return what the call cost."""
        return charge_ask(self.prompt_tokens, self.reply_tokens, tariff, self.cached_tokens)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request: what was sent, whether the provider would accept it, and what was changed before it and why.

    ``runs`` counts the text that the answer copied from earlier messages, ``rereads`` holds the tokens of each message
    that the agent would have had to read again for it, once per compression.
    """

    at: int
    tokens: int
    shared_tokens: int
    output_tokens: int
    idle_s: float = 0.0
    is_fit: bool = True
    violations: tuple[str, ...] = ()
    is_intact: bool = True
    is_break: bool = False
    tokens_freed: int = 0
    stages: tuple[str, ...] = ()
    reason: Reason = NO_REASON
    asked: tuple[SummariserCall, ...] = ()
    runs: int = 0
    runs_in_view: int = 0
    rereads: tuple[int, ...] = ()

    def charge(self, tariff: Tariff) -> Charge:
        """Return what this request cost, its summariser calls included."""
        request = BilledRequest(self.tokens, self.shared_tokens, self.output_tokens, self.idle_s)
        return sum_charges([charge_request(request, tariff), *(one.charge(tariff) for one in self.asked)])

    def charge_rereads(self, tariff: Tariff) -> float:
        """Return what reading missing sources again would cost: for each one request from the cache, and its text."""
        request = BilledRequest(self.tokens, self.tokens, REREAD_OUTPUT_TOKENS)
        return len(self.rereads) * charge_request(request, tariff).total + sum(self.rereads)


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """One use of a value in the recording: was it verbatim in view then, or found by recall?"""

    at: int
    sort: str
    distance: int
    is_hard: bool
    in_view: bool
    is_found: bool


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A whole session under one preset. ``seconds`` holds the time of each prepare and is not part of reports."""

    session: str
    preset: str
    messages: int
    tokens: int
    window: int
    requests: tuple[RequestRecord, ...] = ()
    probes: tuple[ProbeRecord, ...] = ()
    seconds: tuple[float, ...] = field(default=(), compare=False)
    bytes: int = 0
    problem: str = ""

    def charge(self, tariff: Tariff) -> Charge:
        """Return what the whole session cost."""
        return sum_charges([request.charge(tariff) for request in self.requests])

    def charge_rereads(self, tariff: Tariff) -> float:
        """Return what reading again cost in the whole session; with ``charge`` it makes the whole bill."""
        return math.fsum(request.charge_rereads(tariff) for request in self.requests)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> SessionRecord:
        requests = tuple(
            RequestRecord(
                **{
                    **one,
                    "violations": tuple(one["violations"]),
                    "stages": tuple(one["stages"]),
                    "rereads": tuple(one["rereads"]),
                    "reason": read_reason(one["reason"]),
                    "asked": tuple(SummariserCall(**asked) for asked in one["asked"]),
                }
            )
            for one in plain["requests"]
        )
        probes = tuple(ProbeRecord(**one) for one in plain["probes"])
        return cls(**{**plain, "requests": requests, "probes": probes, "seconds": tuple(plain["seconds"])})


def find_probes(session: Session) -> tuple[Probe, ...]:
    """Return the values that calls of this session reuse; empty if its messages cannot be read."""
    try:
        messages = parse_messages(make_format(session.format), session.messages)
    except RefoldError:
        return ()
    sources: dict[str, list[int]] = {}
    spoken: set[str] = set()
    probes: list[Probe] = []
    for at, message in enumerate(messages):
        used: dict[str, str] = {}
        for part in message.parts:
            if part.kind == "call":
                used |= {value: sort for sort, value in find_values(part.text.replace("\\n", "\n").replace('\\"', '"'))}
        for value, sort in used.items():
            places = sources.get(value)
            if places and len(value) >= VALUE_CHARS_MIN:
                is_hard = len(places) == 1 and value not in spoken
                probes.append(Probe(at, value, sort, at - places[-1], is_hard))
        spoken.update(used)
        for part in message.parts:
            if part.kind == "result" or (part.kind == "text" and message.role == "user"):
                for _, value in find_values(part.text):
                    places = sources.setdefault(value, [])
                    if not places or places[-1] != at:
                        places.append(at)
            elif part.kind == "text" and message.role == "assistant":
                spoken.update(value for _, value in find_values(part.text))
        if len(probes) >= PROBES_MAX:
            break
    return tuple(probes[:PROBES_MAX])


def add_probes(session: Session) -> Session:
    """Return the session with probes: its own, or those that are found in it."""
    return session if session.probes else replace(session, probes=find_probes(session))


class RecallCheck:
    """Searches one session as far as it has come; messages ahead are never searched."""

    def __init__(self, messages: Sequence[Message], wire: str) -> None:
        self._messages, self._wire, self._stored = messages, wire, 0
        self._folder = tempfile.TemporaryDirectory(prefix="refold-replay-")
        config = CompressionConfig(ladder=(), recall={"embeddings": "off"})
        ledger = SqliteLedger(Path(self._folder.name) / "replay.db", synchronous="off")
        self._manager = ContextCompressionManager(config, self._folder.name, ledger=ledger)

    def close(self) -> None:
        self._manager.close()
        self._manager.ledger.close()
        self._folder.cleanup()

    def finds(self, value: str, before: int) -> bool:
        """Return whether one of the first ten answers shows the value verbatim."""
        if new := [message.raw for message in self._messages[self._stored : before]]:
            self._manager.append(_SESSION, new, format=self._wire)
            self._stored = before
        return any(value in hit.text for hit in self._manager.recall(_SESSION, value, HITS_MAX))


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
        self._readable: dict[int, list[int]] = {}
        for at, message in enumerate(messages):
            for run in self._hash_runs(message.parts) & self._wanted:
                self._holders.setdefault(run, []).append(at)
            for run in self._hash_runs(_find_readable(message)) & self._wanted:
                self._readable.setdefault(run, []).append(at)
        self._changed: dict[int, tuple[Item, frozenset[int]]] = {}

    def find_copied(self, at: int, stop: int, items: Sequence[Item]) -> Copied:
        """Return what the answer ``messages[at:stop]`` copied, given the items that were sent before it."""
        step = newest_step(self._messages[:at])
        newest = step.start if step else at
        sources: dict[int, list[int]] = {}
        for run in frozenset().union(*(self._spoken.get(one, frozenset()) for one in range(at, stop))):
            holders = [one for one in self._holders[run] if one < at]
            is_new = bool(holders) and holders[-1] >= newest
            if not is_new and any(self._first < one < at for one in self._readable.get(run, ())):
                sources[run] = holders
        if not sources:
            return Copied()
        plain, changed = self._read_items(items)
        missing = [
            next(one for one in self._readable[run] if one > self._first)
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
        for text in read_texts(parts):
            words = [numbers.setdefault(word, len(numbers)) for word in _WORDS.findall(text)]
            runs.update(map(hash, zip(*(words[start:] for start in range(RUN_WORDS)), strict=False)))
        return frozenset(runs)


def _find_readable(message: Message) -> Iterator[Part]:
    """Yield the parts of a message that an agent could read again: all but the assistant's own words."""
    return (part for part in message.parts if message.role != "assistant" or part.kind not in ("text", "thinking"))


def read_texts(parts: Iterable[Part]) -> Iterator[str]:
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
