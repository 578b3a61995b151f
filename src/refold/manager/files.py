"""Offloaded files and the view that names them: written before it names them, removed when it no longer does (S2.9)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from refold.conversation.edit import Edit
from refold.conversation.view import View
from refold.manager.keeper import Keeper
from refold.manager.session import OpenSession
from refold.stages.offload import OffloadFile, files_of, offloaded_path


def named_files(view: View) -> set[str]:
    """Return the offloaded files that a view names."""
    return {path for item in view.items for edit in item.edits if (path := offloaded_path(edit))}


def find_files(view: View) -> list[OffloadFile]:
    """Return the files that a view names, with what has to be in them."""
    shown = [edit for item in view.items for edit in item.edits if offloaded_path(edit)]
    return files_of(shown, view.messages)


def write_named(keeper: Keeper, session: OpenSession, edits: Sequence[Edit]) -> set[str]:
    """Write the files that the session's view would name under these edits; return their paths."""
    if not any(offloaded_path(edit) for edit in edits):
        return set()
    files = find_files(session.make_view(keeper.ledger, edits=edits))
    keeper.find_folder(session.id).write(files)
    return {file.path for file in files}


def remove_others(keeper: Keeper, session_id: str, named: Collection[str]) -> list[str]:
    """Remove the session's files that nothing names; return what could not go."""
    folder = keeper.find_folder(session_id)
    return folder.remove(path for path in folder.list_files() if path not in named)[1]
