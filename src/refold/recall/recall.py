"""Recall: finds messages that left the view, pages through them, and keeps the index of a ledger up to date.

A search covers everything that is stored. Nothing here writes to the ledger, and a shortened result always says so.

``Upkeep`` brings the index and the vectors up to date in the background and stores every slice of that work. A failure
there fails no request: a search catches up by itself, and a request reads from the ledger what is not indexed yet.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from refold.conversation import because
from refold.conversation.author import IsObserved
from refold.conversation.message import is_observation
from refold.errors import FormatError, HandleUnknown, SessionNotFound
from refold.ledger.records import Finding, SessionRow
from refold.ledger.sql.ledger import Ledger
from refold.recall.facts import KnownFact, collect_facts
from refold.recall.family import SESSIONS_MAX, RelativeFinder
from refold.recall.index import CaughtUp, RecallIndex, verify_index
from refold.recall.index_file import IndexReplaced
from refold.recall.inject import SNIPPETS_MAX, Injection, decide_injection, find_cause
from refold.recall.options import LIMIT_MAX, EmbeddingService, RecallOptions
from refold.recall.originals import OriginalPage, expand_handle
from refold.recall.search import Recalled, SessionSearch, fit_texts
from refold.recall.upkeep import Upkeep
from refold.recall.vectors import Embedder, VectorTable, make_embedder
from refold.recall.words import clip_query, query_words
from refold.tokens import counter_for

# The size of one slice of upkeep.
SLICE_MESSAGES = 1_000
SLICE_VECTORS = 512
# The pause between two messages that are indexed in the background: without it, an event loop in another thread would
# get its turn only every five milliseconds.
PAUSE_S = 0.0005
VECTORS_PER_QUERY = 5_000


_Work = TypeVar("_Work")
_Given = ParamSpec("_Given")


def _with_sound_index(method: Callable[_Given, _Work]) -> Callable[_Given, _Work]:
    """Make a method retry once if it found the index damaged: an empty one has replaced it."""

    @wraps(method)
    def call(*given: _Given.args, **named: _Given.kwargs) -> _Work:
        try:
            return method(*given, **named)
        except IndexReplaced:
            return method(*given, **named)

    return call


class Recall:
    """Finds, expands and knows facts over the sessions of one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        path: str | os.PathLike[str],
        options: RecallOptions | None = None,
        *,
        embedder: Embedder | None = None,
        variables: Mapping[str, str] | None = None,
        complain: Callable[[str, str], None] | None = None,
        is_observed: IsObserved = is_observation,
    ) -> None:
        self.ledger = ledger
        self._is_observed = is_observed
        self.index = RecallIndex(path)
        self.options = options or RecallOptions()
        self.upkeep = Upkeep(self.keep_up, complain)
        self._relatives = RelativeFinder(ledger)
        self._variables = dict(variables or {})
        self._count_text: Callable[[str], int] | None = None
        self._embedder = embedder
        self._vectors: VectorTable | None = None
        self._is_wordly = False
        self._is_swept = False
        self._guard = threading.Lock()

    @_with_sound_index
    def recall(
        self,
        session_id: str | None,
        query: str,
        limit: int | None = None,
        *,
        tokens_max: int | None = None,
        now: float = 0.0,
        by: str = "both",
        only: bool = False,
    ) -> list[Recalled]:
        """Return passages about a query, best first: of a session and its family, of the session ``only``, or of all.

        All sessions are searched if ``session_id`` is None. ``by`` is "both", "words" or "meaning". Raise
        SessionNotFound if there is no such session.
        """
        _check_query(query, limit, tokens_max)
        if session_id is None:
            rows = self.ledger.list_sessions(limit=SESSIONS_MAX)
        else:
            own = self._need(session_id)
            self.refresh(own)
            rows = [own] if only else [own, *self._relatives.find(own)]
        return self.search_sessions(rows, query, limit, tokens_max=tokens_max, now=now, by=by)

    @_with_sound_index
    def search_sessions(
        self,
        rows: Sequence[SessionRow],
        query: str,
        limit: int | None = None,
        *,
        tokens_max: int | None = None,
        now: float = 0.0,
        by: str = "both",
    ) -> list[Recalled]:
        """Return the passages of these sessions, best first. What is not indexed yet is left to the background."""
        wanted = max(1, min(LIMIT_MAX, self.options.limit if limit is None else limit))
        room = self.options.tokens_max if tokens_max is None else tokens_max
        self._index_some(rows)
        found = [
            one
            for row in rows
            for one in self._search(row, query, limit=wanted, tokens_max=room, now=now, by=by, alone=len(rows) == 1)
        ]
        if len(rows) == 1:
            return found
        order = {row.id: at for at, row in enumerate(rows)}
        # Scores of two sessions are hardly comparable to the last digit: of equals, the session that was asked leads.
        found.sort(key=lambda one: (-round(one.score, 1), order[one.session_id], -one.score, one.start))
        # A fork has the messages of the session that it was made from.
        each: dict[str, Recalled] = {}
        for one in found:
            each.setdefault(one.unit, one)
        return fit_texts(list(each.values())[:wanted], room, self.count_text, list(query_words(query)))

    def count_ready(self, rows: Sequence[SessionRow]) -> int:
        """Return how many of these sessions the index holds up to their last message."""
        return sum(not self._is_behind(row) for row in rows)

    def _index_some(self, rows: Sequence[SessionRow]) -> None:
        """Index a little of what is missing now, and the rest in the background: nobody waits for a workspace."""
        left = SLICE_MESSAGES
        for row in rows:
            if not self._is_behind(row):
                continue
            done = self._refresh(row, left, pause_s=0.0) if left > 0 else None
            left -= done.added if done else 0
            if done is None or not done.is_done:
                self.upkeep.ask(row.id)

    def expand(self, session_id: str, handle: str, offset: int = 0, limit: int | None = None) -> OriginalPage:
        """Return a page of the exact original behind a handle of a session or its family; else raise HandleUnknown."""
        row = self._need(session_id)
        try:
            return expand_handle(self.ledger, row, handle, offset, limit=limit)
        except HandleUnknown:
            for one in self._relatives.find(row):
                with suppress(HandleUnknown):
                    return expand_handle(self.ledger, one, handle, offset, limit=limit)
            raise

    def facts(self, session_id: str | None, *, with_history: bool = False) -> list[KnownFact]:
        """Return the facts of a session, newest last; with ``with_history`` also superseded ones."""
        stored = [] if session_id is None else [self._need(session_id)]
        row = stored[0] if stored else None
        return collect_facts(self.ledger, row, with_history=with_history, is_observed=self._is_observed)

    @_with_sound_index
    def inject(
        self,
        session_id: str,
        newest: str,
        hidden: Callable[[], Sequence[str]] | Sequence[str],
        *,
        in_view: Callable[[], str] | str = "",
        tokens_max: int | None = None,
        now: float = 0.0,
    ) -> Injection:
        """Decide whether the newest user message refers to hidden messages (ids, in order), and return the snippets.

        A request waits for this, so words alone decide, and nothing is indexed: the index is searched as it is, and
        messages that it does not hold yet are read from the ledger. ``hidden`` and ``in_view`` are called only if the
        message gives a reason to look.
        """
        room = min(self.options.inject_tokens, self.options.inject_tokens if tokens_max is None else tokens_max)
        cause = find_cause(newest, self.options.inject)
        if not cause.is_one:
            return Injection(False, cause.reason)
        ids = hidden() if callable(hidden) else hidden
        if not ids:
            return Injection(False, because.RECALL_NO_FOLDS())
        row = self._need(session_id)
        if self._is_behind(row):
            self.upkeep.ask(session_id)
        search = SessionSearch(self.index, self.ledger, row, hidden=ids, is_observed=self._is_observed)
        if cause.needs_value and not search.may_find(cause.values):
            return Injection(False, cause.reason)
        found = search.find(
            cause.query, limit=SNIPPETS_MAX, tokens_max=room, count_text=self.count_text, now=now or row.updated_at
        )
        seen = in_view() if callable(in_view) else in_view
        return decide_injection(
            newest, found, cause, rare=search.rare, in_view=seen, tokens_max=room, count_text=self.count_text
        )

    @_with_sound_index
    def refresh(self, row: SessionRow | str) -> int:
        """Bring a session's index up to date; return how many messages were new. Cheap when there is nothing new."""
        return self._refresh(self._need(row) if isinstance(row, str) else row).added

    def _is_behind(self, row: SessionRow) -> bool:
        """Return whether the index lacks something of a session; purge an earlier session of the same name."""
        mark = self.index.find_mark(row.id)
        if mark is None:
            return True
        if self.index.is_another(self.ledger, row, mark):
            self.index.purge_session(row.id)
            return True
        return mark.edits_version != row.edits_version or bool(
            self.ledger.list_messages(row.id, after=mark.seq, limit=1)
        )

    def _refresh(self, session: SessionRow, messages_max: int | None = None, *, pause_s: float = 0.0) -> CaughtUp:
        """Index what is new, up to a limit; background work pauses, so that other threads run."""
        done = self.index.catch_up(self.ledger, session, messages_max, pause_s=pause_s)
        if done.is_done and done.mark.edits_version != session.edits_version:
            # Another replica, which has a separate index, may have forgotten messages: remove their words here too.
            gone = self.index.find_indexed(session.id, self.ledger.find_forgotten(session.id))
            if gone:
                self.index.purge_messages(session.id, gone)
            self.index.mark_version(session.id, session.edits_version)
        return done

    @_with_sound_index
    def keep_up(self, session_id: str) -> bool:
        """Do one slice of a session's missing index work, vectors in use included; True if nothing is left."""
        self._sweep()
        row = self.ledger.read_session(session_id)
        if row is None:
            return True
        if not self._refresh(row, SLICE_MESSAGES, pause_s=PAUSE_S).is_done:
            return False
        if self._vectors is None and not isinstance(self.options.embeddings, EmbeddingService):
            return True
        return self.embed_pending(session_id, SLICE_VECTORS) < SLICE_VECTORS

    def _sweep(self) -> None:
        """Once per process, remove sessions that the ledger no longer has: another replica may have deleted them."""
        if not self._is_swept:
            self._is_swept = True
            for name in self.index.list_sessions():
                if self.ledger.read_session(name) is None:
                    self.index.purge_session(name)

    @_with_sound_index
    def embed_pending(self, session_id: str, limit: int = 2_000) -> int:
        """Compute missing vectors, at most ``limit``; return how many were made. May be stopped at any time."""
        table = self._open_vectors()
        return table.embed_pending(self.ledger, self._need(session_id), limit) if table else 0

    def forget(self, session_id: str, ids: Sequence[str]) -> int:
        """Remove messages from the index. Call it before the ledger forgets them, so that no word outlives its text."""
        return self.index.purge_messages(session_id, ids)

    def delete_session(self, session_id: str) -> bool:
        """Remove a whole session from the index."""
        return self.index.purge_session(session_id)

    def verify_index(self, session_id: str | None = None, *, repair: bool = False) -> list[Finding]:
        """Compare the index with the ledger; ``repair`` indexes again what differs."""
        try:
            return verify_index(self.index, self.ledger, session_id, repair=repair)
        except IndexReplaced as error:
            return [Finding("", f"recall index: {error}", is_derived=True)]

    @property
    def count_text(self) -> Callable[[str], int]:
        """Counts the tokens of a text."""
        if self._count_text is None:
            self._count_text = counter_for(None).count_text
        return self._count_text

    def configure(self, options: RecallOptions, variables: Mapping[str, str]) -> None:
        """Use other settings from now on."""
        if (options, dict(variables)) != (self.options, self._variables):
            with self._guard:
                self.options, self._variables = options, dict(variables)
                self._vectors, self._is_wordly = None, False

    def close(self) -> None:
        """Close the index once the running slice of upkeep is stored. A later call opens it again."""
        self.upkeep.close()
        self.index.close()

    def _search(
        self, row: SessionRow, query: str, *, limit: int, tokens_max: int, now: float, by: str, alone: bool
    ) -> list[Recalled]:
        vectors = self._open_vectors() if by != "words" else None
        if vectors is not None:
            if vectors.embedder.is_local and alone:
                vectors.embed_pending(self.ledger, row, VECTORS_PER_QUERY)
            if vectors.is_behind(row.id):
                # A service is slow, and so is a long session: words answer meanwhile.
                self.upkeep.ask(row.id)
        return SessionSearch(self.index, self.ledger, row, is_observed=self._is_observed).find(
            query,
            limit=limit,
            tokens_max=tokens_max,
            count_text=self.count_text,
            now=now or row.updated_at,
            vectors=vectors.prepare(clip_query(query)) if vectors else None,
            words_share=0.0 if by == "meaning" else 1.0,
        )

    def _open_vectors(self) -> VectorTable | None:
        with self._guard:
            if self._vectors is None and not self._is_wordly:
                embedder = self._embedder or make_embedder(self.options.embeddings, self._variables)
                if embedder is not None:
                    self._vectors = VectorTable(self.index, embedder)
                # Not installed, or switched off: use words alone, and do not look again.
                self._is_wordly = embedder is None
            return self._vectors

    def _need(self, session_id: str) -> SessionRow:
        row = self.ledger.read_session(session_id)
        if row is None:
            if self.index.find_mark(session_id) is not None:
                self.index.purge_session(session_id)  # Deleted elsewhere.
            raise SessionNotFound(session_id)
        return row


def _check_query(query: object, limit: object, tokens_max: object) -> None:
    """Raise FormatError for arguments that are not a query; they may come from a model."""
    if not isinstance(query, str):
        raise FormatError("a query must be a string, not {kind}", kind=type(query).__name__)
    for name, value in (("limit", limit), ("tokens_max", tokens_max)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise FormatError("{name} must be a whole number, not {kind}", name=name, kind=type(value).__name__)
