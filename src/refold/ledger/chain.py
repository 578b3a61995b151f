"""Chained ids: a message's id hashes its content and its parent, so a resent history gets the same ids again. Pure.

Known messages keep their ids wherever they are now; a new message is chained to the one before it. As long as paths are
changed only through ``chain_path``, no id is on a path twice, and a parent always comes before its children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refold.conversation.message import ROOT, chain_id
from refold.ledger.align import align
from refold.ledger.records import MessagePath, Splice


@dataclass(frozen=True, slots=True)
class Link:
    """A message that is not on the path yet: its place among the incoming messages, its parent and its id."""

    at: int
    parent: str
    id: str


@dataclass(frozen=True, slots=True)
class ChainedPath:
    """The ids of all incoming messages, which of them are new, and the splices that turn the path into them."""

    ids: tuple[str, ...]
    new: tuple[Link, ...]
    splices: tuple[Splice, ...]


def chain_path(path: MessagePath, incoming: Sequence[str]) -> ChainedPath:
    """Give each incoming message the id it has on the path, or a new one."""
    alignment = align(path.digests, incoming)
    if alignment.keeps_path:
        length = len(path.ids)
        new = chain_tail(path.ids[-1] if path.ids else ROOT, incoming[length:], length)
        ids = tuple(link.id for link in new)
        return ChainedPath(path.ids + ids, new, (Splice(length, length, ids),) if ids else ())
    return _chain_apart(path, incoming, alignment.positions())


def chain_tail(tail: str, digests: Sequence[str], at: int = 0) -> tuple[Link, ...]:
    """Chain messages that follow ``tail``; the first is at place ``at``."""
    links: list[Link] = []
    for place, digest in enumerate(digests, at):
        links.append(Link(place, tail, chain_id(tail, digest)))
        tail = links[-1].id
    return tuple(links)


def _chain_apart(path: MessagePath, incoming: Sequence[str], positions: list[int]) -> ChainedPath:
    """Chain new messages between known ones.

    An inserted message may get the id of a message that is kept further on, because it has the same parent and content.
    Then it is that message, moved up, and the later one becomes new. Otherwise one id would be on the path twice.
    """
    kept = {path.ids[position]: at for at, position in enumerate(positions) if position >= 0}
    place = {message_id: at for at, message_id in enumerate(path.ids)}
    ids: list[str] = []
    new: list[Link] = []
    parent = ROOT
    for at, digest in enumerate(incoming):
        if positions[at] >= 0:
            parent = path.ids[positions[at]]
        else:
            message_id = chain_id(parent, digest)
            if message_id in kept:
                positions[kept[message_id]] = -1
                positions[at] = -1 if _crosses(positions, at, place[message_id]) else place[message_id]
            else:
                new.append(Link(at, parent, message_id))
            parent = message_id
        ids.append(parent)
    return ChainedPath(tuple(ids), tuple(new), tuple(_find_splices(positions, ids, len(path.ids))))


def _crosses(positions: list[int], at: int, place: int) -> bool:
    """Return whether a message at this place would be out of order; then it is removed and inserted again."""
    before = next((position for position in reversed(positions[:at]) if position >= 0), -1)
    after = next((position for position in positions[at + 1 :] if position >= 0), place + 1)
    return not before < place < after


def _find_splices(positions: list[int], ids: list[str], length: int) -> list[Splice]:
    """Return the changes between the kept messages."""
    splices: list[Splice] = []
    start = at = 0
    while at <= len(positions):
        stop = next((i for i in range(at, len(positions)) if positions[i] >= 0), len(positions))
        until = positions[stop] if stop < len(positions) else length
        if stop > at or until > start:
            splices.append(Splice(start, until, tuple(ids[at:stop])))
        start, at = until + 1, stop + 1
    return splices
