"""A process that compresses a session and hangs in its summariser, for the tests that kill it.

WORKSPACE SESSION LEASE_S [LEDGER]
"""

import sys
import threading
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.model import working

CONFIG = CompressionConfig(window=4_000, reserve=500, background=False, compact_timeout_s=120, compact_retry_count=1)


class Hanging:
    """Says that it was asked, and never answers."""

    def complete(self, prompt: str) -> Any:
        print("asked", flush=True)
        threading.Event().wait(600)


def main() -> None:
    workspace, session, lease_s, *others = sys.argv[1:]
    manager = ContextCompressionManager(CONFIG, Path(workspace), llm=Hanging(), ledger=others[0] if others else None)
    manager._keeper.leases.seconds = float(lease_s)
    manager.prepare_context_sync(session, working(30))
    print("done", flush=True)


if __name__ == "__main__":
    main()
