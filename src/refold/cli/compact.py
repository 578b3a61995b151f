"""``refold compact``: make a conversation from a file fit its budget, or compress a stored session now.

For a file, the result goes to standard output or ``--out`` and the report to standard error; with ``--dry-run`` there
is no result, and the report goes to standard output. With ``--json`` the report is JSON, on standard output unless the
result is there. The input file is never changed.

For a stored session there is no result to write, because the ledger keeps every original: the report goes to standard
output. The settings of the workspace apply, as in the chat, on the page and in the gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import (
    STDIN,
    Format,
    Model,
    Preset,
    ResultFile,
    Workspace,
    name_session,
    need_session,
    open_workspace,
    read_document,
    read_tokens,
)
from refold.cli.output import (
    OutputError,
    clean_line,
    count_things,
    describe_change,
    describe_share,
    format_document,
    make_console,
    make_table,
    note_broken,
    refuse_same_file,
    say_reason,
    show_pairs,
    tr,
    use_language,
    write_json,
    write_result,
)
from refold.errors import FormatError

if TYPE_CHECKING:
    from rich.console import Console

    from refold.config import CompressionConfig
    from refold.conversation.view import Edit
    from refold.formats import Conversation
    from refold.ladder.report import StageReport
    from refold.manager import ContextCompressionManager
    from refold.manager.compress import CompactResult
    from refold.prepared import PreparedContext


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """The command's arguments. ``file`` or ``session`` is set."""

    file: str = ""
    session: str = ""
    budget: int | None = None
    out: str | None = None
    format: str | None = None
    preset: str | None = None
    model: str | None = None
    instructions: str = ""
    workspace: str = "."
    explain: bool = False
    dry_run: bool = False
    as_json: bool = False


@app.command(
    epilog=format_examples(
        "refold compact session.json --budget 8k --out small.json",
        "refold compact session.json --budget 8k --dry-run --explain",
        "cat request.json | refold compact - --model gpt-5 > fits.json",
        'refold compact --session SESSION --instructions "keep the file names"',
    )
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
    elif file is None:
        raise typer.BadParameter(tr("name a file, '-' for standard input, or --session SESSION"), param_hint="FILE")
    request = CompactRequest(file or "", session or "", budget, out, format, preset, model, instructions, workspace)
    request = replace(request, explain=explain, dry_run=dry_run, as_json=as_json)
    if session is not None:
        _compact_session(request)
    else:
        _refuse_session_name(request.file, workspace)
        compact_file(request)


def _refuse_file_options(**given: object) -> None:
    """Raise BadParameter for options that apply to files only."""
    for name, value in given.items():
        if value is None:
            continue
        if name == "file":
            raise typer.BadParameter(tr("pass a file or --session, not both"), param_hint="FILE")
        problem = "applies to files only; a stored session uses the settings of its workspace"
        raise typer.BadParameter(problem, param_hint=f"--{name}")


def compact_file(request: CompactRequest) -> None:
    """Compress the conversation of a file; nothing is written unless everything worked."""
    from refold.compressing import compress
    from refold.config import load_config
    from refold.formats import write_conversation
    from refold.readers import find_conversations

    if request.dry_run and request.out is not None:
        raise OutputError("--dry-run writes nothing; remove --out")
    refuse_same_file(request.file, request.out)
    config = load_config(call={"preset": request.preset, "model": request.model})
    use_language(config.language)
    document = read_document(request.file)
    note_broken(document.broken)
    conversation = _take_one(find_conversations(document.value, document.place, request.format), document.place)
    prepared = compress(
        conversation.messages,
        request.budget,
        system=conversation.system,
        tools=conversation.tools,
        model=config.model or conversation.model or None,
        config=config,
        dry_run=request.dry_run,
        instructions=request.instructions,
        format=conversation.format.name,
    )
    if not request.dry_run:
        content = format_document(document, write_conversation(conversation, prepared.messages))
        _write_offloaded(prepared, conversation, config, request.out)
        write_result(content, request.out)
    _report_file(request, conversation, prepared)


def _take_one(found: Sequence[tuple[str, Conversation]], place: str) -> Conversation:
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
                "there is no file {file!r}, but a stored session has that name: use 'refold compact --session'",
                file=file[:80],
            )


def _write_offloaded(
    prepared: PreparedContext, conversation: Conversation, config: CompressionConfig, out: str | None
) -> None:
    """Write the offloaded files next to the result, which must never name a missing file."""
    from refold.formats import parse_messages

    folded = {message_id for edit in prepared.edits if edit.kind == "fold" for message_id in edit.covers}
    named = [edit for edit in prepared.edits if edit.stage == "offload" and edit.covers[0] not in folded]
    if not named or not config.write_files:
        return
    from refold.stages.offload import files_of

    is_file = out is not None and out != "-" and not (Path(out).exists() and not Path(out).is_file())
    base = Path(out).parent if is_file and out is not None else Path()
    for file in files_of(named, parse_messages(conversation.format, conversation.messages)):
        path = base / file.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise OutputError(
                "{path} cannot be written: {strerror}", path=path, strerror=error.strerror or error
            ) from None


def _report_file(request: CompactRequest, conversation: Conversation, prepared: PreparedContext) -> None:
    from refold.cli.report import list_changes, show_changes, show_kept, show_report, show_stages
    from refold.formats import parse_messages

    assert prepared.report is not None
    report, messages = prepared.report, parse_messages(conversation.format, conversation.messages)
    if request.as_json:
        head = {"input": request.file, "format": conversation.format.name, "dry_run": request.dry_run}
        changes = [change.to_dict() for change in list_changes(report, messages)]
        is_result_there = not request.dry_run and request.out is None
        write_json({**head, **report.to_dict(), "changes": changes}, err=is_result_there)
        return
    console = make_console(err=not request.dry_run)
    title = tr("standard input") if request.file == STDIN else Path(request.file).name
    show_report(console, report, title, asked=request.budget, dry_run=request.dry_run)
    if request.explain and report.stages:
        console.print()
        show_stages(console, report.stages)
    if request.dry_run:
        console.print()
        show_kept(console, report, messages)
    if request.explain or request.dry_run:
        show_changes(console, report, messages)


def _compact_session(request: CompactRequest) -> None:
    with open_workspace(request.workspace) as manager:
        name = need_session(manager.ledger, request.session, request.workspace)
        # Loads the system prompt and tools, so that before and after include them as all other figures do.
        manager.status(name)
        done = manager.compress(name, request.instructions, dry_run=request.dry_run)
        if request.as_json:
            write_json(_describe_session(name, done))
        else:
            _report_session(make_console(err=False), manager, name, done, request=request)


def _report_session(
    console: Console, manager: ContextCompressionManager, name: str, done: CompactResult, *, request: CompactRequest
) -> None:
    from rich.text import Text

    head = describe_change(done.previous_tokens, done.current_tokens)
    shrunk = describe_share(done.previous_tokens, done.current_tokens)
    console.print(Text.assemble((clean_line(name, 60), "bold"), "  ", (head, "bold green"), f"  {shrunk}"))
    worked = [stage for stage in done.stages if stage.edits]
    kept = tr("{count} unchanged", count=count_things(done.preserved_count, "message"))
    rows = [("would act" if done.is_dry_run else "why", say_reason(done.reason))]
    if worked:
        steps = ", ".join(f"{stage.stage} {-stage.tokens_freed:+,}" for stage in worked)
        rows += [("would do" if done.is_dry_run else "did", steps.replace("-", "−")), ("stays", kept)]
    rows += [("summary", f"{stage.stage}: {say_reason(stage.note)}") for stage in done.stages if stage.note]
    if worked and not done.is_dry_run:
        rows.append(("undo", f"refold undo --session {clean_line(name, 200)}"))
    show_pairs(console, rows)
    if worked and request.explain:
        from refold.cli.report import show_stages

        console.print()
        show_stages(console, done.stages)
    if worked and (request.explain or request.dry_run):
        console.print()
        _show_edits(console, manager, name, worked)


def _show_edits(console: Console, manager: ContextCompressionManager, name: str, stages: Sequence[StageReport]) -> None:
    edits = [edit for stage in stages for edit in stage.edits]
    ids = list(dict.fromkeys(edit.covers[0] for edit in edits))
    digests = {stored.id: stored.digest for stored in manager.ledger.read_messages(name, ids)}
    table = make_table("what", "over", "tokens", "handle", "why", numbers=("over", "tokens"), wide=("why",))
    for edit in edits:
        table.add_row(
            edit.stage,
            count_things(len(edit.covers), "message"),
            f"{edit.tokens_original:,} → {edit.tokens_after:,}",
            _name_handle(edit, digests),
            clean_line(say_reason(edit.reason), 100),
        )
    console.print(table)


def _name_handle(edit: Edit, digests: dict[str, str]) -> str:
    from refold.conversation.message import mark

    if edit.fold is not None:
        return mark(edit.fold.handle)
    digest = digests.get(edit.covers[0])
    return mark(f"m:{digest[:8]}") if digest else "·"


def _describe_session(name: str, done: CompactResult) -> dict[str, object]:
    from refold.ladder.report import edit_to_dict

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
        "stages": [
            {
                "stage": stage.stage,
                "tokens_before": stage.tokens_before,
                "tokens_after": stage.tokens_after,
                "edits": [edit_to_dict(edit) for edit in stage.edits],
                "note": str(stage.note),
            }
            for stage in done.stages
        ],
    }
