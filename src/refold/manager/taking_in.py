"""Taking a request in: the session is made or opened, its format and model settled, what is new stored and shown.

Another process may do the same to the session at any time: who comes second reads it anew and tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from refold.formats import detect
from refold.ledger.encode import load_json
from refold.ledger.ledger import SessionRow
from refold.manager.flow import Flow
from refold.manager.intake import check_messages, find_wire, take_history, take_new
from refold.manager.keeper import Keeper, Slot
from refold.manager.request import Request
from refold.manager.rounds import Rounds
from refold.manager.session import OpenSession


def take_in(keeper: Keeper, slot: Slot, request: Request) -> Flow[OpenSession]:
    """Return the session with all that the caller handed in stored and shown."""
    raws = None if request.messages is None else check_messages(request.messages)
    rounds = Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        row = _find_row(keeper, request, raws)
        session = keeper.open(slot, row)
        if raws is None:
            return session
        if _change_wire(keeper, session, raws[len(session.ids) :], lambda: raws):
            continue
        is_stored = take_history(session, keeper.ledger, raws, keeper.arrival_stages(), keeper.clock())
        if is_stored and session.path_version >= 0:
            _settle_versions(keeper, session)
            return session
        slot.session = None
        if not is_stored:
            yield rounds.refuse(row, f"a history of {len(raws):,} messages")


def append_new(
    keeper: Keeper, slot: Slot, session_id: str, raws: Sequence[object], wire: str | None
) -> Flow[OpenSession]:
    """Add messages at the end of a session."""
    rounds = Rounds(keeper, session_id)
    while True:
        rounds.begin()
        row = _find_row(keeper, Request(session_id, format=wire), raws)
        session = keeper.open(slot, row)
        if _change_wire(keeper, session, raws, lambda: [*_read_raws(keeper, session_id), *raws]):
            continue
        if take_new(session, keeper.ledger, raws, keeper.arrival_stages(), keeper.clock()):
            _settle_versions(keeper, session)
            return session
        slot.session = None
        yield rounds.refuse(row, f"{len(raws):,} new messages")


def _change_wire(
    keeper: Keeper, session: OpenSession, tail: Sequence[object], read_all: Callable[[], Sequence[object]]
) -> bool:
    """Switch the session's format if new messages show that it was taken for another; True if it was."""
    known = session.row.wire
    if not tail or find_wire(tail, known, model="", system=None, tools=None, name=None) is None:
        return False
    wire = detect(read_all()).name
    if wire == known:
        return False
    keeper.ledger.update_session(session.id, {"wire": wire}, keeper.clock())
    return True


def _read_raws(keeper: Keeper, session_id: str) -> list[object]:
    return [load_json(stored.raw) for stored in keeper.ledger.read_messages(session_id) if not stored.is_forgotten]


def _find_row(keeper: Keeper, request: Request, raws: Sequence[object] | None) -> SessionRow:
    """Return the session's row, made if messages come for it, with the format and model that hold now."""
    row = keeper.ledger.read_session(request.session_id)
    if row is None:
        row = keeper.make_row(request.session_id)
    changes: dict[str, object] = {}
    model = request.model or row.model or keeper.config.model or ""
    if model != row.model:
        changes["model"] = model
    if request.format is not None or not row.wire:
        wire = find_wire(raws or (), "", model=model, system=request.system, tools=request.tools, name=request.format)
        if wire != row.wire and (raws or request.format is not None):
            changes["wire"] = wire
        elif not row.wire:
            row = replace(row, wire=wire or "")
    if changes:
        keeper.ledger.update_session(request.session_id, changes, keeper.clock())
        row = replace(row, model=model, wire=str(changes.get("wire", row.wire)))
    return row


def _settle_versions(keeper: Keeper, session: OpenSession) -> None:
    """Take over the versions after our own append; if they say more than that, the next one loads anew."""
    row = keeper.ledger.read_session(session.id)
    if row is None or row.path_version != session.path_version:
        return
    is_ours = row.edits_version - session.row.edits_version in (0, 1)
    if is_ours and row.compression_count == session.row.compression_count:
        session.row = row
