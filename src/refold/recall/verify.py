"""Comparing the index with the ledger, word by word: what is missing, what should be gone, what differs.

All of it is derived, so all of it can be repaired: the session is indexed anew.
"""

from __future__ import annotations

from refold.ledger.port import Ledger
from refold.ledger.records import Finding, SessionRow, format_of
from refold.recall.erase import collect_words
from refold.recall.index import RecallIndex, split_original
from refold.recall.originals import read_original
from refold.recall.rows import Mark, find_mark

_PAGE = 1_000
_FINDINGS_MAX = 20


def verify_index(index: RecallIndex, ledger: Ledger, session_id: str | None, *, repair: bool = False) -> list[Finding]:
    """Return what differs; a session that is not indexed yet, or not to its end, is no fault."""
    names = index.list_sessions() if session_id is None else [session_id]
    findings: list[Finding] = []
    for name in names:
        row = ledger.read_session(name)
        found = _verify_session(index, ledger, name, row)
        findings += [Finding(name, what, True) for what in found[:_FINDINGS_MAX]]
        if found and repair:
            index.purge_session(name)
            if row is not None:
                index.catch_up(ledger, row)
    return findings


def _verify_session(index: RecallIndex, ledger: Ledger, name: str, row: SessionRow | None) -> list[str]:
    with index.file.read() as db:
        mark = find_mark(db, name)
        if mark is None:
            return []
        if row is None:
            return ["the index holds a session that the ledger does not have"]
        kept = collect_words(db, mark)
        sources = {
            one[0]: one[1:] for one in db.execute("SELECT seq, id, first, count FROM source WHERE no = ?", (mark.no,))
        }
    return _compare(ledger, row, mark, {key: set(words) for key, words in kept.items()}, sources)


def _compare(
    ledger: Ledger, row: SessionRow, mark: Mark, kept: dict[int, set[str]], sources: dict[int, tuple[str, int, int]]
) -> list[str]:
    form = format_of(row)
    found: list[str] = []
    seq = 0
    while messages := [one for one in ledger.list_messages(row.id, after=seq, limit=_PAGE) if one.seq <= mark.seq]:
        for stored in messages:
            seq = stored.seq
            message_id, first, count = sources.pop(seq, ("", 0, 0))
            original = read_original(stored, form)
            expected = [piece.words for piece in split_original(original)]
            if message_id != stored.id and expected:
                found.append(f"message {stored.id} is not in the index")
                continue
            if count != len(expected):
                what = "is indexed, though forgotten" if stored.is_forgotten else "has other passages in the index"
                found.append(f"message {stored.id} {what}")
            for at in range(count):
                has = kept.pop(mark.key(first + at), set())
                if at < len(expected) and has != {f"{mark.prefix}{word}" for word in expected[at]}:
                    found.append(f"the words of passage {at} of message {stored.id} differ")
    found += [f"the index holds message {one[0]}, which the ledger does not have" for one in sources.values()]
    low = mark.key(1 << 31)
    found += [f"the index holds words at place {key - mark.key(0)} that belong to nothing" for key in kept if key < low]
    return found
