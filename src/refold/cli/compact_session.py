"""``refold compact --session``: compress a stored session now, because a person asks, and say what was done.

The record keeps every original, so there is no result to write: the report is all of it, on standard output.
``--dry-run`` changes nothing. It goes by the settings of the workspace, as the chat, the page and the gateway do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from refold.cli.reading import write_json
from refold.cli.render import (
    clean_line,
    count_things,
    describe_share,
    make_console,
    make_table,
    show_pairs,
    show_stages,
)
from refold.cli.workspace import need_session, open_workspace
from refold.conversation.edit import Edit
from refold.conversation.handle import mark
from refold.ladder.report import StageReport, edit_to_dict
from refold.manager import ContextCompressionManager
from refold.manager.compress import CompactResult


@dataclass(frozen=True, slots=True)
class SessionWish:
    """What the person asked for on the command line."""

    session: str
    workspace: str = "."
    instructions: str = ""
    explain: bool = False
    dry_run: bool = False
    as_json: bool = False


def run(wish: SessionWish) -> None:
    """Compress, or only try it out, and tell."""
    with open_workspace(wish.workspace) as manager:
        name = need_session(manager.ledger, wish.session, wish.workspace)
        # So that before and after count what stood beside the messages, as every other figure of the session does.
        manager.status(name)
        done = manager.compress(name, wish.instructions, dry_run=wish.dry_run)
        if wish.as_json:
            write_json(_describe(name, done))
            return
        _show(make_console(err=False), manager, name, done, wish)


def _show(
    console: Console, manager: ContextCompressionManager, name: str, done: CompactResult, wish: SessionWish
) -> None:
    head = f"{done.previous_tokens:,} → {done.current_tokens:,} tokens"
    shrunk = describe_share(done.previous_tokens, done.current_tokens)
    console.print(Text.assemble((clean_line(name, 60), "bold"), "  ", (head, "bold green"), f"  {shrunk}"))
    worked = [stage for stage in done.stages if stage.edits]
    stays = f"{count_things(done.preserved_count, 'message')} as they are"
    told = [("would act" if done.is_dry_run else "why", str(done.reason))]
    if worked:
        steps = ", ".join(f"{stage.stage} {-stage.tokens_freed:+,}" for stage in worked)
        told += [("would do" if done.is_dry_run else "did", steps.replace("-", "−")), ("stays", stays)]
    told += [("summary", f"{stage.stage}: {stage.note}") for stage in done.stages if stage.note]
    if worked and not done.is_dry_run:
        told.append(("back", f"refold undo {clean_line(name, 200)}"))
    show_pairs(console, told)
    if worked and wish.explain:
        console.print()
        show_stages(console, done.stages)
    if worked and (wish.explain or wish.dry_run):
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
            Text(clean_line(str(edit.reason), 100)),
        )
    console.print(table)


def _name_handle(edit: Edit, digests: dict[str, str]) -> str:
    if edit.fold is not None:
        return mark(edit.fold.handle)
    digest = digests.get(edit.covers[0])
    return mark(f"m:{digest[:8]}") if digest else "·"


def _describe(name: str, done: CompactResult) -> dict[str, object]:
    """Return the report for programs."""
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
                "note": stage.note,
            }
            for stage in done.stages
        ],
    }
