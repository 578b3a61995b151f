"""Runs the ladder on a conversation as every face does, for the law tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refold.budget import flat_budget
from refold.conversation import Edit, Lens, View, apply
from refold.formats import detect, parse_messages
from refold.ladder.plan import Outcome, Plan, order_stages, prepare
from refold.ladder.run import answer_nothing, drive
from refold.stages.stage import Stage
from refold.tokens import counter_for

ROOM = 1_500


@dataclass(frozen=True)
class Ran:
    """The view before, what became of it, and the budget."""

    before: View
    outcome: Outcome
    budget: int


def make_view(
    wire: str, messages: Sequence[Any], system: Any = None, tools: Any = None, edits: Sequence[Edit] = ()
) -> View:
    """Return the view of a conversation under edits, exact counts."""
    form = detect(messages, system=system, tools=tools, name=wire)
    counter = counter_for(None)
    lens = Lens(form, counter.count_parts, counter.count_text)
    fixed = 2 + counter.count_text(form.read_system(system)) + counter.count_tools(tools)
    return apply(parse_messages(form, messages), edits, lens, fixed_tokens=fixed)


def floor_tokens(view: View) -> int:
    """Return the least budget that must always work: system, tools, newest user message and some room."""
    spoken = [item.tokens for item in view.items if item.message.starts_turn]
    system = sum(item.tokens for item in view.items if item.role == "system")
    return view.fixed_tokens + system + (spoken[-1] if spoken else 0) + ROOM


def run_ladder(view: View, stages: Sequence[Stage], budget: int) -> Ran:
    """Bring a view within a budget, the laws raising."""
    plan = Plan(budget=flat_budget(budget), stages=order_stages(stages), strict=True)
    return Ran(view, drive(prepare(view, plan), answer_nothing), budget)
