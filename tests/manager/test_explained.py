"""Each decision is explained in full: why something was folded, and why it was not yet."""

from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.conversation import because
from refold.manager.status import gather_statistics
from tests.replay.files import agent_messages


@pytest.fixture
def manager(tmp_path: Path) -> ContextCompressionManager:
    config = CompressionConfig(window=30_000, reserve=0, target_ratio=0.04, economic_ratio=0.05)
    return ContextCompressionManager(config, tmp_path)


def test_what_was_put_off_and_what_was_folded_are_told_whole(manager: ContextCompressionManager) -> None:
    messages = agent_messages(60)
    for end in range(3, len(messages), 2):
        prepared = manager.prepare_context_sync("s", messages[: end + 1], model="gpt-4o")
        waits = [note for note in prepared.report.notes if note.startswith("waiting:")]
        assert len(waits) <= 1
    told = gather_statistics(manager.ledger, "s")
    waited = [one for one in told.decisions if one.kind == "waited"]
    folded = [one for one in told.decisions if one.kind == "compressed"]
    assert waited, "at first a change does not pay"
    assert waited[0].reason.is_a(because.WAIT)
    assert folded
    assert folded[0].reason.is_a(because.SAVES)
    assert told.waited == len(waited) <= told.compressions + 1, "logged once for each time of waiting, not per request"
    assert folded[0].tokens_after < folded[0].tokens_before
    assert next(iter(told.by_reason)) == "economic.saves"
    manager.close()
