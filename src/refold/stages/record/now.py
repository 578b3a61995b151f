"""The state of the work as lines of a record: what is wanted, where things are now, found, failed and open.

The state is that of the whole conversation at the time of the fold, so what a later message changed is not written.
Entries whose message stays in view are left out: the reader sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from refold.conversation.reason import Language
from refold.reading.state import Belief, CheckResult, FailedTry, FileState, FinalAct, OpenItem, Quote, Said, State
from refold.reading.tools import find_tool
from refold.stages.record.frame import Topic, cut_text, neutralise, shorten_handle
from refold.stages.record.lines import RecordLine
from refold.stages.record.story import flatten, quote_block

# A change of a file is written verbatim up to so many characters, fewer where there is little room.
CHANGE_CHARS, BRIEF_CHANGE_CHARS = 480, 120
# The call and the receipt of an act that cannot be undone, whole and in brief.
ACT_CHARS, BRIEF_ACT_CHARS = (160, 240), (60, 60)
QUOTE_CHARS, OPEN_CHARS, FAILED_CHARS = 400, 900, 240
# Worth: what a successor would do wrong without it. Receipts first (an act must not be repeated), then what is open.
ACT, OPEN, RULE, CHECK, FILE, BELIEF, FAILED, SAID = 8.0, 5.0, 6.0, 4.0, 4.0, 2.0, 2.0, 2.0
SCRATCH, SCRATCH_MAX = 2.0, 8
# Of entries of one kind each older one is worth so much less.
AGEING = 0.12
# A conclusion of one message is part of the story; what caused something and what was decided holds on.
_HELD = frozenset(("cause", "decision"))
_KINDS: dict[str, tuple[str, str]] = {
    "created": ("created", "新建"),
    "edited": ("edited", "已修改"),
    "deleted": ("deleted", "已删除"),
    "moved": ("moved", "已移动"),
    "reverted": ("reverted, unchanged now", "已还原"),
}
_WORDS: dict[str, tuple[str, str]] = {
    "scratch": ("scratch files, still there", "临时文件，仍在"),
    "changes": ("files changed {count}× since", "此后文件又有 {count} 处改动"),
    "failing": ("failing", "未通过"),
    "from": ("from", "原为"),
    "was": ("was", "原为"),
    "is": ("now", "现为"),
    "times": ("{count} changes, last", "共 {count} 次改动，最近一次"),
    "unknown": ("no result seen", "未见结果"),
}


def list_state(
    state: State, language: Language, is_seen: Callable[[int], bool], *, is_talk: bool = False
) -> list[RecordLine]:
    """Return the lines of a state; ``is_seen`` says whether the message at a position stays in view.

    In a talk the story has the words of both sides in their order; here are only what holds and what is open.
    """
    zh = language == "zh"
    scratch = [file for file in state.files if file.is_scratch and file.kind == "created"]
    lines = [
        *_age(RULE, (_say("rule", rule.quote) for rule in reversed(state.rules))),
        *_age(ACT, (_write_act(act, zh) for act in reversed(state.acts))),
        *_age(FILE, (_write_file(file, zh) for file in reversed(state.files) if file not in scratch)),
        *_age(SCRATCH, _write_scratch([file for file in scratch if not is_seen(file.quote.position)], zh)),
        *_age(CHECK, (_write_check(check, zh) for check in reversed(state.checks))),
        *_age(BELIEF, (_write_belief(one) for one in reversed(state.beliefs) if one.kind in _HELD and not is_talk)),
        *_age(FAILED, (_write_failed(failed) for failed in reversed(state.failed))),
        *_age(OPEN, (_write_open(item) for item in reversed(state.open))),
        *_age(SAID, (_write_said(one) for one in reversed(state.said) if _is_lasting(one) and not is_talk)),
    ]
    return [line for line in lines if line.text and not is_seen(line.at)]


def _age(worth: float, lines: Iterator[RecordLine]) -> Iterator[RecordLine]:
    for age, line in enumerate(lines):
        yield replace(line, worth=worth / (1 + AGEING * age))


def _say(topic: Topic, quote: Quote, who: str = "U", chars: int = QUOTE_CHARS) -> RecordLine:
    text = cut_text(flatten(quote.text), chars, quote.handle)
    return RecordLine(topic, text, 1.0, quote.position, who, handle=quote.handle, is_firm=True)


def _state(topic: Topic, text: str, quote: Quote) -> RecordLine:
    return RecordLine(topic, text, 1.0, quote.position, handle=quote.handle, is_firm=True)


def _write_scratch(files: Sequence[FileState], zh: bool) -> Iterator[RecordLine]:
    """Return one line for all scratch files: a line for each would leave no room for the work itself."""
    if files:
        names = ", ".join(neutralise(file.path) for file in files[-SCRATCH_MAX:])
        more = f" [+{len(files) - SCRATCH_MAX}]" if len(files) > SCRATCH_MAX else ""
        yield _state("now", f"{_WORDS['scratch'][zh]}: {names}{more}", files[-1].quote)


def _write_file(file: FileState, zh: bool) -> RecordLine:
    head = f"{neutralise(file.path)}: {_KINDS[file.kind][zh]}"
    if file.source:
        head += f" {_WORDS['from'][zh]} {neutralise(file.source)}"
    if file.kind != "edited" or not (file.removed or file.added):
        return _state("now", head, file.quote)
    if file.times > 1:
        head = f"{neutralise(file.path)}: {_WORDS['times'][zh].format(count=file.times)}"
    line = _state("now", head + _write_change(file, CHANGE_CHARS), file.quote)
    return replace(line, brief=head + _write_change(file, BRIEF_CHANGE_CHARS))


def _write_change(file: FileState, chars: int) -> str:
    removed, added = (
        cut_text(neutralise(text).strip("\n"), chars, file.quote.handle) for text in (file.removed, file.added)
    )
    body = "".join(f"\n  - {line}" for line in removed.split("\n") if line.strip())
    body += "".join(f"\n  + {line}" for line in added.split("\n") if line.strip())
    if file.lines_cut:
        body += f"\n  [+{file.lines_cut} lines {shorten_handle(file.quote.handle)}]"
    return body


def _write_check(check: CheckResult, zh: bool) -> RecordLine:
    came = cut_text(flatten(check.quote.text, ": "), 160) or check.status
    text = f"$ {cut_text(flatten(check.command), 120)} → {came}"
    if check.failing:
        shown = ", ".join(neutralise(name) for name in check.failing[:6])
        more = f" [+{len(check.failing) - 6}]" if len(check.failing) > 6 else ""
        text += f"; {_WORDS['failing'][zh]}: {shown}{more}"
    if check.changes_after:
        text += f" ({_WORDS['changes'][zh].format(count=check.changes_after)})"
    return _state("now", text, check.quote)


def _write_act(act: FinalAct, zh: bool) -> RecordLine:
    receipt = ", ".join(f"{name}: {value}" for name, value in act.receipt if f"{name}={value}" not in act.quote.text)
    proof = flatten(receipt or (act.result.text if act.result else "") or _WORDS["unknown"][zh], ": ")
    rule = find_tool(act.tool)
    # A command says what it does; the arguments of another tool say nothing without its name.
    name = "" if rule is not None and rule.prints else f"{neutralise(act.tool)}: "
    whole, brief = (
        f"{name}{cut_text(flatten(act.quote.text), call)} → {cut_text(proof, came)}"
        for call, came in (ACT_CHARS, BRIEF_ACT_CHARS)
    )
    return replace(_state("now", whole, act.quote), brief=brief)


def _write_belief(belief: Belief) -> RecordLine:
    lead = f"{flatten(belief.lead)} " if belief.lead and belief.lead not in belief.quote.text else ""
    text = cut_text(lead + flatten(belief.quote.text), QUOTE_CHARS, belief.quote.handle)
    if belief.block:
        text += quote_block(belief.block, belief.quote.handle)
    return RecordLine("found", text, 1.0, belief.quote.position, "A", handle=belief.quote.handle)


def _write_failed(failed: FailedTry) -> RecordLine:
    often = f" ×{failed.times}" if failed.times > 1 else ""
    why = flatten(failed.why, ": ")
    why = f" → {cut_text(why, FAILED_CHARS, failed.quote.handle)}" if why else ""
    return _state("failed", f"{cut_text(flatten(failed.quote.text), 140)}{often}{why}", failed.quote)


def _write_open(item: OpenItem) -> RecordLine:
    if item.kind == "plan":
        status = f" ({neutralise(item.status)})" if item.status else ""
        return _state("open", f"- {cut_text(flatten(item.quote.text), 200)}{status}", item.quote)
    return _say("open", item.quote, "U" if item.kind == "ask" else "A", OPEN_CHARS)


def _is_lasting(said: Said) -> bool:
    return said.kind == "preference" or (said.kind == "agreement" and said.about is not None)


def _write_said(said: Said) -> RecordLine:
    line = _say("rule" if said.kind == "preference" else "found", said.quote)
    if said.about is None:
        return line
    return replace(line, text=f"{line.text} ← A: {cut_text(flatten(said.about.text), 240, said.about.handle)}")
