"""Notices: what the manager tells whoever listens, and how they may object.

``before_compress`` may veto by returning False. A listener that raises is reported and otherwise ignored: it can
neither break a compression nor lose one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from refold.conversation.reason import NO_REASON, Reason
from refold.errors import ConfigError

KINDS = ("before_compress", "compressed", "offloaded", "skipped", "failed", "warned", "undone", "redone")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that happens to a session. ``time`` is seconds since 1970, ``seconds`` how long it took."""

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
    """Who listens to what."""

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
        """Tell all who listen; return a sentence for each that failed."""
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
