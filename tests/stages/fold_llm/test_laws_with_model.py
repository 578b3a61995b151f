"""The laws hold with any conversation, in every format, and any words a model may answer with."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.budget import Trigger, flat_budget
from refold.conversation import because
from refold.conversation.message import join_parts, mark, message_handle
from refold.errors import BudgetTooSmall
from refold.ladder.plan import Plan, prepare
from refold.ladder.run import drive
from refold.prepared import Originals
from refold.stages.clamp import Clamp
from refold.stages.fold import Fold
from refold.stages.stage import Ask, Reply
from refold.stages.window import Window
from refold.testing import find_violations
from tests.rigs.effort import up_to
from tests.rigs.engine import floor_tokens, make_view
from tests.rigs.model import GOOD
from tests.rigs.strategies import Talk, talks, texts

FOLDS = (
    Fold(summariser="llm"),
    Fold(summariser="llm", keep_messages=3, on_failure="keep"),
    Fold(summariser="llm", keep_turns=1, role="assistant", opening="[COMPACTED_CONTEXT]", prompt_style="turns"),
    Fold(summariser="llm", style="short", role="system", prompt_style="archive", ask_facts=True, summary_chars_max=80),
    Fold(summariser="llm", style="truncated", prompt_style="hybrid", opening="[A]", extract_opening="[A]\n\n[B]"),
)
REASONS = ("stop", "length", "tool_calls", "refusal", "content_filter", "whatever")
ODD = (
    "⟦end of record⟧",
    "U> I said so",
    "\ud800",
    "[COMPACTED_CONTEXT]",
    "FACTS\n- todo: x",
    "# ",
    "\u2028",
    "⟨m:12345678⟩",
)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Answers of a model: good, odd, wrong, or none."""
    if draw(st.booleans()):
        return Reply(error="down") if draw(st.booleans()) else Reply(GOOD)
    pieces = draw(st.lists(st.one_of(texts(large=False), st.sampled_from((*ODD, GOOD))), max_size=5))
    return Reply("\n".join(pieces), draw(st.sampled_from(REASONS)))


@given(
    talks(), st.sampled_from(FOLDS), st.lists(replies(), min_size=1, max_size=4), st.floats(0.05, 0.9), st.booleans()
)
@settings(max_examples=up_to(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_a_model_answers_the_context_fits_is_valid_and_nothing_is_lost(
    talk: Talk, fold: Fold, answers: list[Reply], share: float, forced: bool
) -> None:
    view = make_view(talk.wire, talk.messages)
    budget = max(floor_tokens(view), int(view.tokens * share))
    told = cycle(answers)
    asked: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask)
        return next(told)

    trigger = Trigger("soft", because.MANUAL(), True) if forced else None
    plan = Plan(flat_budget(budget), (fold, Window(), Clamp()), trigger=trigger, strict=True)
    try:
        outcome = drive(prepare(view, plan), answer)
    except BudgetTooSmall:
        return
    assert outcome.view.tokens <= budget
    raws: list[Any] = [item.raw for item in outcome.view.items]
    before = find_violations(talk.wire, list(talk.messages))
    assert not [one for one in find_violations(talk.wire, raws) if not before]
    originals = Originals(view.messages, outcome.view.edits)
    for edit in outcome.view.edits:
        if edit.fold is not None:
            behind = originals.read(edit.fold.handle)
            covered = [message for message in view.messages if message.id in edit.covers]
            assert len(covered) == len(edit.covers)
            assert all(f"{mark(message_handle(one))} {one.role}\n{join_parts(one)}" in behind for one in covered)
            if not fold.opening and edit.stage == "fold":
                # A small record has an opening line only.
                lines = 1 if edit.text.startswith(("⟦record of ", "⟦较早 ")) else 2
                assert edit.text.count("⟦") == edit.text.count("⟧") == lines
    assert len(asked) <= 2 * max(1, len(outcome.edits) + 2)
