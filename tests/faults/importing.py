"""A process that imports a session when it is told to: ``python -m tests.faults.importing PLACE FILE``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from refold.errors import FormatError
from refold.manager.status import import_session
from tests.faults.worker import open_store


def main() -> None:
    ledger = open_store(sys.argv[1])
    value = json.loads(Path(sys.argv[2]).read_bytes())
    ledger.list_sessions()
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        import_session(ledger, value, now=time.time())
    except FormatError as error:
        assert "already exists" in str(error), error
        print("refused", flush=True)
    else:
        print("imported", flush=True)


if __name__ == "__main__":
    main()
