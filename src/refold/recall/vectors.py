"""Vectors of passages: stored as one byte per dimension beside the index, compared by sqlite-vec where it is there.

They follow the index by a watermark of their own, which goes back to the beginning when the model changes. A session is
scanned up to a limit, its newest passages first; older ones are compared where the words point at them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import apsw

from refold.errors import Unavailable
from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow, format_of
from refold.ledger.runs import find_runs
from refold.recall import rows
from refold.recall.embed import Embedder
from refold.recall.index import RecallIndex
from refold.recall.originals import read_original
from refold.recall.rows import SESSION_BITS, Mark

# Newest passages that are compared with every query: within the database, and without its help.
SCAN_MAX = 100_000
SCAN_PLAIN_MAX = 20_000
NEAREST_MAX = 60
BATCH = 256

Scorer = Callable[[apsw.Connection, Mark, Sequence[int]], Mapping[int, float]]


class VectorTable:
    """The vectors of one embedder."""

    def __init__(self, index: RecallIndex, embedder: Embedder) -> None:
        self._index = index
        self._embedder = embedder

    @property
    def is_local(self) -> bool:
        """True if making vectors needs no service."""
        return self._embedder.is_local

    def is_behind(self, session_id: str) -> bool:
        """Tell whether passages of a session have no vector of this embedder yet."""
        mark = self._index.find_mark(session_id)
        return mark is not None and (mark.model != self._embedder.name or mark.embedded < mark.passages)

    def embed_pending(self, ledger: Ledger, row: SessionRow, limit: int) -> int:
        """Make missing vectors of a session, oldest first, a batch per transaction; return how many were done."""
        form = format_of(row)
        done = 0
        while done < limit:
            mark = self._index.find_mark(row.id)
            if mark is None:
                return done
            if mark.model != self._embedder.name:
                self._restart(mark)
                continue
            if mark.embedded >= mark.passages:
                return done
            with self._index.file.read() as db:
                stop = mark.embedded + min(BATCH, limit - done)
                passages = list(rows.read_passages(db, mark, mark.embedded, stop))
                sources = rows.read_sources(db, mark, {one.seq for one in passages})
            ids = list(dict.fromkeys(source.id for source in sources.values()))
            texts = {stored.id: read_original(stored, form).text for stored in ledger.read_messages(row.id, ids)}
            wanted = [(one.place, texts.get(sources[one.seq].id, "")[one.start : one.stop]) for one in passages]
            vectors = self._embedder.embed([text for _, text in wanted])
            done += self._store(mark, stop, [(at, vector) for (at, _), vector in zip(wanted, vectors, strict=True)])
        return done

    def prepare(self, query: str) -> Scorer | None:
        """Return what scores passages by their nearness to a query; None if the query has no vector."""
        try:
            vector = self._embedder.embed([query])[0]
        except Unavailable:
            # A query is answered by its words when the service is away.
            return None
        if vector is None:
            return None
        wanted = quantise(vector)

        def score(db: apsw.Connection, mark: Mark, places: Sequence[int]) -> Mapping[int, float]:
            return self._score(db, mark, wanted, places)

        return score

    def _score(self, db: apsw.Connection, mark: Mark, wanted: bytes, places: Sequence[int]) -> Mapping[int, float]:
        """Return how near passages are: the nearest of all that are scanned, and those at ``places``."""
        if mark.model != self._embedder.name or not mark.embedded:
            return {}
        if load_vec(db):
            return _score_in_database(db, mark, wanted, places)
        newest = max(0, mark.embedded - SCAN_PLAIN_MAX)
        found = _read_vectors(db, mark.key(newest), mark.key(mark.embedded))
        for place in places:
            if place < newest:
                found += _read_vectors(db, mark.key(place), mark.key(place) + 1)
        base = mark.no << SESSION_BITS
        scored = compare(wanted, found, {base + place for place in places})
        return {key - base: scored[key] for key in sorted(scored) if scored[key] > 0}

    def _restart(self, mark: Mark) -> None:
        with self._index.file.write() as db:
            low = mark.key(0)
            db.execute("DELETE FROM vector WHERE key >= ? AND key < ?", (low, low + (1 << SESSION_BITS)))
            db.execute("UPDATE indexed SET embedded = 0, model = ? WHERE no = ?", (self._embedder.name, mark.no))

    def _store(self, mark: Mark, stop: int, vectors: Sequence[tuple[int, list[float] | None]]) -> int:
        """Keep a batch if nobody else did it meanwhile."""
        stop = min(stop, mark.passages)
        with self._index.file.write() as db:
            sql = "UPDATE indexed SET embedded = ? WHERE no = ? AND embedded = ? AND model = ?"
            db.execute(sql, (stop, mark.no, mark.embedded, mark.model))
            if db.changes():
                db.executemany(
                    # A passage that was forgotten meanwhile keeps no vector.
                    "INSERT OR REPLACE INTO vector SELECT ?, ? WHERE EXISTS (SELECT 1 FROM passage WHERE key = ?)",
                    ((mark.key(at), quantise(vector), mark.key(at)) for at, vector in vectors if vector is not None),
                )
        return stop - mark.embedded


def load_vec(db: apsw.Connection) -> bool:
    """Load sqlite-vec into a connection, once; False where it is not installed or may not be loaded.

    Measured over 100,000 vectors of 256 bytes, reading included: 58 ms of processor time, numpy 128 ms.
    """
    try:
        db.execute("SELECT vec_version()")
    except apsw.SQLError:
        pass
    else:
        return True
    try:
        import sqlite_vec  # type: ignore[import-untyped]

        db.enable_load_extension(True)
        try:
            db.load_extension(sqlite_vec.loadable_path())
        finally:
            db.enable_load_extension(False)
    except (ImportError, OSError, AttributeError, apsw.Error):
        return False
    return True


def _score_in_database(db: apsw.Connection, mark: Mark, wanted: bytes, places: Sequence[int]) -> dict[int, float]:
    """Return how near passages are: the nearest of all that are scanned, and those at ``places``."""
    newest, base = max(0, mark.embedded - SCAN_MAX), mark.no << SESSION_BITS
    sql = (
        "SELECT key, 1 - vec_distance_cosine(vec_int8(value), vec_int8(?1)) AS near FROM vector "
        "WHERE key >= ?2 AND key < ?3 AND length(value) = length(?1)"
    )
    found: list[tuple[Any, ...]] = db.execute(
        f"{sql} ORDER BY near DESC, key LIMIT ?4",
        (wanted, mark.key(newest), mark.key(mark.embedded), NEAREST_MAX),
    ).fetchall()
    for first, last in find_runs(sorted(set(places))):
        found += db.execute(sql, (wanted, mark.key(first), mark.key(last) + 1)).fetchall()
    scored = {int(key) - base: round(float(near), 6) for key, near in found if near is not None}
    return {place: scored[place] for place in sorted(scored) if scored[place] > 0}


def _read_vectors(db: apsw.Connection, low: int, high: int) -> list[tuple[int, bytes]]:
    sql = "SELECT key, value FROM vector WHERE key >= ? AND key < ?"
    return [(key, value) for key, value in db.execute(sql, (low, high))]


def quantise(vector: Sequence[float]) -> bytes:
    """Return a vector of unit length with one byte per dimension."""
    length = math.sqrt(sum(number * number for number in vector)) or 1.0
    largest = max((abs(number) for number in vector), default=0.0) / length or 1.0
    return bytes(round(number / length / largest * 127) & 0xFF for number in vector)


def compare(query: bytes, stored: Sequence[tuple[int, bytes]], wanted: Set[int] = frozenset()) -> dict[int, float]:
    """Return the cosine with the query's of the nearest stored vectors and of those at ``wanted``, by key.

    Vectors of another length are left out.
    """
    fitting = [(key, value) for key, value in stored if len(value) == len(query)]
    if not fitting:
        return {}
    try:
        import numpy
    except ImportError:
        cosines = _compare_plain(query, fitting)
    else:
        cosines = _compare_numpy(numpy, query, fitting)
    nearest = sorted(range(len(fitting)), key=lambda at: (-cosines[at], fitting[at][0]))[:NEAREST_MAX]
    chosen = {*nearest, *(at for at, (key, _) in enumerate(fitting) if key in wanted)}
    return {fitting[at][0]: round(cosines[at], 6) for at in chosen}


def _compare_numpy(numpy: Any, query: bytes, stored: Sequence[tuple[int, bytes]]) -> list[float]:
    matrix = numpy.frombuffer(b"".join(value for _, value in stored), dtype=numpy.int8)
    matrix = matrix.reshape(len(stored), len(query)).astype(numpy.float32)
    vector = numpy.frombuffer(query, dtype=numpy.int8).astype(numpy.float32)
    lengths = numpy.sqrt(numpy.einsum("ij,ij->i", matrix, matrix)) * float(numpy.sqrt(vector @ vector))
    cosines: list[float] = ((matrix @ vector) / numpy.maximum(lengths, 1e-9)).tolist()
    return cosines


def _compare_plain(query: bytes, stored: Sequence[tuple[int, bytes]]) -> list[float]:
    vector = memoryview(query).cast("b").tolist()
    own = math.sqrt(sum(number * number for number in vector)) or 1.0
    cosines = []
    for _, value in stored:
        numbers = memoryview(value).cast("b").tolist()
        length = math.sqrt(sum(number * number for number in numbers)) or 1.0
        cosines.append(sum(a * b for a, b in zip(vector, numbers, strict=True)) / own / length)
    return cosines
