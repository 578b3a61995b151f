"""Notices to listeners, and the same facts as events in the log.

A ``before_compress`` listener may veto by returning False. A listener that raises is reported and otherwise ignored: it
can neither break nor lose a compression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from refold.conversation.reason import NO_REASON, Reason, read_reason
from refold.errors import ConfigError
from refold.ledger.port import Ledger
from refold.ledger.records import Event

KINDS = ("before_compress", "compressed", "offloaded", "skipped", "failed", "warned", "undone", "redone")


@dataclass(frozen=True, slots=True)
class Notice:
    """An event in a session. ``time`` is seconds since 1970, ``seconds`` how long it took."""

    kind: str
    session_id: str
    reason: Reason = NO_REASON
    tokens_before: int = 0
    tokens_after: int = 0
    time: float = 0.0
    seconds: float = 0.0
    fields: Mapping[str, object] = field(default_factory=dict)


Listener = Callable[[Notice], object]


class Listeners:
    """The listeners of each kind of notice."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {kind: [] for kind in KINDS}

    def add(self, kind: str, listener: Listener) -> None:
        """Call ``listener`` for every notice of a kind."""
        if kind not in self._listeners:
            near = get_close_matches(str(kind), KINDS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no event {str(kind)[:40]!r}; there are {', '.join(KINDS)}{hint}")
        if not callable(listener):
            raise ConfigError(f"a listener for {kind!r} must be callable, not {type(listener).__name__}")
        self._listeners[kind].append(listener)

    def tell(self, notice: Notice) -> list[str]:
        """Call the listeners; return a sentence for each that failed."""
        return self._call(notice)[1]

    def is_vetoed(self, notice: Notice) -> tuple[bool, list[str]]:
        """Tell whether anyone objects, and what went wrong while asking."""
        answers, problems = self._call(notice)
        return any(answer is False for answer in answers), problems

    def _call(self, notice: Notice) -> tuple[list[object], list[str]]:
        answers: list[object] = []
        problems: list[str] = []
        for listener in tuple(self._listeners[notice.kind]):
            try:
                answers.append(listener(notice))
            except Exception as error:  # noqa: BLE001 - a listener must not break what it listens to
                problems.append(f"a listener of {notice.kind} failed: {type(error).__name__}: {error}"[:300])
        return answers, problems


PAGE = 1_000


def make_event(notice: Notice) -> Event:
    """Return a notice as the ledger logs it."""
    fields: dict[str, object] = {"reason": notice.reason.to_json(), **notice.fields}
    if notice.tokens_before or notice.tokens_after:
        fields |= {"tokens_before": notice.tokens_before, "tokens_after": notice.tokens_after}
    if notice.seconds:
        fields["seconds"] = round(notice.seconds, 4)
    return Event(notice.kind, notice.time, fields)


def describe_fields(event: Event) -> dict[str, object]:
    """Return the fields of an event for JSON interfaces: its reason with code, values and English text."""
    fields = dict(event.fields)
    if "reason" in fields:
        fields["reason"] = read_reason(fields["reason"]).to_dict()
    return fields


def read_all_events(ledger: Ledger, session_id: str | None, after: int = 0) -> Iterator[Event]:
    """Yield every event of a session or of all, oldest first; only those with a greater id than ``after``."""
    while page := ledger.read_events(session_id, after=after, limit=PAGE):
        yield from page
        after = page[-1].id
