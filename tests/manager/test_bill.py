"""The cost of requests with and without compression, computed from the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.ledger.records import StoredUsage
from refold.manager.usage import price_usage, read_figures
from refold.tokens import model_info

MODEL = "gpt-5"
WORDS = "the deploy of service alpha failed at step nine because the disk was full " * 60


def fill(manager: ContextCompressionManager, session: str, turns: int) -> None:
    for turn in range(turns):
        manager.append(session, [{"role": "user", "content": f"question {turn}"}], format="openai-chat")
        prepared = manager.prepare_context_sync(session, None, "be brief", model=MODEL, format="openai-chat")
        usage = {
            "prompt_tokens": prepared.total_tokens,
            "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": prepared.total_tokens // 2},
        }
        manager.observe_usage(session, usage)
        manager.append(session, [{"role": "assistant", "content": f"{turn}: {WORDS}"}], format="openai-chat")


@pytest.fixture
def manager(tmp_path: Path) -> ContextCompressionManager:
    return ContextCompressionManager(CompressionConfig(model=MODEL, window=16_000), tmp_path)


def test_before_any_compression_sent_and_raw_are_the_same(manager: ContextCompressionManager) -> None:
    fill(manager, "a", 3)
    figures = read_figures(manager.ledger, "a")
    assert len(figures.requests) == 3
    assert all(one.tokens == one.tokens_raw for one in figures.requests)
    assert figures.bill.dollars > 0
    assert figures.bill.dollars_saved == 0, "a hit in the provider's cache is not what compression saved"
    assert figures.bill.cached_share == pytest.approx(0.5, abs=0.01)


def test_after_a_compression_the_raw_history_continues_as_if_there_had_been_none(
    manager: ContextCompressionManager,
) -> None:
    fill(manager, "a", 20)
    figures = read_figures(manager.ledger, "a")
    assert figures.folds
    sizes = [one.tokens_raw for one in figures.requests]
    assert sizes == sorted(sizes), "without compression a chat only grows"
    last = figures.requests[-1]
    row = manager.ledger.read_session("a")
    assert row is not None
    whole = row.tokens - manager.ledger.read_messages("a")[-1].tokens
    assert last.tokens < last.tokens_raw
    assert last.tokens_raw == pytest.approx(whole, rel=0.05)
    assert figures.bill.over == 0, "gpt-5 takes more than this"


def test_an_undone_compression_no_longer_counts(manager: ContextCompressionManager) -> None:
    fill(manager, "a", 6)
    manager.compress("a")
    fill(manager, "a", 1)
    shrunk = read_figures(manager.ledger, "a").requests[-1]
    assert shrunk.tokens_raw > shrunk.tokens
    manager.undo("a")
    fill(manager, "a", 1)
    last = read_figures(manager.ledger, "a").requests[-1]
    assert last.tokens_raw == pytest.approx(last.tokens, rel=0.02)
    manager.redo("a")
    fill(manager, "a", 1)
    again = read_figures(manager.ledger, "a").requests[-1]
    assert again.tokens_raw > again.tokens


def test_a_message_that_grows_from_request_to_request_is_counted_once(manager: ContextCompressionManager) -> None:
    """A program that resends all of its notes in one message replaces the message, and what was made on it."""
    call = {"id": "c1", "type": "function", "function": {"name": "read_notes", "arguments": "{}"}}
    asked = [{"role": "user", "content": "Read them."}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    sizes = []
    for step in range(1, 13):
        notes = "\n".join(f"note {n}: {WORDS}" for n in range(step * 3))
        said = [*asked, {"role": "tool", "tool_call_id": "c1", "content": notes}]
        prepared = manager.prepare_context_sync("a", said, model=MODEL, format="openai-chat")
        manager.observe_usage("a", {"prompt_tokens": prepared.total_tokens, "completion_tokens": 50})
        sizes.append(sum(one.tokens for one in manager.ledger.read_messages("a")))
    figures = read_figures(manager.ledger, "a")
    assert len(figures.folds) > 3
    assert [one.tokens_raw for one in figures.requests] == pytest.approx(sizes, rel=0.1)
    assert figures.folded_away == pytest.approx(manager.status("a").folded_away, rel=0.1)


def test_a_model_without_a_known_price_has_tokens_and_no_bill(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    manager.append("a", [{"role": "user", "content": "hi"}], format="openai-chat")
    manager.prepare_context_sync("a", None, model="my-own-model")
    manager.observe_usage("a", 100)
    bill = read_figures(manager.ledger, "a").bill
    assert (bill.requests, bill.priced, bill.dollars, bill.dollars_saved) == (1, 0, 0.0, 0.0)


def test_a_refused_request_and_an_unknown_session_cost_nothing(manager: ContextCompressionManager) -> None:
    fill(manager, "a", 1)
    manager.observe_usage("a", 0, is_overflow=True)
    assert read_figures(manager.ledger, "a").bill.requests == 1
    assert read_figures(manager.ledger, "nobody").bill.requests == 0


def test_only_the_newest_requests_are_read_and_that_is_said(manager: ContextCompressionManager) -> None:
    fill(manager, "a", 5)
    figures = read_figures(manager.ledger, "a", requests_max=3)
    assert figures.is_cut
    assert len(figures.requests) == 3


def test_what_the_cache_gave_is_priced_as_the_provider_does() -> None:
    info = model_info("claude-haiku-5-5")
    assert info.prices is not None
    usage = StoredUsage(1.0, "claude-haiku-5-5", input_tokens=10_000, cache_read_tokens=8_000, cache_write_tokens=1_000)
    weighed = 1_000 + 8_000 * info.cache.read + 1_000 * info.cache.write
    assert price_usage(usage, info) == pytest.approx(weighed * info.prices.input / 1e6)
