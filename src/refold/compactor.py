"""``ContextCompactor`` (S2.4, S2.10): a history in, a compacted one out, for a loop that holds its messages itself.

It is the offload document's class over a manager: offloaded results are read back before they are summed up, a failed
summary leaves the history as it is, and every original stays in the workspace's ledger. It decides nothing by itself:
whoever calls it wants a compaction now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refold.config import CompressionConfig
from refold.manager import ContextCompressionManager
from refold.manager.compress import CompactResult

SESSION = "compactor"


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """What a compaction aims at; None is the document's own value. ``model`` is unset: the client's own."""

    target_tokens: int | None = None
    preserve_count: int | None = None
    model: str | None = None
    retry_count: int | None = None


class ContextCompactor:
    """Compacts histories of one session. ``storage`` is the workspace folder, which has the ledger and ``offloaded/``.

    ``client`` writes summaries: anything with ``complete(prompt)``. Without it the model of the settings does, else
    rules.
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
        # Only what is asked for is done: handing a history in stores it.
        config = CompressionConfig(preset="offload", auto_compress=False, **given)
        self._manager = ContextCompressionManager(config, storage, llm=client)
        self._session_id = session_id

    async def compact(self, messages: Sequence[object]) -> CompactResult:
        """Return the history with all but the newest messages summed up; unchanged if there is nothing to sum up."""
        if not messages:
            return CompactResult([], 0, 0, 0, 0)
        await self._manager.prepare_context(self._session_id, messages)
        return await self._manager.compress_async(self._session_id)

    def close(self) -> None:
        """Release the ledger."""
        self._manager.close()
