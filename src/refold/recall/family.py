"""The family of a session: those that continue it or that it continues, its sub-agents, and what it branched from.

A client that compacts its own history begins anew: what was said before is in another session of the same conversation.
Relatives are found by what callers stored (the parent, the client's own id of the conversation), else by content: a
fork and a resumed file share messages. Sessions of other tenants are never relatives, whatever their settings say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refold.conversation.message import frozen
from refold.conversation.turn import count_common
from refold.ledger.records import SessionRow
from refold.ledger.sql.ledger import Ledger

TENANT_MARK = "@"
# A stored mark of sessions that began like another person's: what they have in common makes no relatives of them.
APART = "apart"
SESSIONS_MAX = 200
# So many sessions, the last changed ones, are compared by content: a relative begins alike, answers included, or has
# this share of the messages. Two chats that have nothing to do with each other share thanks and farewells.
COMPARED_MAX, SHARED_MIN, SHARED_SHARE = 30, 4, 0.3
# What came with a session's first request may be examples that a program puts before everybody's conversation: it
# counts only if it grew in the other session. So many messages of a first request are looked at.
FIRST_MAX = 64


@frozen
class _Said:
    """The messages of a session, by their digests, and those that came after its first request."""

    digests: Sequence[str]
    grown: frozenset[str]
    is_imported: bool = False


class RelativeFinder:
    """Finds the relatives of sessions; remembers what sessions consist of."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._said: dict[tuple[str, int], _Said] = {}

    def find(self, row: SessionRow) -> list[SessionRow]:
        """Return the relatives of a session, the last changed first, without itself."""
        owner = find_owner(row.id)
        rows = [
            session
            for session in self._ledger.list_sessions(limit=SESSIONS_MAX, prefix=owner)
            if session.id != row.id and session.messages and find_owner(session.id) == owner
        ]
        found: dict[str, SessionRow] = {}
        names = set(_list_names(row))
        while True:
            new = [one for one in rows if one.id not in found and not names.isdisjoint(_list_names(one))]
            if not new:
                break
            found |= {one.id: one for one in new}
            names.update(name for one in new for name in _list_names(one))
        alike = [one for one in rows[:COMPARED_MAX] if one.id not in found and one.wire == row.wire]
        own = self._read_said(row) if alike else _Said((), frozenset())
        found |= {one.id: one for one in alike if _is_alike(own, self._read_said(one))}
        return [one for one in rows if one.id in found]

    def _read_said(self, row: SessionRow) -> _Said:
        key = row.id, row.path_version
        if key not in self._said:
            if len(self._said) >= SESSIONS_MAX:
                self._said.clear()
            digests, early = self._ledger.read_path(row.id).digests, self._ledger.list_messages(row.id, limit=FIRST_MAX)
            first = {one.digest for one in early if one.created_at == early[0].created_at}
            is_apart = any(isinstance(setting, dict) and setting.get(APART) for setting in row.settings.values())
            digests = () if is_apart else digests
            is_imported = "client" in row.settings  # A file that a client wrote has no first request.
            grown = digests if is_imported else () if len(early) == len(first) == FIRST_MAX else {*digests} - first
            self._said[key] = _Said(digests, frozenset(grown), is_imported)
        return self._said[key]


def _is_alike(one: _Said, other: _Said) -> bool:
    common = (one.grown & {*other.digests}) | (other.grown & {*one.digests})
    if not one.is_imported and not other.is_imported:
        common -= one.grown & other.grown  # Two people may go the same way: a fork brings it with its first request.
    beginning = one.digests[: count_common(one.digests, other.digests)]
    shortest = min(len({*one.digests}), len({*other.digests}))
    return len(common.intersection(beginning)) >= SHARED_MIN or len(common) >= max(SHARED_MIN, SHARED_SHARE * shortest)


def find_owner(session_id: str) -> str:
    """Return the beginning of the ids of a tenant's sessions; empty for the operator's."""
    tenant, mark, _ = session_id.partition("/")
    return f"{tenant}/" if mark and session_id.startswith(TENANT_MARK) else ""


def _list_names(row: SessionRow) -> Iterator[str]:
    """Yield the names that relatives share: of the session, of its parent, of the client's own conversation."""
    yield f"session {row.id}"
    for stored in row.settings.values():
        if isinstance(stored, dict):
            parent, conversation = stored.get("parent"), stored.get("conversation")
            if isinstance(parent, str) and parent:
                yield f"session {parent}"
            if isinstance(conversation, str) and conversation:
                # A sub-agent of a client has the conversation's id and its own.
                yield f"conversation {conversation.partition('/')[0]}"
