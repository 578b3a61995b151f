"""Routes for other gateways: compress a request, and report its usage.

``POST /v1/compress`` returns the messages of a request so that they fit. With a ``session_id`` folds are kept from call
to call; without one, or if the ledger fails, nothing is stored. Unknown settings in ``config`` are reported as ignored.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from refold.compressing import compress as compress_once
from refold.config import CompressionConfig
from refold.conversation.reason import NO_REASON
from refold.errors import FormatError, LedgerError, SessionBusy
from refold.manager import ContextCompressionManager
from refold.prepared import PreparedContext
from refold.server.api.interface import Access, Asker, Json, describe_body, read_model
from refold.server.overflow import NO_LIMITS, LimitKey, Limits, limit_window
from refold.server.session_lookup import StorageFull, check_name, make_id

log = logging.getLogger("refold.server")
router = APIRouter(tags=["sidecar"])
MESSAGES_MAX = 100_000
_BUDGET_NAMES = ("budget", "token_budget", "target_tokens", "max_tokens")


class CompressRequest(BaseModel):
    """Messages of a request, as ``messages`` or, for Responses, ``input``."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(default="", max_length=200)
    messages: list[dict[str, Any]] | None = Field(default=None, max_length=MESSAGES_MAX)
    input: list[dict[str, Any]] | str | None = Field(default=None, max_length=100_000_000)
    system: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    session_id: str | None = Field(default=None, max_length=128)


class UsageReport(BaseModel):
    """A provider's bill for the context that was prepared last."""

    model_config = ConfigDict(extra="allow")

    session_id: str = Field(min_length=1, max_length=128)
    usage: dict[str, Any] | None = None
    finish_reason: str | None = Field(default=None, max_length=100)
    overflow: bool = False


@router.post("/v1/compress", openapi_extra=describe_body(CompressRequest))
async def compress(request: Request, access: Asker) -> Response:
    """Return the messages of a request so that they fit the model's window."""
    body, application = await request.body(), access.application
    if len(body) <= application.settings.worker_bytes_min:
        return await asyncio.to_thread(_compress, body, access)
    status, answer = await application.preparer.compress_large(access.tenant, body)
    return Response(answer, status, media_type="application/json")


def _compress(body: bytes, access: Access) -> Json:
    wish = read_model(body, CompressRequest)
    limits = NO_LIMITS
    if wish.session_id:
        access.application.preparer.storage.check(access.tenant)
        limits = access.application.limits.find(LimitKey(access.tenant, "", wish.model or ""))
    return Json(answer_wish(wish, access.manager, access.manager.config, tenant=access.tenant, limits=limits))


def answer_wish(
    wish: CompressRequest,
    manager: ContextCompressionManager | None,
    config: CompressionConfig,
    *,
    tenant: str = "",
    limits: Limits = NO_LIMITS,
) -> dict[str, object]:
    """Return the answer to a request. ``manager`` keeps the folds of a session; ``limits`` are those it has learned."""
    key = "messages" if wish.messages is not None else "input"
    given = wish.messages if wish.messages is not None else wish.input
    if given is None:
        raise FormatError("give the conversation as messages or as input")
    messages: list[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    system = wish.system if key == "messages" else wish.instructions
    wire = "openai-responses" if key == "input" else None
    beside: dict[str, Any] = {"tools": wish.tools, "model": wish.model or None, "format": wire}
    budget, prepared = _find_budget(wish.config), None
    if wish.session_id:
        if manager is None:
            raise StorageFull("this tenant cannot store more; delete sessions")
        session_id = make_id(tenant, check_name(wish.session_id))
        limits = limits if budget is None else limit_window(budget, 1)
        try:
            prepared = manager.prepare_context_sync(session_id, messages, system or "", **asdict(limits), **beside)
        except SessionBusy:
            raise
        except LedgerError as error:
            log.error("compressed-in-memory", extra={"fields": {"session": session_id, "said": str(error)[:300]}})
            budget = limits.window
    is_stored = prepared is not None
    prepared = prepared or compress_once(messages, budget, system=system, config=config, **beside)
    result = prepared.messages
    if isinstance(given, str) and len(result) == 1 and result[0] is messages[0]:
        result = given  # type: ignore[assignment]
    return {**_describe(prepared, result, key, wish), "stored": is_stored}


def _find_budget(config: dict[str, Any]) -> int | None:
    for name in _BUDGET_NAMES:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return min(value, 1_000_000_000)
    return None


def _describe(prepared: PreparedContext, messages: object, key: str, wish: CompressRequest) -> dict[str, object]:
    report = prepared.report
    after = prepared.total_tokens
    before = max(after, report.tokens_before) if report else after
    return {
        key: messages,
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": before - after,
        "compression_ratio": round(after / before, 4) if before else 1.0,
        "transforms_applied": [stage.stage for stage in report.stages if stage.edits] if report else [],
        "reason": (report.reason if report else NO_REASON).to_dict(),
        "notes": [str(note) for note in report.notes] if report else [],
        "edits": len(prepared.edits),
        "session_id": wish.session_id,
        "ignored": sorted(str(name)[:80] for name in wish.config if name not in _BUDGET_NAMES)[:50],
    }


@router.post("/v1/usage")
def report_usage(report: UsageReport, access: Asker) -> Json:
    """Record what the provider billed; an overflow or a cut-off answer forces a compression before the next request."""
    row = access.need(check_name(report.session_id))
    usage = report.usage if report.usage is not None else report.model_extra or {}
    access.manager.observe_usage(row.id, usage, finish_reason=report.finish_reason, is_overflow=report.overflow)
    return Json({"ok": True})
