"""One fold is enough: after it, a session grows until the window is really full before its prefix breaks again."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from tests.laws.test_growth import convert
from tests.rigs.server import PATHS, make_body, make_dialog

WINDOW = 32_000
Message = dict[str, Any]


def write_output(seed: object, lines: int) -> str:
    return "\n".join(f"line {seed}-{n}: value {n * 7919 % 10007} of module_{n % 97}.py" for n in range(lines))


def make_step(number: int, lines: int, results: int = 1) -> list[Message]:
    """An agent's step: calls of a tool, and their results."""
    calls = [
        {
            "id": f"c{number}_{n}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"path": "f{number}_{n}.py"}}'},
        }
        for n in range(results)
    ]
    outputs = [
        {"role": "tool", "tool_call_id": f"c{number}_{n}", "content": write_output(f"{number}.{n}", lines)}
        for n in range(results)
    ]
    return [{"role": "assistant", "content": f"Step {number}.", "tool_calls": calls}, *outputs]


def make_history(tokens_about: int) -> list[Message]:
    """A long session of an agent that comes to us late."""
    messages: list[Message] = [{"role": "user", "content": "Find the fault in the order service, please."}]
    for number in range(tokens_about // 720):
        messages += make_step(number, 40)
    return messages


def grow(messages: list[Message], steps: int, lines: int) -> Iterator[list[Message]]:
    yield messages
    for number in range(steps):
        messages = [*messages, *make_step(1_000 + number, lines)]
        yield messages


def count_breaks(sent: list[list[Any]]) -> list[int]:
    """Return after which requests the next one did not begin with the same bytes."""
    texts = [[json.dumps(one) for one in messages] for messages in sent]
    return [at for at, (old, new) in enumerate(pairwise(texts)) if new[: len(old)] != old]


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_first_request_over_the_window_is_folded_once_in_the_gateway(start: Callable[..., Any], wire: str) -> None:
    rig = start(config={"window": WINDOW}, window=WINDOW)
    key = "input" if wire == "openai-responses" else "messages"
    for history in grow(make_history(3 * WINDOW), steps=12, lines=25):
        messages, _ = convert(wire, history)
        rig.post(wire, make_body(wire, messages), x_refold_session="late").raise_for_status()
    sent = [json.loads(one.body)[key] for one in rig.provider.requests]
    assert count_breaks(sent) == []
    row = rig.manager.ledger.read_session("late")
    assert row.compression_count == 1
    status = rig.manager.status("late")
    assert status.tokens < status.soft


@pytest.mark.parametrize("times", [1.2, 2, 8])
@pytest.mark.parametrize("window", [8_000, 32_000, 128_000])
def test_a_first_request_over_the_window_is_folded_once_in_the_library(
    window: int, times: float, tmp_path: Path
) -> None:
    manager = ContextCompressionManager(CompressionConfig(window=window), tmp_path)
    sent, sizes = [], []
    for history in grow(make_history(int(times * window)), steps=8, lines=window // 4_000):
        prepared = manager.prepare_context_sync("late", history)
        sent.append(prepared.messages)
        sizes.append(prepared.total_tokens)
    assert count_breaks(sent) == [], sizes
    assert manager.statistics("late").compressions == 1


def test_a_dialog_that_comes_late_is_folded_once(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(window=WINDOW), tmp_path)
    messages, sent = make_dialog(100, words=100), []
    for turn in range(8):
        sent.append(manager.prepare_context_sync("late", messages).messages)
        messages = [*messages, *make_dialog(1, words=20 + turn, end=False)[::-1]]
    assert count_breaks(sent) == []


@pytest.mark.parametrize(("lines", "results"), [(2_500, 1), (400, 8)])
def test_output_larger_than_the_window_leaves_the_prefix_and_room_to_grow(
    lines: int, results: int, tmp_path: Path
) -> None:
    manager = ContextCompressionManager(CompressionConfig(window=WINDOW), tmp_path)
    messages, sent = make_history(3_000), []
    for number in range(12):
        messages = [*messages, *(make_step(500, lines, results) if number == 3 else make_step(600 + number, 10))]
        prepared = manager.prepare_context_sync("s", messages)
        sent.append(prepared.messages)
    assert prepared.edits, "the large output does not fit"
    assert count_breaks(sent) == []


def test_when_the_window_is_full_again_it_is_folded_again(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CompressionConfig(window=WINDOW), tmp_path)
    sent, sizes = [], []
    for history in grow(make_history(3 * WINDOW), steps=40, lines=40):
        prepared = manager.prepare_context_sync("late", history)
        sent.append(prepared.messages)
        sizes.append(prepared.total_tokens)
    broken = count_breaks(sent)
    assert broken
    step, soft = sizes[1] - sizes[0], manager.status("late").soft
    assert all(sizes[at] + step >= soft for at in broken), "each fold had to wait until the window was full"


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_fold_leaves_what_the_agent_has_just_read_whole_while_there_is_room(
    start: Callable[..., Any], wire: str
) -> None:
    """A window of 60,000 tokens, 12,000 of them rules: a log of 9,000 tokens is read, then the window fills up."""
    rig = start(config={"window": 60_000}, window=60_000)
    key = "input" if wire == "openai-responses" else "messages"
    rules = " ".join(f"Rule {number}: keep the names of module {number}." for number in range(1_100))
    history: list[Message] = [{"role": "system", "content": rules}, {"role": "user", "content": "Find the fault."}]
    read_at = 0
    for number in range(60):
        status = rig.manager.status(wire) if number else None
        is_log = not read_at and status is not None and status.tokens > status.soft - 15_000
        read_at = number if is_log else read_at
        history += make_step(number, 480 if is_log else 250 if read_at else 60)
        messages, system = convert(wire, history)
        named = {"instructions" if wire == "openai-responses" else "system": system} if system else {}
        rig.post(wire, make_body(wire, messages, **named), x_refold_session=wire).raise_for_status()
        sent = json.loads(rig.provider.requests[-1].body)[key]
        if len(sent) < len(messages):
            break
    assert read_at < number <= read_at + 2, "it folds soon after the log was read"
    assert json.dumps(write_output(f"{read_at}.0", 480))[1:-1] in json.dumps(sent)
    assert rig.manager.status(wire).tokens < 42_000


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_projects_instructions_and_its_environment_stay_until_newer_ones_come(
    start: Callable[..., Any], wire: str
) -> None:
    """Codex sends them once, as messages of the user before the first words of a person."""
    rig = start(config={"window": 20_000}, window=20_000)
    rules = "# AGENTS.md instructions for /work/shop\n\n<INSTRUCTIONS>\nNever touch vendor/.\n</INSTRUCTIONS>"
    place = "<environment_context>\n  <cwd>/work/{}</cwd>\n</environment_context>"
    history: list[Message] = [{"role": "user", "content": text} for text in (rules, place.format("shop"), "Fix it.")]
    folded = []
    for number in range(50):
        history += make_step(number, 40)
        history += [{"role": "user", "content": place.format("cart")}] if number == 24 else []
        messages, _ = convert(wire, history)
        rig.post(wire, make_body(wire, messages), x_refold_session=wire).raise_for_status()
        sent = rig.provider.requests[-1].body.decode()
        assert "Never touch vendor/." in sent
        assert number >= 24 or "/work/shop</cwd>" in sent
        folded += [number] if len(sent) < len(json.dumps(messages)) // 2 else []
    assert folded
    assert folded[0] < 24
