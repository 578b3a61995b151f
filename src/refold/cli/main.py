"""``refold``: the commands, and how every error ends: one clear line, a documented exit code, never a traceback.

Importing this module loads typer and nothing heavier; each command imports its own work when it runs.
"""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from refold import __version__
from refold.cli.chat import register as register_chat
from refold.cli.doctor import register as register_doctor
from refold.cli.init import register as register_init
from refold.cli.key import register as register_key
from refold.cli.local import register as register_local
from refold.cli.mcp import register as register_mcp
from refold.cli.serve import register as register_serve
from refold.cli.session_commands import register as register_session_commands
from refold.cli.tune import register as register_tune
from refold.errors import RefoldError

EXIT_CODES = {
    0: "done",
    1: "an error without a code of its own",
    2: "the command line is wrong",
    3: "a setting is wrong, unknown or contradicts another one",
    4: "the input cannot be read, or is no conversation",
    5: "the budget is too small for what may not shrink",
    6: "there is nothing behind this handle",
    7: "the model's provider refused or failed",
    8: "the durable record cannot be read or written",
    9: "the result cannot be written",
    70: "a bug of refold",
    130: "stopped by the keyboard",
}
EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

app = typer.Typer(
    name="refold",
    help="Keep a long conversation inside the model's window, and lose nothing.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Show the settings that hold here, and where they come from.", no_args_is_help=True)
app.add_typer(config_app, name="config")

File = Annotated[str, typer.Argument(metavar="FILE", help="JSON or JSONL, also .gz; '-' is the standard input.")]
Model = Annotated[str | None, typer.Option("--model", "-m", help="The model: its window and its tokenizer.")]
Format = Annotated[
    str | None,
    typer.Option("--format", "-f", help="openai-chat, anthropic or openai-responses; unset: detected."),
]
Preset = Annotated[str | None, typer.Option("--preset", "-p", help="The settings to start from: see 'refold presets'.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: the report as JSON.")]


def read_tokens(text: str) -> int:
    """Return a number of tokens as people write it: 8000, 8_000, 8,000, 8k, 0.2M."""
    found = re.fullmatch(r"(-?[0-9]+)(?:(\.[0-9]+)?([km]))?", text.strip().lower().replace(",", "").replace("_", ""))
    if found is None:
        raise typer.BadParameter(f"{text[:40]!r} is no number of tokens; give one such as 8000, 8,000 or 8k")
    factor = {"k": 1_000, "m": 1_000_000}.get(found[3] or "", 1)
    return int(found[1]) * factor + int(float(found[2] or 0) * factor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"refold {__version__}")
        raise typer.Exit


@app.callback()
def refold(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keep a long conversation inside the model's window, and lose nothing."""


@app.command(epilog=EPILOG)
def compact(
    file: File,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget", "-b", parser=read_tokens, metavar="TOKENS", help="What it may have, all in all: 8000, 8k."
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Where the result goes; unset: standard output.")
    ] = None,
    format: Format = None,  # noqa: A002 - the word users know
    preset: Preset = None,
    model: Model = None,
    explain: Annotated[bool, typer.Option("--explain", "-e", help="Show every change: what, why, handle.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would go and what stays.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a conversation fit: the result to standard output, the report to standard error.

    Without --budget the window of the model counts. The input file is never changed.
    """
    from refold.cli.compact import Wish, run

    run(Wish(file, budget, out, format, preset, model, explain, dry_run, as_json))


@app.command(epilog=EPILOG)
def count(file: File, model: Model = None, format: Format = None, as_json: AsJson = False) -> None:  # noqa: A002
    """Count the tokens of a conversation: per message, per role, tool outputs apart."""
    from refold.cli.count import run

    run(file, model, format, as_json=as_json)


@app.command(epilog=EPILOG)
def presets(as_json: AsJson = False) -> None:
    """List the presets and what each sets."""
    from refold.cli.config import list_presets

    list_presets(as_json=as_json)


@app.command(epilog=EPILOG)
def replay(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Request logs, exports, session files of Claude Code and Codex; also .gz."
        ),
    ],
    presets: Annotated[
        str, typer.Option("--presets", help="Presets, and baselines: raw, last-n, mask, chars; separated by commas.")
    ] = "raw,default",
    model: Model = None,
    window: Annotated[
        int | None,
        typer.Option("--window", parser=read_tokens, metavar="TOKENS", help="As 32000 or 32k; unset: the model's."),
    ] = None,
    report: Annotated[str | None, typer.Option("--report", "-r", help="Where the page with charts goes.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=64, help="Processes that work side by side.")] = 1,
    resume: Annotated[
        str | None, typer.Option("--resume", help="A file to keep finished sessions in, and to go on from.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what each preset would have done with recorded sessions: fit, bill, and what stayed in view.

    At every point where the assistant spoke, the request is prepared, counted, billed and checked.
    """
    if window is not None and window < 1:
        raise typer.BadParameter("give 1 or more tokens", param_hint="--window")
    from refold.cli.replay import Wish, run

    run(Wish(tuple(files), presets, model, window, report, as_json, jobs, resume))


@config_app.command("explain", epilog=EPILOG)
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


@config_app.command("path", epilog=EPILOG)
def config_path(as_json: AsJson = False) -> None:
    """Print the files that settings are read from."""
    from refold.cli.config import show_paths

    show_paths(as_json=as_json)


Session = Annotated[str | None, typer.Option("--session", "-s", help="The session; unset: the one that changed last.")]
Everywhere = Annotated[bool, typer.Option("--all", "-a", help="All sessions of the workspace.")]
Workspace = Annotated[str, typer.Option("--workspace", "-w", help="The folder whose record it is.")]


@app.command(epilog=EPILOG)
def recall(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is looked for, in plain words, or a value.")],
    session: Session = None,
    limit: Annotated[int, typer.Option("--limit", "-n", "-l", min=1, max=200, help="Results at most.")] = 10,
    everywhere: Everywhere = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Find what was said: exact originals, each with the handle that leads to the rest of it."""
    from refold.cli.recall import run

    run(query, session, limit, workspace, everywhere=everywhere, as_json=as_json)


@app.command(epilog=EPILOG)
def expand(
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="As a placeholder or a result names it.")],
    session: Session = None,
    offset: Annotated[int, typer.Option("--offset", min=0, help="The first character to show.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", "-l", min=0, help="Characters at most; unset: all.")
    ] = None,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """Show the exact original behind a handle, or a page of it."""
    from refold.cli.expand import run

    run(handle, session, offset, limit, workspace, as_json=as_json)


@app.command(epilog=EPILOG)
def facts(
    session: Session = None,
    everywhere: Everywhere = False,
    with_history: Annotated[bool, typer.Option("--history", help="Also what a later fact replaced.")] = False,
    workspace: Workspace = ".",
    as_json: AsJson = False,
) -> None:
    """List what is known: preferences, decisions, todos, key information."""
    from refold.cli.facts import run

    run(session, workspace, everywhere=everywhere, with_history=with_history, as_json=as_json)


register_session_commands(app, EPILOG)
register_init(app, EPILOG)
register_doctor(app, EPILOG)
register_tune(app, EPILOG)
register_serve(app, EPILOG)
register_key(app, EPILOG)
register_chat(app, EPILOG)
register_local(app, EPILOG)
register_mcp(app, EPILOG)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        code = _run_app()
        if sys.stdout is not None:
            sys.stdout.flush()  # While a full disk can still be told.
    except RefoldError as error:
        code = _fail(str(error), error.exit_code)
    except BrokenPipeError:
        code = _leave_quietly()
    except KeyboardInterrupt:
        code = _fail("stopped", 130)
    except OSError as error:
        _leave_quietly()
        code = _fail(f"the result cannot be written: {error.strerror or error}", 9)
    except Exception as error:  # noqa: BLE001 - the last line of defence: people get a sentence, not a traceback
        code = _fail_unexpected(error)
    sys.exit(code)


def _run_app() -> int:
    try:
        app(prog_name="refold")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0


def _fail(message: str, code: int) -> int:
    from refold.cli.render import clean_line

    _show_traceback()
    typer.echo(f"refold: {clean_line(message, 2_000)}", err=True)
    return code


def _fail_unexpected(error: Exception) -> int:
    return _fail(
        f"unexpected {type(error).__name__}: {error}; this is a bug of refold, set REFOLD_DEBUG=1 to see where", 70
    )


def _show_traceback() -> None:
    try:
        from refold.config.load import is_debugging
    except ImportError:  # A broken installation: the sentence that follows says so.
        return
    if is_debugging():
        import traceback

        traceback.print_exc()


def _leave_quietly() -> int:
    """The reader of our output has gone. Python would complain once more when it flushes at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
