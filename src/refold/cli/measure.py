"""``refold count`` counts the tokens of a conversation; ``refold replay`` compares presets on recorded sessions.

``count`` counts tool outputs, the system prompt and tool definitions separately; ``refold compress`` uses the same
counts. ``replay`` prints a table or JSON, or writes a page with charts. Files are only read. Progress and unreadable
lines go to standard error.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import read_document, unite_sessions
from refold.cli.options import AsJson, FileOrFolder, Format, Model, Window
from refold.cli.output import (
    make_console,
    make_table,
    note_broken,
    print_line,
    refuse_same_file,
    show_pairs,
    show_progress,
    write_json,
    write_result,
)
from refold.cli.words import clean_line, count_things, describe_error, tr, use_language
from refold.errors import FormatError

if TYPE_CHECKING:
    from refold.conversation.message import Message
    from refold.conversation.view import Lens
    from refold.formats import Conversation
    from refold.readers.file import FileReading
    from refold.replay.report import ReplayReport
    from refold.tokens import Counter

PRESETS = "raw,default"
LEGEND = (
    ("fits", "% of the requests within the window; valid: that a provider would accept"),
    ("breaks", "requests that changed what the provider had cached"),
    ("÷ raw", "the bill as a share of raw's, which sends everything"),
    ("whole", "the same, plus re-reading text that was copied later but no longer in view"),
    ("copied", "% of the text copied from older messages that was in view"),
    ("values", "% of the exact values used again that were in view"),
    ("far", "the same, for values from more than 20 messages back"),
    ("found", "in view, or found by recall"),
)
# A suggested window has this share of the largest request, so that something has to be removed.
WINDOW_SHARE = 0.4
WINDOW_MIN = 2_000
TIME_SHOWN_MS = 0.05  # Less would be shown as 0.0.


@dataclass(frozen=True, slots=True)
class MessageTokens:
    """The tokens of one message; ``output_tokens`` is the part of them that is tool results."""

    index: int
    role: str
    holds: str
    begins: str
    tokens: int
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ConversationTokens:
    """All counts of a conversation. ``by_role`` excludes tool outputs, which are counted separately."""

    format: str
    model: str
    counter: str
    margin: float
    window: int
    lines: tuple[MessageTokens, ...]
    by_role: dict[str, int]
    tool_outputs: int
    system: int
    tools: int
    framing: int
    total: int


@app.command(epilog=format_examples("refold count session.json", "cat request.json | refold count - --model gpt-5"))
def count(file: FileOrFolder, model: Model = None, format: Format = None, as_json: AsJson = False) -> None:  # noqa: A002
    """Count the tokens of a conversation, per message and per role.

    A folder means every .json and .jsonl file below it.
    """
    from refold.config import load_config
    from refold.config.values import window_of
    from refold.tokens import counter_for, model_info

    config = load_config(call={"model": model})
    use_language(config.language)
    found: dict[str, ConversationTokens] = {}
    broken: list[str] = []
    for title, conversation in _read_conversations(file, format, broken):
        name = config.model or conversation.model or ""
        counter = counter_for(name or None, config.tokenizer)
        window = window_of(config, name) or model_info(name or None).window
        found[title] = count_conversation(conversation, counter, name, window)
    note_broken(broken)
    if not found:
        raise FormatError("{path} holds no conversation that can be counted", path=file)
    first = next(iter(found.values()))
    if as_json:
        write_json(asdict(first) if len(found) == 1 else {title: asdict(one) for title, one in found.items()})
    elif len(found) == 1:
        _show_one(first, tr("standard input") if file == "-" else Path(file).name)
    else:
        _show_all(found)


def _read_conversations(file: str, form: str | None, broken: list[str]) -> Iterator[tuple[str, Conversation]]:
    """Yield the conversations of a file or of every file below a folder; add unreadable lines to ``broken``."""
    from refold.readers.file import find_conversations, list_files

    if not os.path.isdir(file):  # noqa: PTH112 - Path.is_dir raises for a name that no disk takes
        document = read_document(file)
        broken += document.broken
        yield from find_conversations(document.value, document.place, form)
        return
    paths = list_files([file])
    with show_progress(tr("counting")) as advance:
        for done, path in enumerate(paths):
            advance(done, len(paths))
            place = str(Path(path).relative_to(file))
            try:
                document = read_document(path)
                inside = find_conversations(document.value, place, form)
            except FormatError as error:
                broken.append(describe_error(error))
                continue
            broken += document.broken
            for title, conversation in inside:
                yield place if len(inside) == 1 else f"{place}: {title}", conversation


def _show_all(counted: Mapping[str, ConversationTokens]) -> None:
    table = make_table("conversation", "format", "messages", "tokens", numbers=("messages", "tokens"))
    for title, one in counted.items():
        table.add_row(clean_line(title, 44), one.format, f"{len(one.lines):,}", f"{one.total:,}")
    table.add_section()
    messages, tokens = (sum(len(one.lines) for one in counted.values()), sum(one.total for one in counted.values()))
    table.add_row(tr("total"), "", f"{messages:,}", f"{tokens:,}")
    make_console(err=False).print(table)


def count_conversation(conversation: Conversation, counter: Counter, model: str, window: int) -> ConversationTokens:
    """Return the tokens of a conversation, message by message."""
    from refold.conversation.view import Lens
    from refold.formats import parse_messages
    from refold.tokens.counter import REPLY_TOKENS

    form = conversation.format
    lens = Lens(form, counter.count_parts, counter.count_text)
    messages = parse_messages(form, conversation.messages)
    lines = tuple(_count_message(at, message, lens) for at, message in enumerate(messages))
    by_role: Tally[str] = Tally()
    for line in lines:
        by_role[line.role] += line.tokens - line.output_tokens
    system = counter.count_text(form.read_system(conversation.system))
    tools = counter.count_tools(conversation.tools)
    return ConversationTokens(
        format=form.name,
        model=model,
        counter=counter.name,
        margin=counter.margin,
        window=window,
        lines=lines,
        by_role={role: tokens for role, tokens in by_role.items() if tokens},
        tool_outputs=sum(line.output_tokens for line in lines),
        system=system,
        tools=tools,
        framing=REPLY_TOKENS,
        total=REPLY_TOKENS + system + tools + sum(line.tokens for line in lines),
    )


def _count_message(at: int, message: Message, lens: Lens) -> MessageTokens:
    tokens = lens.plain(message).tokens
    results = [part for part in message.parts if part.kind == "result"]
    # A message that holds only results counts as tool output, framing included.
    if results and len(results) == len(message.parts):
        outputs = tokens
    else:
        outputs = min(tokens, sum(lens.count_bare(part) for part in results))
    calls = [part.name for part in message.parts if part.kind == "call"]
    kinds = [f"call {name}" for name in calls[:3]] + (["…"] if len(calls) > 3 else [])
    kinds += sorted({part.kind for part in message.parts} - {"call", "text"})
    text = next((part.text for part in message.parts if part.kind in ("text", "result") and part.text.strip()), "")
    return MessageTokens(
        at, message.role, ", ".join(kinds) or "text", text[:200].encode("utf-8", "replace").decode(), tokens, outputs
    )


def _show_one(counted: ConversationTokens, title: str) -> None:
    from rich.text import Text

    console = make_console(err=False)
    if counted.lines:
        table = make_table("#", "role", "tokens", "holds", "begins", numbers=("#", "tokens"), wide=("begins",))
        for line in counted.lines:
            begins = Text(clean_line(line.begins, 120), style="dim")
            table.add_row(str(line.index), line.role, f"{line.tokens:,}", Text(clean_line(line.holds, 24)), begins)
        console.print(table)
        console.print()
    totals = make_table("", "tokens", "share", numbers=("tokens", "share"))
    rows = [("system prompt", counted.system), ("tools", counted.tools)]
    rows += [*sorted(counted.by_role.items()), ("tool outputs", counted.tool_outputs), ("framing", counted.framing)]
    for name, tokens in rows:
        if tokens:
            totals.add_row(tr(name), f"{tokens:,}", f"{tokens / counted.total:.1%}")
    totals.add_section()
    totals.add_row(Text(tr("total"), style="bold"), Text(f"{counted.total:,}", style="bold green"), "")
    console.print(totals)
    console.print()
    estimate = tr(", which may be {margin:.0%} too low", margin=counted.margin) if counted.margin else ""
    model = tr("the window of {model}", model=counted.model) if counted.model else tr("a window")
    console.print(f"{clean_line(title, 60)}: {counted.format}, {count_things(len(counted.lines), 'message')}")
    size = tr(
        "{share:.1%} of {model} of {one.window:,} tokens, counted by {one.counter}{estimate}",
        one=counted,
        share=counted.total / counted.window,
        model=clean_line(model, 60),
        estimate=estimate,
    )
    console.print(size)


@app.command(
    epilog=format_examples(
        "refold replay ~/.claude/projects --presets raw,default",
        "refold replay session.json --window 32k --report report.html",
    )
)
def replay(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Request logs, exports, histories of agents, or folders."),
    ],
    presets: Annotated[
        str,
        typer.Option(
            "--presets",
            metavar="NAMES",
            help="Presets and baselines (raw, last-n, mask, chars, trim, langchain), comma-separated.",
        ),
    ] = PRESETS,
    model: Model = None,
    window: Window = None,
    report: Annotated[
        str | None, typer.Option("--report", "-r", metavar="FILE", help="Write a page with charts to this file.")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, max=64, help="Number of parallel processes.")
    ] = 1,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="FILE", help="Keep finished sessions in this file, and continue from it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what each preset would have done with recorded sessions.

    At each answer of the assistant, the request is prepared, counted, billed and checked: whether it fits, what it
    costs, what stayed in view. Files are only read.
    """
    if window is not None and window < 1:
        raise typer.BadParameter(tr("give 1 or more tokens"), param_hint="--window")
    from refold.replay.page import write_page
    from refold.replay.report import describe

    made = _run_replay(files, presets, (model, window), report=report, jobs=jobs, resume=resume)
    if report is not None:
        write_result(write_page(made).encode("utf-8", "replace"), report, "--report")
    if as_json:
        write_json(describe(made, with_times=True))
    else:
        show_table(made)
    _note_broken_lines(made.files)


def _run_replay(
    files: Sequence[str],
    names: str,
    terms: tuple[str | None, int | None],
    *,
    report: str | None,
    jobs: int,
    resume: str | None,
) -> ReplayReport:
    """Replay every session of the files with every preset."""
    from refold.readers.file import list_files, read_files
    from refold.replay.record import add_probes
    from refold.replay.report import ReplayReport
    from refold.replay.run import ReplayJob, Terms, check_presets, run_jobs

    presets = check_presets([name.strip() for name in names.split(",") if name.strip()])
    if not presets:
        raise FormatError("--presets is empty; name some, for example --presets raw,default")
    paths = list_files(files)
    for path in paths:
        refuse_same_file(path, report, "--report")
    read = tuple(read_files(paths))
    if not any(file.sessions for file in read):
        _note_broken_lines(read)
    sessions = tuple(map(add_probes, unite_sessions(read)))
    work = [ReplayJob(session, preset, Terms(*terms)) for session in sessions for preset in presets]
    with show_progress(tr("replaying")) as advance:
        records = run_jobs(work, processes=jobs, keep=Path(resume) if resume else None, tell=advance)
    return ReplayReport(Terms(*terms), tuple(presets), sessions, tuple(records), read)


def show_table(report: ReplayReport) -> None:
    """Print what each preset did, what it cost, which values could still be found, preparation times and notes."""
    from rich.table import Table

    from refold.replay.report import sum_times, write_bill_rows, write_probe_rows, write_rows

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
            show_pairs(console, [(name, tr(means)) for name, means in LEGEND])
        console.print()
    for preset in report.presets:
        times = sum_times(report.records_of(preset))
        if times.mean_ms >= TIME_SHOWN_MS:
            line = tr(
                "{preset}: {one.mean_ms:.1f} ms per request, {one.worst_ms:.0f} ms at most", preset=preset, one=times
            )
            print_line(console, clean_line(line, 200))
    for note in report.notes():
        print_line(console, clean_line(tr(note), 300))
    if hint := suggest_window(report):
        print_line(console, hint)


def suggest_window(report: ReplayReport) -> str:
    """Return a smaller window to try if everything fitted and nothing had to be done; empty otherwise."""
    requests = [(record.window, request) for record in report.records for request in record.requests]
    if not requests or any(request.stages or request.tokens > window for window, request in requests):
        return ""
    peak, window = max((request.tokens, window) for window, request in requests)
    fitted = tr(
        "every session fits its window (the largest request has {peak:,} of {window:,} tokens)",
        peak=peak,
        window=window,
    )
    tried = int(float(f"{peak * WINDOW_SHARE:.1g}")) if peak * WINDOW_SHARE >= WINDOW_MIN else 0
    if not tried:
        return tr("{fitted}, and all are short: there was nothing to do", fitted=fitted)
    return tr(
        "{fitted}, so there was nothing to do; try --window {tried}k to see what a smaller one would do",
        fitted=fitted,
        tried=tried // 1_000,
    )


def _note_broken_lines(files: Sequence[FileReading]) -> None:
    note_broken(
        [f"{file.path}, line {one.line}: {one.why}" if one.line else one.why for file in files for one in file.broken]
    )
