"""The turns document in a conversation that grows, with turns so large that the kept ones alone exceed the target."""

from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager, TokenCounter
from tests.rigs.growing import SENTENCES

KEPT_TURNS = 6
SLOW = pytest.mark.slow


class Counting:
    """A model that sums up in words of the conversation, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, prompt: str) -> str:
        self.asked += 1
        return "花园需要浇水。" if "花园" in prompt else "The garden needs water and some shade."


@pytest.mark.parametrize(
    ("window", "share", "language"),
    [
        (8_000, 0.11, "en"),  # Six turns fill more than the target of a half, and less than the trigger.
        pytest.param(8_000, 0.135, "zh", marks=SLOW),  # Six turns fill more than the trigger of three quarters.
        pytest.param(64_000, 0.11, "zh", marks=SLOW),
        pytest.param(64_000, 0.135, "en", marks=SLOW),
        pytest.param(64_000, 0.17, "en", marks=SLOW),  # Six turns do not fit at all.
    ],
)
def test_s4_5_large_turns_do_not_cost_a_model_call_each(
    tmp_path: Path, window: int, share: float, language: str
) -> None:
    """A turn takes ``share`` of the window."""
    model = Counting()
    config = CompressionConfig(
        preset="turns", context_window_tokens=window, reserve=window // 16, summariser="llm", background=False
    )
    sentence = SENTENCES[language]
    text = sentence * round(window * share / 2 / TokenCounter().count_text(sentence * 10) * 10)
    history: list[dict[str, str]] = []
    folds = []
    with ContextCompressionManager(config, tmp_path, llm=model) as manager:
        for turn in range(40):
            history.append({"role": "user", "content": f"{turn}: {text}"})
            manager.append("s", history[-2:])
            is_due = manager.status("s").ahead.is_due
            prepared = manager.prepare_context_sync("s")
            assert prepared.total_tokens <= window - window // 16
            assert prepared.report is not None
            acted = any(stage.edits for stage in prepared.report.stages)
            assert acted is is_due, f"turn {turn}: {prepared.report.reason}"
            if acted:
                folds.append(turn)
                assert prepared.messages[-1] == history[-1]
                if 6 * share < 0.9:
                    assert prepared.messages[1:] == history[-11:], "the last six turns stay as they are"
                    assert str(prepared.messages[0]["content"]).startswith("[COMPACTED_CONTEXT]")  # type: ignore[index]
            history.append({"role": "assistant", "content": f"{turn}: {text}"})
        assert not manager.status("s").stopped
        assert manager.verify() == []
    assert folds[-1] >= 36, "it stopped"
    assert model.asked <= len(range(40)) * 0.55, "nearly every turn cost a call"
    if 6 * share < 0.9:
        assert model.asked >= 5
