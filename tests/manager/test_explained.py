"""Each decision is explained in full: why something was folded, and why it was not yet."""

from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.budget.economics import SAVING_SHARE_MIN
from refold.conversation import because
from refold.ladder.report import Report
from tests.rigs.histories import agent_messages


@pytest.fixture
def manager(tmp_path: Path) -> ContextCompressionManager:
    config = CompressionConfig(window=30_000, reserve=0, target_ratio=0.04, economic_ratio=0.05)
    return ContextCompressionManager(config, tmp_path)


def test_postponed_and_folded_messages_are_reported_in_full(manager: ContextCompressionManager) -> None:
    messages = agent_messages(60)
    for end in range(3, len(messages), 2):
        prepared = manager.prepare_context_sync("s", messages[: end + 1], model="claude-sonnet-4-5")
        waits = [note for note in prepared.report.notes if note.is_a(because.WAIT)]
        assert len(waits) <= 1
    told = manager.statistics("s")
    waited = [one for one in told.decisions if one.kind == "waited"]
    folded = [one for one in told.decisions if one.kind == "compressed"]
    assert waited, "at first a change does not pay"
    assert waited[0].reason.is_a(because.WAIT)
    assert folded
    assert folded[0].reason.is_a(because.SAVES)
    # The words say what it waits for, and nothing about when that will be: prices are not all that decides.
    assert all(float(one.reason.values["share"]) < SAVING_SHARE_MIN for one in waited)
    assert all(float(one.reason.values["share"]) >= SAVING_SHARE_MIN for one in folded)
    assert str(waited[0].reason).endswith("old tokens now would save less than a tenth of the expected bill")
    assert pytest.approx(0.1) == SAVING_SHARE_MIN, "the words say a tenth"
    assert told.waited == len(waited) <= told.compressions + 1, "logged once for each time of waiting, not per request"
    assert folded[0].tokens_after < folded[0].tokens_before
    assert next(iter(told.by_reason)) == "economic.saves"
    manager.close()


def test_what_an_undo_brought_back_is_not_counted_as_removable_to_save_money(tmp_path: Path) -> None:
    orders = [
        f"Order {4_100 + at}: " + " ".join(f"board {at * 37 + one} of oak" for one in range(60)) for at in range(140)
    ]
    messages: list[dict[str, object]] = []
    folds: list[Report] = []
    with ContextCompressionManager(CompressionConfig(window=60_000, reserve=0), tmp_path) as manager:
        for order in orders:
            messages.append({"role": "user", "content": order})
            report = manager.prepare_context_sync("s", messages, model="gpt-4o").report
            if report.stages:
                folds.append(report)
                manager.undo("s")  # What it hid is folded again only if it must be.
            messages.append({"role": "assistant", "content": "Noted."})
    assert folds[0].reason.is_a(because.SAVES)
    for report in folds:
        if report.reason.is_a(because.SAVES):
            removable = float(str(report.reason.values["removable"]))
            assert report.tokens_before - report.tokens_after > 0.9 * removable, "it frees what it says"


def test_the_status_says_at_which_size_the_next_compression_is_expected(tmp_path: Path) -> None:
    config = CompressionConfig(window=30_000, reserve=0, target_ratio=0.04, economic_ratio=0.05)
    messages = agent_messages(60)
    expected: list[int] = []
    with ContextCompressionManager(config, tmp_path) as manager:
        for end in range(3, len(messages), 2):
            prepared = manager.prepare_context_sync("s", messages[: end + 1], model="claude-sonnet-4-5")
            if prepared.report is not None and prepared.report.stages:
                break
            status = manager.status("s")
            assert status.tokens <= status.acts_at <= status.soft
            assert status.saves_money or status.acts_at == status.soft
            expected.append(status.acts_at)
        assert prepared.report.tokens_before == pytest.approx(expected[-1], rel=0.1)
    off = config.replace(economic=False)
    with ContextCompressionManager(off, tmp_path / "off") as manager:
        manager.prepare_context_sync("s", messages[:20], model="claude-sonnet-4-5")
        status = manager.status("s")
        assert (status.acts_at, status.saves_money) == (status.soft, False)


@pytest.mark.parametrize("model", ["my-own-model", "llama-4-405b-turbo-unheard-of"])
def test_a_model_of_unknown_prices_is_never_compressed_to_save_money(tmp_path: Path, model: str) -> None:
    config = CompressionConfig(window=30_000, reserve=0, target_ratio=0.04, economic_ratio=0.05)
    messages = agent_messages(60)
    with ContextCompressionManager(config, tmp_path) as manager:
        for end in range(3, len(messages), 8):
            prepared = manager.prepare_context_sync("s", messages[: end + 1], model=model)
            assert prepared.messages == messages[: end + 1]
