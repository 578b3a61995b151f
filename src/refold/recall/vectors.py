"""Vectors of passages: made by an embedder, stored as one byte per dimension, compared by sqlite-vec if installed.

They follow the index by a separate watermark, which restarts when the model changes. The newest passages of a
session are scanned up to a limit; older ones are compared where the words point at them. Without an embedder, words
alone answer.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import nsmallest
from operator import mul
from typing import Any, Protocol

import apsw

from refold.errors import ConfigError, Unavailable
from refold.ledger.records import SessionRow, format_of
from refold.ledger.sql.database import find_runs
from refold.ledger.sql.ledger import Ledger
from refold.llm.redact import redact_text
from refold.recall import index_file
from refold.recall.index import RecallIndex
from refold.recall.index_file import SESSION_BITS, Mark
from refold.recall.options import Embeddings, EmbeddingService
from refold.recall.originals import read_original

TEXT_CHARS_MAX = 4_000
_ANSWER_BYTES_MAX = 100_000_000
_LATIN = re.compile(r"[A-Za-z]{3}")
_STATIC_NAME = "wordllama/l2_supercat_256"


class Embedder(Protocol):
    """Turns texts into vectors of one length."""

    @property
    def name(self) -> str:
        """The name of the model; stored vectors of another name do not fit."""

    @property
    def is_local(self) -> bool:
        """True if it costs neither money nor a request."""

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Return a vector for each text; None for one that has none."""


def make_embedder(embeddings: Embeddings, variables: Mapping[str, str] | None = None) -> Embedder | None:
    """Return the embedder that the settings name, with its key from ``variables``; None if there is none."""
    if isinstance(embeddings, EmbeddingService):
        return ServiceEmbedder(embeddings, _find_key(embeddings, variables or {}))
    if embeddings == "off":
        return None
    try:
        return _load_static()
    except ImportError:
        return None  # The extra is not installed: words alone.


@lru_cache(maxsize=1)
def _load_static() -> StaticEmbedder:
    """Return the static vectors of this process: loading takes long, and they take 30 MB."""
    return StaticEmbedder()


def _find_key(service: EmbeddingService, variables: Mapping[str, str]) -> str:
    if not service.key_env:
        return ""
    key = variables.get(service.key_env, "")
    if not key:
        raise ConfigError(
            "recall.embeddings.key_env names {key_env}, which is not set; set it in the environment",
            key_env=service.key_env[:80],
        )
    return key


@contextlib.contextmanager
def _quiet_import() -> Iterator[None]:
    """Keep a library from setting up logging for the whole program when it is imported."""
    root, handler = logging.getLogger(), logging.NullHandler()
    level = root.level
    # A root logger that has a handler is left alone by ``basicConfig``.
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class StaticEmbedder:
    """Static word vectors from the ``wordllama`` wheel, without any download."""

    name = _STATIC_NAME
    is_local = True

    def __init__(self) -> None:
        from pathlib import Path

        with _quiet_import():
            import wordllama  # type: ignore[import-untyped]

        # Its own search for the files looks one folder too high; the wheel holds both.
        folder = Path(wordllama.__file__).parent
        self._model: Any = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Return a vector of unit length for each text that has Latin words."""
        known = [at for at, text in enumerate(texts) if _LATIN.search(text)]
        found: list[list[float] | None] = [None] * len(texts)
        if known:
            clean = [texts[at][:TEXT_CHARS_MAX].encode("utf-8", "replace").decode() for at in known]
            for at, vector in zip(known, self._model.embed(clean, norm=True).tolist(), strict=True):
                found[at] = vector
        return found


class ServiceEmbedder:
    """Any service with OpenAI's ``/embeddings``."""

    is_local = False

    def __init__(self, options: EmbeddingService, key: str = "") -> None:
        self._options = options
        self._key = key
        self.name = f"{options.url.rstrip('/')}#{options.model}#{options.dimensions or ''}"

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Ask the service, some texts at a time; raise Unavailable if it does not answer as it should."""
        # Keys and passwords are masked before text leaves the machine.
        clean = [redact_text(text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()) for text in texts]
        found: list[list[float] | None] = []
        for at in range(0, len(clean), self._options.batch):
            found += self._ask([text if text.strip() else "-" for text in clean[at : at + self._options.batch]])
        return found

    def _ask(self, texts: list[str]) -> list[list[float] | None]:
        from refold.llm.http import request_json

        options = self._options
        wish: dict[str, object] = {"model": options.model, "input": texts, "encoding_format": "float"}
        if options.dimensions:
            wish["dimensions"] = options.dimensions
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        address = f"{options.url.rstrip('/')}/embeddings"
        try:
            status, answer = request_json(
                address, wish, headers, timeout_s=options.timeout_s, bytes_max=_ANSWER_BYTES_MAX
            )
            if status >= 300:
                raise OSError(f"HTTP {status}")
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
            if not all(math.isfinite(number) for vector in vectors for number in vector):
                raise ValueError("a vector holds something that is not a number")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                "{address} returned no embeddings ({kind}: {error}); try again",
                address=address,
                kind=type(error).__name__,
                error=error,
            ) from error
        if len(vectors) != len(texts):
            raise Unavailable(
                "{address} returned {count} embeddings for {count2} texts; check the model",
                address=address,
                count=len(vectors),
                count2=len(texts),
            )
        return list(vectors)


# How many of the newest passages are compared with a query. Without sqlite-vec their signs are compared first, and
# only the likely ones in full.
SCAN_MAX = 100_000
LIKELY_MAX = 1_000
NEAREST_MAX = 60
BATCH = 256

Scorer = Callable[[apsw.Connection, Mark, Sequence[int]], Mapping[int, float]]


class VectorTable:
    """The vectors of one embedder."""

    def __init__(self, index: RecallIndex, embedder: Embedder) -> None:
        self._index = index
        self.embedder = embedder

    def is_behind(self, session_id: str) -> bool:
        """Return whether passages of a session have no vector of this embedder yet."""
        mark = self._index.find_mark(session_id)
        return mark is not None and (mark.model != self.embedder.name or mark.embedded < mark.passages)

    def embed_pending(self, ledger: Ledger, row: SessionRow, limit: int) -> int:
        """Make missing vectors of a session, oldest first, a batch per transaction; return how many were done."""
        form = format_of(row)
        done = 0
        while done < limit:
            mark = self._index.find_mark(row.id)
            if mark is None:
                return done
            if mark.model != self.embedder.name:
                self._restart(mark)
                continue
            if mark.embedded >= mark.passages:
                return done
            with self._index.file.read() as db:
                stop = mark.embedded + min(BATCH, limit - done)
                passages = list(index_file.read_passages(db, mark, mark.embedded, stop))
                found = {seq: index_file.read_source(db, mark, seq) for seq in {passage.seq for passage in passages}}
            ids = {seq: source.id for seq, source in found.items() if source is not None}
            texts = {
                stored.id: read_original(stored, form).text
                for stored in ledger.read_messages(row.id, list(ids.values()))
            }
            wanted = [(one.place, texts.get(ids.get(one.seq, ""), "")[one.start : one.stop]) for one in passages]
            vectors = self.embedder.embed([text for _, text in wanted])
            done += self._store(mark, stop, [(at, vector) for (at, _), vector in zip(wanted, vectors, strict=True)])
        return done

    def prepare(self, query: str) -> Scorer | None:
        """Return a function that scores passages by nearness to a query; None if the query has no vector."""
        try:
            vector = self.embedder.embed([query])[0]
        except Unavailable:
            # Words alone answer the query while the service is unavailable.
            return None
        if vector is None:
            return None
        wanted = quantise(vector)

        def score(db: apsw.Connection, mark: Mark, places: Sequence[int]) -> Mapping[int, float]:
            is_current = mark.model == self.embedder.name and mark.embedded
            return find_nearest(db, mark, wanted, places) if is_current else {}

        return score

    def _restart(self, mark: Mark) -> None:
        with self._index.file.write() as db:
            low = mark.key(0)
            db.execute("DELETE FROM vector WHERE key >= ? AND key < ?", (low, low + (1 << SESSION_BITS)))
            db.execute("UPDATE indexed SET embedded = 0, model = ? WHERE no = ?", (self.embedder.name, mark.no))

    def _store(self, mark: Mark, stop: int, vectors: Sequence[tuple[int, list[float] | None]]) -> int:
        """Store a batch unless another process did so meanwhile."""
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
    """Load sqlite-vec into a connection, once; False where it is not installed or may not be loaded."""
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


def find_nearest(db: apsw.Connection, mark: Mark, wanted: bytes, places: Sequence[int]) -> dict[int, float]:
    """Return the cosines of the nearest passages among those that are scanned, and of those at ``places``."""
    scanned = mark.key(max(0, mark.embedded - SCAN_MAX)), mark.key(mark.embedded)
    runs = [(mark.key(first), mark.key(last) + 1) for first, last in find_runs(sorted(set(places)))]
    if load_vec(db):
        near = "1 - vec_distance_cosine(vec_int8(value), vec_int8(?1))"
        sql = f"SELECT key, {near} AS near FROM vector WHERE key >= ?2 AND key < ?3 AND length(value) = length(?1)"
        found = list(db.execute(f"{sql} ORDER BY near DESC, key LIMIT ?4", (wanted, *scanned, NEAREST_MAX)))
        found += [row for run in runs for row in db.execute(sql, (wanted, *run))]
    else:
        sql = "SELECT key, value FROM vector WHERE key >= ? AND key < ? AND length(value) = ?"
        cosine, likely = _make_cosine(wanted), _find_likely(db.execute(sql, (*scanned, len(wanted))), wanted)
        nearest = sorted(((key, cosine(value)) for key, value in likely), key=lambda row: (-row[1], row[0]))
        found = nearest[:NEAREST_MAX]
        found += [(key, cosine(value)) for run in runs for key, value in db.execute(sql, (*run, len(wanted)))]
    scored = {int(key) - mark.key(0): round(float(near), 6) for key, near in found if near is not None}
    return {place: scored[place] for place in sorted(scored) if scored[place] > 0}


def _find_likely(rows: Iterable[tuple[Any, ...]], wanted: bytes) -> list[tuple[Any, ...]]:
    """Return the vectors whose signs differ least from those of the sought one: one step for a whole vector."""
    signs = int.from_bytes(b"\x80" * len(wanted))
    sought = int.from_bytes(wanted) & signs
    return nsmallest(LIKELY_MAX, rows, key=lambda row: (int.from_bytes(row[1]) & signs ^ sought).bit_count())


def _make_cosine(wanted: bytes) -> Callable[[bytes], float]:
    """Return a function that compares a vector of one byte per dimension with the sought one."""
    sought = array("b", wanted)
    length = math.sqrt(sum(map(mul, sought, sought)))

    def cosine(value: bytes) -> float:
        other = array("b", value)
        product, square = sum(map(mul, sought, other)), sum(map(mul, other, other))
        return float(product / (length * math.sqrt(square) or 1.0))

    return cosine


def quantise(vector: Sequence[float]) -> bytes:
    """Return a vector of unit length with one byte per dimension."""
    length = math.sqrt(sum(number * number for number in vector)) or 1.0
    largest = max((abs(number) for number in vector), default=0.0) / length or 1.0
    return bytes(round(number / length / largest * 127) & 0xFF for number in vector)
