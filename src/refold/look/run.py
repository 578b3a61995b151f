"""Reads what is new in the histories on this machine, and keeps the studies for the next time.

The store is one file of lines, for this user alone: a line has the hash of a history, its stamp, and numbers. No text
of a conversation, no path. Two processes may add lines at the same time; a line that was cut off is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from refold.config.load import find_state_root
from refold.errors import RefoldError
from refold.look.histories import History, find_histories
from refold.look.study import Study, study_session

FOLDER, FILE = "look", "studies-1.jsonl"
PROCESSES_MAX = 8
# Small histories are read at once, without starting processes.
ALONE_BYTES = 4_000_000
Tell = Callable[[int, int], None]


def look(
    environ: Mapping[str, str],
    since: float = 0.0,
    *,
    processes: int | None = None,
    tell: Tell = lambda _done, _all: None,
) -> tuple[list[Study], int]:
    """Return the studies of all sessions that changed after ``since``, and how many histories had to be read."""
    histories = find_histories(environ, since)
    store = _Store(find_state_root(environ))
    known = {history: studies for history in histories if (studies := store.find(history)) is not None}
    left = [history for history in histories if history not in known]
    whole, done = sum(history.size for history in histories), sum(history.size for history in known)
    tell(done, whole)
    for history, studies in _study_all(left, processes or min(os.cpu_count() or 1, PROCESSES_MAX)):
        known[history] = studies
        store.keep(history, studies)
        done += history.size
        tell(done, whole)
    found = [study for history in histories for study in known[history]]
    return [study for study in found if not study.ended or study.ended >= since], len(left)


def study_history(history: History) -> list[Study]:
    """Study the sessions of a history; one that cannot be read is left out."""
    studies = []
    for session in history.read():
        try:
            study = study_session(session)
        except RefoldError:
            continue
        if study is not None:
            studies.append(study)
    return studies


def _study_all(histories: Sequence[History], processes: int) -> Iterator[tuple[History, list[Study]]]:
    if processes <= 1 or sum(history.size for history in histories) <= ALONE_BYTES:
        for history in histories:
            yield history, study_history(history)
        return
    # Largest first, so that no long history is read alone at the end; few at a time, to bound memory.
    queue = sorted(histories, key=lambda history: history.size)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting: dict[Future[list[Study]], History] = {}
        while queue or waiting:
            while queue and len(waiting) < processes + 1:
                history = queue.pop()
                waiting[pool.submit(study_history, history)] = history
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()


class _Store:
    def __init__(self, root: Path | None) -> None:
        self._path = root / FOLDER / FILE if root else None
        self._known: dict[str, tuple[str, list[Study]]] = {}
        for line in self._read_lines():
            try:
                plain = json.loads(line)
                self._known[plain["history"]] = (plain["stamp"], [Study.from_dict(one) for one in plain["studies"]])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue

    def find(self, history: History) -> list[Study] | None:
        stamp, studies = self._known.get(_hash(history), ("", []))
        return studies if stamp == history.stamp else None

    def keep(self, history: History, studies: Sequence[Study]) -> None:
        if self._path is None:
            return
        row = {"history": _hash(history), "stamp": history.stamp, "studies": [asdict(study) for study in studies]}
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
                file.write(json.dumps(row).encode() + b"\n")
        except OSError:
            self._path = None  # A full or read-only disk: the studies are made again next time.

    def _read_lines(self) -> list[str]:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace").splitlines() if self._path else []
        except OSError:
            return []


def _hash(history: History) -> str:
    return hashlib.sha256(history.key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
