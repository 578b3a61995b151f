"""What a manager does by recall: methods that it inherits, apart from the rest because they share the index.

The index stands beside the ledger's file and is opened when first asked for. ``forget`` and ``delete_session`` of the
manager call ``forget_recalled`` first.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from refold.ledger.choose import find_index_file, find_place
from refold.ledger.ledger import Finding
from refold.manager.keeper import Keeper
from refold.recall.expand import find_handle
from refold.recall.facade import Recall
from refold.recall.facts import KnownFact
from refold.recall.inject import Injection
from refold.recall.search import Recalled


class Recalling:
    """Recall over the ledger and the workspace of a keeper."""

    _keeper: Keeper
    _recall: Recall | None = None
    _recall_guard = threading.Lock()

    @property
    def recalling(self) -> Recall:
        """The index beside the ledger, opened when first asked for; it goes by the settings of the moment."""
        keeper, config = self._keeper, self._keeper.config
        options, variables = config.recall, config.variables
        if self._recall is None:
            with self._recall_guard:
                if self._recall is None:
                    path = find_index_file(keeper.workspace, find_place(keeper.ledger, config.ledger))
                    self._recall = Recall(keeper.ledger, path, options, variables=variables, complain=keeper.warn)
        self._recall.configure(options, variables)
        return self._recall

    def recall(
        self, session_id: str | None, query: str, limit: int | None = None, *, tokens_max: int | None = None
    ) -> list[Recalled]:
        """Return what a session holds about a query, best first, within 1,500 tokens unless asked for more.

        None searches all sessions of the workspace.
        """
        return self.recalling.recall(session_id, query, limit, tokens_max=tokens_max)

    def facts(self, session_id: str | None, *, with_history: bool = False) -> list[KnownFact]:
        """Return the facts that hold; with ``with_history`` also those that a later one replaced."""
        return self.recalling.facts(session_id, with_history=with_history)

    def find_injection(self, session_id: str, newest: str, hidden: Sequence[str], in_view: str = "") -> Injection:
        """Decide what is added at the tail for the newest user message, and why."""
        return self.recalling.inject(session_id, newest, hidden, in_view=in_view)

    def forget_recalled(self, session_id: str, handle: str | None = None) -> None:
        """Take what is behind a handle, or a whole session, out of the index: before the ledger forgets it."""
        # What is being indexed at this moment must not come in behind it.
        self.recalling.upkeep.close()
        if handle is None:
            self.recalling.delete_session(session_id)
            return
        row = self._keeper.ledger.read_session(session_id)
        if row is not None:
            ids = [stored.id for stored in find_handle(self._keeper.ledger, row, handle)]
            self.recalling.forget(session_id, ids)

    def verify_recalled(self, session_id: str | None = None, *, repair: bool = False) -> list[Finding]:
        """Compare the index with the ledger."""
        return self.recalling.verify_index(session_id, repair=repair)

    def close_recall(self) -> None:
        """Close the index, if it was opened."""
        if self._recall is not None:
            self._recall.close()
