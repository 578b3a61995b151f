"""``ContextCompactor``: compact a history that the caller keeps, over a manager that keeps every original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refold.config.load import read_compact_settings
from refold.manager import ContextCompressionManager
from refold.manager.compress import CompactResult

SESSION = "compactor"


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """Options of a compaction; None means the variable ``REFOLD_COMPACT_…``, else the value of the preset ``offload``.

    ``model`` is passed to a client whose ``complete`` takes ``model``; by default the client's own is used.
    """

    target_tokens: int | None = None
    preserve_count: int | None = None
    model: str | None = None
    retry_count: int | None = None


class ContextCompactor:
    """Compacts histories of one session: takes a history and returns a compacted one, for a loop that keeps its own.

    It is a thin class over a manager: offloaded results are read back before they are summarised, a failed summary
    leaves the history unchanged, and every original stays in the workspace's ledger. It decides nothing: a call is a
    request to compact now.

    ``storage`` is the workspace folder, which has the ledger and ``offloaded/``.

    ``client`` writes summaries: anything with ``complete(prompt)``. Without it the configured model does, else rules.
    """

    def __init__(
        self,
        storage: str | Path,
        client: object = None,
        options: CompactOptions | None = None,
        *,
        session_id: str = SESSION,
    ) -> None:
        wanted = options or CompactOptions()
        named = {
            "compact_target_tokens": wanted.target_tokens,
            "compact_preserve_count": wanted.preserve_count,
            "compact_model": wanted.model,
            "compact_retry_count": wanted.retry_count,
        }
        given = {name: value for name, value in named.items() if value is not None}
        # Nothing is automatic here: passing a history only stores it.
        config = read_compact_settings({**given, "auto_compress": False})
        self._manager = ContextCompressionManager(config, storage, llm=client)
        self._session_id = session_id

    async def compact(self, messages: Sequence[object]) -> CompactResult:
        """Return the history with all but the newest messages summarised; unchanged if there are no older ones."""
        if not messages:
            return CompactResult([], 0, 0, 0, 0)
        await self._manager.prepare_context(self._session_id, messages)
        return await self._manager.compress_async(self._session_id)

    def close(self) -> None:
        """Release the ledger."""
        self._manager.close()
