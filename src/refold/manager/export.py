"""A session as one JSON value: exported with everything that belongs to it, and imported into another ledger.

An export and an import round-trip byte for byte between stores. Imported data is untrusted: it is validated and its
view computed before anything is stored. It is stored whole or not at all, and never over an existing session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from refold.conversation.view import Edit, Lens, apply
from refold.errors import FormatError, RefoldError, Sentence
from refold.ledger.export import check_once, dump_session, load_session
from refold.ledger.port import Ledger
from refold.ledger.records import StoredEdit, WholeSession, format_of
from refold.llm.choose import PLACE
from refold.manager.session import parse_stored, read_calibration
from refold.offload import OffloadFolder
from refold.stages.offload import files_of, offloaded_path

_VERSIONS_PER_S = 1_000_000


def export_session(ledger: Ledger, session_id: str) -> dict[str, object]:
    """Return all of a session as plain values, as it was at one moment; FormatError if there is no such session."""
    whole = ledger.read_whole(session_id)
    if whole is None:
        raise FormatError(
            Sentence("there is no session {session!r}; 'refold sessions' lists those there are", session=session_id)
        )
    return dump_session(whole)


def import_session(
    ledger: Ledger, value: object, *, now: float, session_id: str | None = None, root: str = "offloaded"
) -> str:
    """Put an exported session into a ledger, under its own id or another; return the id.

    Placeholders of offloaded results then name files in the session's own folder under ``root``; whoever has the
    workspace writes them (``verify`` with ``repair`` does).
    """
    whole = _move_files(load_session(value, session_id), root)
    _try_view(whole)
    # Versions that no session of this name had, so that nothing cached about a deleted one matches.
    version = int(now * _VERSIONS_PER_S)
    # Where its model is reached is for those to say who go on with it, not for a file.
    settings = {**whole.row.settings, PLACE: None} if PLACE in whole.row.settings else whole.row.settings
    row = replace(whole.row, path_version=version, edits_version=version, settings=settings)
    whole = replace(whole, row=row)
    if not ledger.put_whole(whole, now):
        name = whole.row.id
        raise FormatError(f"there is a session {name!r} already; give another name with --as, or delete it first")
    return whole.row.id


def _move_files(whole: WholeSession, root: str) -> WholeSession:
    """Name offloaded files in the session's folder of this workspace, wherever they were.

    The id of an edit follows from its text: where that changes, whatever names the edit changes with it.
    """
    folder = OffloadFolder.name(whole.row.id, root)
    new: dict[str, str] = {}
    moved: dict[str, Edit] = {}
    for one in whole.edits:
        path = offloaded_path(one.edit) or ""
        target = f"{folder}/{path.rpartition('/')[2]}"
        if path and path != target:
            edit = replace(one.edit, text=one.edit.text.replace(path, target, 1), id="")
            moved[one.edit.id] = edit
            new |= {path: target, one.edit.id: edit.id}
    if not moved:
        return whole
    edits = tuple(_rename_edit(one, moved, new) for one in whole.edits)
    check_once((one.edit.id for one in edits), "edits")
    return replace(
        whole,
        row=replace(whole.row, settings=_rename(whole.row.settings, new)),
        edits=edits,
        events=tuple(replace(event, fields=_rename(event.fields, new)) for event in whole.events),
    )


def _rename_edit(one: StoredEdit, moved: Mapping[str, Edit], new: Mapping[str, str]) -> StoredEdit:
    edit = moved.get(one.edit.id, one.edit)
    return replace(one, edit=replace(edit, made_from=tuple(new.get(origin, origin) for origin in edit.made_from)))


def _rename(value: Any, new: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, Mapping):
        return {key: _rename(held, new) for key, held in value.items()}
    return [_rename(held, new) for held in value] if isinstance(value, list) else value


def _try_view(whole: WholeSession) -> None:
    """Compute what the session shows, with the edits in force and with all that could be; FormatError if it cannot."""
    row = whole.row
    lens = Lens(format_of(row), lambda *_: 0, lambda _: 0)
    try:
        read_calibration(row.settings)
        parsed = {stored.id: parse_stored(stored, row, lens) for stored in whole.messages}
        shown = [parsed[message_id] for message_id in whole.path]
        for edits in ([one.edit for one in whole.edits if one.is_active], [one.edit for one in whole.edits]):
            apply(shown, edits, lens)
            lens.forget_all(())
        _check_parts([one.edit for one in whole.edits], parsed)
        files_of((one.edit for one in whole.edits), list(parsed.values()))
    except (RefoldError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise FormatError(f"what this session shows cannot be computed, so it was not imported: {error}") from None


def _check_parts(edits: Sequence[Edit], parsed: Mapping[str, Any]) -> None:
    for edit in edits:
        if edit.part is not None and edit.part >= len(parsed[edit.covers[0]].parts):
            raise ValueError(f"the edit {edit.id} changes a part that its message does not have")
