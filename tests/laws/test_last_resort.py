"""Clamp is the last resort: what is protected is cut only where it would not fit even alone."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.config import CompressionConfig
from refold.ladder.plan import REST_SHARE, REST_TOKENS_MAX
from tests.effort import up_to

from .engine import make_view, run_ladder
from .strategies import Talk, talks

# Two folds of one line each, before and after the newest user message, and what a line of each language takes.
LINES_TOKENS = 140
PRESETS = ("default", "archive", "importance", "offload", "hybrid", "turns")


# A fold leaves short steps that it would not shrink; a few tokens over the budget, the last resort then takes the
# newest step, although folding everything older would do. Known since records are written from the state.
@pytest.mark.xfail(strict=False, reason="a fold leaves short steps, so the last resort cuts the newest one")
@settings(max_examples=up_to(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(talks(), st.sampled_from(PRESETS), st.sampled_from([0, 1, 40, 300]))
def test_the_newest_step_and_the_newest_user_message_are_whole_wherever_they_fit(
    talk: Talk, preset: str, more: int
) -> None:
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    kept = view.fixed_tokens + sum(view.items[at].tokens for at in view.protected)
    # What is older keeps a small share of the budget for itself.
    least = max(kept + LINES_TOKENS, min(kept * REST_SHARE // (REST_SHARE - 1) + 1, kept + REST_TOKENS_MAX))
    ran = run_ladder(view, CompressionConfig.preset(preset).stages(), least + more)
    out = {id(item.raw) for item in ran.outcome.view.items}
    assert all(id(view.items[at].raw) in out for at in view.protected)
