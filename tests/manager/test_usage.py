"""Usage that providers report: it corrects counting, triggers by their own figure (S3.4), and may force (S4.6)."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager, FormatError
from refold.conversation import because
from refold.ledger.sqlite import SqliteLedger
from refold.manager.usage import read_usage
from tests.rigs.manager import SMALL, agent, chat


@dataclass(slots=True)
class Slotted:
    """Usage as an object without a dict."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int


HYBRID = CompressionConfig.preset("hybrid").replace(window=100_000, reserve=1_000)


@pytest.mark.parametrize(
    ("reported", "input_tokens", "output_tokens", "cached"),
    [
        (1_200, 1_200, 0, 0),
        (
            {"prompt_tokens": 900, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 800}},
            900,
            20,
            800,
        ),
        ({"input_tokens": 100, "cache_read_input_tokens": 700, "output_tokens": 5}, 800, 5, 700),
        ({"input_tokens": 900, "input_tokens_details": {"cached_tokens": 640}, "output_tokens": 5}, 900, 5, 640),
        (SimpleNamespace(input_tokens=7, output_tokens=1), 7, 1, 0),
        ({"input_tokens": 90, "output_tokens": 5, "input_token_details": {"cache_read": 64}}, 90, 5, 64),
        (Slotted(input_tokens=90, output_tokens=5, cache_read_tokens=64), 90, 5, 64),
        ({"prompt_token_count": 90, "candidates_token_count": 5, "cached_content_token_count": 64}, 90, 5, 64),
        ({"input_token_count": 90, "output_token_count": 5, "cache_read_input_token_count": 64}, 90, 5, 64),
        ({"inputTokens": 90, "outputTokens": 5, "cacheReadInputTokens": 64}, 90, 5, 64),
        ({"prompt_tokens": float("nan"), "completion_tokens": None}, 0, 0, 0),
        ({"prompt_tokens": -5, "completion_tokens": 1e30}, 0, 1_000_000_000, 0),
    ],
)
def test_every_providers_usage_is_understood(reported: Any, input_tokens: int, output_tokens: int, cached: int) -> None:
    figures = read_usage(reported)
    assert figures["input_tokens"] == input_tokens
    assert figures.get("output_tokens", 0) == output_tokens
    assert figures.get("cache_read_tokens", 0) == cached


@pytest.mark.parametrize("reported", ["many", True, None, [5]])
def test_an_invalid_usage_is_refused(tmp_path: Path, reported: Any) -> None:
    manager = ContextCompressionManager(HYBRID, tmp_path)
    manager.prepare_context_sync("s1", chat(2))
    with pytest.raises(FormatError, match="usage is a number"):
        manager.observe_usage("s1", reported)


def test_s3_4_reported_usage_over_the_threshold_triggers(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HYBRID, tmp_path)
    history = chat(20)
    manager.prepare_context_sync("s1", history, model="gpt-4o")
    manager.observe_usage("s1", 79_000)
    assert manager.prepare_context_sync("s1", history, model="gpt-4o").messages == history
    manager.observe_usage("s1", 80_000)
    prepared = manager.prepare_context_sync("s1", history, model="gpt-4o")
    assert len(prepared.messages) == 7
    assert prepared.report is not None
    assert str(prepared.report.reason) == "the provider reported 80,000 tokens, 80% of the window"


def test_s3_4_what_came_since_the_report_is_added_by_our_own_count(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HYBRID, tmp_path)
    history = chat(20)
    manager.prepare_context_sync("s1", history, model="gpt-4o")
    manager.observe_usage("s1", 79_950)
    history += [{"role": "user", "content": "word " * 60}]
    report = manager.prepare_context_sync("s1", history, model="gpt-4o").report
    assert report is not None
    assert report.stages


def test_s3_4_usage_of_a_request_before_the_last_edit_says_nothing(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HYBRID, tmp_path)
    history = chat(20)
    manager.prepare_context_sync("s1", history, model="gpt-4o")
    manager.compress("s1")
    # The bill of the request that was sent before the compression comes in late.
    manager.observe_usage("s1", 95_000)
    history += chat(4)
    report = manager.prepare_context_sync("s1", history, model="gpt-4o").report
    assert report is not None
    assert not report.stages


def test_a_report_holds_after_a_restart_and_only_for_its_model(tmp_path: Path) -> None:
    manager = ContextCompressionManager(HYBRID, tmp_path)
    history = chat(20)
    manager.prepare_context_sync("s1", history, model="gpt-4o")
    manager.observe_usage("s1", 90_000)
    other = ContextCompressionManager(HYBRID, tmp_path).prepare_context_sync("s1", history, model="gpt-4.1")
    assert other.messages == history
    assert (
        len(ContextCompressionManager(HYBRID, tmp_path).prepare_context_sync("s1", history, model="gpt-4o").messages)
        == 7
    )


def test_reports_narrow_the_margin_of_an_estimate(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    history = agent(30)
    first = manager.prepare_context_sync("s1", history, model="claude-opus-4-5")
    assert first.report is not None
    assert first.report.margin > 0
    for _ in range(10):
        manager.observe_usage("s1", int(first.total_tokens * 1.01))
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    later = manager.prepare_context_sync("s1", history, model="claude-opus-4-5")
    assert later.report is not None
    assert later.report.margin < first.report.margin
    assert later.report.budget.hard > first.report.budget.hard
    assert manager.ledger.read_usage("s1")[0].counted_tokens == first.total_tokens


def test_s4_6_an_answer_that_was_cut_off_forces_in_preset_turns(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig.preset("turns"), tmp_path)
    history = chat(40)
    manager.prepare_context_sync("s1", history)
    manager.observe_usage("s1", 500, finish_reason="length")
    prepared = manager.prepare_context_sync("s1", history)
    assert prepared.report is not None
    assert prepared.report.reason == because.CUT_OFF()
    assert len(prepared.messages) < len(history)
    assert not manager.prepare_context_sync("s1", history).report.stages  # type: ignore[union-attr]


def test_s4_6_by_default_only_if_the_window_was_nearly_full(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(window=10_000, reserve=0), tmp_path)
    history = chat(40)
    manager.prepare_context_sync("s1", history)
    manager.observe_usage("s1", {"prompt_tokens": 500, "completion_tokens": 4_000}, finish_reason="length")
    assert manager.prepare_context_sync("s1", history).messages == history
    manager.observe_usage("s1", {"prompt_tokens": 8_000, "completion_tokens": 1_500}, finish_reason="length")
    assert manager.prepare_context_sync("s1", history).messages != history


def test_s4_6_an_overflow_error_forces(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(), tmp_path)
    history = chat(40)
    manager.prepare_context_sync("s1", history)
    manager.observe_usage("s1", 0, is_overflow=True)
    prepared = manager.prepare_context_sync("s1", history)
    assert prepared.report is not None
    assert prepared.report.reason == because.OVERFLOW()
    assert prepared.messages != history


class LedgerOfRows(SqliteLedger):
    """A ledger that gives no messages away."""

    def read_messages(self, *_args: object, **_options: object) -> Any:
        raise AssertionError("a report reads no messages: a large session would hold up everybody else")


def test_a_report_about_a_session_of_another_process_reads_none_of_its_messages(tmp_path: Path) -> None:
    first = ContextCompressionManager(SMALL, tmp_path)
    first.prepare_context_sync("s", chat(6))
    first.close()
    second = ContextCompressionManager(SMALL, tmp_path, ledger=LedgerOfRows(tmp_path / ".refold" / "ledger.db"))
    second.observe_usage("s", {"prompt_tokens": 3_900, "completion_tokens": 10}, finish_reason="length")
    assert [usage.input_tokens for usage in second.ledger.read_usage("s")] == [3_900]
    assert [usage.path_length for usage in second.ledger.read_usage("s")] == [6]
    second.close()


def test_a_changed_tokenizer_counts_from_the_next_request_on(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(model="gpt-4o"), tmp_path) as manager:
        before = manager.prepare_context_sync("s1", chat(6))
        manager.configure(tokenizer="chars/4")
        after = manager.prepare_context_sync("s1", chat(6))
    with ContextCompressionManager(CompressionConfig(model="gpt-4o", tokenizer="chars/4"), tmp_path / "new") as manager:
        fresh = manager.prepare_context_sync("s1", chat(6))
    assert before.total_tokens != after.total_tokens == fresh.total_tokens
