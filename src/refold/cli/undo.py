"""``refold undo`` and ``refold redo``: take a compression back, or put it in force again."""

from __future__ import annotations

from refold.cli.reading import write_json
from refold.cli.render import count_things
from refold.cli.workspace import need_session, open_workspace, write_line
from refold.manager.undo import Switched


def run_undo(workspace: str, session: str | None, edit: str | None, *, as_json: bool) -> None:
    """Switch edits off and say what became of the view."""
    with open_workspace(workspace) as manager:
        _tell(manager.undo(need_session(manager.ledger, session, workspace), edit), "undone", as_json=as_json)


def run_redo(workspace: str, session: str | None, *, as_json: bool) -> None:
    """Switch on what was undone last and say what became of the view."""
    with open_workspace(workspace) as manager:
        _tell(manager.redo(need_session(manager.ledger, session, workspace)), "redone", as_json=as_json)


def _tell(switched: Switched, what: str, *, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                what: list(switched.edits),
                "tokens_before": switched.tokens_before,
                "tokens_after": switched.tokens_after,
            }
        )
        return
    write_line(
        f"{what} {count_things(len(switched.edits), 'edit')}: {switched.tokens_before:,} → "
        f"{switched.tokens_after:,} tokens"
    )
