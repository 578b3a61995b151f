"""``refold tune``: find settings that would have cost less on the stored sessions."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app
from refold.cli.input import AsJson, Workspace, open_workspace
from refold.cli.output import show_progress, write_json, write_line
from refold.cli.words import count_things, tr
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
    from refold.tuning import TRIALS_MAX, apply, propose, read_stored

    with open_workspace(workspace) as manager:
        stored = read_stored(manager.ledger, sessions)
        if not stored:
            raise FormatError(tr("no session here has eight messages or more yet; tune once there are some"))
        with show_progress(tr("tuning")) as advance:
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
    write_line(
        tr("replayed {replayed} with {trials}", replayed=replayed, trials=count_things(tuning.trials, "setting"))
    )
    if not tuning.changes:
        write_line(tr("the current settings are the best of those tried; nothing to change"))
        return
    for name, value in tuning.changes.items():
        write_line(f"  {name}: {getattr(config, name):g} → {value:g}")
    view = (tuning.now.in_view_percent, tuning.then.in_view_percent)
    kept = "" if None in view else tr(", values in view {before:.1f} → {after:.1f} %", before=view[0], after=view[1])
    write_line(
        tr(
            "bill −{saving:.1%}, prefix changes {prefix_changes:,} → {prefix_changes2:,}{kept}",
            saving=tuning.saving,
            prefix_changes=tuning.now.prefix_changes,
            prefix_changes2=tuning.then.prefix_changes,
            kept=kept,
        )
    )
    write_line(
        tr("written to the project's settings") if is_applied else tr("nothing was changed; --apply writes the changes")
    )
