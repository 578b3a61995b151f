"""Routes of the whole workspace: gateway status, settings, statistics, daily memory, recall over all sessions.

A tenant sees figures of its own sessions only; routes for all tenants are the operator's, who has no key.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Path as InPath

from refold import __version__
from refold.errors import ConfigError
from refold.llm.errors import show_url
from refold.manager.status import Statistics, gather_statistics
from refold.server.api.interface import PAGE_MAX, Access, Asker, Json, NotFound, Text

router = APIRouter(prefix="/api", tags=["workspace"])
SESSIONS_SEARCHED = 50
_SUMS: tuple[str, ...] = ("compressions", "manual", "undone", "skipped", "failed", "warned", "waited", "archived")
_SUMS += ("tokens_before", "tokens_after")


@router.get("/status")
def read_status(access: Asker) -> Json:
    """Return the gateway's status."""
    application = access.application
    settings = application.settings
    return Json(
        {
            "version": __version__,
            "time": time.time(),
            "requests_in_flight": application.gateway.requests,
            "openai_upstream": show_url(settings.openai_upstream),
            "anthropic_upstream": show_url(settings.anthropic_upstream),
            "compress": settings.compress,
            "cache_marks": settings.cache_marks,
            "keys": application.keys.is_required,
            "ledger": _describe_ledger(access),
            "tenant": access.tenant,
            "storage": _describe_storage(access),
        }
    )


def _describe_storage(access: Access) -> dict[str, object]:
    """Return the bytes that the caller has stored, and its limit (0: none)."""
    storage = access.application.preparer.storage
    stored = storage.measure(access.tenant) if access.tenant and storage.bytes_max else None
    return {"bytes": stored, "bytes_max": storage.bytes_max if access.tenant else 0}


def _describe_ledger(access: Access) -> dict[str, object]:
    """Return whether requests are stored; the error's text may name paths, so only the operator sees it."""
    problem = access.application.preparer.reporter.problem
    if problem is None:
        return {"writable": True}
    told = {} if access.tenant else {"error": problem.error}
    return {"writable": False, "since": problem.since, **told}


@router.get("/config")
def read_config(access: Asker) -> Json:
    """Return every compression setting and its source."""
    from refold.config.values import explain

    rows = [row.to_dict() for row in explain(access.manager.config)]
    if access.tenant:
        # Paths on the operator's machine, and the ledger's address.
        rows = [{**row, "place": ""} for row in rows if row["name"] != "ledger"]
    return Json({"settings": rows})


@router.patch("/config")
def change_config(access: Asker, changes: dict[str, Any]) -> Json:
    """Change compression settings from now on; operator only."""
    access.check_operator()
    try:
        access.manager.configure(**changes)
    except TypeError as error:
        raise ConfigError(f"a setting is wrong: {str(error)[:200]}") from None
    return Json({"changed": sorted(changes)})


@router.get("/stats")
def read_statistics(access: Asker) -> Json:
    """Return statistics of compressions over the caller's sessions."""
    if not access.tenant:
        return Json(gather_statistics(access.ledger).to_dict())
    rows = access.list_rows(PAGE_MAX, 0)
    parts = [gather_statistics(access.ledger, row.id) for row in rows]
    total = Statistics(
        sessions=len(rows),
        by_stage=_sum_up([one.by_stage for one in parts]),
        by_reason=_sum_up([one.by_reason for one in parts]),
        **{name: sum(getattr(one, name) for one in parts) for name in _SUMS},
    )
    return Json(total.to_dict())


def _sum_up(tables: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for table in tables:
        for name, value in table.items():
            total[name] = total.get(name, 0) + value
    return total


@router.get("/memory")
def list_memory(access: Asker) -> Json:
    """Return the dates that have a daily page; operator only, because pages cover every session."""
    access.check_operator()
    return Json({"dates": access.manager.md_sync.list_dates()})


@router.get("/memory/{date}")
def read_memory(date: Annotated[str, InPath(pattern=r"^\d{4}-\d{2}-\d{2}$")], access: Asker) -> Json:
    """Return the daily page of a date; operator only."""
    access.check_operator()
    page = access.manager.md_sync.read(date)
    if page is None:
        raise NotFound(f"there is no page for {date}")
    return Json({"date": date, "text": page})


@router.get("/recall")
def recall(
    access: Asker,
    query: Annotated[Text, Query(min_length=1)],
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
) -> Json:
    """Search the caller's sessions, most recently changed first."""
    rows = access.list_rows(SESSIONS_SEARCHED, 0)
    found = [one for row in rows for one in access.manager.recall(row.id, query, limit)]
    found.sort(key=lambda one: -one.score)
    return Json({"results": [{**asdict(one), "session_id": access.name(one.session_id)} for one in found[:limit]]})
