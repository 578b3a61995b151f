"""The history that a client sends: its content hashes, the session it continues, and records of ours within it.

A client that replaces its history by the view (or a library between it and us) sends our records back. Nobody said
them: each is replaced by the messages it stands for, so that the session stays the same, no record is folded again, and
an undo shows the originals.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from refold.conversation.turn import count_common
from refold.errors import FormatError
from refold.formats import digest_message
from refold.ledger.codec import PLAIN_ONLY
from refold.ledger.port import Ledger
from refold.manager.session import OpenSession, read_originals

CHUNK = 64


class Prints:
    """Content hashes of the last history, in chunks, each with a fingerprint of its JSON bytes.

    A stateless client resends everything. One fingerprint over some messages in a row costs a fraction of their
    canonical hashes. Equal bytes are equal messages; other bytes only mean that the canonical hashes decide.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, list[str]]] = {}

    def digest_all(self, raws: Sequence[object]) -> list[str]:
        """Return the content hash of every message of a history."""
        digests: list[str] = []
        known: dict[int, tuple[bytes, list[str]]] = {}
        for start in range(0, len(raws), CHUNK):
            chunk = raws[start : start + CHUNK]
            print_now = _print(chunk) if len(chunk) == CHUNK else None
            before = self._known.get(start)
            if print_now is not None and before is not None and before[0] == print_now:
                found = before[1]
            else:
                found = [digest_raw(raw, at) for at, raw in enumerate(chunk, start)]
            if print_now is not None:
                known[start] = print_now, found
            digests += found
        self._known = known
        return digests


def digest_raw(raw: object, at: int) -> str:
    """Return the content hash of one message; raise FormatError if it is not an object."""
    if not isinstance(raw, dict):
        raise FormatError("messages[{at}] is {kind}, expected an object with a role", at=at, kind=type(raw).__name__)
    return digest_message(raw, None, f"messages[{at}]")


def _print(chunk: Sequence[object]) -> bytes | None:
    try:
        return hashlib.blake2b(orjson.dumps(chunk, option=PLAIN_ONLY), digest_size=16).digest()
    except TypeError:  # Not plain JSON: the canonical form decides.
        return None


@dataclass(frozen=True, slots=True)
class Restored:
    """A history in which originals replace our records. ``origins`` are positions in the client's history.

    The origin of a restored message is the complement (``~``) of its record's position.
    """

    raws: list[object]
    digests: list[str]
    origins: list[int]


def restore_history(
    ledger: Ledger, session: OpenSession, raws: Sequence[object], digests: Sequence[str]
) -> Restored | None:
    """Return a history in which every text of ours is replaced by its originals; None if there is no such text."""
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
    """Yield the digest of every text that may have been sent instead of messages, with the ids of those messages."""
    folds = [one.edit for one in ledger.read_edits(session.id, active_only=False) if one.edit.kind == "fold"]
    for edit in folds:
        yield digest_raw(session.lens.format.write_summary(edit.text, edit.role), 0), edit.covers
    for item in session.items:
        if item.edits and not item.is_fold:
            yield digest_raw(item.raw, 0), (item.message.id,)


SESSIONS_MAX = 500


def find_continued(ledger: Ledger, digests: Sequence[str], raws: Sequence[object]) -> str | None:
    """Return the session that a history continues: the longest common prefix among the sessions used last.

    A history that departs from a session half-way must still share half of it, and an answer of the model.
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
    """Return messages in the order of the path: a record may come before messages that it does not cover."""
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
        # A new message follows the one before it.
        spots.append(float(spot) if spot is not None else spots[-1] + 0.5 if spots else -1.0)
    last = max((at for at, spot in enumerate(spots) if spot == int(spot)), default=-1)
    head = sorted(range(last + 1), key=lambda at: spots[at])
    return [entries[at] for at in (*head, *range(last + 1, len(entries)))]
