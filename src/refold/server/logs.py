"""Structured logs: one line of JSON per request, with figures and names and never with content.

No header, no query, no body, no key: what a client sent shows up as sizes and counts, plus the model's name, cut short.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from refold.server.gateway import Passage

log = logging.getLogger("refold.server")
_TEXT_MAX = 200


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage()[:_TEXT_MAX],
            **fields,
        }
        if record.exc_info and record.exc_info[0] is not None:
            # The kind of an exception is safe to tell; its text may quote a request.
            line["error"] = record.exc_info[0].__name__
        return orjson.dumps(line, default=str).decode()


def log_request(passage: Passage) -> None:
    """Log a request that is over."""
    if not log.isEnabledFor(logging.INFO):
        return
    outgoing, asked = passage.outgoing, passage.asked
    fields: dict[str, Any] = {
        "method": asked.method,
        "path": asked.path[:_TEXT_MAX],
        "status": passage.status,
        "ms": round((time.perf_counter() - passage.started) * 1_000, 1),
        "bytes_in": passage.bytes_in,
        "bytes_out": passage.bytes_out,
        "reason": outgoing.reason.code,
    }
    if asked.tenant:
        fields["tenant"] = asked.tenant
    if outgoing.session is not None and outgoing.request is not None:
        fields |= {
            "session": outgoing.session.name,
            "model": outgoing.request.model[:80],
            "tokens_before": outgoing.tokens_before,
            "tokens_after": outgoing.tokens_after,
            "edits": outgoing.edits,
            "prepare_ms": round(outgoing.seconds * 1_000, 2),
        }
    if passage.retries:
        fields["retries"] = passage.retries
    if passage.problem:
        fields["problem"] = passage.problem[:_TEXT_MAX]
    log.info("request", extra={"fields": fields})


def set_up_logs(level: str = "info") -> None:
    """Send the gateway's log to standard error, and keep the server's own quiet: it would log addresses and paths."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    log.handlers[:] = [handler]
    log.setLevel(level.upper())
    log.propagate = False
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "aiohttp", "asyncio"):
        other = logging.getLogger(name)
        other.handlers[:] = [handler]
        other.setLevel(logging.CRITICAL)
        other.propagate = False
