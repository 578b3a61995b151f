"""A real, weak model behind the official client, end to end: whatever it answers, the context fits and is true."""

from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.conversation.reason import read_reason
from refold.llm.openai import OpenAIModel
from refold.testing import find_violations
from tests.llm.test_local_model import WINDOW, model  # noqa: F401 - the fixture of a server with a small model
from tests.rigs.model import working

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("style", ["sections", "archive"])
def test_a_fold_by_a_local_model_fits_and_says_how_it_came_about(
    tmp_path: Path,
    model: OpenAIModel,  # noqa: F811 - the fixture above
    style: str,
) -> None:
    small = OpenAIModel(model.name, url=model.url, timeout_s=60, window=WINDOW)
    config = CompressionConfig(
        window=4_000, reserve=500, compact_timeout_s=60, compact_retry_count=1, fold={"prompt_style": style}
    )
    manager = ContextCompressionManager(config, tmp_path, llm=small)
    sent = working(30)
    prepared = manager.prepare_context_sync("s1", sent)
    assert prepared.total_tokens <= 3_500
    assert find_violations("openai-chat", prepared.messages) == []
    assert manager.verify() == []
    event = next(one for one in manager.ledger.read_events("s1") if one.kind == "compressed")
    told: Any = event.fields["summaries"]
    note = str(read_reason(told["note"]))
    # Which it was is up to a weak model; that the record says so, and that the fold is what it says, is not.
    assert note.startswith("summary by a model" if "llm" in told["by"] else "extractive summary: ")
    assert told["by"] == [edit.fold.by for edit in prepared.edits if edit.fold is not None]
    assert "window" not in note, "the prompt fits the model's own window"
    manager.close()
