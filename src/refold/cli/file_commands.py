"""The commands over files and settings, and nothing else: each imports its own work when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from refold.cli.help import write_examples
from refold.cli.options import AsJson, File, Format, Model, Preset, Workspace, complete_session, read_tokens


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        epilog=write_examples(
            "refold compact session.json --budget 8k --out small.json",
            "refold compact session.json --budget 8k --dry-run --explain",
            "cat request.json | refold compact - --model gpt-5 > fits.json",
            'refold compact --session SESSION --instructions "keep the file names"',
        )
    )(compact)
    app.command(epilog=write_examples("refold count session.json", "cat request.json | refold count - --model gpt-5"))(
        count
    )
    app.command(
        epilog=write_examples(
            "refold replay ~/.claude/projects --presets raw,default",
            "refold replay session.json --window 32k --report report.html",
        )
    )(replay)
    app.command()(presets)
    config = typer.Typer(help="Show the settings that hold here, and where they come from.", no_args_is_help=True)
    config.command("explain", epilog=write_examples("refold config explain --set", "refold config explain fold"))(
        config_explain
    )
    config.command("path")(config_path)
    app.add_typer(config, name="config")


def compact(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="JSON or JSONL, also .gz; '-' is the standard input.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget", "-b", parser=read_tokens, metavar="TOKENS", help="What it may have, all in all: 8000, 8k."
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Where the result goes; unset: standard output.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            "-s",
            metavar="SESSION",
            autocompletion=complete_session,
            help="In the place of FILE: a stored session, compressed now.",
        ),
    ] = None,
    instructions: Annotated[
        str, typer.Option("--instructions", "-i", metavar="TEXT", help="What the summary should keep.")
    ] = "",
    format: Format = None,  # noqa: A002 - the word users know
    preset: Preset = None,
    model: Model = None,
    explain: Annotated[bool, typer.Option("--explain", "-e", help="Show every change: what, why, handle.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would go and what stays.")] = False,
    workspace: Workspace = ".",
    as_json: Annotated[bool, typer.Option("--json", help="For programs: the report as JSON.")] = False,
) -> None:
    """Make a conversation fit its window.

    It is read from a file, which is never changed. The result goes to standard output, the report to standard error.
    Without --budget the window of the model counts.

    With --session a stored session is compressed now, by the settings of its workspace; 'refold undo' takes it back.
    """
    if session is not None:
        refuse_beside_session(file=file, budget=budget, out=out, format=format, preset=preset, model=model)
        from refold.cli.compact_session import SessionWish
        from refold.cli.compact_session import run as run_session

        run_session(SessionWish(session, workspace, instructions, explain, dry_run, as_json))
        return
    if file is None:
        raise typer.BadParameter("name a file, '-' for the standard input, or --session SESSION", param_hint="FILE")
    from refold.cli.compact import Wish, refuse_session_name, run

    refuse_session_name(file, workspace)
    run(Wish(file, budget, out, format, preset, model, explain, dry_run, as_json, instructions))


def refuse_beside_session(**given: object) -> None:
    """Refuse what is meant for a file: a stored session goes by the settings of its workspace."""
    for name, value in given.items():
        if value is not None:
            problem = (
                "give a file or --session, not both"
                if name == "file"
                else "is for files; a stored session goes by the settings of its workspace"
            )
            raise typer.BadParameter(problem, param_hint="FILE" if name == "file" else f"--{name}")


def count(file: File, model: Model = None, format: Format = None, as_json: AsJson = False) -> None:  # noqa: A002
    """Count the tokens of a conversation, per message and per role."""
    from refold.cli.count import run

    run(file, model, format, as_json=as_json)


def presets(as_json: AsJson = False) -> None:
    """List the presets and what each sets."""
    from refold.cli.config import list_presets

    list_presets(as_json=as_json)


def replay(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Request logs, exports, sessions of Claude Code and Codex; or folders of them."
        ),
    ],
    presets: Annotated[
        str,
        typer.Option(
            "--presets", metavar="NAMES", help="Presets and baselines (raw, last-n, mask, chars, langchain), by commas."
        ),
    ] = "raw,default",
    model: Model = None,
    window: Annotated[
        int | None,
        typer.Option("--window", parser=read_tokens, metavar="TOKENS", help="As 32000 or 32k; unset: the model's."),
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", "-r", metavar="FILE", help="Where the page with charts goes.")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, max=64, help="Processes that work side by side.")
    ] = 1,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="FILE", help="A file to keep finished sessions in, and to go on from."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what each preset would have done with recorded sessions.

    At every point where the assistant spoke, the request is prepared, counted, billed and checked: what fits, what it
    costs, what stayed in view. Files are only read.
    """
    if window is not None and window < 1:
        raise typer.BadParameter("give 1 or more tokens", param_hint="--window")
    from refold.cli.replay import Wish, run

    run(Wish(tuple(files), presets, model, window, report, as_json, jobs, resume))


def config_explain(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Only these settings.")] = None,
    preset: Preset = None,
    model: Model = None,
    only_set: Annotated[bool, typer.Option("--set", "-s", help="Only what somebody set.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print every value and where it came from."""
    from refold.cli.config import explain

    explain(names or [], preset=preset, model=model, only_set=only_set, as_json=as_json)


def config_path(as_json: AsJson = False) -> None:
    """Print the files that settings are read from."""
    from refold.cli.config import show_paths

    show_paths(as_json=as_json)
