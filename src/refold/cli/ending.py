"""How every run ends: with a documented exit code, and if something is wrong with one clear line, never a traceback.

On a terminal the line is wrapped at words; in a pipe or a log it stays one line, for those who search it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

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
    8: "the record cannot be read or written, or has no such session",
    9: "the result cannot be written",
    70: "a bug of refold",
    130: "stopped by the keyboard",
}


class Stopped(Exception):
    """Ctrl-C during a command. typer would turn a KeyboardInterrupt into a silent exit."""


# typer's own base of all that is wrong with a command line; it has no public name in every release.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def run_to_end(app: Callable[..., object]) -> int:
    """Run the command line; return the exit code, with whatever went wrong told on standard error."""
    _accept_any_character()
    try:
        code = app(prog_name="refold", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # While a full disk can still be told.
    except RefoldError as error:
        return fail(str(error), error.exit_code)
    except _UsageError as error:
        return _fail_usage(error)
    except typer.Abort:
        return fail("not confirmed; nothing was changed", 1)
    except BrokenPipeError:
        return _leave_quietly()
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            return _leave_quietly()
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except (KeyboardInterrupt, Stopped):
        return fail("stopped", 130)
    except OSError as error:
        _leave_quietly()
        return fail(f"the result cannot be written: {error.strerror or error}", 9)
    except Exception as error:  # noqa: BLE001 - the last line of defence: people get a sentence, not a traceback
        told = f"unexpected {type(error).__name__}: {error}"
        return fail(f"{told}; this is a bug of refold, set REFOLD_DEBUG=1 to see where", 70)
    return code if isinstance(code, int) else 0


def fail(message: str, code: int) -> int:
    """Say what is wrong, and return the exit code."""
    from refold.cli.render import clean_line, make_console, print_line

    _show_traceback()
    print_line(make_console(), clean_line(message, 2_000), label="refold: ")
    return code


def _fail_usage(error: Exception) -> int:
    """Say what is wrong with the command line, how it is used, and where to read more."""
    context = getattr(error, "ctx", None)
    message = str(getattr(error, "format_message", error.__str__)())
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message, err=True)
        return 2
    fail(message[:1].lower() + message[1:].rstrip(".").replace(". Did you", "; did you"), 2)
    if context is not None:
        typer.echo(f"{context.get_usage()}\nTry '{context.command_path} --help'.", err=True)
    return 2


def _accept_any_character() -> None:
    """Show what a terminal's encoding lacks as an escape: a character must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


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

    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
