"""Routes of a session: status, view, originals, edits and events; compress, undo, pin, forget.

The manager blocks, so every route is a plain function: the framework runs it in a thread.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from refold.conversation.reason import describe
from refold.errors import FormatError
from refold.ledger.codec import load_json
from refold.llm.choose import converse_with
from refold.manager.notices import describe_fields
from refold.reading.state_page import describe_state, write_state
from refold.server.api.interface import PAGE_MAX, Access, Asker, Handle, Json, Name, Text, describe_row

router = APIRouter(prefix="/api/sessions", tags=["sessions"])
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[int, Query(ge=0, le=2**53)]
Offset = Annotated[int, Query(ge=0, le=2**31)]
TEXT_CHARS_MAX = 1_000_000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CompressWish(_Body):
    """Options of a compression; ``dry_run`` only reports what would be removed."""

    instructions: Text = ""
    dry_run: bool = False


class EditName(_Body):
    """An edit by its id; without one, the last compression."""

    edit_id: Handle | None = None


class HandleName(_Body):
    """A handle."""

    handle: Handle


class ForgetWish(_Body):
    """Request to erase for good: the original behind a handle, or with ``everything`` the whole session."""

    handle: Handle | None = None
    everything: bool = False


@router.get("")
def list_sessions(access: Asker, limit: Limit = 100, offset: Offset = 0) -> Json:
    """List sessions, most recently changed first."""
    return Json({"sessions": [describe_row(access, row) for row in access.list_rows(limit, offset)]})


@router.get("/{name:path}/view")
def read_view(name: Name, access: Asker) -> Json:
    """Return what the model sees of a session now."""
    row = access.need(name)
    items = access.manager.read_view(row.id)
    return Json({"messages": [item.raw for item in items], "tokens": sum(item.tokens for item in items)})


@router.get("/{name:path}/originals")
def list_originals(name: Name, access: Asker, after: After = 0, limit: Limit = 100) -> Json:
    """Return originals as they arrived; ``after`` is the ``seq`` of the last one seen."""
    row = access.need(name)
    found = access.ledger.list_messages(row.id, after=after, limit=limit)
    return Json({"messages": [_describe_original(one) for one in found], "next": found[-1].seq if found else None})


def _describe_original(stored: Any) -> dict[str, object]:
    return {
        "seq": stored.seq,
        "id": stored.id,
        "handle": f"m:{stored.digest[:8]}",
        "role": stored.role,
        "tokens": stored.tokens,
        "created_at": stored.created_at,
        "compressed": stored.is_compressed,
        "forgotten": stored.is_forgotten,
        "message": None if stored.is_forgotten else load_json(stored.raw),
    }


@router.get("/{name:path}/edits")
def list_edits(name: Name, access: Asker, active: bool = True) -> Json:
    """Return edits in the order they were made; with ``active=false`` also those that were undone."""
    row = access.need(name)
    edits = access.ledger.read_edits(row.id, active_only=active)
    batches = access.ledger.read_batches(row.id)
    return Json(
        {
            "edits": [_describe_edit(edit) for edit in edits],
            "compressions": [describe(batch) for batch in batches],
        }
    )


def _describe_edit(stored: Any) -> dict[str, object]:
    edit = stored.edit
    fold = edit.fold
    return {
        "id": edit.id,
        "kind": edit.kind,
        "stage": edit.stage,
        "covers": list(edit.covers),
        "text": edit.text,
        "reason": edit.reason.to_dict(),
        "tokens_before": edit.tokens_original,
        "tokens_after": edit.tokens_after,
        "handle": fold.handle if fold else None,
        "summary": fold.summary if fold else None,
        "batch": stored.batch_id,
        "active": stored.is_active,
        "created_at": stored.created_at,
    }


@router.get("/{name:path}/events")
def list_events(name: Name, access: Asker, after: After = 0, limit: Limit = 100) -> Json:
    """Return what happened to a session; ``after`` is the id of the last event seen."""
    row = access.need(name)
    found = access.ledger.read_events(row.id, after=after, limit=limit)
    return Json({"events": [describe_event(access, one) for one in found]})


def describe_event(access: Access, event: Any) -> dict[str, object]:
    """Return an event for a list or a stream."""
    return {
        "id": event.id,
        "session": access.name(event.session_id),
        "kind": event.kind,
        "time": event.created_at,
        **{key: value for key, value in describe_fields(event).items() if key not in ("id", "session", "kind", "time")},
    }


@router.get("/{name:path}/summaries")
def list_summaries(name: Name, access: Asker, limit: Limit = 100) -> Json:
    """Return the history of summaries, the newest first; ``is_in_force`` says which are in view."""
    found = access.manager.summaries(access.need(name).id, limit)
    return Json({"summaries": [asdict(one) for one in found]})


@router.get("/{name:path}/state")
def read_state(name: Name, access: Asker) -> Json:
    """Return the state of the work in a session, and the page that a person reads, in the session's language."""
    row = access.need(name)
    state = access.manager.state(row.id)
    return Json({**describe_state(state), "page": write_state(state, access.manager.find_language(row.id))})


@router.get("/{name:path}/stats")
def read_statistics(name: Name, access: Asker) -> Json:
    """Return what compressions did to a session."""
    return Json(access.manager.statistics(access.need(name).id).to_dict())


@router.get("/{name:path}/expand")
def expand(
    name: Name,
    access: Asker,
    handle: Annotated[Handle, Query()],
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=TEXT_CHARS_MAX)] = 10_000,
) -> Json:
    """Return the exact original behind a handle, a page of it."""
    text = access.manager.expand(access.need(name).id, handle, offset, limit + 1)
    return Json({"handle": handle, "offset": offset, "text": text[:limit], "more": len(text) > limit})


@router.get("/{name:path}/recall")
def recall(
    name: Name,
    access: Asker,
    query: Annotated[Text, Query(min_length=1)],
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
    *,
    only: bool = False,
) -> Json:
    """Search originals of a session and its family, or of the session only, best match first."""
    row = access.need(name)
    found = access.manager.recall(row.id, query, limit, only=only)
    results = [{**asdict(one), "session_id": access.name(one.session_id)} for one in found]
    return Json({"results": results})


@router.get("/{name:path}/memory")
def read_memory(name: Name, access: Asker) -> Json:
    """Return the facts that compressions of a session kept."""
    found = access.ledger.read_facts(access.need(name).id)
    return Json({"facts": [{**asdict(one.fact), "created_at": one.created_at} for one in found]})


@router.post("/{name:path}/compress")
def compress(name: Name, access: Asker, wish: CompressWish) -> Json:
    """Compress a session now; ``dry_run`` reports what would be removed and changes nothing."""
    row = access.need(name)
    with converse_with(access.find_model(row)):
        result = access.manager.compress(row.id, wish.instructions, wish.dry_run)
    return Json({key: value for key, value in describe(result).items() if key != "messages"})


@router.post("/{name:path}/undo")
def undo(name: Name, access: Asker, wish: EditName | None = None) -> Json:
    """Undo the last compression, or one edit by its id."""
    return Json(asdict(access.manager.undo(access.need(name).id, wish.edit_id if wish else None)))


@router.post("/{name:path}/redo")
def redo(name: Name, access: Asker) -> Json:
    """Redo what was undone last."""
    return Json(asdict(access.manager.redo(access.need(name).id)))


@router.post("/{name:path}/pin")
def pin(name: Name, access: Asker, wish: HandleName) -> Json:
    """Keep the message behind a handle from being edited."""
    return Json({"pinned": access.manager.pin(access.need(name).id, wish.handle)})


@router.post("/{name:path}/unpin")
def unpin(name: Name, access: Asker, wish: HandleName) -> Json:
    """Let the message behind a handle be edited again."""
    return Json({"pinned": access.manager.unpin(access.need(name).id, wish.handle)})


@router.post("/{name:path}/forget")
def forget(name: Name, access: Asker, wish: ForgetWish) -> Json:
    """Erase for good the original behind a handle, or with ``everything`` the whole session. There is no undo."""
    row = access.need(name)
    if (wish.handle is None) is not wish.everything:
        raise FormatError("say what to forget: a handle, or everything: true")
    forgotten = access.manager.forget(row.id, wish.handle)
    if wish.everything:
        access.application.forget_known(row.id)
    return Json(asdict(forgotten))


@router.delete("/{name:path}")
def delete_session(name: Name, access: Asker) -> Json:
    """Delete a session with its files; daily pages stay."""
    row = access.need(name)
    is_gone = access.manager.delete_session(row.id)
    access.application.forget_known(row.id)
    return Json({"deleted": is_gone})


@router.get("/{name:path}")
def read_status(name: Name, access: Asker) -> Json:
    """Return a session's status: how full it is, and what applies to it."""
    row = access.need(name)
    status = access.manager.status(row.id).to_dict()
    return Json(
        {**status, "session_id": access.name(row.id), "created_at": row.created_at, "updated_at": row.updated_at}
    )
