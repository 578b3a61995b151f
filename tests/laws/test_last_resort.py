"""Clamp is the last resort: what is protected is cut only where it would not fit even alone."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.config import CompressionConfig
from refold.conversation import View
from refold.ladder.plan import REST_SHARE, REST_TOKENS_MAX
from tests.rigs.effort import up_to
from tests.rigs.engine import make_view, run_ladder
from tests.rigs.strategies import Talk, talks

# Two folds of one line each, before and after the newest user message, and what a line of each language takes.
LINES_TOKENS = 140
PRESETS = ("default", "archive", "importance", "offload", "hybrid", "turns")


def count_least(view: View) -> int:
    """Return the least budget: what is protected, and a small share that what is older keeps for itself."""
    kept = view.fixed_tokens + sum(view.items[at].tokens for at in view.protected)
    return max(kept + LINES_TOKENS, min(kept * REST_SHARE // (REST_SHARE - 1) + 1, kept + REST_TOKENS_MAX))


@settings(max_examples=up_to(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(talks(), st.sampled_from(PRESETS), st.sampled_from([0, 1, 40, 300]))
def test_the_newest_step_and_the_newest_user_message_are_whole_wherever_they_fit(
    talk: Talk, preset: str, more: int
) -> None:
    view = make_view(talk.wire, talk.messages, talk.system, talk.tools)
    ran = run_ladder(view, CompressionConfig.preset(preset).stages(), count_least(view) + more)
    out = {id(item.raw) for item in ran.outcome.view.items}
    assert all(id(view.items[at].raw) in out for at in view.protected)


def test_a_large_newest_step_beside_short_older_ones_stays_whole() -> None:
    roles = ("user", "assistant")
    said = [{"role": roles[n % 2], "content": f"Step {n}: look at line {n} of the file."} for n in range(400)]
    step = {"role": "assistant", "content": "The whole file:\n" + "x = 1\n" * 1_500}
    view = make_view("openai-chat", [*said, step, {"role": "user", "content": "Go on."}])
    ran = run_ladder(view, CompressionConfig.preset("default").stages(), count_least(view))
    assert step in [item.raw for item in ran.outcome.view.items]
