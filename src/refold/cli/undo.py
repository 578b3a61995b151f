"""``refold undo`` and ``refold redo``: revert a compression, or apply it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, SessionOption, Workspace, need_session, open_workspace
from refold.cli.output import write_json, write_line
from refold.cli.words import count_things, tr, translate

if TYPE_CHECKING:
    from refold.manager.undo import Switched


@app.command()
def undo(
    edit: Annotated[
        str | None, typer.Argument(metavar="EDIT", help="Id or handle of an edit; default: the last compression.")
    ] = None,
    session: SessionOption = None,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Undo the last compression, or one edit.

    Edits that depend on it are undone too; 'refold redo' applies them again.
    """
    with open_workspace(workspace) as manager:
        _report(manager.undo(need_session(manager.ledger, session, workspace), edit), "undone", as_json=as_json)


@app.command()
def redo(session: SessionOption = None, workspace: Workspace = "", as_json: AsJson = False) -> None:
    """Apply again what was undone last."""
    with open_workspace(workspace) as manager:
        _report(manager.redo(need_session(manager.ledger, session, workspace)), "redone", as_json=as_json)


def _report(switched: Switched, what: str, *, as_json: bool) -> None:
    before, after = switched.tokens_before, switched.tokens_after
    if as_json:
        write_json({what: list(switched.edits), "tokens_before": before, "tokens_after": after})
    else:
        write_line(
            tr(
                "{what} {edits}: {before:,} → {after:,} tokens",
                what=translate(what),
                edits=count_things(len(switched.edits), "edit"),
                before=before,
                after=after,
            )
        )
