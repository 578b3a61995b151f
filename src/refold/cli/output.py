"""Shared output of the commands: lines and tables for people, JSON for programs, result files, progress.

``say`` and ``note`` follow the user's language (``words``). Markup in conversation text has no effect. Results are
written to a temporary file and renamed, so that no reader sees half of one. rich is imported where it is used, because
every command imports this module.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from refold.cli.words import clean_line, tr
from refold.errors import RefoldError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from refold.cli.input import Document


BROKEN_SHOWN = 20
LINE_EVERY_S = 10.0
# Called with the number of finished steps and the number of all steps.
Advance = Callable[[int, int], None]


class OutputError(RefoldError):
    """The result cannot be written."""

    exit_code = 9


def make_console(*, err: bool = True) -> Console:
    """Return a console for people: standard error by default; no colour outside a terminal or with NO_COLOR."""
    from rich.console import Console

    return Console(stderr=err, highlight=False, emoji=False, markup=False, soft_wrap=False)


def print_line(console: Console, line: str, *, label: str = "") -> None:
    """Print a sentence: wrapped at words on a terminal, on one line in a pipe or a log."""
    from rich.text import Text

    text = f"{label}{line}"
    if console.is_terminal:
        # A path longer than the terminal is wide stays whole, so that it can be copied.
        text = textwrap.fill(text, max(console.width, 20), break_long_words=False, break_on_hyphens=False)
    console.print(Text.assemble((label, "bold red"), text[len(label) :]), soft_wrap=True)


def make_table(*columns: str, numbers: Iterable[str] = (), wide: Iterable[str] = (), wraps: bool = False) -> Table:
    """Return an empty table; ``numbers`` are right-aligned, ``wide`` columns stretch and shrink."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    right, stretching = set(numbers), set(wide)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for name in columns:
        is_wide = name in stretching
        table.add_column(
            tr(name),
            justify="right" if name in right else "left",
            no_wrap=not (is_wide and wraps),
            overflow="ellipsis" if is_wide and not wraps else "fold",
            ratio=1 if is_wide else None,
        )
    table.expand = bool(stretching)
    return table


def print_tables(console: Console, tables: Iterable[Sequence[Sequence[str]]]) -> None:
    """Print tables of a heading row and rows: names in the first column, figures in the others."""
    for head, *rows in tables:
        table = make_table(*head, numbers=head[1:])
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()


def write_line(text: str) -> None:
    print_line(make_console(err=False), clean_line(text, 1_000))


def say(template: str, /, **values: object) -> None:
    """Print a sentence on standard output, in the user's language."""
    write_line(tr(template, **values))


def note(template: str, /, **values: object) -> None:
    """Print a sentence that is not part of the result on standard error, in the user's language."""
    typer.echo(tr(template, **values), err=True)


def show_pairs(console: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Print names, in the user's language, and values in two columns; in a pipe, one line per pair."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    pairs = [(tr(name), value) for name, value in pairs]
    if not console.is_terminal:
        width = max((cell_len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            console.print(Text(f"{name}{' ' * (width - cell_len(name))}  {clean_line(value, 1_000)}"), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1)
    for name, value in pairs:
        table.add_row(name, Text(clean_line(value, 1_000)))
    console.print(table)


def note_broken(broken: Sequence[str], doing: str = "not read") -> None:
    """List what was skipped on standard error, up to a limit."""
    doing = tr(doing)
    for why in broken[:BROKEN_SHOWN]:
        sys.stderr.write(f"{doing}: {clean_line(why, 400)}\n")
    if len(broken) > BROKEN_SHOWN:
        sys.stderr.write(tr("{doing}: {count:,} more", doing=doing, count=len(broken) - BROKEN_SHOWN) + "\n")


def write_json(value: object, *, err: bool = False) -> None:
    """Print a value as JSON; characters that the stream cannot encode are escaped."""
    stream = sys.stderr if err else sys.stdout
    text = json.dumps(value, indent=2, default=_plain, ensure_ascii=False)
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, default=_plain)
    stream.write(text + "\n")
    stream.flush()


def _plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def format_document(document: Document, value: object) -> bytes:
    """Return a value as JSON in the layout of the document it came from."""
    if document.is_rows and isinstance(value, list):
        return b"".join(_dump(row, None) + b"\n" for row in value)
    return _dump(value, document.indent) + b"\n"


def _dump(value: object, indent: str | None) -> bytes:
    separators = (",", ": ") if indent else (", ", ": ")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # A lone surrogate has no UTF-8; its escape is legal JSON.
        return json.dumps(value, indent=indent, separators=separators).encode("ascii")


def refuse_same_file(source: str, target: str | None, option: str = "--out") -> None:
    """Raise OutputError if the result would replace the input, which is never changed."""
    if target is None or source == "-":
        return
    here, there = Path(source), Path(target)
    with contextlib.suppress(OSError):
        if there.exists() and here.exists() and here.samefile(there):
            raise OutputError(
                "{option} {target} is the input file, which is never changed; name another file",
                option=option,
                target=target,
            )


def write_result(content: bytes, target: str | None, option: str = "--out", *, new_mode: int = 0o666) -> None:
    """Write a result to standard output, or atomically to a file; ``option`` is the option that named the file.

    A new file gets the permissions ``new_mode`` as far as the user's mask allows; an existing one keeps its own.
    """
    if target is None or target == "-":
        if sys.stdout is None:
            raise OutputError("standard output is closed; name a file with {option}", option=option)
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    try:
        if path.is_dir():
            raise OutputError("{option} {target} is a folder; name a file in it", option=option, target=target)
        if target.endswith(".gz"):
            content = gzip.compress(content, mtime=0)
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # A device or a pipe cannot be replaced by renaming.
            return
        from refold.offload import write_whole

        path = path.resolve()  # A link keeps pointing to the file, and the file keeps its permissions.
        mode = path.stat().st_mode & 0o777 if path.exists() else None
        write_whole(path, content, mode=new_mode if mode is None else mode)
        if mode is not None:
            path.chmod(mode)
    except OSError as error:
        raise OutputError(
            "{option} {target} cannot be written: {why}",
            option=option,
            target=target,
            why=error.strerror or error,
        ) from None


@contextmanager
def show_progress(doing: str) -> Iterator[Advance]:
    """Show progress on standard error: a bar on a terminal, else a line every ten seconds."""
    if sys.stderr is None or not sys.stderr.isatty():
        with _show_lines(doing) as advance:
            yield advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)


@contextmanager
def _show_lines(doing: str) -> Iterator[Advance]:
    """Print lines from a separate thread, so that they also appear during one long step."""
    stream, started, ended = sys.stderr, time.monotonic(), threading.Event()
    state = ""

    def advance(done: int, whole: int) -> None:
        nonlocal state
        state = tr(" {done:,} of {whole:,},", done=done, whole=whole)

    def print_lines() -> None:
        while not ended.wait(LINE_EVERY_S):
            with contextlib.suppress(OSError, ValueError):  # Standard error was closed.
                seconds = time.monotonic() - started
                stream.write(tr("{doing}:{state} {seconds:.0f} s", doing=doing, state=state, seconds=seconds) + "\n")
                stream.flush()

    thread = threading.Thread(target=print_lines, name="refold-progress", daemon=True)
    if stream is not None:
        thread.start()
    try:
        yield advance
    finally:
        ended.set()
