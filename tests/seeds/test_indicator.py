"""The threshold that acts next, as every indicator shows it, in every preset and in a growing conversation."""

import re
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.agent.context_tools import ContextTools
from refold.budget import Budget, Counts, Thresholds
from refold.budget.decision import DecisionPolicy, look_ahead
from refold.cli.repl.screen import write_gauge
from tests.rigs.growing import SENTENCES, grow, work

ROOM = Budget(hard=100_000, soft=90_000, warn=80_000, target=45_000, window=128_000)
ARCHIVE = Thresholds(rounds=100, tokens=4_000, kept=50)


@pytest.mark.parametrize(
    ("counts", "thresholds", "told"),
    [
        (Counts(1_000, 60, 30), ARCHIVE, "compresses at 100 messages or 4,000 tokens; 40 messages to go"),
        (Counts(3_999, 60, 30), ARCHIVE, "compresses at 100 messages or 4,000 tokens; 1 token to go"),
        (Counts(9_000, 30, 15), ARCHIVE, "compresses at 51 messages; 21 messages to go"),
        (Counts(4_000, 60, 30), ARCHIVE, "compresses at 100 messages or 4,000 tokens; the next request compresses"),
        (Counts(1_000, 19, 10), Thresholds(messages=20, turns=50, kept=20),
         "compresses at 21 messages or 51 turns or 90,000 tokens; 2 messages to go"),
        (Counts(89_000, 19, 10), Thresholds(), "compresses at 90,000 tokens; 1,000 tokens to go"),
        (Counts(100_001, 9, 4), ARCHIVE, "compresses at 100 messages or 4,000 tokens; the next request compresses"),
    ],
)  # fmt: skip
def test_s3_9_the_sentence_names_what_acts_next(counts: Counts, thresholds: Thresholds, told: str) -> None:
    assert look_ahead(counts, ROOM, DecisionPolicy(thresholds)).tell() == told


def test_s3_9_the_sentence_is_in_chinese_too() -> None:
    assert (
        look_ahead(Counts(1_000, 60, 30), ROOM, DecisionPolicy(ARCHIVE)).tell("zh")
        == "达到 100 条消息或 4,000 token 时压缩；还差 40 条消息"
    )


@pytest.mark.parametrize(
    ("preset", "told"),
    [
        ("archive", "compresses at 100 messages or 4,000 tokens; "),
        ("importance", "compresses at 21 messages or 51 turns or "),
        ("offload", "compresses at 6,000 tokens; "),
        ("hybrid", "compresses at 6,400 tokens; "),
        ("turns", "compresses at 6,000 tokens; "),
        ("default", "compresses at "),
    ],
)
def test_s3_9_what_is_announced_is_what_acts_in_a_growing_chat(tmp_path: Path, preset: str, told: str) -> None:
    config = CompressionConfig(preset=preset, window=8_000, reserve=500, background=False)
    announced = acted = 0
    with ContextCompressionManager(config, tmp_path) as manager:
        for history in grow("mixed", "en", 130):
            due = manager.status("s1").ahead.is_due if announced else False
            manager.append("s1", history[-2:] if len(history) > 1 else history)
            before = manager.status("s1")
            waits = re.fullmatch(r"compresses at (\d+) messages; (\d+) messages? to go", before.ahead.tell())
            assert waits or before.ahead.tell().startswith(told)
            assert not waits or int(waits[1]) == before.messages_in_view + int(waits[2])
            assert before.ahead.tell() in write_gauge(before)
            assert before.ahead.tell()[1:] in ContextTools(manager, "s1").context_status()
            assert before.to_dict()["next"] == before.ahead.tell()
            report = manager.prepare_context_sync("s1").report
            assert report is not None
            announced += before.ahead.is_due
            if report.stages and preset != "default":
                acted += 1
                assert before.ahead.is_due or due
    assert announced
    assert acted or preset == "default"


GROWN = {
    "chat": lambda: grow("mixed", "en", 130),
    "long chat": lambda: grow("pages", "zh", 60),
    "agent": lambda: work(turns=3, steps=20),
    "agent, one turn": lambda: work(turns=1, steps=60, language="zh"),
}


@pytest.mark.parametrize("window", [16_000, 64_000])
@pytest.mark.parametrize("kind", GROWN)
@pytest.mark.parametrize("preset", ["archive", "importance", "offload", "hybrid", "turns", "default"])
def test_s3_9_whatever_is_announced_happens_and_nothing_else(
    tmp_path: Path, preset: str, kind: str, window: int
) -> None:
    """With the messages of a request stored, the indicator says whether that request compresses."""
    config = CompressionConfig(preset=preset, window=window, reserve=2_000, background=False)
    with ContextCompressionManager(config, tmp_path) as manager:
        stored = 0
        for history in GROWN[kind]():
            manager.append("s1", history[stored:])
            stored = len(history)
            ahead = manager.status("s1").ahead
            report = manager.prepare_context_sync("s1").report
            assert report is not None
            has_acted = any(stage.edits for stage in report.stages)
            assert ahead.is_due is has_acted, f"{stored} messages: {ahead.tell()}; then {report.reason}"


def test_s3_9_where_nothing_can_be_compressed_the_indicator_says_why(tmp_path: Path) -> None:
    """Three messages pass the trigger, but the document keeps the last five."""
    config = CompressionConfig(preset="offload", window=64_000, background=False)
    told = []
    with ContextCompressionManager(config, tmp_path) as manager:
        for at in range(3):
            manager.append("s1", [{"role": ("user", "assistant")[at % 2], "content": SENTENCES["en"] * 1_100}])
            status = manager.status("s1")
            told.append(status.ahead.tell())
            assert not status.ahead.is_due
            assert told[-1] in write_gauge(status)
            assert manager.prepare_context_sync("s1").summary is None
        chinese = status.ahead.tell("zh")
    assert all(one.endswith("tokens to go") for one in told[:2])
    assert "; not yet: " in told[-1]
    assert told[-1].endswith("every message is recent or important")
    assert "；暂不压缩：" in chinese


def test_s3_9_the_page_is_green_amber_or_red_by_the_threshold_that_acts_next(tmp_path: Path) -> None:
    pytest.importorskip("nicegui", reason="needs refold[web]")
    from refold.web.context import Context

    config = CompressionConfig(threshold_rounds=100, threshold_tokens=4_000, retention_count=50)
    states = []
    with ContextCompressionManager(config, tmp_path) as manager:
        *_, history = grow("short", "en", 101)
        for count in (60, 95, 100):
            manager.append("s1", history[len(manager.read_view("s1")) if states else 0 : count])
            context = Context(manager.status("s1"), {}, warn=int(manager.status("s1").soft * 0.9), window_by="guess")
            states.append(context.state)
            assert context.acts_at == 4_000
    assert states == ["good", "warn", "bad"]
