"""L6 and L9 over a conversation that grows: request after request, each handed the edits of the one before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import refold
from refold.testing import find_violations
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.effort import each_once

PRESETS = ("default", "archive", "importance", "offload", "hybrid", "turns")
STEPS = 60


def make_session(turn_every: int) -> list[dict[str, Any]]:
    """A coding agent at work: ids repeat, every step brings new values; with a large number it is one single turn."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Please fix src/app/server.py, port 8080; never touch the migrations."},
    ]
    for step in range(1, STEPS):
        if step % turn_every == 0:
            messages.append({"role": "user", "content": f"Next: case {step * 7} in tests/test_{step}.py."})
        arguments = json.dumps({"command": f"pytest tests/test_{step}.py -k case_{step * 7}"})
        call = {"id": f"call_{step % 2}", "type": "function", "function": {"name": "run", "arguments": arguments}}
        messages.append({"role": "assistant", "content": f"Checking order {step * 1313}.", "tool_calls": [call]})
        lines = [f"10:31:{n:02d} worker-{n} order {step * 991 + n} done in {n * 13} ms" for n in range(12)]
        messages.append({"role": "tool", "tool_call_id": f"call_{step % 2}", "content": "\n".join(lines)})
    return messages


def grow_session(lines: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the history of each request of a coding agent whose commands print so many lines."""
    history: list[dict[str, Any]] = []
    for message in make_session(8):
        if message["role"] == "tool":
            seen = message["content"].splitlines()
            message["content"] = "\n".join(f"{n}: {seen[n % len(seen)]}" for n in range(lines))
        history.append(message)
        if message["role"] == "tool":
            yield history


def convert(wire: str, messages: list[dict[str, Any]]) -> tuple[list[Any], Any]:
    if wire == "anthropic":
        body = to_anthropic(messages, None)
        return body["messages"], body.get("system")
    if wire == "openai-responses":
        body = to_responses(messages, None)
        return body["input"], body.get("instructions")
    return messages, None


def grow(wire: str, messages: list[dict[str, Any]], **options: Any) -> list[refold.PreparedContext]:
    """Prepare every request of a session, each with the edits of the one before."""
    prepared: list[refold.PreparedContext] = []
    edits: tuple[Any, ...] = ()
    for count in range(2, len(messages) + 1):
        if messages[count - 1]["role"] == "assistant":
            continue
        sent, system = convert(wire, messages[:count])
        prepared.append(refold.compress(sent, system=system, format=wire, edits=edits, strict=True, **options))
        assert find_violations(wire, prepared[-1].messages) == []
        edits = prepared[-1].edits
    return prepared


def count_breaks(prepared: list[refold.PreparedContext]) -> int:
    """Requests that did not begin with all that the one before had; each must have made an edit."""
    breaks = 0
    for one, two in pairwise(prepared):
        is_kept = two.messages[: len(one.messages)] == one.messages
        assert is_kept or len(two.edits) > len(one.edits), "the prefix changed without a batch"
        breaks += not is_kept
    return breaks


@pytest.mark.parametrize(
    ("wire", "preset", "turn_every"),
    each_once(("openai-chat", "anthropic", "openai-responses"), PRESETS, (4, 1_000)),
)
def test_a_growing_conversation_always_fits_and_changes_its_prefix_only_in_a_batch(
    wire: str, preset: str, turn_every: int
) -> None:
    prepared = grow(wire, make_session(turn_every)[:60], budget=3_000, preset=preset)
    assert max(context.total_tokens for context in prepared) <= 3_000
    assert count_breaks(prepared) > 0
    handles = {edit.fold.handle for edit in prepared[-1].edits if edit.fold}
    assert all(prepared[-1].expand(handle) for handle in handles), "folds taken in by later ones can still be expanded"


def test_within_a_window_the_prefix_changes_rarely_and_folds_do_not_pile_up() -> None:
    config = refold.CompressionConfig(window=8_000, reserve=1_000)
    prepared = grow("openai-chat", make_session(4), config=config)
    assert 1 <= count_breaks(prepared) <= 6
    for context in prepared:
        folds = [message for message in context.messages if str(message).count("⟦") > 1]
        assert len(folds) <= 8, "earlier folds may stay for a while, then a new one takes them in"


def test_a_count_that_stays_reached_does_not_fold_the_same_span_again_and_again() -> None:
    # More important messages than max_turns: the trigger fires with every request, and nothing is left to fold.
    messages = [
        {"role": "user", "content": f"This is important, never forget it: rule {n} holds. " * 6} for n in range(99)
    ]
    edits: tuple[Any, ...] = ()
    sizes = []
    for _ in range(5):
        prepared = refold.compress(messages, 8_000, preset="importance", edits=edits, strict=True)
        edits = prepared.edits
        sizes.append(len(edits))
    assert sizes[1:] == [sizes[1]] * 4


def test_a_resent_history_does_not_wear_its_summary_down_where_a_count_stays_reached() -> None:
    # The fifty messages that archive keeps have more tokens than its threshold: it is reached with every request.
    messages = make_session(4)
    first = refold.compress(messages, 100_000, preset="archive", strict=True)
    again = refold.compress(messages, 100_000, preset="archive", edits=first.edits, strict=True)
    assert first.report is not None
    assert again.report is not None
    assert first.report.tokens_saved > 0
    assert again.messages == first.messages
    assert again.report.stages == ()
