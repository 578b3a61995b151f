"""The compressor of the first document trusts a model no further than a fold does."""

import pytest

from refold import ContextCompressor
from refold.testing import ScriptedModel, refuse, say
from tests.rigs.model import chatting


async def test_invented_names_leave_the_summary_and_the_facts() -> None:
    model = ScriptedModel(
        "They planned a garden. The plan is in garden_plan.md.", "Spring comes first\nThe code is 998877"
    )
    result = await ContextCompressor(model).compress(chatting(20), 4)
    assert result.summary == "They planned a garden."
    assert result.key_facts == ["Spring comes first"]


@pytest.mark.parametrize("step", [refuse(), say("cut", finish_reason="length"), say("I'm sorry, but I can't do that.")])
async def test_an_answer_that_is_not_a_summary_leaves_the_extract(step: object) -> None:
    compressor = ContextCompressor(ScriptedModel(step))  # type: ignore[arg-type]
    result = await compressor.compress(chatting(20), 4)
    without = await ContextCompressor().compress(chatting(20), 4)
    assert result.summary == without.summary
    assert compressor.last_error
