"""Histories that come back: whose they are, and what of them is our own.

A client that replaces its history by the view (or a library that stands between it and us) sends our records back. They
are not what somebody said: each is exchanged for the messages that it stands for, so that the session stays what it
was, no record is folded again, and an undo shows the originals.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refold.ledger.align import count_common
from refold.ledger.port import Ledger
from refold.manager.session import OpenSession, digest_raw, read_originals


@dataclass(frozen=True, slots=True)
class Restored:
    """A history with originals in the place of records. ``origins`` are positions in the history that came in.

    The origin of a message that was exchanged is the complement (``~``) of its position.
    """

    raws: list[object]
    digests: list[str]
    origins: list[int]


def restore_history(
    ledger: Ledger, session: OpenSession, raws: Sequence[object], digests: Sequence[str]
) -> Restored | None:
    """Return a history with every text of ours in it exchanged for what it stands for; None if there is none."""
    if not session.edits and not session.switched_off:
        return None
    known = set(session.digests)
    unknown = {digest for digest in digests if digest not in known}
    made = {digest: ids for digest, ids in _list_made(ledger, session) if digest in unknown} if unknown else {}
    if not made:
        return None
    wanted = dict.fromkeys(one for digest in digests if digest in made for one in made[digest])
    originals = read_originals(ledger, session.row, session.lens, list(wanted))
    entries: list[_Entry] = []
    taken: set[str] = set()
    for at, (raw, digest) in enumerate(zip(raws, digests, strict=True)):
        ids = made.get(digest)
        if ids is None:
            entries.append(_Entry(raw, digest, at))
            continue
        entries += [_Entry(originals[one].raw, originals[one].digest, ~at, one) for one in ids if one not in taken]
        taken.update(ids)
    ordered = _order(entries, session)
    return Restored([one.raw for one in ordered], [one.digest for one in ordered], [one.origin for one in ordered])


@dataclass(frozen=True, slots=True)
class _Entry:
    raw: object
    digest: str
    origin: int
    id: str = ""


def _list_made(ledger: Ledger, session: OpenSession) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the digest of every text that may have been sent in the place of messages, with the ids of these."""
    folds = [one.edit for one in ledger.read_edits(session.id, active_only=False) if one.edit.kind == "fold"]
    for edit in folds:
        yield digest_raw(session.lens.format.write_summary(edit.text, edit.role), 0), edit.covers
    for item in session.items:
        if item.edits and not item.is_fold:
            yield digest_raw(item.raw, 0), (item.message.id,)


SESSIONS_MAX = 500


def find_continued(ledger: Ledger, digests: Sequence[str], raws: Sequence[object]) -> str | None:
    """Return the session that a history goes on with: the longest common beginning among those used last.

    A history that leaves a session on the way must still share half of it, and an answer of the model's.
    """
    best: tuple[int, str] | None = None
    for row in ledger.list_sessions(limit=SESSIONS_MAX):
        if not row.messages or (best is not None and row.messages < best[0]):
            continue
        known = ledger.read_path(row.id).digests
        common = count_common(known, digests)
        is_dialog = any(isinstance(raw, dict) and raw.get("role") == "assistant" for raw in raws[:common])
        is_continued = common == len(known) or (is_dialog and common * 2 >= len(known))
        if common and is_continued and (best is None or common > best[0]):
            best = common, row.id
    return best[1] if best is not None else None


def _order(entries: Sequence[_Entry], session: OpenSession) -> list[_Entry]:
    """Return messages in the order of the path: a record may have stood before messages that were kept out of it."""
    place = {message_id: at for at, message_id in enumerate(session.ids)}
    claimed = {entry.id for entry in entries if entry.id}
    free: defaultdict[str, deque[int]] = defaultdict(deque)
    for at, (message_id, digest) in enumerate(zip(session.ids, session.digests, strict=True)):
        if message_id not in claimed:
            free[digest].append(at)
    spots: list[float] = []
    for entry in entries:
        spot = place.get(entry.id)
        if spot is None and not entry.id and free.get(entry.digest):
            spot = free[entry.digest].popleft()
        # What is new follows the message before it.
        spots.append(float(spot) if spot is not None else spots[-1] + 0.5 if spots else -1.0)
    last = max((at for at, spot in enumerate(spots) if spot == int(spot)), default=-1)
    head = sorted(range(last + 1), key=lambda at: spots[at])
    return [entries[at] for at in (*head, *range(last + 1, len(entries)))]
