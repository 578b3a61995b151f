"""``refold tune``: find settings that would have cost less on the stored sessions."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, Workspace, open_workspace
from refold.cli.output import count_things, show_progress, write_json, write_line
from refold.errors import FormatError

if TYPE_CHECKING:
    from refold.config import CompressionConfig
    from refold.tuning import Tuning


@app.command()
def tune(
    sessions: Annotated[
        int, typer.Option("--sessions", metavar="N", min=1, max=200, help="Number of sessions, newest first.")
    ] = 12,
    apply_it: Annotated[bool, typer.Option("--apply", help="Write the changes to the project's settings.")] = False,
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Propose settings that would have cost less.

    The stored sessions are replayed with other settings. Every request must still fit and be valid, and at least as
    many values must stay in view as now.
    """
    from refold.tuning import apply, propose, read_stored
    from refold.tuning.proposal import TRIALS_MAX

    with open_workspace(workspace) as manager:
        stored = read_stored(manager.ledger, sessions)
        if not stored:
            raise FormatError("no session here has eight messages or more yet; tune once there are some")
        with show_progress("tuning") as advance:
            tuning = propose(stored, manager.config, tell=lambda trials: advance(trials, TRIALS_MAX))
        if tuning.changes and apply_it:
            apply(workspace, manager.ledger, tuning, time.time())
    if as_json:
        is_applied = apply_it and bool(tuning.changes)
        write_json({**asdict(tuning), "saving": round(tuning.saving, 4), "is_applied": is_applied})
    else:
        _show(tuning, manager.config, is_applied=apply_it)


def _show(tuning: Tuning, config: CompressionConfig, *, is_applied: bool) -> None:
    replayed = f"{count_things(tuning.sessions, 'session')}, {count_things(tuning.requests, 'request')}"
    write_line(f"replayed {replayed} with {count_things(tuning.trials, 'setting')}")
    if not tuning.changes:
        write_line("the current settings are the best of those tried; nothing to change")
        return
    for name, value in tuning.changes.items():
        write_line(f"  {name}: {getattr(config, name):g} → {value:g}")
    view = (tuning.now.in_view_percent, tuning.then.in_view_percent)
    kept = "" if None in view else f", values in view {view[0]:.1f} → {view[1]:.1f} %"
    write_line(
        f"bill −{tuning.saving:.1%}, prefix changes {tuning.now.prefix_changes:,} → "
        f"{tuning.then.prefix_changes:,}{kept}"
    )
    write_line("written to the project's settings" if is_applied else "nothing was changed; --apply writes the changes")
