"""A session as a file to save: the same value that ``refold export`` writes."""

from __future__ import annotations

import re
from urllib.parse import quote

from fastapi import Request, Response

from refold.errors import RefoldError
from refold.ledger.codec import dump_json
from refold.manager.export import export_session
from refold.server.api.interface import Access
from refold.web.source import Source

PATH = "/export"


def _export(access: Access, name: str) -> bytes:
    return dump_json(export_session(access.ledger, access.need(name).id)) + b"\n"


async def send_export(request: Request, name: str = "") -> Response:
    """Send a session; its address is protected like every page."""
    source = Source(request.scope["refold.application"], request.scope["refold.caller"])
    try:
        content = await source.run(_export, name)
    except RefoldError as error:
        return Response(str(error), error.http_status, media_type="text/plain")
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:80] or "session"
    disposition = f"attachment; filename=\"{safe}.json\"; filename*=UTF-8''{quote(name[:80], safe='')}.json"
    return Response(
        content,
        media_type="application/json",
        headers={"content-disposition": disposition, "cache-control": "no-store"},
    )
