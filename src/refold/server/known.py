"""What the gateway stores of a session in the ledger, so that clients that say nothing go on after a restart."""

from __future__ import annotations

import time

from refold.ledger.ledger import Ledger
from refold.server.identity import KnownSession
from refold.server.reading import ReadRequest

SETTING = "gateway"


def store_known(ledger: Ledger, session: KnownSession, request: ReadRequest) -> None:
    """Store how a session is known again: once, when it begins."""
    made = {"lead": request.lead, "system": request.system_digest, "tenant": session.tenant}
    ledger.update_session(session.id, {"settings": {SETTING: made}}, time.time())
    session.is_stored = True


def read_known(ledger: Ledger, limit: int) -> list[KnownSession]:
    """Return the sessions that a gateway made, the last changed last."""
    found: list[KnownSession] = []
    for row in reversed(ledger.list_sessions(limit=limit)):
        made = row.settings.get(SETTING)
        if not isinstance(made, dict) or not isinstance(made.get("lead"), int):
            continue
        digests = ledger.read_path(row.id).digests[made["lead"] :]
        tenant, system = str(made.get("tenant", "")), str(made.get("system", ""))
        found.append(KnownSession(row.id, tenant, row.wire, digests, system, is_stored=True))
    return found
