"""Prepare a view for a budget: decide, run the ladder, check that the result fits.

``prepare`` is a pure generator, like the ladder it runs. ``budget.decision`` decides; a caller that has already decided
by the same function passes its trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from refold.budget import Budget, Counts, Thresholds, Trigger
from refold.budget.decision import Decision, DecisionPolicy, decide_batch
from refold.budget.economics import Carry, Economics
from refold.budget.trigger import Foldable
from refold.conversation.message import Message, is_user_turn
from refold.conversation.reason import Language, detect_language
from refold.conversation.turn import Unit, find_rounds, find_task, newest_step
from refold.conversation.view import Edit, Item, Lens, View
from refold.errors import BudgetTooSmall, Sentence
from refold.ladder.laws import common_prefix
from refold.ladder.report import StageReport
from refold.ladder.rereads import expect_rereads
from refold.ladder.run import Climb, climb, take_edits
from refold.stages.stage import Ask, Goal, Reply, Stage, check_nothing
from refold.stages.task import TASK_SHARE, shorten_task

# The language of a conversation is detected from this many messages, and this many characters at each end of one.
_SAMPLE, _END = 20, 400
# A compression that is made to save money leaves this many of the newest steps unchanged; any other one leaves as many
# whole as fit beside the records, because an agent works with what it has just read.
ECONOMIC_STEPS_KEPT = 3
# It also keeps a person's message of at least this size: a model can re-read a file, but not what somebody pasted.
DOCUMENT_TOKENS = 3_000
# New content is sent whole if it leaves 1/REST_SHARE of the room, within these bounds, to everything else; in a small
# room, if it leaves one line.
REST_SHARE, REST_TOKENS_MIN, REST_TOKENS_MAX, LINE_TOKENS = 8, 160, 4_000, 60
# In fewer tokens a task says nothing: where the newest step leaves less, it is folded with the rest.
TASK_TOKENS_MIN = 100
# Large new content raises the target, up to this share of the room; so do documents of a person, up to half of it.
RAISED_SHARE, DOCUMENTS_SHARE = 0.6, 0.5
# New documents, and new content that does not fit whole, fill at most this share: the next requests need room, too.
GROWN_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Plan:
    """The inputs of a preparation: room, counts that also trigger, and the ladder.

    ``trigger`` is set if the decision was made elsewhere: by a person, or by a provider's overflow error. ``economics``
    allows a change when it pays; it holds the carry of the last outcome. ``restored`` maps the placeholders of
    offloaded results that a client sent back to the original texts. ``unsent`` are the ids of messages that no earlier
    request contained: they are sent whole at least once if they fit (L11). ``check`` raises OutOfTime when the work has
    taken too long.
    """

    budget: Budget
    stages: tuple[Stage, ...]
    thresholds: Thresholds = Thresholds()
    language: Language | None = None
    instructions: str = ""
    trigger: Trigger | None = None
    is_auto: bool = True
    strict: bool = False
    economics: Economics | None = None
    restored: Mapping[str, str] = field(default_factory=dict)
    find_secrets: Callable[[Iterable[str]], frozenset[str]] | None = None
    unsent: frozenset[str] = frozenset()
    check: Callable[[], None] = field(default=check_nothing, repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A view that fits, why it changed if it did, and what each stage did; ``carry`` is for the next request."""

    view: View
    trigger: Trigger
    edits: tuple[Edit, ...] = ()
    stages: tuple[StageReport, ...] = ()
    carry: Carry = Carry()


def prepare(view: View, plan: Plan, reported_tokens: int | None = None) -> Generator[Ask, Reply, Outcome]:
    """Bring a view within its budget if a trigger fires; raise BudgetTooSmall if what may not shrink is too large."""
    budget = plan.budget.above(count_lead(view.items, view.fixed_tokens))
    decision = _decide(view, plan, budget, reported_tokens)
    trigger = decision.trigger
    if not decision.acts:
        return Outcome(view, trigger, carry=plan.economics.carry.advance(view.tokens) if plan.economics else Carry())
    goal = Goal(
        target=budget.target,
        hard=budget.hard,
        reason=trigger.reason,
        language=plan.language or detect_view_language(view),
        instructions=plan.instructions,
        force=trigger.by_count,
        restored=plan.restored,
        secrets=_find_secrets(view, plan),
        soft=budget.soft,
        check=plan.check,
    )
    climbed = yield from _compress_keeping_new(keep_task(view, plan.stages), plan, goal, trigger)
    check_fit(climbed.view, budget)
    known = plan.economics.carry if plan.economics else Carry()
    carry = known.restart(climbed.view.tokens, _count_rewritten(view, climbed.view))
    return Outcome(climbed.view, trigger, climbed.edits, climbed.stages, carry)


def _compress_keeping_new(view: View, plan: Plan, goal: Goal, trigger: Trigger) -> Generator[Ask, Reply, Climb]:
    """Compress without changing held messages (L11); change them only if the view still exceeds *hard*.

    New content that leaves no room for anything else is shortened first: the records and the newest steps stay.
    """
    is_ruled = trigger.by_count or plan.budget.is_ruled
    held = find_held(view, frozenset() if is_ruled else find_new(view, plan.unsent), trigger)
    start = _shorten_task(replace(view, held=held), plan, goal)
    cut = _shorten_oversize(start.view, plan, goal)
    start = _join(start, cut)
    if not is_ruled:
        goal = replace(goal, target=_raise_target(start.view, goal, plan.unsent, is_cut=bool(cut.edits)))
    if not held:
        return _join(start, (yield from climb(start.view, goal, plan.stages, strict=plan.strict)))
    kept = tuple(stage for stage in plan.stages if not getattr(stage, "is_last_resort", False))
    first = _join(start, (yield from climb(start.view, goal, kept, strict=plan.strict)))
    released = replace(first.view, held=frozenset())
    if first.view.tokens <= goal.hard:
        return replace(first, view=released)
    grown = replace(goal, target=max(goal.target, _fill(released, goal, GROWN_SHARE)))
    return _join(first, (yield from climb(released, grown, plan.stages, strict=plan.strict)))


def _join(first: Climb, second: Climb) -> Climb:
    return Climb(second.view, (*first.edits, *second.edits), (*first.stages, *second.stages))


def keep_task(view: View, stages: Sequence[Stage]) -> View:
    """Return the view with its task named, so that it stays in place (L8), unless counts say what stays."""
    task = None if any(map(_keeps_by_count, stages)) else find_task(view.messages, view.lens.is_observation)
    return replace(view, task=task.id if task is not None else "")


def _shorten_task(view: View, plan: Plan, goal: Goal) -> Climb:
    """Cut a task that takes more than its share of the room, unless it is also the newest user message or held.

    It gives way to the newest step and the newest user message, which are sent whole wherever they fit.
    """
    at = view.task_at
    if at is None or at == view.newest_user or view.items[at].message.id in view.held | view.pinned:
        return Climb(view, (), ())
    room = goal.hard - count_lead(view.items, view.fixed_tokens)
    rest = max(2 * LINE_TOKENS, min(room // REST_SHARE, REST_TOKENS_MAX))
    left = goal.hard - rest - (_count_untouchable(view) - view.items[at].tokens)
    edit = shorten_task(view, at, min(int(room * TASK_SHARE), left), goal.language) if left >= TASK_TOKENS_MIN else None
    if edit is None and view.items[at].tokens > left:
        return Climb(replace(view, task=""), (), ())
    return _cut(view, [edit] if edit else [], plan)


def _shorten_oversize(view: View, plan: Plan, goal: Goal) -> Climb:
    """Cut new content that would push everything else out of the view, so that records and newest steps stay.

    The content is what no other stage may touch: the newest step, and what is held. The newest user message stays.
    """
    last: Any = next((stage for stage in plan.stages if getattr(stage, "is_last_resort", False)), None)
    fixed, hard = _count_untouchable(view), goal.hard - count_lead(view.items, view.fixed_tokens)
    rest, part = view.tokens - fixed, min(hard // REST_SHARE, REST_TOKENS_MAX)
    least = min(rest, part if part >= REST_TOKENS_MIN else LINE_TOKENS)
    if last is None or fixed + least <= goal.hard or _find_largest(view) * 2 < hard:
        return Climb(view, (), ())
    records = sum(item.tokens for item in view.items if item.is_fold)
    # A rest of this size stays as it is, and some room is left free: the prefix is kept, now and at the next requests.
    stays, free = part + min(records, hard // 4), part
    if part >= REST_TOKENS_MIN:
        stays, free = max(hard // 4, stays), goal.hard - _fill(view, goal, GROWN_SHARE)
    room = min(rest, stays) + (free if goal.target < goal.hard else 0)
    released = replace(view, held=frozenset())
    # Many results at once share the room.
    least = min(part, max(REST_TOKENS_MIN, hard // (2 * len(view.protected))))
    cut = _cut(released, last.cut_oversize(released, view.protected, fixed + room - goal.hard, tokens_min=least), plan)
    return replace(cut, view=replace(cut.view, held=view.held))


def _cut(view: View, edits: Sequence[Edit], plan: Plan) -> Climb:
    """Take edits of protected messages."""
    after, report = take_edits(view, edits, edits[0].stage if edits else "", is_last=True, strict=plan.strict)
    return Climb(after, report.edits, (report,) if report.edits else ())


def _find_largest(view: View) -> int:
    """Return the tokens of the newest step, or of a larger message that no stage may touch."""
    step = newest_step(view.items)
    newest = sum(view.items[at].tokens for at in range(step.start, step.stop)) if step else 0
    return max([newest, *(view.items[at].tokens for at in view.protected)])


def _raise_target(view: View, goal: Goal, unsent: frozenset[str], *, is_cut: bool) -> int:
    """Return the target, raised for large new content, documents and recent steps, so that records have room, too."""
    fixed, grown = _count_untouchable(view), _fill(view, goal, GROWN_SHARE)
    if is_cut:
        return max(goal.target, grown)
    lead = count_lead(view.items, view.fixed_tokens)
    floor = min(view.tokens - fixed, (goal.target - lead) // 2)
    unseen = unsent - view.held
    is_new = any(item.message.id in unseen and is_document(item, view.lens) for item in view.items) if unseen else False
    wide = min(goal.target + count_documents(view), grown if is_new else _fill(view, goal, DOCUMENTS_SHARE))
    most = _fill(view, goal, RAISED_SHARE)
    return max(goal.target, wide, min(goal.hard, _count_with_steps(view, fixed + floor, most)))


def _count_with_steps(view: View, tokens: int, most: int) -> int:
    """Return the tokens with the newest steps added, as many as are kept whole and stay within ``most``."""
    for unit in _list_steps(view)[-ECONOMIC_STEPS_KEPT:][::-1]:
        size = sum(view.items[at].tokens for at in range(unit.start, unit.stop) if at not in view.protected)
        if tokens + size > most:
            break
        tokens += size
    return tokens


def _list_steps(view: View) -> list[Unit]:
    heads = ((unit, view.items[unit.start]) for unit in view.units)
    return [unit for unit, item in heads if item.role == "assistant" and not item.is_fold]


def _fill(view: View, goal: Goal, share: float) -> int:
    """Return the tokens of a view that fills this share of the room."""
    lead = count_lead(view.items, view.fixed_tokens)
    return lead + int((goal.hard - lead) * share)


def _count_untouchable(view: View) -> int:
    """Return the tokens that only the last resort may remove."""
    return view.fixed_tokens + sum(view.items[at].tokens for at in view.protected)


def find_new(view: View, unsent: frozenset[str]) -> frozenset[str]:
    """Return what no model has seen of the messages that no request contained yet.

    A session that comes with its history was sent by somebody else before: a model has seen what it answered. Only what
    follows its last answer is new, and holding all of a history that does not fit would break the prefix twice.
    """
    if any(item.is_fold or item.message.id not in unsent for item in view.items):
        return unsent
    answered = next((at for at in range(len(view.items), 0, -1) if view.items[at - 1].role == "assistant"), 0)
    return frozenset(item.message.id for item in view.items[answered:])


def find_held(view: View, unsent: frozenset[str], trigger: Trigger) -> frozenset[str]:
    """Return the messages that a compression must leave as they are (L11), by id.

    These are the messages that no request contained yet, unless a document's rule or a person requests the compression.
    A compression that is made to save money also leaves the newest steps and documents alone.
    """
    if not trigger.is_economic:
        return unsent
    documents = {item.message.id for item in view.items if is_document(item, view.lens)}
    starts = [unit.start for unit in _list_steps(view)]
    border = starts[-ECONOMIC_STEPS_KEPT] if len(starts) >= ECONOMIC_STEPS_KEPT else 0
    return unsent | documents | {item.message.id for item in view.items[border:] if not item.is_fold}


def count_documents(view: View) -> int:
    """Return the tokens of all documents in a view."""
    return sum(item.tokens for item in view.items if is_document(item, view.lens))


def is_document(item: Item, lens: Lens) -> bool:
    """Return whether an item is a long message of a person: a file or a log that nobody can read again."""
    if item.is_fold or item.tokens < DOCUMENT_TOKENS:
        return False
    return is_user_turn(item.role, item.parts) and not lens.is_observation(item.message)


def _find_secrets(view: View, plan: Plan) -> frozenset[str]:
    if plan.find_secrets is None:
        return frozenset()
    return plan.find_secrets(part.text for message in view.messages for part in message.parts if part.text)


def _count_rewritten(before: View, after: View) -> int:
    """Return the tokens after the earliest change, without those that no cache has yet: they are written anyway."""
    same = common_prefix(before.items, after.items)
    new = next((at for at in range(len(after.items), 0, -1) if after.items[at - 1].role == "assistant"), 1) - 1
    while new > 0 and after.items[new - 1].role == "assistant":
        new -= 1
    return sum(item.tokens for item in after.items[same : max(same, new)])


def _decide(view: View, plan: Plan, budget: Budget, reported_tokens: int | None) -> Decision:
    if plan.trigger is not None:
        return Decision(plan.trigger, plan.trigger.acts)
    head = count_head(view.items, view.fixed_tokens)
    economics = plan.economics and replace(plan.economics, expect_rereads=partial(expect_rereads, view.items))
    policy = DecisionPolicy(plan.thresholds, economics, head, plan.is_auto)
    counts = _count_view(view, reported_tokens, plan.unsent)
    foldable = measure_foldable(lambda: view, plan.stages, budget)
    return decide_batch(replace(counts, find_foldable=foldable), budget, policy)


def measure_foldable(
    make_view: Callable[[], View], stages: Sequence[Stage], budget: Budget
) -> Callable[[bool], Foldable] | None:
    """Return how to measure what a fold by count would take, or other stages of a batch if it takes nothing.

    None if no count says what stays.
    """
    fold: Any = next(filter(_keeps_by_count, stages), None)
    if fold is None:
        return None

    def measure(force: bool) -> Foldable:
        view = make_view()
        goal = Goal(min(budget.target, budget.soft), budget.hard, soft=budget.soft)
        found: Foldable = fold.count_foldable(view, replace(goal, force=force))
        if found.messages or view.tokens <= goal.target:
            return found
        others = [stage for stage in stages if stage.when == "batch" and stage is not fold]
        made = [one for one in (stage.propose(view, goal) for stage in others) if isinstance(one, list)]
        freed = sum(edit.tokens_freed for edits in made for edit in edits)
        return Foldable(sum(map(len, made)), freed, found.has_record)

    return measure


def _keeps_by_count(stage: Stage) -> bool:
    return getattr(stage, "keeps_by_count", False)


def count_lead(items: Sequence[Item], fixed_tokens: int) -> int:
    """Return the tokens that no stage may remove: system prompt, tools, and leading system messages."""
    lead = fixed_tokens
    for item in items:
        if item.is_fold or item.role != "system":
            break
        lead += item.tokens
    return lead


def count_kept(items: Sequence[Item], messages: int | None, turns: int | None) -> int:
    """Return the tokens of the newest items that a fold by count keeps: messages or turns, whichever are more."""
    tokens = met = 0
    for at, item in enumerate(reversed(items)):
        if item.is_fold or (at >= (messages or 0) and met >= (turns or 0)):
            break
        tokens += item.tokens
        met += is_user_turn(item.role, item.parts)
    return tokens


def count_head(items: Sequence[Item], fixed_tokens: int) -> int:
    """Return the tokens that precede any possible change: those of the lead, and the first user message."""
    head = count_lead(items, fixed_tokens)
    first = next((item for item in items if item.is_fold or item.role != "system"), None)
    return head + first.tokens if first is not None and not first.is_fold and first.message.starts_turn else head


def check_fit(view: View, budget: Budget) -> None:
    """L1: raise BudgetTooSmall, naming what cannot shrink, if the view is over *hard*."""
    if view.tokens <= budget.hard:
        return
    parts = {"system prompt and tools": view.fixed_tokens}
    system = sum(item.tokens for item in view.items if not item.is_fold and item.role == "system")
    if system:
        parts["system messages"] = system
    if view.newest_user is not None:
        parts["newest user message"] = view.items[view.newest_user].tokens
    listed = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.items() if tokens)
    raise BudgetTooSmall(
        Sentence(
            "the context cannot shrink below {tokens:,} tokens; the budget is {budget:,}; "
            "what cannot shrink: {listed}; raise the budget to at least {tokens:,} or shorten these",
            tokens=view.tokens,
            budget=budget.hard,
            listed=listed,
        ),
        budget=budget.hard,
        parts=parts,
        tokens=view.tokens,
    )


def detect_view_language(view: View) -> Language:
    """Return the language of this conversation: that of its newest user messages."""
    return detect_said(item for item in reversed(view.items) if not item.is_fold)


def detect_said(newest_first: Iterable[Item | Message]) -> Language:
    """Return the language of most of the first user messages among these, so that no long one decides alone."""
    spoken = (item for item in newest_first if is_user_turn(item.role, item.parts))
    texts = ["\n".join(part.text for part in item.parts if part.kind == "text") for item in islice(spoken, _SAMPLE)]
    zh = sum(map(_is_chinese, texts))
    return detect_language(texts) if zh * 2 == len(texts) else "zh" if zh * 2 > len(texts) else "en"


def _is_chinese(text: str) -> bool:
    """Return whether the first or the last line is Chinese: people write before or after what they paste."""
    said = text.strip()
    ends = (said[:_END].split("\n")[0], said[-_END:].split("\n")[-1])
    return any(detect_language([line]) == "zh" for line in ends)


def _count_view(view: View, reported_tokens: int | None, unsent: frozenset[str]) -> Counts:
    return Counts(
        unsent_tokens=count_unsent(view.items, unsent),
        tokens=view.tokens,
        messages=len(view.items),
        turns=sum(not view.items[at].is_fold for at in find_rounds(view.items)),
        reported_tokens=reported_tokens,
        spoken=sum(item.role != "system" for item in view.items),
        document_tokens=count_documents(view),
    )


def count_unsent(items: Sequence[Item], unsent: Collection[str]) -> int:
    """Return the tokens of the items that no request contained yet, searching from the newest backwards."""
    tokens, left = 0, len(unsent)
    for item in reversed(items):
        if not left:
            break
        if not item.is_fold and item.message.id in unsent:
            tokens += item.tokens
            left -= 1
    return tokens


def order_stages(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages with those that are only for *hard* last, else in the order given."""
    return (*(stage for stage in stages if stage.when != "hard"), *(stage for stage in stages if stage.when == "hard"))
