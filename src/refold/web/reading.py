"""What a tab reads of a session: its row, its path, its edits, and whether any of it has changed since.

Blocking calls of the ledger and the manager, each a function of ``Access``; ``Source.run`` runs them in threads.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Lens
from refold.ledger.records import MessagePath, SessionRow, StoredEdit, StoredMessage, format_of
from refold.manager.session import FORGOTTEN, REDO, parse_stored
from refold.manager.status import TITLE, read_title
from refold.manager.undo import read_redo
from refold.server.api.interface import Access

SAMPLE = "sample"
TITLE_CHARS_MAX = 120
MATCHES_MAX = 500
READ_AT_ONCE = 500
_OPENINGS_MAX = 5_000
_openings: OrderedDict[tuple[str, float, int], str] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Made:
    """When and why a fold was made."""

    created_at: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class Seen:
    """A session at one moment, without its messages."""

    row: SessionRow
    path: MessagePath
    edits: tuple[StoredEdit, ...]
    made: dict[str, Made] = field(repr=False)
    redoable: frozenset[str] = frozenset()

    @property
    def version(self) -> tuple[int, int, float]:
        """What changes whenever the session does."""
        return find_version(self.row)


def find_version(row: SessionRow) -> tuple[int, int, float]:
    """Return what changes whenever a session does; ``updated_at`` because settings and titles do not count as edits."""
    return row.path_version, row.edits_version, row.updated_at


def read_seen(access: Access, name: str) -> Seen:
    """Read a session as it is now."""
    row = access.need(name)
    edits = access.ledger.read_edits(row.id, active_only=False)
    reasons = {batch.id: batch.reason for batch in access.ledger.read_batches(row.id)}
    made = {one.edit.id: Made(one.created_at, reasons.get(one.batch_id, NO_REASON)) for one in edits}
    redoable = frozenset(one for group in read_redo(row.settings.get(REDO)) for one in group)
    return Seen(row, access.ledger.read_path(row.id), tuple(edits), made, redoable)


def read_roles(access: Access, seen: Seen) -> dict[str, str]:
    """Return whose words each message of a session is made of, by its id."""
    lens = Lens(format_of(seen.row), lambda *_: 0, lambda _: 0)
    roles: dict[str, str] = {}
    for stored in _read_all(access, seen):
        roles[stored.id] = find_speaker(parse_stored(stored, seen.row, lens))
    return roles


def find_speaker(message: Message) -> str:
    """Return whose words a message is made of: results of tools may come in a user's message."""
    kinds = {part.kind for part in message.parts}
    return "tool" if "result" in kinds and "text" not in kinds else message.role


def find_matches(access: Access, seen: Seen, query: str) -> list[str]:
    """Return the ids of the messages that contain a text, in order, whatever its case."""
    wanted, lens = query.casefold(), Lens(format_of(seen.row), lambda *_: 0, lambda _: 0)
    found = []
    for stored in _read_all(access, seen):
        message = parse_stored(stored, seen.row, lens)
        if any(wanted in f"{part.name}\n{part.text}".casefold() for part in message.parts):
            found.append(stored.id)
            if len(found) >= MATCHES_MAX:
                break
    return found


def _read_all(access: Access, seen: Seen) -> Iterator[StoredMessage]:
    ids = seen.path.ids
    for start in range(0, len(ids), READ_AT_ONCE):
        yield from access.ledger.read_messages(seen.row.id, ids[start : start + READ_AT_ONCE])


def read_version(access: Access, name: str) -> tuple[int, int, float]:
    """Return the version of a session: one cheap read."""
    return find_version(access.need(name))


def is_compressed_now(access: Access, name: str) -> bool:
    """Tell whether somebody, in any process, is compressing a session (S3.11): one cheap read."""
    return access.ledger.is_leased(access.need(name).id, now=time.time())


def find_title(row: SessionRow) -> str:
    """Return the title a person gave a session, empty if none did."""
    title = row.settings.get(TITLE)
    return title if isinstance(title, str) else ""


def read_opening(access: Access, row: SessionRow) -> str:
    """Return the first words a person said in a session."""
    return read_title(access.ledger, row)


def name_session(access: Access, row: SessionRow) -> str:
    """Return what a session is called everywhere on the page: its title, else its first words, else its name."""
    return find_title(row) or _find_opening(access, row) or access.name(row.id)


def _find_opening(access: Access, row: SessionRow) -> str:
    """Return a session's first words; read once, because they rarely change. What was forgotten is not kept here."""
    forgotten = row.settings.get(FORGOTTEN)
    key = (row.id, row.created_at, len(forgotten) if isinstance(forgotten, dict) else 0)
    if key not in _openings:
        opening = read_opening(access, row)
        if not opening:
            return ""
        _openings[key] = opening
        while len(_openings) > _OPENINGS_MAX:
            _openings.popitem(last=False)
    return _openings[key]


def rename_session(access: Access, name: str, title: str) -> None:
    """Give a session a title; an empty one takes it away. Its name, by which clients know it, stays."""
    row = access.need(name)
    wanted = " ".join(title.split())[:TITLE_CHARS_MAX]
    access.ledger.update_session(row.id, {"settings": {TITLE: wanted or None}}, time.time())


def delete_session(access: Access, name: str) -> None:
    """Delete a session with its files; daily pages stay."""
    row = access.need(name)
    access.manager.delete_session(row.id)
    access.application.forget_known(row.id)
