"""The commands over stored sessions, and nothing else: each imports its own work when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id: see 'refold sessions'.")]
Meant = Annotated[str | None, typer.Argument(metavar="SESSION", help="Its id; unset: the one that changed last.")]
Workspace = Annotated[
    str, typer.Option("--workspace", "-w", metavar="FOLDER", help="Where .refold/ledger.db is; unset: here.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON.")]
Limit = Annotated[int, typer.Option("--limit", "-n", "-l", min=1, max=100_000, help="At most so many.")]


def register(app: typer.Typer, epilog: str) -> None:
    """Add the commands to the command line."""
    commands: dict[str, Callable[..., None]] = {
        "sessions": sessions,
        "show": show,
        "undo": undo,
        "redo": redo,
        "log": log,
        "verify": verify,
        "stats": stats,
        "memory": memory,
        "export": export,
        "import": import_,
        "delete": delete,
        "forget": forget,
    }
    for name, command in commands.items():
        app.command(name, epilog=epilog)(command)


def sessions(limit: Limit = 100, workspace: Workspace = ".", as_json: AsJson = False) -> None:
    """List the sessions of a workspace, the last changed first."""
    from refold.cli.sessions import run

    run(workspace, limit, as_json=as_json)


def show(
    session: Meant = None,
    view: Annotated[bool, typer.Option("--view", help="What the model sees (the default).")] = False,
    originals: Annotated[bool, typer.Option("--originals", help="Every message as it came.")] = False,
    edits: Annotated[
        bool, typer.Option("--edits", help="Every change: in force, covered by a later fold, or undone.")
    ] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Show a session: what the model sees of it, the originals, or the edits."""
    from refold.cli.show import run
    from refold.cli.workspace import pick_session

    run(workspace, pick_session(workspace, session), view=view, originals=originals, edits=edits, as_json=as_json)


def undo(
    session: Meant = None,
    edit: Annotated[str | None, typer.Argument(metavar="EDIT", help="An edit's id or handle; unset: the last.")] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Take the last compression back, or one edit; what was made from it goes with it."""
    from refold.cli.undo import run_undo
    from refold.cli.workspace import pick_session

    run_undo(workspace, pick_session(workspace, session), edit, as_json=as_json)


def redo(session: Meant = None, workspace: Workspace = ".", as_json: AsJson = False) -> None:
    """Put what was undone last in force again."""
    from refold.cli.undo import run_redo
    from refold.cli.workspace import pick_session

    run_redo(workspace, pick_session(workspace, session), as_json=as_json)


def log(session: Meant = None, limit: Limit = 200, workspace: Workspace = ".", as_json: AsJson = False) -> None:
    """Show what happened to a session, oldest first."""
    from refold.cli.log import run
    from refold.cli.workspace import pick_session

    run(workspace, pick_session(workspace, session), limit, as_json=as_json)


def verify(
    session: Annotated[str | None, typer.Argument(metavar="SESSION", help="Only this session.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what is derived; originals are never touched.")
    ] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Recompute every hash, flag, count and file reference; exit 1 with a list if anything differs."""
    from refold.cli.verify import run

    run(workspace, session, repair=repair, as_json=as_json)


def stats(
    session: Annotated[str | None, typer.Argument(metavar="SESSION", help="Only this session.")] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Show what compressions did: how often, why, how many tokens, by which stage."""
    from refold.cli.stats import run

    run(workspace, session, as_json=as_json)


def memory(
    date: Annotated[str | None, typer.Argument(metavar="DATE", help="YYYY-MM-DD; unset: the newest page.")] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Print the daily page of a date."""
    from refold.cli.memory import run

    run(workspace, date, as_json=as_json)


def export(
    session: Meant = None,
    out: Annotated[str | None, typer.Option("--out", "-o", help="Where it goes; unset: standard output.")] = None,
    workspace: Workspace = ".",
) -> None:
    """Write a session with all that belongs to it as one JSON value."""
    from refold.cli.transfer import run_export
    from refold.cli.workspace import pick_session

    run_export(workspace, pick_session(workspace, session), out)


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What export wrote; '-' is the standard input.")],
    name: Annotated[str | None, typer.Option("--as", help="Another id for the session.")] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Put an exported session into this workspace."""
    from refold.cli.transfer import run_import

    run_import(workspace, file, name, as_json=as_json)


def delete(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Delete a session and its offloaded files; daily pages stay. There is no undo."""
    from refold.cli.forget import run_delete

    run_delete(workspace, session, yes=yes, as_json=as_json)


def forget(
    session: Session,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="m:4f2a91c3 or f:09c1b2aa, as placeholders say.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Erase what is behind a handle for good: ledger, files, pages. For the day a key leaks; there is no undo."""
    from refold.cli.forget import run_forget

    run_forget(workspace, session, handle, yes=yes, as_json=as_json)
