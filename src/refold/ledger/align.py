"""Alignment and chained ids: which incoming messages are already known, and the ids of new ones. Pure.

Clients resend the whole history each time, usually unchanged and longer: a single comparison. Otherwise the two
sequences are matched like a diff: the common ends, then messages that occur equally often on both sides as anchors,
then the gaps. A match keeps content and order, and never costs more than a few sorts of the part that differs.

A message's id hashes its content and its parent, so a resent history gets the same ids again. As long as paths are
changed only through ``chain_path``, no id is on a path twice, and a parent always comes before its children.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from refold.conversation.message import ROOT, chain_id
from refold.conversation.turn import count_common
from refold.ledger.records import MessagePath, Splice

_ROUNDS_MAX = 8  # Each round sorts what is left; after the last one, a simple walk matches the rest.


def align(known: Sequence[str], incoming: Sequence[str]) -> list[int]:
    """Return each incoming message's place among the known ones, matched by digest and in order; -1 for a new one."""
    places = [-1] * len(incoming)
    for k, i, length in _match(tuple(known), tuple(incoming)):
        places[i : i + length] = range(k, k + length)
    return places


_Span = tuple[int, int, int, int, int]


def _match(known: tuple[str, ...], incoming: tuple[str, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield matches as (known, incoming, length), in any order; no two of them cross."""
    spans: list[_Span] = [(0, len(known), 0, len(incoming), 0)]
    while spans:
        k0, k1, i0, i1, rounds = spans.pop()
        head = count_common(known[k0:k1], incoming[i0:i1])
        if head:
            yield k0, i0, head
            k0, i0 = k0 + head, i0 + head
        tail = count_common(known[k0:k1][::-1], incoming[i0:i1][::-1])
        if tail:
            k1, i1 = k1 - tail, i1 - tail
            yield k1, i1, tail
        if k0 == k1 or i0 == i1:
            continue
        trimmed = _find_trimmed(known[k0:k1], incoming[i0:i1])
        if trimmed:
            yield k1 - trimmed, i0, trimmed
            continue
        anchors = _find_anchors(known[k0:k1], incoming[i0:i1]) if rounds < _ROUNDS_MAX else []
        if not anchors:
            yield from ((k0 + k, i0 + i, 1) for k, i in _walk(known[k0:k1], incoming[i0:i1]))
            continue
        at_k, at_i = k0, i0
        for k, i in anchors:
            yield k0 + k, i0 + i, 1
            if at_k < k0 + k and at_i < i0 + i:
                spans.append((at_k, k0 + k, at_i, i0 + i, rounds + 1))
            at_k, at_i = k0 + k + 1, i0 + i + 1
        spans.append((at_k, k1, at_i, i1, rounds + 1))


def _find_trimmed(known: tuple[str, ...], incoming: tuple[str, ...]) -> int:
    """Return how many known messages remain if the client only removed its oldest ones; 0 if it did something else."""
    if incoming[0] not in known:
        return 0
    left = len(known) - known.index(incoming[0])
    return left if known[-left:] == incoming[:left] else 0


def _find_anchors(known: tuple[str, ...], incoming: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the longest increasing sequence of messages that occur equally often on both sides."""
    known_counts, incoming_counts = Counter(known), Counter(incoming)
    shared = {digest for digest, times in incoming_counts.items() if known_counts.get(digest) == times}
    if not shared:
        return []
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at in range(len(known) - 1, -1, -1):
        if known[at] in shared:
            places[known[at]].append(at)
    pairs = [(places[digest].pop(), at) for at, digest in enumerate(incoming) if digest in shared]
    return _longest_increasing(pairs)


def _longest_increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest sequence of pairs whose first members increase; the second members already do."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for at, (place, _) in enumerate(pairs):
        spot = bisect_left(ends, place)
        ends[spot : spot + 1] = [place]
        last[spot : spot + 1] = [at]
        before.append(last[spot - 1] if spot else -1)
    chosen: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


def _walk(known: tuple[str, ...], incoming: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Match each incoming message with its next occurrence after the previous match."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, digest in enumerate(known):
        places[digest].append(at)
    cursor = 0
    for at, digest in enumerate(incoming):
        spots = places.get(digest, [])
        nearest = bisect_left(spots, cursor)
        if nearest < len(spots):
            yield spots[nearest], at
            cursor = spots[nearest] + 1


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
    length = len(path.ids)
    if tuple(incoming[:length]) == path.digests:
        new = chain_tail(path.ids[-1] if path.ids else ROOT, incoming[length:], length)
        ids = tuple(link.id for link in new)
        return ChainedPath(path.ids + ids, new, (Splice(length, length, ids),) if ids else ())
    return _chain_apart(path, incoming, align(path.digests, incoming))


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
    before, ahead = -1, 0  # The last kept position, and where the next kept message may be: each only moves forward.
    for at, digest in enumerate(incoming):
        if positions[at] >= 0:
            parent = path.ids[positions[at]]
        else:
            message_id = chain_id(parent, digest)
            if message_id in kept:
                positions[kept[message_id]] = -1
                ahead = _find_kept(positions, max(ahead, at + 1))
                after = positions[ahead] if ahead < len(positions) else len(path.ids)
                # A message that would be out of order is removed and inserted again.
                positions[at] = place[message_id] if before < place[message_id] < after else -1
            else:
                new.append(Link(at, parent, message_id))
            parent = message_id
        before = max(before, positions[at])
        ids.append(parent)
    return ChainedPath(tuple(ids), tuple(new), tuple(_find_splices(positions, ids, len(path.ids))))


def _find_kept(positions: list[int], at: int) -> int:
    """Return the first index from ``at`` on whose message is kept; the length if there is none."""
    while at < len(positions) and positions[at] < 0:
        at += 1
    return at


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
