"""The size of a fold is that of the originals it covers, also where it took earlier folds in."""

from __future__ import annotations

from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from refold.ladder.report import edit_to_dict
from refold.tokens import counter_for


def test_a_fold_over_folds_shows_the_tokens_of_all_originals(tmp_path: Any) -> None:
    config = CompressionConfig(window=4_000, reserve=200, summariser="extract", economic=False)
    manager = ContextCompressionManager(config, tmp_path)
    messages: list[dict[str, Any]] = []
    for n in range(120):
        messages.append({"role": "user", "content": f"Question {n}: what grows in bed {n}? " + "Tell me more. " * 20})
        messages.append({"role": "assistant", "content": f"In bed {n} there are beans. " + "They like the sun. " * 20})
        manager.prepare_context_sync("s", messages)
    stored = [one.edit for one in manager.ledger.read_edits("s") if one.edit.fold]
    largest = max(stored, key=lambda edit: len(edit.covers))
    assert largest.made_from, "it took earlier folds in"
    count = counter_for(config.model).count_text
    covered = sum(count(str(message["content"])) for message in messages[: len(largest.covers)])
    assert largest.tokens_original >= covered
    assert edit_to_dict(largest)["tokens_before"] == largest.tokens_original > largest.tokens_before
    manager.close()
