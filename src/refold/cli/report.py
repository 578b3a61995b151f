"""The report of ``refold compress``: what a compression did, stage by stage and change by change.

Every change names its messages, its reason, and the handle of the original. rich is imported at the top, so commands
import this module only when they print.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.text import Text

from refold.cli.output import make_table, show_pairs
from refold.cli.words import clean_line, count_things, describe_change, describe_share, describe_steps, say_reason, tr
from refold.conversation.message import Message, fold_handle, mark, message_handle
from refold.conversation.reason import Reason, describe
from refold.conversation.view import Edit
from refold.ladder.report import Report, StageReport

RANGES_MAX = 40
_WIDE = 100  # Width from which the reason fits beside its change.
_VERBS = {"replace": "shorten", "drop": "drop", "fold": "fold"}


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """One edit. ``first`` and ``last`` are positions in the conversation, counted from 0."""

    stage: str
    verb: str
    first: int
    last: int
    messages: int
    role: str
    handle: str
    tokens_before: int
    tokens_after: int
    reason: Reason

    @property
    def where(self) -> str:
        """The messages it touches: ``#4``, or ``#4–31``."""
        return join_ranges(range(self.first, self.last + 1))[0]

    def to_dict(self) -> dict[str, object]:
        return describe(self)


def list_changes(stages: Iterable[StageReport], messages: Sequence[Message]) -> list[ReportedChange]:
    """Return every accepted edit, in the order of the stages."""
    place = {message.id: at for at, message in enumerate(messages)}
    return [_read_change(edit, place, messages) for stage in stages for edit in stage.edits]


def _read_change(edit: Edit, place: dict[str, int], messages: Sequence[Message]) -> ReportedChange:
    spots = [place[message_id] for message_id in edit.covers if message_id in place]
    first = messages[spots[0]]
    if edit.fold is not None:
        handle = edit.fold.handle
    elif edit.kind == "fold":
        handle = fold_handle([messages[at] for at in spots])
    else:
        handle = message_handle(first, edit.part)
    roles = {messages[at].role for at in spots}
    return ReportedChange(
        stage=edit.stage,
        verb=_VERBS[edit.kind],
        first=spots[0],
        last=spots[-1],
        messages=len(spots),
        role=roles.pop() if len(roles) == 1 else count_things(len(spots), "message"),
        handle=mark(handle),
        tokens_before=edit.tokens_original,
        tokens_after=edit.tokens_after,
        reason=edit.reason,
    )


def show_changes(console: Console, stages: Sequence[StageReport], messages: Sequence[Message]) -> None:
    """Print one line per change, then the rejected edits."""
    changes = list_changes(stages, messages)
    if changes:
        console.print()
        _show_table(console, changes)
    for stage in stages:
        for refused in stage.rejected:
            why = clean_line(say_reason(refused.why))
            console.print(tr("rejected: {stage}: {why}", stage=tr(stage.stage), why=why), style="dim")


def _show_table(console: Console, changes: Sequence[ReportedChange]) -> None:
    """Print the changes; in a narrow terminal, which has no room for another column, each reason below its change."""
    is_wide = console.width >= _WIDE
    columns = ("where", "what", "tokens", "handle", *(("why",) if is_wide else ()))
    table = make_table(*columns, numbers=("tokens",), wide=columns[4:], wraps=True)
    reasons = [clean_line(say_reason(change.reason)) for change in changes]
    for change, reason in zip(changes, reasons, strict=True):
        tokens = f"{change.tokens_before:,} → {change.tokens_after:,}"
        cells = (change.where, tr(change.stage) + tr(": ") + tr(change.role), tokens, Text(change.handle, style="cyan"))
        table.add_row(*cells, *([reason] if is_wide else []))
    if is_wide:
        console.print(table)
        return
    lines = console.render_lines(table, pad=False)
    rows, indent = len(changes), min(max(len(change.where) for change in changes) + 2, console.width // 4)
    for at, line in enumerate(lines):
        console.print(Segments([*line, Segment.line()]), end="")
        if at >= len(lines) - rows:
            below = Text(reasons[at - len(lines)], style="dim")
            console.print(Padding(below, (0, 0, 0, indent), expand=False))


def show_kept(console: Console, report: Report, messages: Sequence[Message]) -> None:
    """Print which messages would stay unchanged, be shortened, or be folded."""
    place = {message.id: at for at, message in enumerate(messages)}
    edits = [edit for stage in report.stages for edit in stage.edits]
    folded = {place[one] for edit in edits if edit.kind == "fold" for one in edit.covers if one in place}
    changed = {place[edit.covers[0]] for edit in edits if edit.kind != "fold"} - folded
    stays = set(range(len(messages))) - folded - changed
    pairs = [("stays", _describe_places(stays))]
    if changed:
        pairs.append(("shorter", _describe_places(changed)))
    if folded:
        pairs.append(("folded", _describe_places(folded)))
    if not edits:
        pairs.append(("changes", tr("none")))
    show_pairs(console, pairs)


def _describe_places(places: Iterable[int]) -> str:
    ordered = sorted(places)
    if not ordered:
        return "none"
    return f"{count_things(len(ordered), 'message')}: {', '.join(join_ranges(ordered))}"


def join_ranges(places: Sequence[int]) -> list[str]:
    """Return sorted positions as ranges: ``#0``, ``#3–9``; those beyond the limit are only counted."""
    ranges: list[list[int]] = []
    for place in places:
        if ranges and place == ranges[-1][1] + 1:
            ranges[-1][1] = place
        else:
            ranges.append([place, place])
    shown = [f"#{a}" if a == b else f"#{a}–{b}" for a, b in ranges[:RANGES_MAX]]
    rest = sum(b - a + 1 for a, b in ranges[RANGES_MAX:])
    return [*shown, f"and {count_things(rest, 'more message')}"] if rest else shown


def show_report(
    console: Console, report: Report, title: str, *, asked: int | None = None, dry_run: bool = False
) -> None:
    """Print what a compression did in a few lines."""
    head = Text.assemble(
        (clean_line(title, 60), "bold"),
        "  ",
        (describe_change(report.tokens_before, report.tokens_after), "bold green"),
        f"  {describe_share(report.tokens_before, report.tokens_after)}",
        tr("  {before:,} → {after:,} messages", before=report.messages_before, after=report.messages_after),
    )
    console.print(head)
    rows = [("would act" if dry_run else "why", say_reason(report.reason)), ("budget", describe_budget(report, asked))]
    worked = [stage for stage in report.stages if stage.edits]
    if worked:
        rows.append(("would do" if dry_run else "did", describe_steps(worked)))
    elif asked is None:
        rows.append(("next", tr("--budget TOKENS makes it smaller, for example --budget 8k")))
    rows += [("note", say_reason(note)) for note in report.notes]
    for stage in report.stages:
        if stage.note:
            label = "refused" if stage.rejected and not stage.edits else "summary"
            rows.append((label, tr(stage.stage) + tr(": ") + say_reason(stage.note)))
    show_pairs(console, rows)


def describe_budget(report: Report, asked: int | None = None) -> str:
    """Return the budget's tiers and the token counter; ``asked`` is the requested budget."""
    budget = report.budget
    tiers = tr("{count:,} tokens", count=budget.hard)
    if budget.soft != budget.hard or budget.target != budget.hard:
        tiers += tr(", threshold {soft:,}, target {target:,}", soft=budget.soft, target=budget.target)
    if not report.margin:
        return tr("{tiers}; counted by {counter}", tiers=tiers, counter=report.counter)
    of = tr(" of {asked:,}", asked=asked) if asked is not None and asked != budget.hard else ""
    return tr(
        "{tiers}{of}; counted by {one.counter}, which may be {one.margin:.0%} too low", tiers=tiers, of=of, one=report
    )


def show_stages(console: Console, stages: Sequence[StageReport]) -> None:
    """Print one line per stage: tokens before and after, changes, rejected edits."""
    figures = ("tokens before", "after", "freed", "changes", "rejected")
    table = make_table("stage", *figures, numbers=figures)
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
    console.print()
    console.print(table)
