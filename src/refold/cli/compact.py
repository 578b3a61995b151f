"""``refold compress``: make a conversation from a file fit its budget, or compress a stored session now.

For a file, the result goes to standard output or ``--out`` and the report to standard error; with ``--dry-run`` there
is no result, and the report goes to standard output. With ``--json`` the report is JSON, on standard output unless the
result is there. The input file is never changed.

For a stored session there is no result to write, because the ledger keeps every original: the report goes to standard
output. The settings of the workspace apply, as in the chat, on the page and in the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import STDIN, need_session, open_workspace, read_document
from refold.cli.options import Format, Model, Preset, ResultFile, Workspace, name_session, read_tokens
from refold.cli.output import (
    OutputError,
    format_document,
    make_console,
    note_broken,
    refuse_same_file,
    show_pairs,
    write_json,
    write_result,
)
from refold.cli.words import (
    clean_line,
    count_things,
    describe_change,
    describe_share,
    describe_steps,
    say_reason,
    tr,
    use_language,
)
from refold.errors import FormatError

if TYPE_CHECKING:
    from rich.console import Console

    from refold.conversation.message import Message
    from refold.formats import Conversation
    from refold.manager.compress import CompactResult
    from refold.prepared import PreparedContext


@app.command(
    "compress",
    epilog=format_examples(
        "refold compress session.json --budget 8k --out small.json",
        "refold compress session.json --budget 8k --dry-run --explain",
        "cat request.json | refold compress - --model gpt-5 > fits.json",
        'refold compress --session SESSION --instructions "keep the file names"',
    ),
)
def compact(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="JSON or JSONL, also .gz; '-' reads standard input.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option("--budget", "-b", parser=read_tokens, metavar="TOKENS", help="Total budget: 8000, 8k.")
    ] = None,
    out: ResultFile = None,
    session: Annotated[str | None, name_session("Compress this stored session instead of a file.")] = None,
    instructions: Annotated[
        str, typer.Option("--instructions", "-i", metavar="TEXT", help="What the summary should keep.")
    ] = "",
    format: Format = None,  # noqa: A002 - the word users know
    preset: Preset = None,
    model: Model = None,
    explain: Annotated[bool, typer.Option("--explain", "-e", help="Show every change with reason and handle.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    workspace: Workspace = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Make a conversation fit its context window.

    The input file is never changed. The result goes to standard output, the report to standard error. Without --budget
    the model's context window is the budget.

    With --session, a stored session is compressed now with the settings of its workspace; 'refold undo' reverts it.
    """
    if session is not None:
        _refuse_file_options(file=file, budget=budget, out=out, format=format, preset=preset, model=model)
        _compact_session(session, instructions, workspace, explain=explain, dry_run=dry_run, as_json=as_json)
        return
    if file is None:
        raise typer.BadParameter(tr("name a file, '-' for standard input, or --session SESSION"), param_hint="FILE")
    _refuse_session_name(file, workspace)
    _compact_file(
        file,
        out,
        call={"preset": preset, "model": model},
        options={"budget": budget, "instructions": instructions, "dry_run": dry_run},
        form=format,
        explain=explain,
        as_json=as_json,
    )


def _refuse_file_options(**given: object) -> None:
    """Raise BadParameter for options that apply to files only."""
    for name, value in given.items():
        if value is None:
            continue
        if name == "file":
            raise typer.BadParameter(tr("pass a file or --session, not both"), param_hint="FILE")
        problem = "applies to files only; a stored session uses the settings of its workspace"
        raise typer.BadParameter(problem, param_hint=f"--{name}")


def _compact_file(
    file: str,
    out: str | None,
    *,
    call: Mapping[str, object],
    options: Mapping[str, Any],
    form: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Compress the conversation of a file; nothing is written unless everything worked."""
    from refold.cli.report import list_changes, show_changes, show_kept, show_report, show_stages
    from refold.compressing import compress
    from refold.config import load_config
    from refold.formats import parse_messages, write_conversation
    from refold.readers.file import find_conversations

    dry_run = options["dry_run"]
    if dry_run and out is not None:
        raise OutputError("--dry-run writes nothing; remove --out")
    refuse_same_file(file, out)
    config = load_config(call=call)
    use_language(config.language)
    document = read_document(file)
    note_broken(document.broken)
    conversation = take_one(find_conversations(document.value, document.place, form), document.place)
    prepared = compress(
        conversation.messages,
        system=conversation.system,
        tools=conversation.tools,
        model=config.model or conversation.model or None,
        config=config,
        format=conversation.format.name,
        **options,
    )
    messages = parse_messages(conversation.format, conversation.messages)
    if not dry_run:
        content = format_document(document, write_conversation(conversation, prepared.messages))
        if config.write_files:
            _write_offloaded(prepared, messages, out)
        write_result(content, out)
    report = prepared.report
    assert report is not None
    if as_json:
        head = {"input": file, "format": conversation.format.name, "dry_run": dry_run}
        changes = [change.to_dict() for change in list_changes(report.stages, messages)]
        write_json({**head, **report.to_dict(), "changes": changes}, err=not dry_run and out is None)
        return
    console = make_console(err=not dry_run)
    title = tr("standard input") if file == STDIN else Path(file).name
    show_report(console, report, title, asked=options["budget"], dry_run=dry_run)
    if explain and report.stages:
        show_stages(console, report.stages)
    if dry_run:
        console.print()
        show_kept(console, report, messages)
    if explain or dry_run:
        show_changes(console, report.stages, messages)


def take_one(found: Sequence[tuple[str, Conversation]], place: str) -> Conversation:
    """Return a file's only conversation, or the main one if the others are its sub-agents; else raise FormatError."""
    main, first = found[0]
    if all(name.startswith(f"{main}/") for name, _ in found[1:]):
        return first
    names = ", ".join(name[:60] for name, _ in found[:3])
    raise FormatError(
        "{place} holds {found} conversations ({names}, …); 'refold import' stores all of them",
        place=place,
        found=len(found),
        names=names,
    )


def _refuse_session_name(file: str, workspace: str) -> None:
    """Raise FormatError with a hint if a stored session was named like a file."""
    if file == STDIN or Path(file).exists() or not (Path(workspace) / ".refold").is_dir():
        return
    with open_workspace(workspace) as manager:
        if manager.ledger.read_session(file) is not None:
            raise FormatError(
                "there is no file {file!r}, but a stored session has that name: use 'refold compress --session'",
                file=file[:80],
            )


def _write_offloaded(prepared: PreparedContext, messages: Sequence[Message], out: str | None) -> None:
    """Write the offloaded files next to the result, which must never name a missing file."""
    from refold.stages.offload import files_of

    folded = {message_id for edit in prepared.edits if edit.kind == "fold" for message_id in edit.covers}
    named = [edit for edit in prepared.edits if edit.stage == "offload" and edit.covers[0] not in folded]
    is_file = out is not None and out != "-" and not (Path(out).exists() and not Path(out).is_file())
    base = Path(out).parent if is_file and out is not None else Path()
    for file in files_of(named, messages):
        path = base / file.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise OutputError("{path} cannot be written: {why}", path=path, why=error.strerror or error) from None


def _compact_session(
    session: str, instructions: str, workspace: str, *, explain: bool, dry_run: bool, as_json: bool
) -> None:
    from refold.cli.report import show_changes, show_stages
    from refold.manager.session import parse_stored

    with open_workspace(workspace) as manager:
        name = need_session(manager.ledger, session, workspace)
        # Loads the system prompt and tools, so that before and after include them as all other figures do.
        manager.status(name)
        done = manager.compress(name, instructions, dry_run=dry_run)
        row, stored = manager.ledger.read_session(name), manager.ledger.read_messages(name)
    if as_json:
        write_json(_describe_session(name, done))
        return
    console = make_console(err=False)
    _report_session(console, name, done)
    if any(stage.edits for stage in done.stages):
        if explain:
            show_stages(console, done.stages)
        if explain or dry_run:
            assert row is not None
            show_changes(console, done.stages, [parse_stored(one, row) for one in stored])


def _report_session(console: Console, name: str, done: CompactResult) -> None:
    from rich.text import Text

    head = describe_change(done.previous_tokens, done.current_tokens)
    shrunk = describe_share(done.previous_tokens, done.current_tokens)
    console.print(Text.assemble((clean_line(name, 60), "bold"), "  ", (head, "bold green"), f"  {shrunk}"))
    rows = [("would act" if done.is_dry_run else "why", say_reason(done.reason))]
    worked = [stage for stage in done.stages if stage.edits]
    if worked:
        kept = tr("{count} unchanged", count=count_things(done.preserved_count, "message"))
        rows += [("would do" if done.is_dry_run else "did", describe_steps(worked)), ("stays", kept)]
    rows += [("summary", tr(stage.stage) + tr(": ") + say_reason(stage.note)) for stage in done.stages if stage.note]
    if worked and not done.is_dry_run:
        rows.append(("undo", f"refold undo --session {clean_line(name, 200)}"))
    show_pairs(console, rows)


def _describe_session(name: str, done: CompactResult) -> dict[str, object]:
    return {
        "session": name,
        "dry_run": done.is_dry_run,
        "success": done.success,
        "reason": done.reason.to_dict(),
        "tokens_before": done.previous_tokens,
        "tokens_after": done.current_tokens,
        "tokens_saved": done.freed_tokens,
        "messages_kept": done.preserved_count,
        "files_deleted": list(done.deleted_files),
        "stages": [stage.to_dict() for stage in done.stages],
    }
