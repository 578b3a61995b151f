"""Notices to listeners, and the same facts as events in the log.

A ``before_compress`` listener may veto by returning False. A listener that raises is reported and otherwise ignored: it
can neither break nor lose a compression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches

from refold.conversation.reason import NO_REASON, Reason, read_reason
from refold.conversation.view import Edit
from refold.errors import ConfigError
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

    def add(self, kind: str, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for every notice of a kind; the returned function ends that."""
        if kind not in self._listeners:
            near = get_close_matches(str(kind), KINDS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no event {str(kind)[:40]!r}; there are {', '.join(KINDS)}{hint}")
        if not callable(listener):
            raise ConfigError(f"a listener for {kind!r} must be callable, not {type(listener).__name__}")
        self._listeners[kind].append(listener)

        def stop() -> None:
            with suppress(ValueError):  # It was stopped before.
                self._listeners[kind].remove(listener)

        return stop

    def tell(self, notice: Notice) -> tuple[bool, list[str]]:
        """Call the listeners; return whether one objects, and a sentence for each that failed."""
        is_vetoed, problems = False, []
        for listener in tuple(self._listeners[notice.kind]):
            try:
                is_vetoed |= listener(notice) is False
            except Exception as error:  # noqa: BLE001 - a listener must not break what it listens to
                problems.append(f"a listener of {notice.kind} failed: {type(error).__name__}: {error}"[:300])
        return is_vetoed, problems


def make_event(notice: Notice) -> Event:
    """Return a notice as the ledger logs it."""
    fields: dict[str, object] = {"reason": notice.reason.to_json(), **notice.fields}
    if notice.tokens_before or notice.tokens_after:
        fields |= {"tokens_before": notice.tokens_before, "tokens_after": notice.tokens_after}
    if notice.seconds:
        fields["seconds"] = round(notice.seconds, 4)
    return Event(notice.kind, notice.time, fields)


@dataclass(frozen=True, slots=True)
class FoldSize:
    """The size of a fold as people see it: its messages, the tokens of their originals, and those of its record."""

    handle: str
    messages: int
    tokens_before: int
    tokens_after: int

    @classmethod
    def of(cls, edit: Edit) -> FoldSize:
        handle = edit.fold.handle if edit.fold is not None else ""
        return cls(handle, len(edit.covers), edit.tokens_original, edit.tokens_after)

    def to_json(self) -> list[object]:
        return [self.handle, self.messages, self.tokens_before, self.tokens_after]


def list_folds(event: Event) -> list[FoldSize]:
    """Return the folds that a compression made; none for events of earlier versions."""
    found = event.fields.get("folds")
    return [
        FoldSize(str(one[0]), *one[1:])
        for one in (found if isinstance(found, list) else ())
        if isinstance(one, list) and len(one) == 4 and all(isinstance(number, int) for number in one[1:])
    ]


def describe_fields(event: Event) -> dict[str, object]:
    """Return the fields of an event for JSON interfaces: its reason with code, values and English text."""
    fields = dict(event.fields)
    if "reason" in fields:
        fields["reason"] = read_reason(fields["reason"]).to_dict()
    return fields
