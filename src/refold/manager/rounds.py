"""Trying again: a change that somebody else's overtook is made anew after a pause; one that never can be made is told.

The versions of a session say which of the two it is. The pauses grow and are uneven, so that those who race do not meet
again at once, and they have an end (L9). A change is refused for good if the record refuses it twice against one and
the same session: the second time with all of it read anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from refold.conversation import because
from refold.conversation.reason import Reason, ReasonKind
from refold.errors import ChangeRefused, SessionBusy
from refold.ledger.ledger import Batch, Ledger, SessionRow
from refold.manager.flow import Pause
from refold.manager.keeper import Keeper

# On a server many replicas write at once: who is slower loses some rounds before its turn comes.
ROUNDS_MAX = 40
PAUSE_S, PAUSE_MAX_S = 0.002, 0.1
_GROWTH = 1.5
_NAMED_MAX = 3

# The path and the edits that a change was made against.
Versions = tuple[int, int]


def read_versions(row: SessionRow | None) -> Versions | None:
    """Return the versions of a session; None if there is none."""
    return None if row is None else (row.path_version, row.edits_version)


class Rounds:
    """The attempts at one change of a session."""

    def __init__(self, keeper: Keeper, session_id: str) -> None:
        self._keeper = keeper
        self._session_id = session_id
        self._begun = 0
        self._pause_s = PAUSE_S
        self._refused: Versions | None = None

    def begin(self) -> None:
        """Begin one more attempt; SessionBusy if there were too many."""
        self._begun += 1
        if self._begun > ROUNDS_MAX:
            raise SessionBusy(
                f"session {self._session_id!r} was changed by others {ROUNDS_MAX} times in a row; try again later, or "
                "let fewer processes work on one session"
            )

    def lose(self) -> Pause:
        """Return how long to wait after somebody else was faster."""
        pause = Pause(self._pause_s * (0.5 + self._keeper.chance()))
        self._pause_s = min(PAUSE_MAX_S, self._pause_s * _GROWTH)
        return pause

    def refuse(self, seen: SessionRow, what: Reason) -> Pause:
        """Return how long to wait after the record refused what was made against ``seen``; the caller reads all anew.

        ChangeRefused, naming ``what``, if it refused the same before and the session has not changed since.
        """
        now = read_versions(self._keeper.ledger.read_session(self._session_id))
        if now != read_versions(seen):
            return self.lose()
        if self._refused == now:
            raise ChangeRefused(
                f"{what}, although nobody changed session {self._session_id!r} in the meantime "
                f"(path version {seen.path_version}, edits version {seen.edits_version}); nothing was changed: "
                f"run 'refold verify', and 'refold verify --repair' for what it can rebuild"
            )
        self._refused = now
        return self.lose()


def explain_refusal(ledger: Ledger, session_id: str, batch: Batch) -> Reason:
    """Return what a compression is, and which of the things it depends on are not so in the ledger."""
    covered = dict.fromkeys(message_id for edit in batch.edits for message_id in edit.covers)
    stored = {one.id: one for one in ledger.read_messages(session_id, list(covered))}
    over = {one.edit.id for one in ledger.read_edits(session_id) if not covered.keys().isdisjoint(one.edit.covers)}
    expected = set(batch.expects)
    causes: Mapping[ReasonKind, list[str]] = {
        because.MISSING: [one for one in covered if one not in stored],
        because.FORGOTTEN: [one.id for one in stored.values() if one.is_forgotten and one.id not in batch.forgotten],
        because.UNSEEN: sorted(over - expected),
        because.STALE: sorted(expected - over),
    }
    found = [
        kind(count=len(ids), ids=" ".join(one[:12] for one in ids[:_NAMED_MAX])) for kind, ids in causes.items() if ids
    ]
    why = reduce(lambda first, second: because.BOTH(first=first, second=second), found or [because.UNCHANGED()])
    return because.REFUSED(messages=len(covered), edits=len(batch.edits), because=why)
