"""The expected cost of a change: only the tokens that are written because of it."""

import pytest

from refold.budget import Budget
from refold.conversation.view import Lens, apply
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.ladder.plan import Outcome, Plan, prepare
from refold.ladder.run import answer_nothing, drive
from refold.stages.fold import Fold
from refold.tokens import counter_for
from tests.rigs.histories import agent_messages


@pytest.fixture
def outcome() -> Outcome:
    counter = counter_for("gpt-4o")
    form = make_format("openai-chat")
    lens = Lens(form, counter.count_parts, counter.count_text)
    view = apply(parse_messages(form, agent_messages(30)[:-1]), (), lens)
    budget = Budget(hard=4_000, soft=3_900, warn=3_000, target=1_000, window=4_000)
    return drive(prepare(view, Plan(budget, (Fold(),))), answer_nothing)


def test_a_change_costs_the_rewritten_tokens_and_not_new_ones(outcome: Outcome) -> None:
    items = outcome.view.items
    assert any(item.is_fold for item in items)
    first = next(at for at, item in enumerate(items) if item.is_fold)
    answered = max(at for at, item in enumerate(items) if item.role == "assistant")
    assert outcome.carry.kept_tokens == sum(item.tokens for item in items[first:answered])
    newest = sum(item.tokens for item in items[answered:])
    assert newest > 0
    assert outcome.carry.floor_tokens == outcome.view.tokens >= outcome.carry.kept_tokens + newest
