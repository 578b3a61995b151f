"""The history that a client sends: its content hashes, the session it continues, and our records within it.

A client that adopts the view as its history sends our records back. Each record is replaced by the messages it covers,
so that no record is folded again and an undo shows the originals.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from refold.conversation.message import find_marks, write_json
from refold.conversation.turn import count_common
from refold.conversation.view import Edit
from refold.ledger.records import format_of
from refold.ledger.sql.ledger import Ledger
from refold.manager.session import OpenSession, digest_raw, read_originals
from refold.recall.family import find_owner

SESSIONS_MAX = 500


@dataclass(frozen=True, slots=True)
class RestoredMessage:
    """A message of a history in which originals replace our records; ``id`` is set for an original.

    ``origin`` is the position in the client's history, ``~at`` for an original of the record at that position.
    """

    raw: object
    digest: str
    origin: int
    id: str = ""


def restore_history(
    ledger: Ledger, session: OpenSession, raws: Sequence[object], digests: Sequence[str]
) -> list[RestoredMessage] | None:
    """Return a history in which every text of ours is replaced by its originals; None if there is no such text."""
    if not session.edits and not session.switched_off:
        return None
    known = set(session.digests)
    unknown = {digest for digest in digests if digest not in known}
    if not unknown:
        return None
    folds = [edit.edit for edit in ledger.read_edits(session.id, active_only=False) if edit.edit.kind == "fold"]
    made = {digest: ids for digest, ids in _list_made(session, folds) if digest in unknown}
    found: dict[int, _Found] = {}
    for at, (raw, digest) in enumerate(zip(raws, digests, strict=True)):
        if digest in made:
            found[at] = _Found(made[digest])
        elif digest in unknown and (joined := _split_record(raw, folds)) is not None:
            found[at] = joined
    if not found:
        return None
    wanted = dict.fromkeys(one for each in found.values() for one in each.ids)
    originals = read_originals(ledger, session.row, session.lens, list(wanted))
    entries: list[RestoredMessage] = []
    taken: set[str] = set()
    for at, (raw, digest) in enumerate(zip(raws, digests, strict=True)):
        if at not in found:
            entries.append(RestoredMessage(raw, digest, at))
            continue
        ids, rest = found[at].ids, found[at].rest
        whole = [originals[one] for one in ids if one not in taken]
        entries += [RestoredMessage(one.raw, one.digest, ~at, one.id) for one in whole]
        entries += [RestoredMessage(rest, digest_raw(rest, at), ~at)] if rest is not None else []
        taken.update(ids)
    return _order(entries, session)


def restore_tail(
    ledger: Ledger, session: OpenSession, raws: Sequence[object], digests: Sequence[str]
) -> list[RestoredMessage]:
    """Return messages to append in which originals replace our records, unless the session has them already."""
    restored = restore_history(ledger, session, raws, digests)
    if restored is None:
        return [RestoredMessage(raw, digest, at) for at, (raw, digest) in enumerate(zip(raws, digests, strict=True))]
    known = set(session.digests)
    return [one for one in restored if one.origin >= 0 or one.digest not in known]


@dataclass(frozen=True, slots=True)
class _Found:
    """A message of ours: the ids of the messages it replaces, and what else a client joined to it."""

    ids: tuple[str, ...]
    rest: dict[str, object] | None = None


def _split_record(raw: object, folds: Sequence[Edit]) -> _Found | None:
    """Return the record and the rest of a message that a client joined from several; None if it has no record."""
    if not isinstance(raw, dict):
        return None
    content, known = raw.get("content"), {edit.text: edit.covers for edit in folds}
    if isinstance(content, str):
        text = next((text for text in known if content.startswith(text)), None)
        return None if text is None else _Found(known[text], {**raw, "content": content[len(text) :].strip()})
    blocks = content if isinstance(content, list) else []
    texts = [str(block.get("text")) if isinstance(block, dict) else "" for block in blocks]
    if not any(text in known for text in texts):
        return None
    rest = [block for block, text in zip(blocks, texts, strict=True) if text not in known]
    is_text = len(rest) == 1 and isinstance(rest[0], dict) and rest[0].keys() == {"type", "text"}
    ids = tuple(one for text in texts for one in known.get(text, ()))
    return _Found(ids, {**raw, "content": rest[0]["text"] if is_text else rest} if rest else None)


def _list_made(session: OpenSession, folds: Sequence[Edit]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the digest of every text that may have been sent instead of messages, with the ids of those messages."""
    for edit in folds:
        yield digest_raw(session.lens.format.write_summary(edit.text, edit.role), 0), edit.covers
    for item in session.items:
        if item.edits and not item.is_fold:
            yield digest_raw(item.raw, 0), (item.message.id,)


def find_continued(ledger: Ledger, digests: Sequence[str], raws: Sequence[object]) -> str | None:
    """Return the session that a history continues: the longest common prefix among the sessions used last.

    The prefix is the whole session, or half of it with an answer of the model. Without one, a record of ours decides.
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
    return best[1] if best is not None else find_by_record(ledger, frozenset(digests), raws)


def find_by_record(ledger: Ledger, digests: Collection[str], raws: Sequence[object]) -> str | None:
    """Return the session that one of our records among the messages belongs to."""
    marked = {name for raw in raws for name in find_marks(write_json(raw))}
    for row in ledger.list_sessions(limit=SESSIONS_MAX) if marked else ():
        if find_owner(row.id):
            continue  # A tenant's session is found by its gateway alone.
        for edit in (stored.edit for stored in ledger.read_edits(row.id, active_only=False)):
            is_named = edit.fold is not None and edit.fold.handle in marked
            # The handle alone proves nothing: anybody may quote one.
            if is_named and digest_raw(format_of(row).write_summary(edit.text, edit.role), 0) in digests:
                return row.id
    return None


def _order(entries: Sequence[RestoredMessage], session: OpenSession) -> list[RestoredMessage]:
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
