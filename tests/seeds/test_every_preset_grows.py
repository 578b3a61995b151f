"""Every preset over 300 messages and more of ordinary sizes, with its document's numbers, through every face.

Each test says at every request what stays and how it is marked, that nothing exceeds the window, and that compressions
go on for as long as the conversation does. Through the library it also says what the indicator announced before.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.testing import ScriptedProvider
from tests.rigs.cli import Shell
from tests.rigs.growing import grow, say
from tests.rigs.server import make_body, start_rig

MESSAGES = 320
SLOW = pytest.mark.slow


@dataclass(frozen=True)
class Rule:
    """The demands of a document: its settings, how the summary opens, and how many of the newest messages stay."""

    opening: str
    kept: int
    settings: dict[str, Any] = field(default_factory=dict)
    # Where the thresholds are shares of a window, messages are long enough to fill it more than once.
    size: str = ""


RULES = {
    "archive": Rule("[历史对话摘要]", 50),
    "importance": Rule("⟦", 19),
    "offload": Rule("[Compressed History]\n\n", 5, {"window": 200_000}, "pages"),
    "hybrid": Rule("[Context Summary]\n\n", 6, {"window": 16_000}, "long"),
    "turns": Rule("[COMPACTED_CONTEXT]", 11, {}, "pages"),
    "default": Rule("⟦", 1, {"window": 16_000}, "long"),
}


def make_settings(preset: str) -> dict[str, Any]:
    return {"preset": preset, "summariser": "extract", **RULES[preset].settings}


def is_summary(message: Any, preset: str) -> bool:
    opening = "[Context Summary]\n\n[Truncated Summary]" if preset == "hybrid" else RULES[preset].opening
    return str(message["content"]).startswith(opening)


def check_sent(sent: Sequence[Any], history: Sequence[Any], preset: str) -> bool:
    """Check what a model gets, the system prompt left out; return whether it is compressed."""
    if list(sent) == list(history):
        return False
    kept = RULES[preset].kept
    assert list(sent[-kept:]) == list(history[-kept:]), "the newest messages stay as they came"
    summaries = [message for message in sent if is_summary(message, preset)]
    assert len(summaries) == 1 or preset == "default", [str(one["content"])[:80] for one in sent[:3]]
    assert summaries
    others = [message for message in sent if not is_summary(message, preset)]
    assert [one for one in history if one in others] == others, "everything but the summary is unchanged and in order"
    return True


def check_folds(acted: Sequence[int], preset: str) -> None:
    """Check that compressions continue until the end, and that not every request has one."""
    assert len(acted) >= 2, acted
    gaps = [later - earlier for earlier, later in pairwise(acted)]
    assert acted[-1] + 2 * max(gaps) >= MESSAGES - 2, f"it stopped: {acted}"
    assert sum(gaps) / len(gaps) >= 6, f"{preset} compresses nearly every turn: {acted}"


QUICK = {("hybrid", "long", "zh")}
CASES = [
    pytest.param(preset, size, language, marks=() if (preset, size, language) in QUICK else SLOW)
    for preset, rule in RULES.items()
    for size in ([rule.size] if rule.size else ["short", "long", "mixed"])
    for language in ("en", "zh")
]


@pytest.mark.slow  # tests/seeds/test_indicator.py shows it for each preset with a shorter chat.
@pytest.mark.parametrize(("preset", "size", "language"), CASES)
def test_s3_9_and_s4_3_a_growing_chat_in_the_library(tmp_path: Path, preset: str, size: str, language: str) -> None:
    acted: list[int] = []
    with ContextCompressionManager(CompressionConfig(**make_settings(preset)), tmp_path) as manager:
        for history in grow(size, language, MESSAGES):
            manager.append("s", history[-2:])
            before = manager.status("s")
            prepared = manager.prepare_context_sync("s")
            report = prepared.report
            assert report is not None
            assert prepared.total_tokens <= before.hard
            check_sent(prepared.messages, history, preset)
            acts = any(stage.edits for stage in report.stages)
            # Prices and unsent content decide too in ``default``: it may act earlier than a threshold, or later.
            assert acts is before.ahead.is_due or preset == "default", f"at {len(history)}: {before.ahead.tell()}"
            if acts:
                acted.append(len(history))
                after = manager.status("s")
                assert not after.ahead.is_due, after.ahead.tell()
                assert after.tokens < before.tokens or preset in ("archive", "importance")
        assert not manager.status("s").stopped
        assert manager.verify() == []
        found = [message for message in prepared.messages if is_summary(message, preset)]
    assert found
    check_folds(acted, preset)


GATEWAY = [
    pytest.param(preset, rule.size or size, language, marks=() if preset == "hybrid" and language == "en" else SLOW)
    for preset, rule in RULES.items()
    for size, language in (("mixed", "en"), ("long", "zh"))
]


@pytest.mark.parametrize(("preset", "size", "language"), GATEWAY)
def test_s0_3_and_s1_3_and_s2_13_and_s3_4_a_growing_chat_through_the_gateway(
    tmp_path: Path, empty_home: Path, preset: str, size: str, language: str
) -> None:
    states: list[str] = []
    with start_rig(tmp_path, config=make_settings(preset)) as rig:
        for history in grow(size, language, MESSAGES):
            assert rig.post("openai-chat", make_body("openai-chat", history)).status_code == 200
            sent = json.loads(rig.provider.requests[-1].body)["messages"]
            is_compressed = check_sent(sent, history, preset)
            states.append(str([one for one in sent if is_summary(one, preset)]) if is_compressed else "")
        (row,) = rig.manager.ledger.list_sessions()
        assert not rig.manager.status(row.id).stopped
    check_folds([2 * at + 1 for at in range(1, len(states)) if states[at] != states[at - 1]], preset)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "language"), [(preset, language) for preset in RULES for language in ("en", "zh")])
def test_s1_7_and_s2_13_a_growing_chat_in_the_terminal(tmp_path: Path, preset: str, language: str) -> None:
    pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
    size = RULES[preset].size or "mixed"
    (tmp_path / ".git").mkdir()
    settings = "\n".join(f"{name}: {value}" for name, value in make_settings(preset).items())
    (tmp_path / "refold.yaml").write_text(f"{settings}\n")
    turns = MESSAGES // 2
    said = [say(at, size, language) for at in range(MESSAGES)]
    with ScriptedProvider([one["content"] for one in said[1::2]]) as provider:
        stdin = "\n".join(one["content"] for one in said[::2]).encode() + b"\n"
        ran = Shell(tmp_path).refold("chat", "-m", "gpt-4o", "--base-url", provider.openai_url, stdin=stdin)
        requests = [json.loads(request.body)["messages"] for request in provider.requests]
    assert ran.code == 0, ran.err
    assert len(requests) == turns
    states: list[str] = []
    for turn, (lead, *sent) in enumerate(requests):
        assert lead["role"] == "system"
        assert not is_summary(lead, preset), "the chat's own system prompt leads"
        is_compressed = check_sent(sent, said[: 2 * turn + 1], preset)
        states.append(str([one for one in sent if is_summary(one, preset)]) if is_compressed else "")
    check_folds([2 * at + 1 for at in range(1, turns) if states[at] != states[at - 1]], preset)
