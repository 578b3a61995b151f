"""Calls and results, folded into files, checks, final acts and failed tries.

A call takes effect when its result comes: an edit that failed did not happen, a passing run replaces the failing one
of the same command, a revert takes back what it names.
"""

from __future__ import annotations

import re
from dataclasses import replace

from refold.reading.changes import read_python
from refold.reading.draft import StateDraft, cut_lines, touch
from refold.reading.events import Action, CallOutcome, ChangeKind, FileChange, Verb
from refold.reading.same import command_key, covers_path, same_path, tidy_path
from refold.reading.state import CheckResult, FailedTry, FileEdit, FileState, FinalAct, PendingCall, Quote

_CHECKS: frozenset[Verb] = frozenset({"test", "build"})
_MAY_FAIL_AFTER_CHANGE: frozenset[Verb] = frozenset({"test", "build", "run"})
# A failed look proves nothing about the work.
_LOOKS: frozenset[Verb] = frozenset({"read", "search", "think", "plan", "ask"})
_CHANGES: frozenset[Verb] = frozenset({"create", "edit", "delete", "move"})
_TARGETS_MAX = 12
_FIELDS_MAX = 12
_FAILING_MAX = 20
_EDITS_MAX = 4
_PROGRAM = re.compile(r"\.(?:py|js|mjs|cjs|ts|tsx|sh|rb|go|pl|php|java|rs|c|cpp|sql|lua|r)$", re.IGNORECASE)
_DELETES_TEXT = re.compile(r"\bsed\s+-i\S*\s+(?:-e\s+)?['\"]/([^/\n]{2,80})/d['\"]")
_DELETES_LINES = re.compile(r"\bsed\s+-i\S*\s+(?:-e\s+)?['\"]?(\d{1,7})(?:,(\d{1,7}))?d\b")
_SCRATCH = re.compile(
    r"(?:^|/)(?:te?mp|scratch)/|(?:^|/)(?:\.?(?:repro|debug|tmp|temp|scratch|verify|check|demo|try|modify|patch|fix|apply"
    r"|update|inspect|run|test_(?:fix|repro|issue|bug|script))[\w-]*\.(?:py|js|ts|sh|rb|go|java|c|sql|txt|md|json|svg|png))$",
    re.IGNORECASE,
)
_UNDO_ONE = re.compile(r"\bundo", re.IGNORECASE)


def note_call(draft: StateDraft, action: Action) -> None:
    """Keep a call until its result comes."""
    # If the id of an unanswered call is used again, its result will not come any more.
    draft.pending = [
        call
        for call in draft.pending
        if not action.call_id or call.action.call_id != action.call_id or call.quote.position == draft.messages
    ]
    draft.pending.append(PendingCall(action=action, quote=draft.quote(action)))


def note_change(draft: StateDraft, change: FileChange) -> None:
    """Keep a change with its call; one that a result reports is applied at once."""
    for at in range(len(draft.pending) - 1, -1, -1):
        call = draft.pending[at]
        if call.quote.position == draft.messages and call.action.call_id == change.call_id:
            draft.pending[at] = replace(call, changes=(*call.changes, change))
            return
    _apply_change(draft, change, draft.quote(change))


def take_outcome(draft: StateDraft, outcome: CallOutcome) -> None:
    """Settle the call that a result answers: the first one with its id, else the oldest one."""
    if not draft.pending:
        return
    at = next((at for at, call in enumerate(draft.pending) if call.action.call_id == outcome.call_id), 0)
    call = draft.pending.pop(at)
    for change in _find_effects(call, outcome):
        _apply_change(draft, change, call.quote)
    if outcome.status != "failed":
        for file in _find_own_scripts(draft, call.action):
            for change in file.writes:
                _apply_change(draft, change, call.quote)
    _settle(draft, call, outcome)


def _find_effects(call: PendingCall, outcome: CallOutcome) -> list[FileChange]:
    """Return the changes that took place. A call that failed has made none, with two exceptions."""
    if outcome.status != "failed" or call.action.verb in _MAY_FAIL_AFTER_CHANGE:
        return list(call.changes)  # A command line that ends with a failing test has made its changes before.
    # `rm` removes what it can.
    said = f"{outcome.text}\n{outcome.error}"
    gone = [change for change in call.changes if change.kind == "deleted" and change.path not in said]
    return gone if len(call.changes) > 1 else []


def _settle(draft: StateDraft, call: PendingCall, outcome: CallOutcome) -> None:
    action = call.action
    result = draft.quote(outcome, outcome.text or outcome.error)
    if action.verb in _CHECKS or any(not file.writes for file in _find_own_scripts(draft, action)):
        _note_check(draft, action, outcome, result)
    elif outcome.status == "failed":
        if action.verb not in _LOOKS:
            _note_failure(draft, call, outcome)
        return
    _forget_failures(draft, action)
    if action.verb == "read" and outcome.status != "failed":
        draft.found_files += [path for name in action.targets if (path := tidy_path(name)) not in draft.found_files]
    if action.is_final and outcome.status != "failed":
        draft.acts.append(
            FinalAct(
                verb=action.verb,
                tool=action.tool,
                targets=action.targets[:_TARGETS_MAX],
                quote=call.quote,
                status=outcome.status,
                receipt=tuple(pair for pair in outcome.fields if pair[0] != "exit_code")[:_FIELDS_MAX],
                result=result,
            )
        )


def _find_own_scripts(draft: StateDraft, action: Action) -> list[FileState]:
    """Return the files that the work created and a command runs."""
    if action.verb not in ("run", "test"):
        return []
    own = [file for file in draft.files if file.kind == "created" and _PROGRAM.search(file.path)]
    return [file for file in own if any(same_path(file.path, name) for name in action.targets)]


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


def _note_failure(draft: StateDraft, call: PendingCall, outcome: CallOutcome) -> None:
    action, times = call.action, 1
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
        _revert_path(draft, path, quote)
        return
    if change.kind == "restored":
        _restore_path(draft, path, quote)
        return
    if change.kind == "deleted":
        # A folder goes with the files in it; what the work created there leaves no trace.
        own = [file for file in draft.files if file.kind == "created" and covers_path(path, file.path)]
        if own and path not in (".", ""):
            draft.files = [file for file in draft.files if file not in own]
            return
    earlier = _pop_file(draft, path) or (_pop_file(draft, change.source) if change.source else None)
    kind = _net_kind(earlier, change.kind)
    if kind == "created" and earlier is None and path in draft.found_files:
        kind = "edited"  # Written whole, but it was there before.
    is_scratch = kind == "created" and _is_scratch(draft, path)
    if not is_scratch and change.kind != "created":
        draft.checks = [touch(check) for check in draft.checks]
    edits = _join_edits(earlier, change, quote)
    if kind == "edited" and earlier is not None and not edits:
        kind = "reverted"  # The last change put the old lines back.
    draft.files.append(
        FileState(
            path=path,
            kind=kind,
            quote=quote,
            edits=edits,
            source=change.source or (earlier.source if earlier else ""),
            times=(earlier.times if earlier else 0) + 1,
            is_scratch=is_scratch,
            writes=tuple(read_python(change.added)) if path.endswith(".py") and kind == "created" else (),
        )
    )
    draft.failed = [
        failed
        for failed in draft.failed
        if not (failed.verb in _CHANGES and failed.targets and same_path(failed.targets[0], path))
    ]


def _join_edits(earlier: FileState | None, change: FileChange, quote: Quote) -> tuple[FileEdit, ...]:
    """Return the changes that hold after this one: a file that is written whole has no other."""
    if change.kind in ("deleted", "created"):
        known: list[FileEdit] = []
    else:
        known = [*earlier.edits] if earlier is not None and earlier.kind != "reverted" else []
    old, new = _drop_common(change.removed, change.added)
    if not old.strip() and not new.strip():
        left = [edit for edit in known if not _is_deleted(edit, quote.text)]
        # The text of this change is not known: its command stands for it.
        unknown = [FileEdit(removed="", added="", quote=quote)] if len(left) == len(known) else []
        return (*left, *unknown)[-_EDITS_MAX:]
    if known and (known[-1].removed, known[-1].added) == (new, old):
        return tuple(known[:-1])
    if (joined := _rewrite_edit(known, old.strip(), new.strip())) is not None:
        return joined
    if change.removed.strip():
        known = [edit for edit in known if not edit.added.strip() or edit.added.strip() not in change.removed]
    removed, removed_cut = cut_lines(old)
    added, added_cut = cut_lines(new)
    edit = FileEdit(removed=removed, added=added, quote=quote, lines_cut=removed_cut + added_cut)
    return (*known, edit)[-_EDITS_MAX:]


def _rewrite_edit(edits: list[FileEdit], old: str, new: str) -> tuple[FileEdit, ...] | None:
    """Return the edits with a change made inside the text that one of them added; None if none has that text."""
    for at in range(len(edits) - 1, -1, -1):
        edit = edits[at]
        if old and not edit.lines_cut and old != edit.added.strip() and old in edit.added:
            return (*edits[:at], replace(edit, added=edit.added.replace(old, new)), *edits[at + 1 :])
    return None


def _drop_common(removed: str, added: str) -> tuple[str, str]:
    """Return both sides of a change without the lines around it that they share."""
    old, new = removed.splitlines(), added.splitlines()
    start, fewer = 0, min(len(old), len(new))
    while start < fewer and old[start] == new[start]:
        start += 1
    stop = 0
    while stop < fewer - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    return "\n".join(old[start : len(old) - stop]), "\n".join(new[start : len(new) - stop])


def _is_deleted(edit: FileEdit, command: str) -> bool:
    """Return whether ``sed`` deletes what an edit added: by a text that all its lines have, or just as many lines."""
    lines = [line for line in edit.added.splitlines() if line.strip()]
    if (found := _DELETES_TEXT.search(command)) is not None:
        return bool(lines) and all(found[1] in line for line in lines)
    if (found := _DELETES_LINES.search(command)) is None or edit.removed or not lines:
        return False
    return int(found[2] or found[1]) - int(found[1]) + 1 == len(edit.added.splitlines())


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


def _revert_path(draft: StateDraft, path: str, quote: Quote) -> None:
    """Take back the changes of a file, of the files in a folder, or of the whole tree (``.``)."""
    is_one_step = _UNDO_ONE.search(quote.text) is not None
    draft.checks = [touch(check) for check in draft.checks]
    for at, file in enumerate(draft.files):
        if not covers_path(path, file.path) or (file.kind == "created" and path == "."):
            continue  # A checkout of everything leaves files that are not tracked.
        if is_one_step and file.times > 1:
            draft.files[at] = replace(file, edits=file.edits[:-1], times=file.times - 1, quote=quote)
        else:
            draft.files[at] = replace(file, kind="reverted", quote=quote)


def _restore_path(draft: StateDraft, path: str, quote: Quote) -> None:
    draft.checks = [touch(check) for check in draft.checks]
    for at, file in enumerate(draft.files):
        if file.kind == "reverted" and covers_path(path, file.path):
            draft.files[at] = replace(file, kind="edited", quote=quote)
