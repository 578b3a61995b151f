"""How help looks: plain text under headings, each command in one line, as wide as the terminal up to a hundred columns.

Headings are bold where a terminal shows it, and nowhere else: help is read in pipes and pagers too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from refold.cli.ending import Stopped

# Which command stands under which heading, in the order in which people come to need them.
PANELS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "doctor", "config", "presets", "local"),
    "Chat and serve": ("chat", "serve", "wrap", "key", "mcp"),
    "Fit and measure": ("compact", "count", "replay", "tune"),
    "Look": ("sessions", "show", "log", "stats", "memory"),
    "Find": ("recall", "expand", "facts"),
    "Change": ("undo", "redo", "pin", "forget", "delete"),
    "Keep": ("export", "import", "verify"),
}
COLUMNS_MAX = 100
_HEADING = re.compile(r"^[A-Z][a-z ]+:(?=$| refold| 0 )", re.M)
_TYPE = re.compile(r" <[^<>]*+>")
_EXTRA = re.compile(r"(?<!\s)\s*+\[([^][]++)\]$")
_LIMIT = re.compile(r"^x[<>]=?-?\d+$")
_RANGE = re.compile(r"^(-?\d+)<=x<=(-?\d+)$")

# Which library these come from, click or a copy of it, depends on the release of typer.
Context = Any
Formatter = Any
if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object


class _PlainHelp(_Base):
    """Arguments and options without the types that a program would want to know."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return [_tidy_piece(piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Context, formatter: Formatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                name = "Arguments" if param.param_type_name == "argument" else "Options"
                rows[name].append(_tidy_record(*record))
        for name, section in rows.items():
            if section:
                with formatter.section(name):
                    formatter.write_dl(section)

    def format_epilog(self, ctx: Context, formatter: Formatter) -> None:  # noqa: ARG002 - the library's signature
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(self.epilog)

    def get_help(self, ctx: Context) -> str:
        text = super().get_help(ctx)
        return _HEADING.sub(lambda found: typer.style(found[0], bold=True), text) if _shows_bold() else text


class PlainCommand(_PlainHelp, TyperCommand):
    """One command."""


class PlainGroup(_PlainHelp, TyperGroup):
    """Commands under one name, listed below its options."""

    def invoke(self, ctx: Context) -> Any:
        """Run the command; report Ctrl-C as ``Stopped``, which typer lets through."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped from None

    def resolve_command(self, ctx: Context, args: list[str]) -> Any:
        """Find the command that is meant; ``help NAME`` is ``NAME --help``, for those who type that."""
        if args[0] == "help" and len(args) < 3:
            if len(args) == 1:
                typer.echo(self.get_help(ctx))
                ctx.exit()
            args = [args[1], "--help"]
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Context, formatter: Formatter) -> None:
        if ctx.parent is None:
            _write_panels(self, ctx, formatter)
            super().format_options(ctx, formatter)
        else:
            super().format_options(ctx, formatter)
            _write_commands(self, ctx, formatter, "Commands", self.list_commands(ctx))


def _write_panels(group: TyperGroup, ctx: Context, formatter: Formatter) -> None:
    width = max(len(name) for names in PANELS.values() for name in names)
    for title, names in PANELS.items():
        _write_commands(group, ctx, formatter, title, names, width)


def _write_commands(
    group: TyperGroup, ctx: Context, formatter: Formatter, title: str, names: Sequence[str], width: int = 0
) -> None:
    found = [(name, group.get_command(ctx, name)) for name in names]
    limit = formatter.width - 4 - max(width, *(len(name) for name in names))
    rows = [(name.ljust(width), command.get_short_help_str(limit)) for name, command in found if command is not None]
    with formatter.section(title):
        formatter.write_dl(rows)


def _tidy_piece(piece: str) -> str:
    """Return a part of the usage line as manuals write it: ``FILE`` and ``FILE...``, not ``{FILE...}...``."""
    piece = re.sub(r"^\{(.*)\}", r"\1", piece)
    return re.sub(r"\.\.\.(\]?)\.\.\.$", r"...\1", piece)


def _tidy_record(name: str, text: str) -> tuple[str, str]:
    """Return an option without its type, and with its limits in words."""
    found = _EXTRA.search(text)
    if found is None:
        return _TYPE.sub("", name), text
    told = []
    for extra in found[1].split("; "):
        limits = _RANGE.match(extra)
        if limits is not None:
            told.append(f"{limits[1]} to {limits[2]}")
        elif extra != "required" and not _LIMIT.match(extra):
            told.append(extra)
    return _TYPE.sub("", name), text[: found.start()] + (f" [{'; '.join(told)}]" if told else "")


def _shows_bold() -> bool:
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    from rich.console import Console

    console = Console()
    return console.is_terminal and not console.is_dumb_terminal


def dress(app: typer.Typer) -> None:
    """Give every command and group of an app this help; call it when all are registered."""
    for command in app.registered_commands:
        command.cls = PlainCommand
    for group in app.registered_groups:
        group.cls = PlainGroup
        if group.typer_instance is not None:
            dress(group.typer_instance)


def write_examples(*lines: str) -> str:
    """Return examples as the last thing in a command's help: a person copies one sooner than reading all options."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
