"""A new result that is larger than the room is shortened first: earlier records and the newest steps stay in view."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.config import CompressionConfig
from refold.conversation.message import find_marks
from refold.prepared import PreparedContext
from refold.testing import find_violations
from tests.rigs.effort import first_of
from tests.rigs.stages import assistant, lines, step, user

SESSIONS = Path(__file__).resolve().parents[2] / "examples" / "sessions"
LARGE = "\n".join(f"{n:05} GET /orders/{n * 7919 % 100_003} 200 in {n % 97} ms" for n in range(1_900))


def work(steps: int) -> list[dict[str, Any]]:
    """An agent's steps of ordinary sizes, each with a file of its own."""
    made = []
    for n in range(steps):
        made += step("bash", {"command": f"pytest tests/test_part_{n:03}.py"}, lines(20 + n % 7 * 8, f"part_{n:03}"))
        made.append(assistant(f"Part {n:03} passes because limit_{n:03} is read from config_{n:03}.toml."))
        made.append(user(f"Good. Go on with part {n + 1:03}."))
    return [user("Make every part pass. Never touch the migrations."), *made[:-1]]


def grow(manager: refold.ContextCompressionManager, messages: Sequence[Any]) -> Iterator[PreparedContext]:
    """Prepare every request of a session, as an agent would."""
    for at in range(1, len(messages) + 1):
        if at == len(messages) or (messages[at]["role"] == "assistant" and messages[at - 1]["role"] != "assistant"):
            yield manager.prepare_context_sync("s", list(messages[:at]))


def find_records(prepared: PreparedContext) -> list[str]:
    return [edit.text for edit in prepared.edits if edit.fold and any(edit.text in told(m) for m in prepared.messages)]


def told(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else json.dumps(content)


@pytest.mark.parametrize("window", first_of([8_000, 12_000, 20_000], 1))
def test_records_keep_their_text_when_one_result_is_larger_than_the_window(window: int, tmp_path: Path) -> None:
    messages = work(window // 250)
    manager = refold.ContextCompressionManager(CompressionConfig(window=window, reserve=0), tmp_path)
    before = list(grow(manager, messages))[-1]
    # The newest record says how things are now, so it is written again.
    records = find_records(before)[:-1]
    assert records, "a session that was never folded proves nothing"

    messages += [user("Show me the whole log."), *step("bash", {"command": "cat access.log"}, LARGE)]
    after = manager.prepare_context_sync("s", messages)
    assert after.total_tokens <= window
    assert all(any(record in told(m) for m in after.messages) for record in records), "records keep their text"
    assert after.messages[-3:-1] == messages[-3:-1]
    assert messages[-4] in after.messages, "the newest steps stay"
    assert messages[-7:-3] == [m for m in after.messages if m in messages[-7:-3]]
    result = after.messages[-1]["content"]
    assert result != LARGE
    assert len(result) > len(LARGE) * 0.4 * window / 45_000, "as much of it as fits"
    assert manager.expand("s", find_marks(result)[0]) == LARGE
    assert find_violations("openai-chat", after.messages) == []


@pytest.mark.parametrize("window", first_of([8_000, 20_000], 1))
def test_the_steps_after_it_still_see_the_records_and_do_not_fold_each_time(window: int, tmp_path: Path) -> None:
    messages = work(window // 250)
    messages += [user("Show me the whole log."), *step("bash", {"command": "cat access.log"}, LARGE)]
    start = len(messages)
    for n in range(6):
        messages += step("bash", {"command": f"grep -c '/orders/{n}' access.log"}, str(n))
    manager = refold.ContextCompressionManager(CompressionConfig(window=window, reserve=0), tmp_path)
    sent = list(grow(manager, messages))
    after = [one for one in sent if len(one.messages) and one.report]
    assert all(one.total_tokens <= window for one in sent)
    tail = sent[-7:]
    assert sum(bool(one.report and one.report.stages) for one in tail) <= 2
    assert all("Part 000" in "".join(map(told, one.messages)) or find_records(one) for one in tail)
    assert after[-1].total_tokens > window // 6
    assert start < len(messages)


@pytest.mark.parametrize("budget", first_of([8_000, 20_000], 1))
def test_compress_keeps_the_records_of_an_earlier_call(budget: int) -> None:
    messages = work(budget // 150)
    first = refold.compress(messages, budget=budget)
    records = find_records(first)
    assert records
    messages += [user("Show me the whole log."), *step("bash", {"command": "cat access.log"}, LARGE)]
    after = refold.compress(messages, budget=budget, edits=first.edits)
    assert after.total_tokens <= budget
    assert after.total_tokens > budget * 0.7
    told_now = "".join(map(told, after.messages))
    assert sum(len(record) for record in find_records(after)) >= 0.5 * sum(len(record) for record in records)
    assert "Never touch the migrations." in told_now
    assert after.expand(find_marks(after.messages[-1]["content"])[0]) == LARGE


def test_several_large_results_of_one_step_share_the_room() -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in range(3)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": LARGE} for n in range(3)]
    messages = [*work(60), user("Read all."), {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    after = refold.compress(messages, budget=16_000)
    sizes = [len(m["content"]) for m in after.messages[-3:]]
    assert max(sizes) < 1.3 * min(sizes)
    assert find_records(after)
    assert find_violations("openai-chat", after.messages) == []


def test_a_result_that_leaves_an_eighth_of_the_room_is_sent_whole(tmp_path: Path) -> None:
    manager = refold.ContextCompressionManager(CompressionConfig(window=20_000, reserve=0), tmp_path)
    messages = work(80)
    list(grow(manager, messages))
    whole = "\n".join(LARGE.split("\n")[:1_000])
    messages += [user("Show me the log."), *step("bash", {"command": "head -1000 access.log"}, whole)]
    after = manager.prepare_context_sync("s", messages)
    assert after.messages[-1]["content"] == whole
    assert find_records(after), "what makes room is a record, not a line"
    assert min(map(len, find_records(after))) > 400


@pytest.mark.slow  # The tests above show it for sessions that are made for it.
def test_the_sample_session_keeps_its_records_after_its_largest_result(tmp_path: Path) -> None:
    session = json.loads((SESSIONS / "coding_agent.json").read_text())
    manager = refold.ContextCompressionManager(CompressionConfig(window=20_000, reserve=0), tmp_path)
    sizes = [one.total_tokens for one in grow(manager, session["messages"]) if one.report and one.report.stages]
    assert min(sizes) > 20_000 * 0.2, "no fold leaves the window nearly empty"
