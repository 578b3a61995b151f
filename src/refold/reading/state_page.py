"""The state as a page that a person reads in ten seconds, in English or Chinese.

``list_sections`` has the lines of the page for a face that draws them itself; ``write_state`` is the page as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from refold.conversation.message import mark
from refold.conversation.reason import Language
from refold.errors import Sentence
from refold.reading.draft import cut_middle
from refold.reading.state import (
    Belief,
    CheckResult,
    FailedTry,
    FileEdit,
    FileState,
    FinalAct,
    OpenItem,
    Quote,
    Said,
    StandingRule,
    State,
)
from refold.sentences import tr

LINES_MAX = 8  # Entries of a section on the page, newest first; the rest is counted.
_TASK_CHARS = 900
_LINE_CHARS = 240
_ABOUT_CHARS = 120
_CHANGE_LINES = 8
_BLOCK_LINES = 5
# Behind causes, decisions and conclusions.
_LESSER = ("finding", "done")
# The words of the page for the words of the code.
_NAMES = {
    "ok": Sentence("passed"),
    "failed": Sentence("failed"),
    "unknown": Sentence("unclear"),
    "ask": Sentence("asked"),
    "question": Sentence("asked the person"),
    "plan": Sentence("plan"),
    "next": Sentence("next"),
    "created": Sentence("created"),
    "edited": Sentence("edited"),
    "deleted": Sentence("deleted"),
    "moved": Sentence("moved"),
    "reverted": Sentence("reverted"),
    "finding": Sentence("finding"),
    "cause": Sentence("cause"),
    "decision": Sentence("decision"),
    "conclusion": Sentence("conclusion"),
    "done": Sentence("done"),
    "user": Sentence("user"),
    "assistant": Sentence("assistant"),
    "rules": Sentence("rules"),
    "files": Sentence("files"),
    "checks": Sentence("checks"),
    "acts": Sentence("acts"),
    "beliefs": Sentence("beliefs"),
    "open": Sentence("open"),
    "said": Sentence("said"),
    "values": Sentence("values"),
    "struck": Sentence("struck"),
    "later": Sentence("later requests"),
}


@dataclass(frozen=True, slots=True)
class StateLine:
    """One entry of the page: a line, the handle of its source, and the lines below it (a change, a list, code)."""

    text: str
    handle: str = ""
    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateSection:
    """One section of the page. ``more`` counts the entries that are not shown."""

    title: str
    lines: tuple[StateLine, ...]
    more: int = 0


def write_state(state: State, language: Language = "en") -> str:
    """Return the page of a state: what is wanted, where things are, what was found, what failed, what is open."""
    pages = []
    for section in list_sections(state, language):
        lines = [section.title]
        for line in section.lines:
            source = f" {mark(line.handle)}" if line.handle else ""
            lines += [f"- {line.text}{source}", *(f"    {text}" for text in line.below)]
        if section.more:
            lines.append("  " + _say(Sentence("and {count} more", count=section.more), language))
        pages.append("\n".join(lines))
    if state.omitted:
        counts = ", ".join(f"{_name(section, language)} {count:,}" for section, count in state.omitted)
        pages.append(_say(Sentence("left out, oldest first: {counts}", counts=counts), language))
    return "\n\n".join(pages or [_say(Sentence("nothing to report yet"), language)])


def list_sections(state: State, language: Language, most: int = LINES_MAX) -> list[StateSection]:
    """Return the sections of the page that have an entry, with at most so many entries each, newest first."""
    said = {
        Sentence("Task"): _write_task(state, language),
        Sentence("Rules in force"): (_write_rule(rule) for rule in reversed(state.rules)),
        Sentence("Files"): _write_files(state, language),
        Sentence("Checks"): (_write_check(check, language) for check in reversed(state.checks)),
        Sentence("Done, cannot be undone"): (_write_act(act, language) for act in reversed(state.acts)),
        Sentence("Found and decided"): (_write_belief(belief, language) for belief in _sort_beliefs(state.beliefs)),
        Sentence("Tried and failed"): (_write_failed(failed) for failed in reversed(state.failed)),
        Sentence("Open"): (_write_open(item, language) for item in reversed(state.open)),
        Sentence("What people said"): (_write_said(said, language) for said in reversed(state.said)),
        Sentence("No longer true"): (_line(struck.quote) for struck in reversed(state.struck)),
        Sentence("Exact values"): _write_values(state),
    }
    sections: list[StateSection] = []
    for title, written in said.items():
        lines = tuple(written)
        if title == "Exact values":
            lines = _drop_shown(state, lines, sections)
        if lines:
            sections.append(StateSection(tr(title, language), lines[:most], max(0, len(lines) - most)))
    return sections


def write_facts(state: State, language: Language = "en") -> str:
    """Return what calls and their results prove: files, checks, acts that cannot be undone, what failed."""
    written: tuple[Iterable[StateLine], ...] = (
        _write_files(state, language),
        (_write_check(check, language) for check in reversed(state.checks)),
        (_write_act(act, language) for act in reversed(state.acts)),
        (_write_failed(failed) for failed in reversed(state.failed)),
    )
    return "\n".join(f"- {line.text}" for lines in written for line in list(lines)[:LINES_MAX])


def describe_state(state: State) -> dict[str, object]:
    """Return a state as plain values for JSON, without what only ``advance`` needs."""
    hidden = ("pending", "found_files", "acted", "opening", "heard", "proposal", "has_text_results")
    return {name: value for name, value in asdict(state).items() if name not in hidden}


def _name(word: str, language: Language) -> str:
    return tr(_NAMES.get(word, word), language)


def _say(sentence: Sentence, language: Language) -> str:
    return tr(sentence, language)


def _write_task(state: State, language: Language) -> Iterator[StateLine]:
    task = state.task
    if task is None:
        return
    first, *below = cut_middle(task.quote.text, _TASK_CHARS)[0].splitlines()
    yield StateLine(first, task.quote.handle, tuple(line for line in below if line.strip()))
    if task.finish is not None:
        yield StateLine(_say(Sentence("to finish: {text}", text=_flat(task.finish.text)), language))
    for quote in reversed(task.later):
        yield StateLine(_say(Sentence("then: {text}", text=_flat(quote.text)), language), quote.handle)


def _write_files(state: State, language: Language) -> Iterator[StateLine]:
    scratch = [file for file in reversed(state.files) if file.is_scratch and file.kind == "created"]
    if scratch:
        names = ", ".join(file.path for file in scratch[:LINES_MAX])
        if len(scratch) > LINES_MAX:
            names += ", " + _say(Sentence("and {count} more", count=len(scratch) - LINES_MAX), language)
        yield StateLine(_say(Sentence("scratch files, still there: {names}", names=names), language))
    yield from (_write_file(file, language) for file in reversed(state.files) if file not in scratch)


def _write_file(file: FileState, language: Language) -> StateLine:
    notes = []
    if file.source:
        notes.append(_say(Sentence("from {path}", path=file.source), language))
    if file.times > 1:
        notes.append(_say(Sentence("{count} changes", count=file.times), language))
    listed = f" ({', '.join(notes)})" if notes else ""
    text = f"{_name(file.kind, language)} {file.path}{listed}"
    lines = [line for edit in file.edits for line in _write_edit(edit)] if file.kind == "edited" else []
    return StateLine(text, file.quote.handle, _cut_below(lines, _CHANGE_LINES, language))


def _write_edit(edit: FileEdit) -> Iterator[str]:
    if not edit.removed and not edit.added:
        yield f"$ {_flat(edit.quote.text, _ABOUT_CHARS)}"
    for sign, text in (("-", edit.removed), ("+", edit.added)):
        yield from (f"{sign} {line}" for line in text.splitlines() if line.strip())


def _write_check(check: CheckResult, language: Language) -> StateLine:
    text = f"{_flat(check.command, 120)} → {_name(check.status, language)}"
    if check.quote.text:
        text += f": {_flat(check.quote.text)}"
    if check.failing:
        text += "; " + _say(Sentence("fails: {names}", names=", ".join(check.failing[:LINES_MAX])), language)
    if check.changes_after:
        text += " " + _say(Sentence("(before {count} later changes)", count=check.changes_after), language)
    return StateLine(text, check.quote.handle)


def _write_act(act: FinalAct, language: Language) -> StateLine:
    receipt = ", ".join(f"{name}: {value}" for name, value in act.receipt)
    if not receipt and act.result is not None:
        receipt = _flat(act.result.text)
    doubt = f" ({_name(act.status, language)})" if act.status == "unknown" else ""
    proof = f" → {receipt}" if receipt else ""
    return StateLine(f"{act.tool}: {_flat(act.quote.text)}{doubt}{proof}", act.quote.handle)


def _sort_beliefs(beliefs: Iterable[Belief]) -> list[Belief]:
    """Return what matters most first: causes, decisions and last words, then the rest, each newest first."""
    return sorted(beliefs, key=lambda belief: (belief.kind in _LESSER and not belief.is_last, -belief.quote.position))


def _write_belief(belief: Belief, language: Language) -> StateLine:
    lead = f"{_flat(belief.lead, _ABOUT_CHARS)} " if belief.lead else ""
    about = f" ← {_flat(belief.about.text, _ABOUT_CHARS)}" if belief.about else ""
    text = f"{_name(belief.kind, language)}: {lead}{_flat(belief.quote.text)}{about}"
    return StateLine(text, belief.quote.handle, _cut_below(belief.block.splitlines(), _BLOCK_LINES, language))


def _write_failed(failed: FailedTry) -> StateLine:
    times = f" ×{failed.times}" if failed.times > 1 else ""
    why = f" → {_flat(failed.why)}" if failed.why else ""
    return StateLine(f"{failed.tool}: {_flat(failed.quote.text)}{times}{why}", failed.quote.handle)


def _write_open(item: OpenItem, language: Language) -> StateLine:
    status = f" ({item.status})" if item.status else ""
    return StateLine(f"{_name(item.kind, language)}: {_flat(item.quote.text)}{status}", item.quote.handle)


def _write_said(said: Said, language: Language) -> StateLine:
    about = f" ← {_flat(said.about.text)}" if said.about else ""
    return StateLine(f"{_name(said.quote.speaker, language)}: {_flat(said.quote.text)}{about}", said.quote.handle)


def _write_values(state: State) -> Iterator[StateLine]:
    return (
        StateLine(f"{value.owner}: {value.text}", value.quote.handle) for value in reversed(state.values) if value.owner
    )


def _write_rule(rule: StandingRule) -> StateLine:
    about = f" ← {_flat(rule.about.text, _ABOUT_CHARS)}" if rule.about else ""
    return StateLine(f"{_flat(rule.quote.text)}{about}", rule.quote.handle)


def _drop_shown(state: State, lines: tuple[StateLine, ...], sections: list[StateSection]) -> tuple[StateLine, ...]:
    """Return the lines of values that no section above has."""
    shown = "\n".join(text for section in sections for line in section.lines for text in (line.text, *line.below))
    owned = [value.text for value in reversed(state.values) if value.owner]
    return tuple(line for line, value in zip(lines, owned, strict=True) if value not in shown)


def _line(quote: Quote) -> StateLine:
    return StateLine(_flat(quote.text), quote.handle)


def _cut_below(lines: list[str], most: int, language: Language) -> tuple[str, ...]:
    more = len(lines) - most
    if more <= 0:
        return tuple(lines)
    return (*lines[:most], _say(Sentence("{count} more lines", count=more), language))


def _flat(text: str, limit: int = _LINE_CHARS) -> str:
    return cut_middle(" ".join(text.split()), limit)[0]
