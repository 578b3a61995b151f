"""``refold replay``: what would each preset have done with these sessions? A table, JSON, a page with charts.

Files are only read. The table goes to standard output, progress and what could not be read to standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refold.cli.progress import show_progress
from refold.cli.reading import note_broken, refuse_same_file, write_json, write_result
from refold.errors import FormatError
from refold.readers import FileReading, list_files, read_files
from refold.readers.session import Broken
from refold.replay.batch import Job, Terms, check_presets, run_jobs, unique_ids
from refold.replay.page import write_page
from refold.replay.probes import add_probes
from refold.replay.report import Report, describe, write_bill_rows, write_probe_rows, write_rows
from refold.replay.tally import sum_times

PRESETS = "raw,default"
LEGEND = (
    ("fits", "% of the requests within the window; valid: that a provider would accept"),
    ("breaks", "requests that changed what the provider had cached"),
    ("÷ raw", "the bill as a share of raw's, which sends everything"),
    ("whole", "the same, and reading again what was copied later but no longer in view"),
    ("copied", "% of the text copied from older messages that was in view"),
    ("values", "% of the exact values used again that were in view"),
    ("far", "the same, of values from more than 20 messages back"),
    ("found", "in view, or found by recall"),
)
# Windows that are worth a look: in one of this share of the largest request something has to go.
WINDOW_SHARE = 0.4
WINDOW_MIN = 2_000
TIME_SHOWN_MS = 0.05  # Less would be shown as none.


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asked for on the command line."""

    files: tuple[str, ...]
    presets: str = PRESETS
    model: str | None = None
    window: int | None = None
    report: str | None = None
    as_json: bool = False
    jobs: int = 1
    resume: str | None = None


def run(wish: Wish) -> None:
    """Read the files, replay every session under every preset, and tell."""
    from refold.cli.render import count_things

    presets = check_presets([name.strip() for name in wish.presets.split(",") if name.strip()])
    if not presets:
        raise FormatError("--presets names none; give some, as --presets raw,default")
    paths = list_files(wish.files)
    for path in paths:
        refuse_same_file(path, wish.report, "--report")
    files = tuple(read_files(paths))
    sessions = tuple(add_probes(one) for one in unique_ids([one for file in files for one in file.sessions]))
    if not sessions:
        tell_broken(files)
        told = count_things(len(files), "file")
        raise FormatError(f"there is no session in {told}; see 'refold replay --help' for what is read")
    terms = Terms(wish.model, wish.window)
    jobs = [Job(session, preset, terms) for session in sessions for preset in presets]
    with show_progress("replaying") as tell:
        records = run_jobs(jobs, processes=wish.jobs, keep=Path(wish.resume) if wish.resume else None, tell=tell)
    report = Report(terms, tuple(presets), sessions, tuple(records), files)
    if wish.report is not None:
        write_result(write_page(report).encode("utf-8", "replace"), wish.report, "--report")
    if wish.as_json:
        write_json(describe(report, with_times=True))
    else:
        show_table(report)
    tell_broken(files)


def show_table(report: Report) -> None:
    """Print what each preset did, what it cost, what was still to be found, the notes, and how long preparing took."""
    from rich.table import Table

    from refold.cli.render import clean_line, make_console, print_line, show_pairs

    console = make_console(err=False)
    for number, (head, *rows) in enumerate((write_rows(report), write_bill_rows(report), write_probe_rows(report))):
        if not rows:
            continue
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for at, name in enumerate(head):
            table.add_column(name, justify="left" if at == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        if number == 0:
            show_pairs(console, LEGEND)
        console.print()
    for preset in report.presets:
        times = sum_times(report.records_of(preset))
        if times.mean_ms >= TIME_SHOWN_MS:
            told = f"{preset}: {times.mean_ms:.1f} ms per request, {times.worst_ms:.0f} ms at most"
            print_line(console, clean_line(told, 200))
    for note in report.notes():
        print_line(console, clean_line(note, 300))
    if hint := suggest_window(report):
        print_line(console, hint)


def suggest_window(report: Report) -> str:
    """Return what to try where everything fitted and nothing had to be done; empty where there was something to do."""
    requests = [(record.window, request) for record in report.records for request in record.requests]
    if not requests or any(request.stages or request.tokens > window for window, request in requests):
        return ""
    peak, window = max((request.tokens, window) for window, request in requests)
    fitted = f"every session fits its window (the largest request has {peak:,} of {window:,} tokens)"
    tried = int(float(f"{peak * WINDOW_SHARE:.1g}")) if peak * WINDOW_SHARE >= WINDOW_MIN else 0
    if not tried:
        return f"{fitted}, and all are short: there was nothing to do"
    return f"{fitted}, so there was nothing to do; try --window {tried // 1_000}k to see what a smaller one would do"


def tell_broken(files: Sequence[FileReading]) -> None:
    """Name the lines that could not be read."""
    note_broken([_place_line(file.path, one) for file in files for one in file.broken])


def _place_line(path: str, one: Broken) -> str:
    where = f"{path}, line {one.line}: " if one.line else "" if one.why.startswith(path) else f"{path}: "
    return f"{where}{one.why}"
