"""The typer application that every command registers with, the layout of its help, and how a command ends.

Help is plain text under headings, one line per command, as wide as the terminal up to 100 columns. Headings are bold
only on a terminal, because help is also read in pipes and pagers. A failed command prints one sentence, never a
traceback: wrapped on a terminal, on one line in a pipe or a log, so that it can be searched. Importing this module
loads nothing heavier than typer; each command imports what it needs when it runs.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from refold import __version__
from refold.cli.words import describe_error, find_language, tr, use_language
from refold.errors import ConfigError, RefoldError
from refold.sentences import is_chinese

if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object


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


# Errors of the command-line parser, which has them in English only.
_USAGE = (
    "no such command {rest}; did you mean {near}?",
    "no such option: {rest} (Possible options: {near})",
    "no such command {rest}",
    "no such option: {rest}",
    "missing argument {rest}",
    "missing option {rest}",
    "invalid value for {name}: {problem}",
    "option {name} requires an argument",
    "option {name} does not take a value",
    "got unexpected extra argument(s) ({names})",
    "{value} is not one of {choices}",
    "Input should be a valid integer, unable to parse string as an integer",
    "Input should be a valid number, unable to parse string as a number",
    "Input should be greater than or equal to {limit}",
    "Input should be less than or equal to {limit}",
    "Input should be greater than {limit}",
    "Input should be less than {limit}",
)
# A requirement of an extra as the metadata state it: uvicorn>=0.30; extra == "server".
_REQUIREMENT = re.compile(r"([\w.-]++)[^;]*+; extra == ['\"]([\w-]+)['\"]")
# typer's base class for usage errors; not every release exports it under a public name.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
# The commands under each heading, in the order in which users need them.
PANELS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "doctor", "config", "trust", "presets", "local"),
    "Chat and serve": ("chat", "serve", "wrap", "key", "mcp"),
    "Fit and measure": ("compress", "count", "look", "replay", "eval", "trial", "tune"),
    "Look": ("sessions", "show", "state", "log", "stats", "memory"),
    "Find": ("recall", "expand", "facts"),
    "Change": ("undo", "redo", "off", "on", "pin", "forget", "delete"),
    "Keep": ("export", "import", "verify"),
}
# Other words for a command: they work, and no list shows them.
ALIASES = {"compact": "compress", "fold": "compress"}
COLUMNS_MAX = 100
_HEADING = re.compile(r"^[A-Z][a-z ]+:(?=$| refold| 0 )", re.M)
_TYPE = re.compile(r" <[^<>]*+>")
_EXTRA = re.compile(r"(?<!\s)\s*+\[([^][]++)\]$")
_EXAMPLE = re.compile(r"(\s+refold (?:\S| (?! ))+\s{2,})(\S.*)$")
_LIMIT = re.compile(r"^x[<>]=?-?\d+$")
_RANGE = re.compile(r"^(-?\d+)<=x<=(-?\d+)$")
# Depending on its release, typer takes these from click or from its own copy of click.
Context = Any
Formatter = Any
Function = TypeVar("Function", bound=Callable[..., Any])


class Stopped(Exception):
    """Ctrl-C during a command. typer would turn a KeyboardInterrupt into a silent exit."""


def run_to_end(app: Callable[..., object]) -> int:
    """Run the command line, report any error on standard error, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # A character that the encoding lacks is escaped, not an error.
            stream.reconfigure(errors="backslashreplace")
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
        return fail(tr("the result cannot be written: {why}", why=error.strerror or error), 9)
    except Exception as error:  # noqa: BLE001 - the last resort: users get a sentence, not a traceback
        return _fail_unexpected(error)
    return code if isinstance(code, int) else 0


def choose_command(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Return the application with only the command that the first word names: typer takes 2 ms to make each."""
    called = words[0].replace("-", "_") if words else None
    named = [
        one for one in app.registered_commands if called and called in (one.name, getattr(one.callback, "__name__", ""))
    ]
    if not named:
        return app
    chosen = copy(app)
    chosen.registered_commands, chosen.registered_groups = named, []
    return chosen


def _fail_unexpected(error: Exception) -> int:
    """Report a library of an extra that is not installed, or a bug."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    wanted, extras = name.partition(".")[0].replace("_", "-").casefold(), read_extras()
    bringing = [extra for extra in extras if wanted in extras[extra]]
    if bringing:
        extra = min(bringing, key=lambda one: len(extras[one]))
        advice = tr("{name} is not installed; install it with: pip install 'refold[{extra}]'", name=name, extra=extra)
        return fail(advice, ConfigError.exit_code)
    problem = tr("unexpected {kind}: {error}", kind=type(error).__name__, error=error)
    return fail(tr("{problem}; this is a bug in refold; set REFOLD_DEBUG=1 to see the traceback", problem=problem), 70)


def read_extras() -> dict[str, set[str]]:
    """Return the packages that each extra needs on every system."""
    from importlib.metadata import requires

    extras: dict[str, set[str]] = {}
    for requirement in requires("refold") or ():
        if found := _REQUIREMENT.fullmatch(requirement):
            extras.setdefault(found[2], set()).add(found[1].replace("_", "-").casefold())
    return extras


def fail(message: str, code: int) -> int:
    """Print an error line and return the exit code."""
    from refold.cli.output import make_console, print_line
    from refold.cli.words import clean_line

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
    takes_session = context is not None and any(param.name == "session" for param in context.command.params)
    hint = tr("; name a session with --session") if "unexpected extra argument" in message and takes_session else ""
    message = _translate_usage(message) + hint
    if find_language() == "zh" and not is_chinese(message):
        message = f"{tr('invalid command line')}：{message}"
    fail(message, 2)
    if context is not None:
        typer.echo(context.get_usage() + "\n" + tr("Try '{command} --help'.", command=context.command_path), err=True)
    return 2


def _translate_usage(message: str) -> str:
    """Return what is wrong with a command line in the user's language, as far as the sentence is known."""
    for template in _USAGE:
        parts = ((re.escape(text), name) for text, name, _, _ in string.Formatter().parse(template))
        pattern = "".join(f"{text}(?P<{name}>.+?)" if name else text for text, name in parts)
        found = re.fullmatch(pattern, message, re.DOTALL)
        if found is not None:
            return tr(template, **{name: _translate_usage(value) for name, value in found.groupdict().items()})
    return message


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


class _PlainHelp(_Base):
    """Help without the type annotations of arguments and options."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Return the usage line in the style of a manual page: ``FILE`` and ``FILE...``, not ``{FILE...}...``."""
        pieces = (re.sub(r"^\{(.*)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx))
        return [re.sub(r"\.\.\.(\]?)\.\.\.$", r"...\1", piece) for piece in pieces]

    def format_options(self, ctx: Context, formatter: Formatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                name = "Arguments" if param.param_type_name == "argument" else "Options"
                rows[name].append(_tidy_record(*record, getattr(param, "help", None) or ""))
        for name, section in rows.items():
            if section:
                with formatter.section(tr(name)):
                    formatter.write_dl(section)

    def format_usage(self, ctx: Context, formatter: Formatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), f"{tr('Usage')}: ")

    def format_help_text(self, ctx: Context, formatter: Formatter) -> None:  # noqa: ARG002 - the library's signature
        """Write the command's help text, paragraph by paragraph, in the user's language."""
        if not self.help:
            return
        paragraphs = [tr(one) for one in split_paragraphs(self.help)]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(paragraphs))

    def get_short_help_str(self, limit: int = 45) -> str:
        if find_language() == "en" or not self.help:
            return super().get_short_help_str(limit)
        return tr(split_paragraphs(self.help)[0]).rstrip("。")

    def format_epilog(self, ctx: Context, formatter: Formatter) -> None:  # noqa: ARG002 - the library's signature
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(_translate_epilog(self.epilog))

    def get_help(self, ctx: Context) -> str:
        text = super().get_help(ctx)
        if sys.stdout is None or not sys.stdout.isatty():
            return text
        from rich.console import Console

        is_dumb = Console().is_dumb_terminal
        return text if is_dumb else _HEADING.sub(lambda found: typer.style(found[0], bold=True), text)


class PlainCommand(_PlainHelp, TyperCommand):
    """A command with plain help."""


class PlainGroup(_PlainHelp, TyperGroup):
    """A group of commands; the group's help lists them."""

    def invoke(self, ctx: Context) -> Any:
        """Run the command; report Ctrl-C as ``Stopped``, which typer lets through."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped from None

    def resolve_command(self, ctx: Context, args: list[str]) -> Any:
        """Find the command; ``help NAME`` is accepted for ``NAME --help``."""
        if args[0] == "help" and len(args) < 3:
            if len(args) == 1:
                typer.echo(self.get_help(ctx))
                ctx.exit()
            args = [args[1], "--help"]
        return super().resolve_command(ctx, [ALIASES.get(args[0], args[0]), *args[1:]])

    def format_options(self, ctx: Context, formatter: Formatter) -> None:
        if ctx.parent is None:
            width = max(len(name) for names in PANELS.values() for name in names)
            for title, names in PANELS.items():
                _write_commands(self, ctx, formatter, title=title, names=names, width=width)
            super().format_options(ctx, formatter)
        else:
            super().format_options(ctx, formatter)
            _write_commands(self, ctx, formatter, title="Commands", names=self.list_commands(ctx))


def _write_commands(
    group: TyperGroup, ctx: Context, formatter: Formatter, *, title: str, names: Sequence[str], width: int = 0
) -> None:
    found = [(name, group.get_command(ctx, name)) for name in names]
    limit = formatter.width - 4 - max(width, *(len(name) for name in names))
    rows = [(name.ljust(width), command.get_short_help_str(limit)) for name, command in found if command is not None]
    with formatter.section(tr(title)):
        formatter.write_dl(rows)


def split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring, each as one line."""
    return [" ".join(one.split()) for one in text.split("\n\n")]


def _translate_epilog(text: str) -> str:
    """Return examples and exit codes in the user's language; commands stay as they are."""
    if find_language() == "en":
        return text
    lines = []
    for line in text.split("\n"):
        example = _EXAMPLE.match(line)
        if line == "Examples:":
            lines.append(f"{tr('Examples')}:")
        elif line.startswith("Exit codes: "):
            codes = "；".join(f"{code} {tr(meaning)}" for code, meaning in EXIT_CODES.items())
            lines.append(f"{tr('Exit codes')}: {codes}")
        else:
            lines.append(example[1] + tr(example[2]) if example else line)
    return "\n".join(lines)


def _tidy_record(name: str, text: str, words: str = "") -> tuple[str, str]:
    """Return an option's help row without its type, with its range in words, in the user's language."""
    text = text.replace(words, tr(words), 1) if words else text
    found = _EXTRA.search(text)
    if found is None:
        return _TYPE.sub("", name), text
    notes = []
    for extra in found[1].split("; "):
        limits = _RANGE.match(extra)
        if limits is not None:
            notes.append(tr("{least} to {most}", least=limits[1], most=limits[2]))
        elif extra != "required" and not _LIMIT.match(extra):
            notes.append(extra.replace("default:", tr("default:")))
    return _TYPE.sub("", name), text[: found.start()] + (f" [{'; '.join(notes)}]" if notes else "")


def format_examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class PlainTyper(typer.Typer):
    """A typer application whose commands and groups have plain help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=PlainGroup, no_args_is_help=True, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        return super().command(name, **{"cls": PlainCommand, **options})


app = PlainTyper(
    name="refold",
    help="Keep a long conversation inside the model's context window without losing anything.",
    epilog=format_examples(
        "refold chat                                  chat without overflowing the window",
        "refold serve                                 run a gateway for agents, and a web page",
        "refold compress talk.json -b 8k -o fits.json  make a conversation fit",
        "refold replay ~/.claude/projects             see what refold would have saved",
    )
    + "\n\nExit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()),
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": COLUMNS_MAX},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"refold {__version__}")
        raise typer.Exit


@app.callback()
def refold(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keep a long conversation inside the model's context window without losing anything."""
