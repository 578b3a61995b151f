"""What the gateway stores of a session in the ledger, so that clients that say nothing go on with it: after a restart,
and through another process on the same ledger.
"""

from __future__ import annotations

import time

from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow
from refold.llm.conversation_model import GATEWAY
from refold.server.identity import CANDIDATES_MAX, KnownSession, make_id, name_alike
from refold.server.reading import ReadRequest

SETTING = GATEWAY
_ORIGIN = ("client", "conversation", "parent")


def store_known(ledger: Ledger, session: KnownSession, request: ReadRequest) -> None:
    """Store how a session is known again: once, when it begins."""
    made = {"lead": request.lead, "system": request.system_digest, "tenant": session.tenant}
    for name in _ORIGIN:
        if value := getattr(session, name):
            made[name] = value
    ledger.update_session(session.id, {"settings": {SETTING: made}}, time.time())
    session.is_stored = True


def read_known(ledger: Ledger, limit: int) -> list[KnownSession]:
    """Return the sessions that a gateway made, the last changed last."""
    return _read_rows(ledger, ledger.list_sessions(limit=limit))


def read_alike(ledger: Ledger, tenant: str, request: ReadRequest) -> list[KnownSession]:
    """Return a tenant's sessions that began as a request does, whichever process made them, the last changed last."""
    prefix = make_id(tenant, name_alike(request))
    return _read_rows(ledger, ledger.list_sessions(limit=CANDIDATES_MAX, prefix=prefix))


def _read_rows(ledger: Ledger, rows: list[SessionRow]) -> list[KnownSession]:
    found: list[KnownSession] = []
    for row in reversed(rows):
        made = row.settings.get(SETTING)
        if not isinstance(made, dict) or not isinstance(made.get("lead"), int):
            continue
        digests = ledger.read_path(row.id).digests[made["lead"] :]
        tenant, system = str(made.get("tenant", "")), str(made.get("system", ""))
        client, conversation, parent = (str(made.get(name, "")) for name in _ORIGIN)
        known = KnownSession(row.id, tenant, row.wire, digests, system, is_stored=True)
        known.client, known.conversation, known.parent = client, conversation, parent
        found.append(known)
    return found
