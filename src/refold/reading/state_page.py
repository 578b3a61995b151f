"""The state as a page that a person reads in ten seconds, in English or Chinese."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from refold.conversation.message import mark
from refold.conversation.reason import Language
from refold.errors import Sentence
from refold.reading.draft import cut_middle
from refold.reading.state import CheckResult, FileState, FinalAct, OpenItem, Quote, State
from refold.sentences import translate

LINES_MAX = 8  # Entries of a section on the page, newest first; the rest is counted.
_TASK_CHARS = 900
_LINE_CHARS = 240
_CHANGE_LINES = 6
_BELIEF_ORDER = ("decision", "cause", "conclusion", "finding", "done")

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
    "pending": Sentence("pending"),
}


def write_state(state: State, language: Language = "en") -> str:
    """Return the page of a state: what is wanted, where things are, what was found, what failed, what is open."""
    sections = [
        (Sentence("Task"), list(_write_task(state, language))),
        (Sentence("Rules in force"), _write_quotes((rule.quote for rule in state.rules), language)),
        (Sentence("Files"), _limit([_write_file(file, language) for file in reversed(state.files)], language)),
        (Sentence("Checks"), _limit([_write_check(check, language) for check in reversed(state.checks)], language)),
        (
            Sentence("Done, cannot be undone"),
            _limit([_write_act(act, language) for act in reversed(state.acts)], language),
        ),
        (Sentence("Found and decided"), _write_beliefs(state, language)),
        (Sentence("Tried and failed"), _write_failed(state, language)),
        (Sentence("Open"), _limit([_write_open(item, language) for item in reversed(state.open)], language)),
        (Sentence("What people said"), _write_said(state, language)),
        (Sentence("Exact values"), _write_values(state, language)),
        (Sentence("No longer true"), _write_quotes((struck.quote for struck in state.struck), language)),
    ]
    pages = [f"{translate(title, language)}\n" + "\n".join(lines) for title, lines in sections if lines]
    if state.omitted:
        counts = ", ".join(f"{_name(section, language)} {count:,}" for section, count in state.omitted)
        pages.append(_say(Sentence("left out, oldest first: {counts}", counts=counts), language))
    if not pages:
        pages.append(_say(Sentence("nothing to report yet"), language))
    return "\n\n".join(pages)


def _name(word: str, language: Language) -> str:
    return translate(_NAMES.get(word, word), language)


def _say(sentence: Sentence, language: Language) -> str:
    return translate(sentence, language)


def _write_task(state: State, language: Language) -> Iterator[str]:
    task = state.task
    if task is None:
        return
    words, _ = cut_middle(task.quote.text, _TASK_CHARS)
    yield _indent(f"{words} {mark(task.quote.handle)}")
    if task.finish is not None:
        yield "  " + _say(Sentence("to finish: {text}", text=_line(task.finish)), language)
    for quote in task.later:
        yield "  " + _say(Sentence("then: {text}", text=_line(quote)), language)


def _write_file(file: FileState, language: Language) -> str:
    notes = []
    if file.source:
        notes.append(_say(Sentence("from {path}", path=file.source), language))
    if file.times > 1:
        notes.append(_say(Sentence("{count} changes", count=file.times), language))
    if file.is_scratch:
        notes.append(translate(Sentence("scratch file"), language))
    listed = f" ({', '.join(notes)})" if notes else ""
    head = f"- {_name(file.kind, language)} {file.path}{listed} {mark(file.quote.handle)}"
    if file.kind not in ("edited", "created") or file.is_scratch:
        return head
    lines = [f"    - {line}" for line in file.removed.splitlines()] + [
        f"    + {line}" for line in file.added.splitlines()
    ]
    more = len(lines) - _CHANGE_LINES
    if more > 0 and file.kind == "created":
        return head
    if more > 0:
        lines = [
            *lines[:_CHANGE_LINES],
            "    " + _say(Sentence("{count} more lines", count=more + file.lines_cut), language),
        ]
    return "\n".join([head, *lines])


def _write_check(check: CheckResult, language: Language) -> str:
    text = f"- {_line_of(check.command, 120)} → {_name(check.status, language)}"
    if check.quote.text:
        text += f": {_line(check.quote)}"
    if check.failing:
        text += "; " + _say(Sentence("fails: {names}", names=", ".join(check.failing[:LINES_MAX])), language)
    if check.changes_after:
        text += " " + _say(Sentence("(before {count} later changes)", count=check.changes_after), language)
    return f"{text} {mark(check.quote.handle)}"


def _write_act(act: FinalAct, language: Language) -> str:
    receipt = ", ".join(f"{name}: {value}" for name, value in act.receipt)
    if not receipt and act.result is not None:
        receipt = _line(act.result)
    doubt = f" ({translate(Sentence('unclear'), language)})" if act.status == "unknown" else ""
    told = f" → {receipt}" if receipt else ""
    return f"- {act.tool}: {_line(act.quote)}{doubt}{told} {mark(act.quote.handle)}"


def _write_beliefs(state: State, language: Language) -> list[str]:
    ordered = sorted(state.beliefs, key=lambda belief: (_BELIEF_ORDER.index(belief.kind), -belief.quote.position))
    lines = []
    for belief in ordered:
        lead = f"{_line_of(belief.lead, 120)} " if belief.lead else ""
        line = f"- {_name(belief.kind, language)}: {lead}{_line(belief.quote)} {mark(belief.quote.handle)}"
        lines.append("\n".join([line, *(f"    {text}" for text in belief.block.splitlines()[:_CHANGE_LINES])]))
    return _limit(lines, language, 2 * LINES_MAX)


def _write_failed(state: State, language: Language) -> list[str]:
    lines = []
    for failed in reversed(state.failed):
        times = f" ×{failed.times}" if failed.times > 1 else ""
        why = f" → {_line_of(failed.why)}" if failed.why else ""
        lines.append(f"- {failed.tool}: {_line(failed.quote)}{times}{why} {mark(failed.quote.handle)}")
    return _limit(lines, language)


def _write_open(item: OpenItem, language: Language) -> str:
    status = f" ({item.status})" if item.status else ""
    return f"- {_name(item.kind, language)}: {_line(item.quote)}{status} {mark(item.quote.handle)}"


def _write_said(state: State, language: Language) -> list[str]:
    lines = []
    for said in reversed(state.said):
        about = f" ← {_line(said.about)}" if said.about else ""
        lines.append(f"- {_name(said.quote.speaker, language)}: {_line(said.quote)}{about} {mark(said.quote.handle)}")
    return _limit(lines, language)


def _write_values(state: State, language: Language) -> list[str]:
    owned = [value for value in state.values if value.owner]
    lines = [f"- {value.owner}: {value.text} {mark(value.quote.handle)}" for value in reversed(owned)]
    return _limit(lines, language)


def _write_quotes(quotes: Iterable[Quote], language: Language) -> list[str]:
    return _limit([f"- {_line(quote)} {mark(quote.handle)}" for quote in reversed(list(quotes))], language)


def _limit(lines: list[str], language: Language, most: int = LINES_MAX) -> list[str]:
    more = len(lines) - most
    if more <= 0:
        return lines
    return [*lines[:most], "  " + _say(Sentence("and {count} more", count=more), language)]


def _line(quote: Quote) -> str:
    return _line_of(quote.text)


def _line_of(text: str, limit: int = _LINE_CHARS) -> str:
    return cut_middle(" ".join(text.split()), limit)[0]


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
