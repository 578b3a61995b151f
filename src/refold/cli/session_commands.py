"""The commands over stored sessions, and nothing else: each imports its own work when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from refold.cli.help import write_examples
from refold.cli.options import (
    AsJson,
    Everywhere,
    Limit,
    Session,
    SessionMeant,
    SessionOnly,
    SessionOption,
    Workspace,
    Yes,
)

EXAMPLES = {
    "show": ("refold show", "refold show SESSION --edits"),
    "export": ("refold export SESSION --out session.json", "refold import session.json --workspace elsewhere"),
    "pin": ("refold pin m:4f2a91c3", "refold pin m:4f2a91c3 --off", "refold pin"),
    "recall": ('refold recall "which port"', "refold recall ERR-4711 --all", "refold expand m:4f2a91c3"),
}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    commands: dict[str, Callable[..., None]] = {
        "sessions": sessions,
        "show": show,
        "log": log,
        "stats": stats,
        "memory": memory,
        "recall": recall,
        "expand": expand,
        "facts": facts,
        "undo": undo,
        "redo": redo,
        "pin": pin,
        "forget": forget,
        "delete": delete,
        "export": export,
        "import": import_,
        "verify": verify,
    }
    for name, command in commands.items():
        app.command(name, epilog=write_examples(*EXAMPLES[name]) if name in EXAMPLES else None)(command)


def sessions(limit: Limit = 100, workspace: Workspace = ".", as_json: AsJson = False) -> None:
    """List the sessions of a workspace, the last changed first."""
    from refold.cli.sessions import run

    run(workspace, limit, as_json=as_json)


def show(
    session: SessionMeant = None,
    view: Annotated[bool, typer.Option("--view", help="What the model sees (the default).")] = False,
    originals: Annotated[bool, typer.Option("--originals", help="Every message as it came.")] = False,
    edits: Annotated[
        bool, typer.Option("--edits", help="Every change: in force, covered by a later fold, or undone.")
    ] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Show a session as the model sees it, its originals, or its edits."""
    from refold.cli.show import run

    run(workspace, session, view=view, originals=originals, edits=edits, as_json=as_json)


def recall(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is looked for, in plain words, or a value.")],
    session: SessionOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", "-l", metavar="N", min=1, max=200, help="Results at most.")
    ] = 10,
    everywhere: Everywhere = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Find what was said, by words, by meaning, or by a value.

    Exact originals, each with the handle that leads to the rest of it.
    """
    if not query.strip():
        raise typer.BadParameter("nothing to look for; give words or a value", param_hint="QUERY")
    from refold.cli.recall import run

    run(query, session, limit, workspace, everywhere=everywhere, as_json=as_json)


def expand(
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="As a placeholder or a result names it.")],
    session: SessionOption = None,
    offset: Annotated[int, typer.Option("--offset", metavar="N", min=0, help="The first character to show.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", "-l", metavar="N", min=0, help="Characters at most; unset: all.")
    ] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Show the exact original behind a handle, or a page of it."""
    from refold.cli.expand import run

    run(handle, session, offset, limit, workspace, as_json=as_json)


def facts(
    session: SessionOption = None,
    everywhere: Everywhere = False,
    with_history: Annotated[bool, typer.Option("--history", help="Also what a later fact replaced.")] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """List preferences, decisions, todos and key information."""
    from refold.cli.facts import run

    run(session, workspace, everywhere=everywhere, with_history=with_history, as_json=as_json)


def undo(
    session: SessionMeant = None,
    edit: Annotated[str | None, typer.Argument(metavar="EDIT", help="An edit's id or handle; unset: the last.")] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Take the last compression back, or one edit.

    What was made from it goes with it; 'refold redo' puts it in force again.
    """
    from refold.cli.undo import run_undo

    run_undo(workspace, session, edit, as_json=as_json)


def redo(session: SessionMeant = None, workspace: Workspace = ".", as_json: AsJson = False) -> None:
    """Put what was undone last in force again."""
    from refold.cli.undo import run_redo

    run_redo(workspace, session, as_json=as_json)


def pin(
    handle: Annotated[
        str | None, typer.Argument(metavar="HANDLE", help="m:4f2a91c3, as recall says; unset: list those pinned.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Let it be compressed again.")] = False,
    session: SessionOption = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Keep a message from being compressed, or list those kept."""
    from refold.cli.pin import run

    run(handle, session, workspace, off=off, as_json=as_json)


def log(session: SessionMeant = None, limit: Limit = 200, workspace: Workspace = ".", as_json: AsJson = False) -> None:
    """Show what happened to a session, oldest first."""
    from refold.cli.log import run

    run(workspace, session, limit, as_json=as_json)


def verify(
    session: SessionOnly = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what is derived; originals are never touched.")
    ] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Check the record: every hash, flag, count and file.

    All of it is computed anew; exit code 1 with a list if anything differs.
    """
    from refold.cli.verify import run

    run(workspace, session, repair=repair, as_json=as_json)


def stats(
    session: SessionOnly = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Show what compressions did: how often, why, by which stage."""
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
    session: SessionMeant = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Where it goes; unset: standard output.")
    ] = None,
    workspace: Workspace = ".",
) -> None:
    """Write a session with all that belongs to it as JSON."""
    from refold.cli.transfer import run_export

    run_export(workspace, session, out)


def import_(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="What export wrote, conversations, or folders; '-': standard input."),
    ],
    name: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="The session's id; unset: its own, or the file's name.")
    ] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Put conversations into this workspace: one session each.

    It reads what 'refold export' wrote, messages and request logs of OpenAI and Anthropic, session files of Claude Code
    and Codex, ShareGPT, and exports of LangSmith and Langfuse. A folder means every .json and .jsonl file below it.
    """
    from refold.cli.transfer import run_import

    run_import(workspace, files, name, as_json=as_json)


def delete(
    session: Session,
    yes: Yes = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Delete a session for good.

    Its offloaded files go with it, daily pages stay. There is no undo.
    """
    from refold.cli.forget import run_delete

    run_delete(workspace, session, yes=yes, as_json=as_json)


def forget(
    session: Session,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="m:4f2a91c3 or f:09c1b2aa, as placeholders say.")],
    yes: Yes = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Erase what is behind a handle for good.

    It goes from the record, from files and from daily pages: for the day a key leaks. There is no undo.
    """
    from refold.cli.forget import run_forget

    run_forget(workspace, session, handle, yes=yes, as_json=as_json)
