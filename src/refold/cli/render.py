"""How reports look in a terminal: summary lines and tables, in 80 columns, with or without colour.

Layout only; numbers come from elsewhere. Text of a conversation is shown as text: control characters cannot
move the cursor, and nothing of it is read as markup.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.ladder.report import Report, StageReport

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_SPACE = re.compile(r"\s+")
# Sequences that a terminal obeys: colours and cursor, titles and links, and any other escape.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])")


def make_console(*, err: bool = True) -> Console:
    """Return a console for people: standard error by default; no colour outside a terminal or with NO_COLOR."""
    stream = sys.stderr if err else sys.stdout
    # A terminal that cannot show a character must not make us fail.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return Console(stderr=err, highlight=False, emoji=False, markup=False, soft_wrap=False)


def print_line(console: Console, line: str, *, label: str = "") -> None:
    """Print a sentence: wrapped at words on a terminal, one line in a pipe or a log, for those who search it."""
    told = f"{label}{line}"
    if console.is_terminal:
        # A path longer than the terminal is wide is left whole, so that it can be copied.
        told = textwrap.fill(told, max(console.width, 20), break_long_words=False, break_on_hyphens=False)
    console.print(Text.assemble((label, "bold red"), told[len(label) :]), soft_wrap=True)


def clean_line(text: str, chars_max: int = 200) -> str:
    """Return text as one line that is safe to print, shortened to ``chars_max``."""
    line = _SPACE.sub(" ", _CONTROL.sub(" ", text[: chars_max * 4])).strip()
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def strip_controls(text: str) -> str:
    """Return text of any number of lines that a terminal prints and does not obey."""
    plain = _ESCAPE.sub("", text)
    return _CONTROL.sub(lambda found: "".join(one for one in found[0] if one in "\n\t"), plain)


def make_table(*columns: str, numbers: Iterable[str] = (), wide: Iterable[str] = (), wraps: bool = False) -> Table:
    """Return an empty table; ``numbers`` are aligned right, ``wide`` columns take and give the space."""
    right, stretching = set(numbers), set(wide)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for name in columns:
        is_wide = name in stretching
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=not (is_wide and wraps),
            overflow="ellipsis" if is_wide and not wraps else "fold",
            ratio=1 if is_wide else None,
        )
    table.expand = bool(stretching)
    return table


def describe_share(before: int, after: int) -> str:
    """Return by how much something shrank: ``−91 %``."""
    if before <= 0 or before == after:
        return "±0 %"
    share = (before - after) / before
    text = f"{abs(share):.0%}".replace("%", " %")
    return f"−{text}" if share > 0 else f"+{text}"


def count_things(number: int, thing: str) -> str:
    """Return ``1 message``, ``12 messages``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def show_report(
    console: Console, report: Report, title: str, *, asked: int | None = None, dry_run: bool = False
) -> None:
    """Print what a compression did in a few lines."""
    head = Text.assemble(
        (clean_line(title, 60), "bold"),
        "  ",
        (f"{report.tokens_before:,} → {report.tokens_after:,} tokens", "bold green"),
        f"  {describe_share(report.tokens_before, report.tokens_after)}",
        f"  {report.messages_before:,} → {report.messages_after:,} messages",
    )
    console.print(head)
    told = [("would act" if dry_run else "why", str(report.reason)), ("budget", describe_budget(report, asked))]
    worked = [stage for stage in report.stages if stage.edits]
    if worked:
        steps = ", ".join(f"{stage.stage} −{stage.tokens_freed:,}" for stage in worked)
        told.append(("would do" if dry_run else "did", steps))
    elif asked is None:
        told.append(("next", "--budget TOKENS makes it smaller, as in --budget 8k"))
    told += [("note", note) for note in report.notes]
    told += [(_label_note(stage), f"{stage.stage}: {stage.note}") for stage in report.stages if stage.note]
    show_pairs(console, told)


def describe_budget(report: Report, asked: int | None = None) -> str:
    """Return the tiers of the budget and who counts; ``asked`` is the number that the caller gave."""
    budget = report.budget
    tiers = f"{budget.hard:,} tokens"
    if budget.soft != budget.hard or budget.target != budget.hard:
        tiers += f", acts at {budget.soft:,}, comes down to {budget.target:,}"
    if not report.margin:
        return f"{tiers}; counted by {report.counter}"
    of = f" of {asked:,}" if asked is not None and asked != budget.hard else ""
    share = f"{report.margin:.0%}".replace("%", " %")
    return f"{tiers}{of}; counted by {report.counter}, which may be {share} too low"


def show_pairs(console: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Print lines of name and value, the values below each other; in a pipe each pair is one line."""
    if not console.is_terminal:
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            console.print(Text(f"{name:<{width}}  {clean_line(value, 1_000)}"), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1)
    for name, value in pairs:
        table.add_row(name, Text(clean_line(value, 1_000)))
    console.print(table)


def show_stages(console: Console, stages: Sequence[StageReport]) -> None:
    """Print one line per stage: tokens before and after, what it changed, what was not taken."""
    table = make_table(
        "stage",
        "tokens before",
        "after",
        "freed",
        "changes",
        "not taken",
        numbers=("tokens before", "after", "freed", "changes", "not taken"),
    )
    for stage in stages:
        table.add_row(
            stage.stage,
            f"{stage.tokens_before:,}",
            f"{stage.tokens_after:,}",
            f"{stage.tokens_freed:,}" if stage.tokens_freed else "·",
            f"{len(stage.edits):,}" if stage.edits else "·",
            f"{len(stage.rejected):,}" if stage.rejected else "·",
            style="" if stage.edits else "dim",
        )
    console.print(table)


def _label_note(stage: StageReport) -> str:
    """Say what a stage's note is about: edits that a law refused, or who wrote a summary and what was wrong with it."""
    return "refused" if stage.rejected and not stage.edits else "summary"
