"""The steps of a story: one line for what was done and what came of it; like steps in a row share one.

Commands, calls and paths are written as they were, outcomes as the tools reported them. Changed files have a list of
their own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from refold.conversation.reason import Language
from refold.stages.extract.actions import Action, first_line
from refold.stages.extract.layout import (
    COST_POWER,
    Line,
    Topic,
    cut_line,
    is_cut_only,
    neutralise,
    note_cuts,
    shorten_handle,
)

COMMAND_CHARS = 110
OUTCOME_CHARS, OUTCOME_CHARS_OF_MANY = 110, 36
ARGUMENTS_CHARS = 160
RUN_MAX = 6
# Of several calls each is shown in so many characters; so many in common are written once.
SHOWN_CHARS = 60
FRAME_CHARS_MIN = 24
_PARTS = "/?&=:, "
# The name of a field; a short value means little without it.
_FIELD = re.compile(r"\A\w{1,40}: ")
_LONG_FIELD = re.compile(r"\A\w{1,40}: (?=.{6})")
_MERGED = re.compile(r"([^\s{}]{1,300})\{([^{}\n]{1,400})\}([^\s{}]{0,300})")
FILES_MAX = 12
# More changes of a file than this say no more of it.
OFTEN = 4
# Words of our own beside what is quoted.
_LOOKED: dict[Language, str] = {"en": "looked at", "zh": "查看"}
_EXIT: dict[Language, str] = {"en": "exit", "zh": "退出码"}
_VERBS = {"written": ("written", "已写"), "deleted": ("deleted", "已删"), "read": ("read", "已读")}


def tell_steps(actions: Sequence[Action], language: Language) -> Iterator[Line]:
    """Yield one line for each step; similar steps in a row share one. Final failures have their own section."""
    mended = _find_mended(actions)
    for run in _group_actions(actions):
        action = run[-1]
        is_final = action.failed and (action.command or action.tool, action.error) not in mended
        topic: Topic = "failed" if is_final and not _found_nothing(action) else "happened"
        text = note_cuts(_write_run(run, language), action.call_handle)
        yield Line(topic, text, _weigh_run(run), action.at + 0.5)


def _found_nothing(action: Action) -> bool:
    """True for a search without a hit: its exit status says failure, but nothing failed."""
    return action.is_look and not action.error


def _find_mended(actions: Sequence[Action]) -> set[tuple[str, str]]:
    """Return the failures after which the same command went well, or failed in another way."""
    last: dict[str, str] = {}
    mended: set[tuple[str, str]] = set()
    for action in reversed(actions):
        key = action.command or action.tool
        now = action.error if action.failed else ""
        if key in last and last[key] != now:
            mended.add((key, now))
        last.setdefault(key, now)
    return mended


def _group_actions(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Join like steps that follow each other: looks with looks, calls of one tool, changes of one file."""
    run: list[Action] = []
    for action in actions:
        is_same = bool(run) and _is_same(run[-1], action)
        if run and not is_same and (len(run) >= RUN_MAX or not _is_alike(run[-1], action)):
            yield run
            run = []
        run.append(action)
    if run:
        yield run


def _is_same(one: Action, other: Action) -> bool:
    """Return whether a step was done again and came to the same end."""
    ends = [(action.tool, action.raw, action.exit_status, action.error, action.outcome) for action in (one, other)]
    return ends[0] == ends[1]


def _is_alike(one: Action, other: Action) -> bool:
    return not _is_failure(one) and not _is_failure(other) and _key_of(one) == _key_of(other)


def _is_failure(action: Action) -> bool:
    return action.failed and not _found_nothing(action)


def _key_of(action: Action) -> str:
    if action.is_look and (action.command or action.touched):
        return "look"
    if action.changes and not action.command:
        return f"change {action.changes[0][0]}"
    if action.changes:
        return f"change {action.changes[0][1]}"
    return f"run {action.command}" if action.command else f"call {action.tool}"


def _weigh_run(run: Sequence[Action]) -> float:
    action = run[-1]
    if _is_failure(action):
        return 2.4
    if action.is_script and not action.outcome:
        return 0.0
    if not (action.command or action.touched or action.outcome or not is_cut_only(action.brief_arguments)):
        return 0.0
    if action.is_look and (action.command or action.touched):
        return 0.3 + 0.05 * len(run)
    if action.changes:
        return 1.0
    worth = 1.1 if action.is_look else 1.8 if action.outcome else 0.8
    # Each different call of a run adds what it gave back.
    calls = len({one.arguments for one in run}) if any(one.outcome for one in run) else 1
    return float(worth * calls**COST_POWER)


def _write_run(run: Sequence[Action], language: Language) -> str:
    """Return similar steps as one line: their common part once, then the subject of each."""
    action, times = run[-1], f" ×{len(run)}" if len(run) > 1 else ""
    if _key_of(action) == "look" and not _is_failure(action):
        names = dict.fromkeys(name for one in run if (name := _name_look(one)))
        return f"{_LOOKED[language]}: {', '.join(neutralise(name) for name in names)}"
    if action.changes and not action.command and not _is_failure(action):
        verb = _VERBS[action.changes[0][0]][language == "zh"]
        return f"{verb} {name_often(one.changes[0][1] for one in run)}"
    if action.command or action.changes or len({one.arguments for one in run}) == 1:
        return _write_action(action, language, times)
    shown = merge_alike([one.brief_arguments for one in run])
    if len(shown) > 1:
        pairs = zip((_shorten(one.brief_arguments, SHOWN_CHARS) for one in run), _brief_outcomes(run), strict=True)
        # An outcome says little if the arguments of its call are too long to be shown.
        joined = (" → ".join(filter(None, pair)) for pair in pairs if not is_cut_only(pair[0]))
        shown = list(dict.fromkeys(joined))
    shown = [one for one in shown if not is_cut_only(one)]
    line = f"{neutralise(action.tool)}{times}"
    # Arguments of one call are separated by commas.
    gap = "; " if any(", " in one for one in shown) else ", "
    return f"{line}: {gap.join(neutralise(one) for one in shown)}" if shown else line


def _brief_outcomes(run: Sequence[Action]) -> list[str]:
    """Return what each of several like calls gave back: of a record its own values, those with figures first."""
    fields = [[_LONG_FIELD.sub("", field) for field in action.outcome.split(", ")] for action in run]
    often = Counter(field for own in fields for field in set(own))
    briefs = []
    for action, own in zip(run, fields, strict=True):
        new = [one for one in own if _FIELD.sub("", one) not in action.arguments and often[one] < len(run)]
        new.sort(key=lambda field: not any(map(str.isdigit, field)))
        briefs.append(_shorten(", ".join(new), OUTCOME_CHARS_OF_MANY))
    return briefs


def name_often(names: Iterable[str]) -> str:
    """Return names in order, each once, with how often it occurs: ``a.py, b.py ×2``."""
    counted = Counter(names)
    return ", ".join(
        f"{neutralise(name)} ×{times}" if times > 1 else neutralise(name) for name, times in counted.items()
    )


def merge_alike(texts: Sequence[str]) -> list[str]:
    """Return the arguments of like calls; long ones that share head and tail as one: ``/v1/{a, b}?limit=10``."""
    distinct = list(dict.fromkeys(first_line(text, ARGUMENTS_CHARS * 2) for text in texts))
    head, tail = _find_frame(distinct)
    if len(distinct) > 1 and len(head) + len(tail) >= FRAME_CHARS_MIN:
        middles = [one[len(head) : len(one) - len(tail)] for one in distinct]
        return [f"{head}{{{', '.join(_shorten(one, SHOWN_CHARS) or '-' for one in middles)}}}{tail}"]
    return list(dict.fromkeys(_shorten(one, SHOWN_CHARS) for one in distinct))


def expand_alike(text: str) -> str:
    """Return what ``merge_alike`` wrote as one, each text whole on a line of its own."""
    found = _MERGED.findall(text)
    return "\n".join(f"{head}{middle}{tail}" for head, middles, tail in found for middle in middles.split(", "))


def _find_frame(texts: Sequence[str]) -> tuple[str, str]:
    """Return what all texts begin with and end with, up to borders of words."""
    head = _find_common(texts)
    tail = _find_common([text[len(head) :][::-1] for text in texts])[::-1]
    head = head[: max((head.rfind(sign) + 1 for sign in _PARTS), default=0)]
    starts = [at for sign in _PARTS if (at := tail.find(sign)) >= 0]
    return head, tail[min(starts) :] if starts else ""


def _name_look(action: Action) -> str:
    if action.command:
        return _shorten(action.command, 60)
    if action.touched:
        return action.touched[0][1]
    return _shorten(f"{action.tool} {action.brief_arguments}".strip(), 60)


def _write_action(action: Action, language: Language, often: str = "") -> str:
    """Return a step as one line: the command or the tool with its arguments, and what came of it."""
    if action.command and not (action.changes and action.is_long):
        line = f"$ {neutralise(_shorten(action.command, COMMAND_CHARS))}"
    elif action.changes:
        touch, path = action.changes[0]
        line = f"{_VERBS[touch][language == 'zh']} {neutralise(path)}"
    else:
        line = f"{neutralise(action.tool)}({neutralise(_shorten(action.arguments, ARGUMENTS_CHARS))})"
    line += often
    if action.failed:
        status = f"{_EXIT[language]} {action.exit_status}" if action.exit_status else ""
        total = action.outcome if action.outcome not in action.error and "returncode" not in action.outcome else ""
        error = _leave_named(action.error, action.command)
        outcome = [_shorten(piece, OUTCOME_CHARS * 2) for piece in (status, total, error) if piece]
        return f"{line} → {neutralise(': '.join(outcome))} {shorten_handle(action.result_handle)}".rstrip()
    if action.outcome and not action.changes:
        # A result need not repeat what its call names.
        fields = [one for one in action.outcome.split(", ") if _FIELD.sub("", one) not in action.arguments]
        return f"{line} → {neutralise(_shorten(', '.join(fields), OUTCOME_CHARS))}" if fields else line
    return line


def _leave_named(error: str, command: str) -> str:
    """Return an error without the tests that its command names: ``pytest a.py::test_b`` says which one failed."""
    return " ".join(word for word in error.split(" ") if "::" not in word or word not in command)


LINE_CHARS_MAX = 8_000


def _shorten(text: str, chars_max: int) -> str:
    # The whole line, so that a cut says how much is left out.
    line = first_line(text, LINE_CHARS_MAX)
    return line if len(line) <= chars_max else cut_line(line, chars_max)


def tell_files(actions: Sequence[Action], language: Language) -> Iterator[Line]:
    """Name the files that were written or deleted, newest first, how often, with the handle of the newest change.

    A file that was changed again and again is what the work is about; scratch files are mostly written once.
    """
    newest: dict[str, tuple[str, str, int]] = {}
    for action in actions:
        for touch, path in () if action.failed else action.changes:
            times = newest.pop(path, ("", "", 0))[2] + 1
            newest[path] = (touch, action.call_handle, times)
    for age, (path, (change, handle, times)) in enumerate(reversed(newest.items())):
        verb = _VERBS[change][language == "zh"]
        often = f" ×{times}" if times > 1 else ""
        # A handle costs more than a path: only the newest changes have theirs.
        where = f" {shorten_handle(handle)}" if age < 3 else ""
        worth = 1.6 * math.sqrt(min(times, OFTEN)) / (1 + age / FILES_MAX)
        yield Line("changed", f"{verb}: {neutralise(path)}{often}{where}", worth, -age)


def _find_common(texts: Sequence[str]) -> str:
    """Return the common prefix of all texts, which is that of the first and the last in sorted order."""
    first, last = min(texts), max(texts)
    pairs = zip(first, last, strict=False)
    return first[: next((at for at, (one, other) in enumerate(pairs) if one != other), len(first))]
