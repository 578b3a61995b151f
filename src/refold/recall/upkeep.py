"""Upkeep: brings the index and the vectors of sessions up to date in the background, and checks the index.

Each manager has one worker thread, which ends when nothing is left to do. It works in slices, so that no session keeps
the others waiting, and stores every slice: a process that ends loses only the slice in progress. A failure here fails
no request: a search catches up by itself, and a request reads from the ledger what is not indexed yet. The check
compares the index with the ledger word by word; all of it is derived, so a session that differs is indexed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from refold.errors import RefoldError
from refold.ledger.port import Ledger
from refold.ledger.records import Finding, SessionRow, format_of
from refold.recall.index import RecallIndex, collect_words, split_original
from refold.recall.index_file import Mark, find_mark
from refold.recall.passages import read_original

WAITING_MAX = 1_000


class Upkeep:
    """Calls ``slice_of(session_id)`` for the sessions it was asked to update, until each returns True."""

    def __init__(self, slice_of: Callable[[str], bool], complain: Callable[[str, str], None] | None = None) -> None:
        self._slice_of = slice_of
        self._complain = complain
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._stops = threading.Event()

    def ask(self, session_id: str) -> bool:
        """Queue a session for an update; False if too many are waiting already."""
        with self._guard:
            if session_id in self._waiting:
                return True
            if len(self._waiting) >= WAITING_MAX:
                return False
            self._waiting[session_id] = None
            if self._worker is None:
                self._stops.clear()
                self._worker = threading.Thread(target=self._work, name="refold-recall", daemon=True)
                self._worker.start()
            return True

    def is_busy(self) -> bool:
        """Return whether work is in progress or waiting."""
        with self._guard:
            return self._worker is not None

    def join(self, seconds: float = 60.0) -> bool:
        """Wait until nothing is left to do; False after ``seconds``."""
        with self._guard:
            worker = self._worker
        if worker is not None:
            worker.join(seconds)
        return not self.is_busy()

    def close(self) -> None:
        """Stop after the slice in progress. The rest is done the next time somebody asks."""
        self._stops.set()
        with self._guard:
            self._waiting.clear()
        self.join()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting or self._stops.is_set():
                    self._worker = None
                    return
                session_id, _ = self._waiting.popitem(last=False)
            is_done = self._do_slice(session_id)
            with self._guard:
                if not is_done and not self._stops.is_set():
                    # Back to the end of the queue: the others come first.
                    self._waiting.setdefault(session_id)

    def _do_slice(self, session_id: str) -> bool:
        """Do one slice; True if it was the last, or if it failed: a failed one is tried again only when asked for."""
        try:
            return self._slice_of(session_id)
        except RefoldError as error:
            self._tell(session_id, f"the index of recall was not brought up to date: {error}")
        except Exception as error:  # noqa: BLE001 - a worker must outlive whatever one session does to it
            self._tell(session_id, f"the index of recall failed: {type(error).__name__}: {error}"[:300])
        return True

    def _tell(self, session_id: str, problem: str) -> None:
        if self._complain is not None:
            self._complain(session_id, problem)


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
