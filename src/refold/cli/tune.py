"""``refold tune``: settings that would have served the stored sessions better (S1.10)."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from refold.cli.options import AsJson, Workspace
from refold.errors import FormatError


def run(workspace: str, *, sessions: int, apply_it: bool, as_json: bool) -> None:
    """Replay what is stored with other settings; print what would change, and change it if asked."""
    from refold.cli.reading import write_json
    from refold.cli.render import count_things
    from refold.cli.workspace import open_workspace, write_line
    from refold.tuning import apply, propose, read_stored

    with open_workspace(workspace) as manager:
        stored = read_stored(manager.ledger, sessions)
        if not stored:
            raise FormatError("there is no session of eight messages or more here; tune when there are some")
        tuning = propose(stored, manager.config)
        if tuning.changes and apply_it:
            apply(workspace, manager.ledger, tuning, time.time())
    if as_json:
        is_applied = apply_it and bool(tuning.changes)
        write_json({**asdict(tuning), "saving": round(tuning.saving, 4), "is_applied": is_applied})
        return
    replayed = f"{count_things(tuning.sessions, 'session')}, {count_things(tuning.requests, 'request')}"
    write_line(f"{replayed} replayed with {count_things(tuning.trials, 'setting')}")
    if not tuning.changes:
        write_line("what holds now serves them best; nothing to change")
        return
    for name, value in tuning.changes.items():
        write_line(f"  {name}: {getattr(manager.config, name):g} → {value:g}")
    view = (tuning.now.in_view_percent, tuning.then.in_view_percent)
    kept = "" if None in view else f", values in view {view[0]:.1f} → {view[1]:.1f} %"
    write_line(
        f"bill −{tuning.saving:.1%}, prefix changes {tuning.now.prefix_changes:,} → "
        f"{tuning.then.prefix_changes:,}{kept}"
    )
    write_line("written to the project's settings" if apply_it else "nothing was changed; --apply writes it")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""

    @app.command()
    def tune(
        sessions: Annotated[
            int, typer.Option("--sessions", metavar="N", min=1, max=200, help="How many, the newest first.")
        ] = 12,
        apply_it: Annotated[bool, typer.Option("--apply", help="Write the changes to the project's settings.")] = False,
        workspace: Workspace = ".",
        as_json: AsJson = False,
    ) -> None:
        """Propose settings that would have cost less than those that hold.

        The stored sessions are replayed with other settings.
        Every request must still fit and be valid, and as many values stay in view as now.
        """
        run(workspace, sessions=sessions, apply_it=apply_it, as_json=as_json)
