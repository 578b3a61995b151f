"""``refold compact``: read a conversation, make it fit, write it, and say what was done.

The result goes to standard output or ``--out``, the report to standard error; where no result is written
(``--dry-run``) the report takes standard output. With ``--json`` the report is JSON, on standard output whenever
the result is not there. The input file is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from refold.cli.reading import (
    STDIN,
    OutputError,
    format_document,
    note_broken,
    read_document,
    refuse_same_file,
    write_json,
    write_result,
)
from refold.compressing import compress
from refold.config import CompressionConfig, load_config
from refold.errors import FormatError
from refold.formats import Conversation, parse_messages, write_conversation
from refold.readers import find_conversations

if TYPE_CHECKING:
    from refold.conversation.message import Message
    from refold.prepared import PreparedContext


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asked for on the command line."""

    file: str
    budget: int | None = None
    out: str | None = None
    format: str | None = None
    preset: str | None = None
    model: str | None = None
    explain: bool = False
    dry_run: bool = False
    as_json: bool = False
    instructions: str = ""


def run(wish: Wish) -> None:
    """Do what was asked, or raise an error that says why not; nothing is written unless all of it worked."""
    if wish.dry_run and wish.out is not None:
        raise OutputError("--dry-run writes nothing; leave --out away")
    refuse_same_file(wish.file, wish.out)
    config = load_config(call={"preset": wish.preset, "model": wish.model})
    document = read_document(wish.file)
    note_broken(document.broken)
    conversation = take_one(find_conversations(document.value, document.place, wish.format), document.place)
    prepared = compress(
        conversation.messages,
        wish.budget,
        system=conversation.system,
        tools=conversation.tools,
        model=config.model or conversation.model or None,
        config=config,
        dry_run=wish.dry_run,
        instructions=wish.instructions,
        format=conversation.format.name,
    )
    if not wish.dry_run:
        content = format_document(document, write_conversation(conversation, prepared.messages))
        write_offloaded(prepared, conversation, config, wish.out)
        write_result(content, wish.out)
    report(wish, conversation, prepared)


def take_one(found: Sequence[tuple[str, Conversation]], place: str) -> Conversation:
    """Return the only conversation of a file, or the main one beside its sub-agents; raise FormatError otherwise."""
    main, first = found[0]
    if all(name.startswith(f"{main}/") for name, _ in found[1:]):
        return first
    names = ", ".join(name[:60] for name, _ in found[:3])
    raise FormatError(f"{place} holds {len(found)} conversations ({names}, …); 'refold import' takes all of them")


def refuse_session_name(file: str, workspace: str) -> None:
    """Say what is missing where a stored session was named like a file, as every other command names it."""
    if file == STDIN or Path(file).exists() or not (Path(workspace) / ".refold").is_dir():
        return
    from refold.cli.workspace import open_workspace

    with open_workspace(workspace) as manager:
        if manager.ledger.read_session(file) is not None:
            raise FormatError(
                f"there is no file {file[:80]!r}, but a stored session: 'refold compact --session' takes it"
            )


def write_offloaded(
    prepared: PreparedContext, conversation: Conversation, config: CompressionConfig, out: str | None
) -> None:
    """Write the files that the result names, beside it; a result must never name a file that is not there."""
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
            raise OutputError(f"{path} cannot be written: {error.strerror or error}") from None


def report(wish: Wish, conversation: Conversation, prepared: PreparedContext) -> None:
    """Say what was done, for people or for programs."""
    assert prepared.report is not None
    if wish.as_json:
        write_json(describe(wish, conversation, prepared), err=not wish.dry_run and wish.out is None)
        return
    from refold.cli.changes import show_changes, show_kept
    from refold.cli.render import make_console, show_report, show_stages

    console = make_console(err=not wish.dry_run)
    title = "standard input" if wish.file == "-" else Path(wish.file).name
    show_report(console, prepared.report, title, asked=wish.budget, dry_run=wish.dry_run)
    if not (wish.explain or wish.dry_run):
        return
    messages = parse_messages(conversation.format, conversation.messages)
    if wish.explain and prepared.report.stages:
        console.print()
        show_stages(console, prepared.report.stages)
    if wish.dry_run:
        console.print()
        show_kept(console, prepared.report, messages)
    show_changes(console, prepared.report, messages)


def describe(wish: Wish, conversation: Conversation, prepared: PreparedContext) -> dict[str, object]:
    """Return the report for programs, with the handle and place of every change."""
    from refold.cli.changes import list_changes

    assert prepared.report is not None
    messages: list[Message] = parse_messages(conversation.format, conversation.messages)
    told = prepared.report.to_dict()
    return {
        "input": wish.file,
        "format": conversation.format.name,
        "dry_run": wish.dry_run,
        **told,
        "changes": [change.to_dict() for change in list_changes(prepared.report, messages)],
    }
