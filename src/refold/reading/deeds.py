"""Calls and results, folded into files, checks, final acts and failed tries.

A call takes effect when its result comes: an edit that failed did not happen, a passing run replaces the failing one
of the same command, a revert takes back what it names.
"""

from __future__ import annotations

import re
from dataclasses import replace

from refold.reading.draft import StateDraft, cut_lines, touch
from refold.reading.events import Action, CallOutcome, ChangeKind, FileChange, Status, Verb
from refold.reading.same import command_key, covers_path, same_path, tidy_path
from refold.reading.state import CheckResult, FailedTry, FileState, FinalAct, PendingCall, Quote

_CHECKS: frozenset[Verb] = frozenset({"test", "build"})
_MAY_FAIL_AFTER_CHANGE: frozenset[Verb] = frozenset({"test", "build", "run"})
# A failed look proves nothing about the work.
_LOOKS: frozenset[Verb] = frozenset({"read", "search", "think", "plan", "ask"})
_CHANGES: frozenset[Verb] = frozenset({"create", "edit", "delete", "move"})
_TARGETS_MAX = 12
_FIELDS_MAX = 12
_FAILING_MAX = 20
_SCRATCH = re.compile(
    r"(?:^|/)(?:te?mp|scratch)/|(?:^|/)(?:\.?(?:repro|debug|tmp|temp|scratch|verify|check|demo|try|modify|patch|fix|apply"
    r"|update|inspect|run|test_(?:fix|repro|issue|bug|script))[\w-]*\.(?:py|js|ts|sh|rb|go|java|c|sql|txt|md|json|svg|png))$",
    re.IGNORECASE,
)
_UNSTASH = re.compile(r"\bstash\s+(?:pop|apply)\b")
_UNDO_ONE = re.compile(r"\bundo", re.IGNORECASE)


def note_call(draft: StateDraft, action: Action) -> None:
    """Keep a call until its result comes. The parts of one command line are one call."""
    last = draft.pending[-1] if draft.pending else None
    if (
        last is not None
        and last.quote.position == draft.messages
        and (last.call_id, last.part) == (action.call_id, action.part)
        and action.start >= last.actions[-1].stop > 0
    ):
        draft.pending[-1] = replace(last, actions=(*last.actions, action))
        return
    # The id of an unanswered call is used again: its result will not come any more.
    draft.pending = [
        call
        for call in draft.pending
        if not action.call_id or call.call_id != action.call_id or call.quote.position == draft.messages
    ]
    quote = draft.quote(action)
    draft.pending.append(PendingCall(call_id=action.call_id, part=action.part, quote=quote, actions=(action,)))


def note_change(draft: StateDraft, change: FileChange) -> None:
    """Keep a change with its call; one that a result reports is applied at once."""
    for at in range(len(draft.pending) - 1, -1, -1):
        call = draft.pending[at]
        if call.quote.position == draft.messages and call.call_id == change.call_id:
            draft.pending[at] = replace(call, changes=(*call.changes, change))
            return
    _apply_change(draft, change, draft.quote(change))


def take_outcome(draft: StateDraft, outcome: CallOutcome) -> None:
    """Settle the call that a result answers: the first one with its id, else the oldest one."""
    if not draft.pending:
        return
    at = next((at for at, call in enumerate(draft.pending) if call.call_id == outcome.call_id), 0)
    call = draft.pending.pop(at)
    may_have_changed = any(action.verb in _MAY_FAIL_AFTER_CHANGE for action in call.actions)
    if outcome.status != "failed" or may_have_changed:
        for change in call.changes:
            _apply_change(draft, change, call.quote)
    for number, action in enumerate(call.actions):
        is_last = number == len(call.actions) - 1
        # Of several commands in one line, the last one is the one that a failure is about.
        status: Status = outcome.status if is_last else ("ok" if outcome.status == "ok" else "unknown")
        _settle(draft, call, action, replace(outcome, status=status))


def _settle(draft: StateDraft, call: PendingCall, action: Action, outcome: CallOutcome) -> None:
    result = draft.quote(outcome, outcome.text or outcome.error)
    if action.verb == "revert" and not call.changes and outcome.status != "failed":
        _revert(draft, action, call.quote)
    if action.verb in _CHECKS or (action.verb == "run" and _runs_own_file(draft, action)):
        _note_check(draft, action, outcome, result)
    elif outcome.status == "failed":
        if action.verb not in _LOOKS:
            _note_failure(draft, call, action, outcome)
    elif action.is_final:
        _forget_failures(draft, action)
        draft.acts.append(
            FinalAct(
                verb=action.verb,
                tool=action.tool,
                targets=action.targets[:_TARGETS_MAX],
                quote=call.quote if len(call.actions) == 1 else replace(call.quote, text=action.text[:600]),
                status=outcome.status,
                receipt=outcome.fields[:_FIELDS_MAX],
                result=result,
            )
        )
    else:
        _forget_failures(draft, action)


def _runs_own_file(draft: StateDraft, action: Action) -> bool:
    return any(file.kind == "created" and same_path(file.path, name) for file in draft.files for name in action.targets)


def _note_check(draft: StateDraft, action: Action, outcome: CallOutcome, result: Quote) -> None:
    key = command_key(action.text)
    runs = 1
    for at, check in enumerate(draft.checks):
        if command_key(check.command) == key:
            runs += draft.checks.pop(at).runs
            break
    draft.checks.append(
        CheckResult(
            command=action.text[:600],
            verb=action.verb,
            status=outcome.status,
            quote=result,
            fields=outcome.fields[:_FIELDS_MAX],
            failing=outcome.failing[:_FAILING_MAX],
            runs=runs,
        )
    )


def _note_failure(draft: StateDraft, call: PendingCall, action: Action, outcome: CallOutcome) -> None:
    times = 1
    for at, earlier in enumerate(draft.failed):
        if _is_same_try(earlier, action):
            times += draft.failed.pop(at).times
            break
    draft.failed.append(
        FailedTry(
            verb=action.verb,
            tool=action.tool,
            quote=call.quote,
            why=(outcome.error or outcome.text)[:600],
            targets=action.targets[:_TARGETS_MAX],
            times=times,
        )
    )


def _forget_failures(draft: StateDraft, action: Action) -> None:
    draft.failed = [failed for failed in draft.failed if not _is_same_try(failed, action)]


def _is_same_try(failed: FailedTry, action: Action) -> bool:
    if failed.tool != action.tool:
        return False
    if failed.verb in _CHANGES and action.verb in _CHANGES and failed.targets and action.targets:
        return same_path(failed.targets[0], action.targets[0])
    return command_key(failed.quote.text) == command_key(action.text)


def _apply_change(draft: StateDraft, change: FileChange, quote: Quote) -> None:
    path = tidy_path(change.path)
    if change.kind == "reverted":
        undone = _UNDO_ONE.search(quote.text) is not None
        _revert_paths(draft, (path,), quote, is_one_step=undone)
        return
    earlier = _pop_file(draft, path) or (_pop_file(draft, change.source) if change.source else None)
    is_own = earlier is not None and earlier.kind == "created"
    if not (is_own and earlier is not None and earlier.is_scratch):
        draft.checks = [touch(check) for check in draft.checks]
    if change.kind == "deleted" and is_own:
        return  # Created and deleted within the work: nothing is left of it.
    if change.kind == "moved" and not change.added and not change.removed and earlier is not None:
        draft.files.append(
            replace(earlier, path=path, source=change.source, quote=quote, kind=_net_kind(earlier, "moved"))
        )
        return
    removed, removed_cut = cut_lines(change.removed)
    added, added_cut = cut_lines(change.added)
    kind = _net_kind(earlier, change.kind)
    if earlier is not None and (change.removed, change.added) == (earlier.added, earlier.removed) and change.added:
        kind = "reverted" if earlier.times == 1 and not is_own else kind
    draft.files.append(
        FileState(
            path=path,
            kind=kind,
            quote=quote,
            removed=removed,
            added=added,
            lines_cut=removed_cut + added_cut,
            source=change.source,
            times=(earlier.times if earlier else 0) + 1,
            is_scratch=kind == "created" and _is_scratch(draft, path),
        )
    )
    draft.failed = [
        failed
        for failed in draft.failed
        if not (failed.verb in _CHANGES and failed.targets and same_path(failed.targets[0], path))
    ]


def _net_kind(earlier: FileState | None, kind: ChangeKind) -> ChangeKind:
    """Return what a file is after this change: a file that the work created stays created."""
    if earlier is not None and earlier.kind == "created" and kind != "deleted":
        return "created"
    return kind


def _pop_file(draft: StateDraft, path: str) -> FileState | None:
    for at in range(len(draft.files) - 1, -1, -1):
        if same_path(draft.files[at].path, path):
            return draft.files.pop(at)
    return None


def _is_scratch(draft: StateDraft, path: str) -> bool:
    if not (_SCRATCH.search(path)):
        return False
    asked = [draft.task.quote, *draft.task.later] if draft.task else []
    name = path.rsplit("/", 1)[-1]
    return not any(name in quote.text for quote in asked)


def _revert(draft: StateDraft, action: Action, quote: Quote) -> None:
    if _UNSTASH.search(action.text):
        for at, file in enumerate(draft.files):
            if file.kind == "reverted" and "stash" in file.quote.text:
                draft.files[at] = replace(file, kind="edited", quote=quote)
        return
    _revert_paths(
        draft, action.targets or (".",), quote, is_one_step=_UNDO_ONE.search(action.text + action.tool) is not None
    )


def _revert_paths(draft: StateDraft, paths: tuple[str, ...], quote: Quote, *, is_one_step: bool) -> None:
    named = [path for path in paths if tidy_path(path) not in ("", ".", "*", ":/")]
    draft.checks = [touch(check) for check in draft.checks]
    for at, file in enumerate(draft.files):
        if not any(covers_path(path, file.path) for path in (named or ["."])):
            continue
        if file.kind == "created" and not named:
            continue  # A checkout of everything leaves files that are not tracked.
        if is_one_step and file.times > 1:
            # Only the last change is taken back; the one before it is no longer known word for word.
            draft.files[at] = replace(file, removed="", added="", lines_cut=0, times=file.times - 1, quote=quote)
        else:
            draft.files[at] = replace(file, kind="reverted", quote=quote)
