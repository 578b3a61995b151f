"""Exit codes, and the error line that precedes them: a failed command prints one sentence, never a traceback.

The sentence is wrapped on a terminal and stays on one line in a pipe or a log, so that it can be searched.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import typer

from refold.cli.words import find_language, is_translated, tr, translate, use_language
from refold.errors import BudgetTooSmall, RefoldError, Sentence

EXIT_CODES = {
    0: "done",
    1: "any other error",
    2: "invalid command line",
    3: "a setting is invalid, unknown or conflicts with another one",
    4: "the input cannot be read or is not a conversation",
    5: "the budget is too small for what must stay",
    6: "unknown handle",
    7: "the model's provider refused or failed",
    8: "the ledger cannot be read or written, or the session does not exist",
    9: "the result cannot be written",
    70: "a bug in refold",
    130: "interrupted with Ctrl-C",
}


# What click says of a wrong command line, as far as it is one phrase and a name.
_USAGE = ("no such command {rest}", "no such option: {rest}", "missing argument {rest}", "missing option {rest}")
_CHINESE = re.compile("[\u4e00-\u9fff]")


class Stopped(Exception):
    """Ctrl-C during a command. typer would turn a KeyboardInterrupt into a silent exit."""


# typer's base class for usage errors; not every release exports it under a public name.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def run_to_end(app: Callable[..., object]) -> int:
    """Run the command line, report any error on standard error, and return the exit code."""
    _accept_any_character()
    use_language(None)
    try:
        code = app(prog_name="refold", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # Now, while a full disk can still be reported.
    except RefoldError as error:
        return fail(describe_error(error), error.exit_code)
    except _UsageError as error:
        return _fail_usage(error)
    except typer.Abort:
        return fail(tr("not confirmed: nothing was changed"), 1)
    except BrokenPipeError:
        return _leave_quietly()
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            return _leave_quietly()
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except (KeyboardInterrupt, Stopped):
        return fail(tr("stopped"), 130)
    except OSError as error:
        _leave_quietly()
        return fail(tr("the result cannot be written: {strerror}", strerror=error.strerror or error), 9)
    except Exception as error:  # noqa: BLE001 - the last resort: users get a sentence, not a traceback
        problem = tr("unexpected {kind}: {error}", kind=type(error).__name__, error=error)
        return fail(
            tr("{problem}; this is a bug in refold; set REFOLD_DEBUG=1 to see the traceback", problem=problem), 70
        )
    return code if isinstance(code, int) else 0


def describe_error(error: RefoldError) -> str:
    """Return an error in the user's language; one without words in it keeps its English under a heading."""
    message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    if isinstance(error, BudgetTooSmall) and isinstance(message, Sentence):
        listed = tr(", ").join(f"{translate(name)} {tokens:,}" for name, tokens in error.parts.items() if tokens)
        message = Sentence(message.template, **{**message.values, "listed": listed})
    if find_language() == "en" or is_translated(message) or _CHINESE.search(message):
        return translate(message)
    kind = next(one.__name__ for one in type(error).__mro__ if is_translated(one.__name__))
    return f"{translate(kind)}：{message}"


def fail(message: str, code: int) -> int:
    """Print an error line and return the exit code."""
    from refold.cli.output import clean_line, make_console, print_line

    _show_traceback()
    print_line(make_console(), clean_line(message, 2_000), label="refold: ")
    return code


def _fail_usage(error: Exception) -> int:
    """Report a usage error, with the usage line and where to read more."""
    context = getattr(error, "ctx", None)
    message = str(getattr(error, "format_message", error.__str__)())
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message, err=True)
        return 2
    message = message[:1].lower() + message[1:].rstrip(".").replace(". Did you", "; did you")
    if "unexpected extra argument" in message and _takes_session(context):
        message += tr("; name a session with --session")
    for template in _USAGE:
        if message.startswith(template.removesuffix("{rest}")):
            message = tr(template, rest=message[len(template) - len("{rest}") :])
    if find_language() == "zh" and not _CHINESE.search(message):
        message = f"{translate('invalid command line')}：{message}"
    fail(message, 2)
    if context is not None:
        typer.echo(context.get_usage() + "\n" + tr("Try '{command} --help'.", command=context.command_path), err=True)
    return 2


def _takes_session(context: Any) -> bool:
    return context is not None and any(param.name == "session" for param in context.command.params)


def _accept_any_character() -> None:
    """Escape characters that the output encoding lacks instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _show_traceback() -> None:
    try:
        from refold.config.load import is_debugging
    except ImportError:  # A broken installation, which the error line reports.
        return
    if is_debugging():
        import traceback

        traceback.print_exc()


def _leave_quietly() -> int:
    """Exit silently after a closed pipe: Python would report it again when it flushes at exit."""
    import os

    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
