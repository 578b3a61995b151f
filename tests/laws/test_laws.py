"""The laws as properties: random conversations in every format × random ladders and every preset × random budgets."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.config import PRESETS as ALL_PRESETS
from refold.config import CompressionConfig
from refold.conversation import View, apply
from refold.conversation.message import find_marks
from refold.errors import BudgetTooSmall
from refold.ladder.laws import common_prefix
from refold.ladder.run import answer_nothing, drive
from refold.prepared import Originals
from refold.stages import STAGES
from refold.stages.clamp import Clamp
from refold.stages.dedupe import Dedupe
from refold.stages.densify import Densify
from refold.stages.fold import Fold
from refold.stages.mask import Mask
from refold.stages.offload import Offload
from refold.stages.prune import Prune
from refold.stages.stage import Stage
from refold.stages.truncate import Truncate
from refold.stages.window import Window
from refold.testing import find_violations
from tests.rigs.effort import up_to
from tests.rigs.engine import Ran, floor_tokens, make_view, run_ladder
from tests.rigs.strategies import Talk, talks

LAST = (Window(), Clamp())
# Each stage as it comes, and one that bites on small conversations too.
EAGER: tuple[Stage, ...] = (
    Truncate(chars_max=300),
    Truncate(lines_max=12),
    Densify(),
    Dedupe(chars_min=20),
    Offload(share=1.0),
    Mask(keep=0, tokens_min=8, arguments_tokens_min=8),
    Fold(keep_messages=4),
    Fold(keep_turns=1, keep_first_user=False, role="assistant", opening="[COMPACTED_CONTEXT]"),
    Fold(importance_threshold=0.3, role="system", style="short"),
    Fold(style="truncated", opening="[Truncated Summary]"),
    Prune(),
    Window(keep_turns=1),
)
OPTIONAL: tuple[Stage, ...] = tuple(STAGES[name]() for name in STAGES if name not in ("window", "clamp"))
PRESETS = tuple(CompressionConfig(preset=name, write_files=True).stages() for name in ALL_PRESETS)
many = settings(max_examples=up_to(120), deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def runs(draw: st.DrawFn) -> tuple[Talk, Ran]:
    """A conversation, some of the stages in some order, a budget that leaves room, and what came of it."""
    talk = draw(talks())
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    some = st.lists(st.sampled_from((*OPTIONAL, *EAGER)), unique=True, max_size=6).map(lambda few: [*few, *LAST])
    stages = draw(st.one_of(some, st.sampled_from(PRESETS)))
    share = draw(st.sampled_from([0.8, 0.4, 0.2, 0.1, 0.02]))
    budget = max(int(view.tokens * share), floor_tokens(view))
    return talk, run_ladder(view, stages, budget)


def raws(view: View) -> list[Any]:
    return [item.raw for item in view.items]


@many
@given(runs())
def test_l1_every_prepared_context_fits_its_budget(run: tuple[Talk, Ran]) -> None:
    _, ran = run
    view = ran.outcome.view
    assert view.tokens <= ran.budget
    fresh = apply(view.messages, view.edits, make_view_lens(view), fixed_tokens=view.fixed_tokens)
    assert fresh.tokens == view.tokens, "the count is the same when everything is counted again"


def make_view_lens(view: View) -> Any:
    return type(view.lens)(view.lens.format, view.lens._count_parts, view.lens.count_text)


@many
@given(runs())
def test_l2_no_prepared_context_is_refused_by_its_provider(run: tuple[Talk, Ran]) -> None:
    talk, ran = run
    known = {strip_numbers(fault) for fault in find_violations(talk.wire, talk.messages)}
    found = {strip_numbers(fault) for fault in find_violations(talk.wire, raws(ran.outcome.view))}
    assert found <= known


def strip_numbers(fault: str) -> str:
    return re.sub(r"\d+", "#", fault)


@many
@given(talks(), st.sampled_from([0.8, 0.3]))
def test_l3_untouched_messages_are_the_objects_that_came_in_and_the_input_is_never_changed(
    talk: Talk, share: float
) -> None:
    kept = copy.deepcopy(talk.messages)
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    budget = max(int(view.tokens * share), floor_tokens(view))
    ran = run_ladder(view, [*OPTIONAL, *LAST], budget)
    assert talk.messages == kept
    mine = {id(message) for message in talk.messages}
    for item in ran.outcome.view.items:
        assert item.edits or id(item.raw) in mine


@many
@given(runs())
def test_l4_every_accepted_edit_made_the_view_smaller(run: tuple[Talk, Ran]) -> None:
    _, ran = run
    for stage in ran.outcome.stages:
        assert not stage.edits or stage.tokens_after < stage.tokens_before


@many
@given(runs())
def test_l5_every_mark_we_wrote_leads_back_to_an_original(run: tuple[Talk, Ran]) -> None:
    talk, ran = run
    view = ran.outcome.view
    originals = Originals(view.messages, view.edits)
    forged = set(find_marks(json.dumps(talk.messages, ensure_ascii=False))) | {"m:deadbeef"}
    for edit in view.edits:
        for handle in set(find_marks(edit.text)) - forged:
            assert isinstance(originals.expand(handle), str)
    hidden = [item for item in view.items if item.edits]
    for item in hidden:
        assert all(edit.fold is not None or find_marks(edit.text) or edit.kind == "drop" for edit in item.edits)


@many
@given(runs(), talks())
def test_l6_without_a_batch_what_was_sent_before_is_sent_again_byte_for_byte(run: tuple[Talk, Ran], more: Talk) -> None:
    talk, ran = run
    later = [*talk.messages, *(more.messages if more.wire == talk.wire else [])]
    again = make_view(talk.wire, later, talk.system, talk.tools, ran.outcome.view.edits)
    old = ran.outcome.view.items
    assert common_prefix(old, again.items) == len(old)


@many
@given(runs(), st.randoms(use_true_random=False))
def test_l7_the_view_depends_on_the_set_of_edits_not_on_their_order(run: tuple[Talk, Ran], random: Any) -> None:
    talk, ran = run
    edits = list(ran.outcome.view.edits)
    random.shuffle(edits)
    again = make_view(talk.wire, talk.messages, talk.system, talk.tools, edits)
    assert raws(again) == raws(ran.outcome.view)
    without = make_view(talk.wire, talk.messages, talk.system, talk.tools, ())
    assert raws(without) == talk.messages


@many
@given(runs())
def test_l8_system_messages_newest_user_message_and_newest_step_are_untouched_unless_clamp_says_so(
    run: tuple[Talk, Ran],
) -> None:
    _, ran = run
    clamped = any(stage.stage == "clamp" and stage.edits for stage in ran.outcome.stages)
    out = {id(item.raw) for item in ran.outcome.view.items}
    for at in ran.before.protected:
        item = ran.before.items[at]
        assert id(item.raw) in out or (clamped and item.role != "system")
    spoken = [item for item in ran.before.items if item.message.starts_turn]
    assert not spoken or id(spoken[-1].raw) in out


@many
@given(talks())
def test_l10_when_it_fits_nothing_is_touched(talk: Talk) -> None:
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    ran = run_ladder(view, [*OPTIONAL, *LAST], view.tokens)
    assert ran.outcome.edits == ()
    assert all(a is b for a, b in zip(raws(ran.outcome.view), talk.messages, strict=True))


@many
@given(talks(), st.integers(1, 400))
def test_a_budget_that_leaves_no_room_is_a_typed_error_that_names_what_cannot_shrink(talk: Talk, budget: int) -> None:
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    try:
        ran = run_ladder(view, [*OPTIONAL, *LAST], budget)
    except BudgetTooSmall as error:
        assert str(budget) in str(error).replace(",", "")
        assert error.parts
    else:
        assert ran.outcome.view.tokens <= budget


@many
@given(runs())
def test_the_same_input_gives_the_same_bytes(run: tuple[Talk, Ran]) -> None:
    talk, ran = run
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    one = run_ladder(view, [*EAGER[:7], *OPTIONAL, *LAST], ran.budget)
    copied = copy.deepcopy(talk.messages)
    two = run_ladder(make_view(talk.wire, copied, talk.system, talk.tools), [*EAGER[:7], *OPTIONAL, *LAST], ran.budget)
    assert repr(raws(one.outcome.view)) == repr(raws(two.outcome.view))
    assert [edit.id for edit in one.outcome.edits] == [edit.id for edit in two.outcome.edits]


def test_the_drivers_are_given_a_model_that_is_not_there() -> None:
    def asks() -> Any:
        from refold.stages.stage import Ask

        reply = yield Ask("summarise", tokens_max=10)
        return str(reply.error)

    assert "no model" in drive(asks(), answer_nothing)


if __name__ == "__main__":
    pytest.main([__file__])
