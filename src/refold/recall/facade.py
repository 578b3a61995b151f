"""Recall: one object beside a ledger that finds what left the view, pages through it, and keeps the index up to date.

The index follows the ledger by itself: whoever asks gets answers over all that is stored. Nothing here writes to the
ledger, and nothing that is found is ever shortened without saying so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from refold.errors import LedgerError
from refold.ledger.ledger import Finding, Ledger, SessionRow
from refold.recall.embed import Embedder, make_embedder
from refold.recall.expand import Page, expand_handle
from refold.recall.facts import KnownFact, collect_facts
from refold.recall.index import RecallIndex
from refold.recall.inject import Injection, decide_injection
from refold.recall.notes import list_notes
from refold.recall.options import LIMIT_MAX, RecallOptions
from refold.recall.search import Recalled, search_session
from refold.recall.snippets import fit_texts
from refold.recall.vectors import VectorTable
from refold.recall.verify import verify_index
from refold.recall.words import clip_query, query_words
from refold.tokens import counter_for

SESSIONS_MAX = 200


class Recall:
    """Finds, expands and knows facts over the sessions of one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        path: str | os.PathLike[str],
        options: RecallOptions | None = None,
        *,
        count_text: Callable[[str], int] | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.ledger = ledger
        self.index = RecallIndex(path)
        self.options = options or RecallOptions()
        self._count_text = count_text
        self._embedder = embedder
        self._vectors: VectorTable | None = None

    def recall(
        self,
        session_id: str | None,
        query: str,
        limit: int | None = None,
        *,
        tokens_max: int | None = None,
        now: float = 0.0,
        by: str = "both",
    ) -> list[Recalled]:
        """Return what a session holds about a query, best first; of all sessions if ``session_id`` is None.

        ``by`` is "both", "words" or "meaning". A session that is not there is a LedgerError; a query that finds nothing
        gives nothing.
        """
        wanted = max(1, min(LIMIT_MAX, self.options.limit if limit is None else limit))
        room = self.options.tokens_max if tokens_max is None else tokens_max
        if session_id is not None:
            return self._search(self._need(session_id), query, wanted, room, now, by)
        found: list[Recalled] = []
        for row in self.ledger.list_sessions(limit=SESSIONS_MAX):
            found += self._search(row, query, wanted, room, now, by)
        found.sort(key=lambda one: (-one.score, one.session_id, one.start))
        return fit_texts(found[:wanted], room, self.count_text, list(query_words(query)))

    def expand(self, session_id: str, handle: str, offset: int = 0, limit: int | None = None) -> Page:
        """Return a page of the exact original behind a handle; HandleUnknown ends the search."""
        return expand_handle(self.ledger, self._need(session_id), handle, offset, limit)

    def facts(self, session_id: str | None, *, with_history: bool = False) -> list[KnownFact]:
        """Return what is known of a session, newest last; superseded facts too with ``with_history``."""
        stored = [] if session_id is None else [self._need(session_id)]
        return collect_facts(self.ledger, stored[0] if stored else None, with_history=with_history)

    def inject(
        self,
        session_id: str,
        newest: str,
        hidden: Sequence[str],
        *,
        in_view: str = "",
        now: float = 0.0,
    ) -> Injection:
        """Decide whether the newest user message refers to hidden messages (ids), and give the snippets if it does."""
        options = self.options
        if options.inject == "off" or not hidden or not newest.strip():
            return decide_injection(newest, [], options, hidden=len(hidden), in_view="", count_text=self.count_text)
        row = self._need(session_id)
        self.refresh(row)
        found = search_session(
            self.index,
            self.ledger,
            row,
            newest,
            limit=options.inject_snippets_max,
            tokens_max=options.inject_tokens_max,
            count_text=self.count_text,
            now=now or row.updated_at,
            allowed=frozenset(hidden),
        )
        return decide_injection(newest, found, options, hidden=len(hidden), in_view=in_view, count_text=self.count_text)

    def refresh(self, row: SessionRow | str) -> int:
        """Bring a session's index up to date; return how many messages were new. Cheap when there is nothing new."""
        session = self._need(row) if isinstance(row, str) else row
        done = self.index.catch_up(self.ledger, session)
        if done.mark.edits_version != session.edits_version:
            notes = list_notes(self.ledger, session.id)
            self.index.replace_notes(session.id, notes, session.edits_version)
        return done.added

    def embed_pending(self, session_id: str, limit: int = 2_000) -> int:
        """Compute missing vectors, at most ``limit``; return how many were made. May be stopped at any time."""
        table = self._open_vectors()
        return table.embed_pending(self.ledger, self._need(session_id), limit) if table else 0

    def forget(self, session_id: str, ids: Sequence[str]) -> int:
        """Take messages out of the index. Call it before the ledger forgets them, so that no word outlives its text."""
        return self.index.purge_messages(session_id, ids)

    def delete_session(self, session_id: str) -> bool:
        """Take a whole session out of the index."""
        return self.index.purge_session(session_id)

    def verify_index(self, session_id: str | None = None, *, repair: bool = False) -> list[Finding]:
        """Compare the index with the ledger; ``repair`` indexes anew what differs."""
        return verify_index(self.index, self.ledger, session_id, repair=repair)

    @property
    def count_text(self) -> Callable[[str], int]:
        """Counts the tokens of a text."""
        if self._count_text is None:
            self._count_text = counter_for(None).count_text
        return self._count_text

    def close(self) -> None:
        """Close the index. A later call opens it again."""
        self.index.close()

    def _search(self, row: SessionRow, query: str, limit: int, tokens_max: int, now: float, by: str) -> list[Recalled]:
        self.refresh(row)
        vectors = self._open_vectors() if by != "words" else None
        if vectors is not None and vectors.is_local:
            vectors.embed_pending(self.ledger, row, VECTORS_PER_QUERY)
        return search_session(
            self.index,
            self.ledger,
            row,
            query,
            limit=limit,
            tokens_max=tokens_max,
            count_text=self.count_text,
            now=now or row.updated_at,
            vectors=vectors.prepare(clip_query(query)) if vectors else None,
            words_share=0.0 if by == "meaning" else 1.0,
        )

    def _open_vectors(self) -> VectorTable | None:
        if self._vectors is None:
            embedder = self._embedder or make_embedder(self.options.embeddings)
            if embedder is None:
                # Not installed, or switched off: words alone, and no second look for it.
                self.options = replace(self.options, embeddings=replace(self.options.embeddings, source="off"))
                return None
            self._vectors = VectorTable(self.index, embedder)
        return self._vectors

    def _need(self, session_id: str) -> SessionRow:
        row = self.ledger.read_session(session_id)
        if row is None:
            raise LedgerError(f"there is no session {session_id[:80]!r}; 'refold sessions' lists those there are")
        return row


VECTORS_PER_QUERY = 5_000


def index_path(ledger_path: str | os.PathLike[str]) -> Path:
    """Return where the index of a ledger's file is kept: beside it."""
    path = Path(ledger_path)
    return path.with_name(f"{path.stem}.recall{path.suffix or '.db'}")
