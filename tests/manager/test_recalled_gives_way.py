"""What was recalled never costs anything that was said: it goes first, and all else is as if it had not been there."""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import BudgetTooSmall, CompressionConfig, ContextCompressionManager
from refold.conversation import because
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.effort import is_quick, up_to

OPENING = "\n\n⟦recalled from earlier"
WIRES = ("openai-chat", "anthropic", "openai-responses")
TOPICS = (
    "the harbour fee",
    "the captain's parrot",
    "ticket ZX-99817",
    "the brass lantern",
    "port 8443 of the build host",
)
# Only the window asks for a compression: so both managers are asked at the same moments.
HARD_ONLY: dict[str, Any] = {"reserve": 100, "trigger_ratio": 1.0, "economic": False, "model": "gpt-4o"}


def make_manager(folder: Path, inject: str, window: int) -> ContextCompressionManager:
    config = CompressionConfig(**HARD_ONLY, window=window, recall={"inject": inject, "inject_tokens": 300})
    return ContextCompressionManager(config, folder)


def convert(messages: list[dict[str, Any]], wire: str) -> list[Any]:
    if wire == "anthropic":
        return list(to_anthropic(messages)["messages"])
    return list(to_responses(messages)["input"]) if wire == "openai-responses" else copy.deepcopy(messages)


def make_step(number: int, lines: int, topic: str) -> list[dict[str, Any]]:
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    text = "\n".join(f"{number}:{line} a note on {topic}, entry {line * 37 + number}" for line in range(lines))
    return [
        {"role": "assistant", "content": f"Step {number} on {topic}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
    ]


@st.composite
def requests(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """The growing histories of one session, as an agent sends them."""
    history: list[dict[str, Any]] = []
    sent: list[list[dict[str, Any]]] = []
    number = 0
    for turn in range(draw(st.integers(2, 5))):
        topic = draw(st.sampled_from(TOPICS))
        history.append({"role": "user", "content": f"Turn {turn}: what did we say earlier about {topic}?"})
        sent.append(list(history))
        for _ in range(draw(st.integers(0, 3))):
            history += make_step(number, draw(st.sampled_from((1, 4, 12, 30, 60))), draw(st.sampled_from(TOPICS)))
            sent.append(list(history))
            number += 1
        history.append({"role": "assistant", "content": f"We said a few things about {topic}, answer {turn}."})
    return sent


def bare(raw: Any) -> str:
    """Return a message as text, without what was recalled below it."""
    text = json.dumps(raw, ensure_ascii=False, sort_keys=True)
    start = text.find(json.dumps(OPENING, ensure_ascii=False)[1:-1])
    if start < 0:
        return text
    end = text.index("end of recalled text⟧") + len("end of recalled text⟧")
    return text[:start] + text[end:]


def prepare(manager: ContextCompressionManager, messages: list[Any], wire: str) -> Any:
    try:
        return manager.prepare_context_sync("s", messages, format=wire)
    except BudgetTooSmall:
        return None


def check_alike(sent: list[list[dict[str, Any]]], wire: str, window: int, folder: Path) -> int:
    """Send a session with and without recall; return how often something was recalled."""
    recalled = 0
    with (
        make_manager(folder / "with", "always", window) as one,
        make_manager(folder / "without", "off", window) as other,
    ):
        for history in sent:
            messages = convert(history, wire)
            shown, plain = prepare(one, messages, wire), prepare(other, messages, wire)
            assert (shown is None) == (plain is None)
            if shown is None:
                continue
            assert shown.total_tokens <= shown.report.budget.hard
            assert [bare(raw) for raw in shown.messages] == [bare(raw) for raw in plain.messages]
            newest = convert(history, wire)[-1]
            if len(json.dumps(newest)) < window:  # A quarter of the window, or so: it is not too large alone.
                assert bare(shown.messages[-1]) == bare(newest)
            recalled += sum(OPENING in str(raw) or OPENING.strip() in str(raw) for raw in shown.messages)
        assert one.verify() == []
    return recalled


@settings(max_examples=up_to(80, quick=3), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests(), st.sampled_from(WIRES), st.sampled_from((900, 1_300, 2_000)))
def test_without_recall_the_same_view_results_and_the_newest_step_is_whole(
    sent: list[list[dict[str, Any]]], wire: str, window: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_alike(sent, wire, window, Path(folder))


def long_session(*lines: int) -> list[list[dict[str, Any]]]:
    """A session whose first notes are folded, a question about them, and steps of so many lines in one request."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Read all the notes, please."}]
    sent = [list(history)]
    for number in range(12):
        history += make_step(number, 12, TOPICS[number % 5])
        sent.append(list(history))
    history.append({"role": "assistant", "content": "I have read them."})
    history.append({"role": "user", "content": "What did we say earlier about the captain's parrot?"})
    sent.append(list(history))
    for number, count in enumerate(lines, start=50):
        history += make_step(number, count, "the weather")
    return [*sent, history]


def test_recalled_text_gives_way_before_the_newest_step_is_cut(tmp_path: Path) -> None:
    kept: list[bool] = []
    for lines in (60, 92, 114) if is_quick() else (60, 76, 92, *range(104, 128, 2)):
        *read, asked, step = long_session(lines)
        with make_manager(tmp_path / str(lines), "always", 2_000) as manager:
            for history in read:
                prepare(manager, history, "openai-chat")
            assert OPENING in prepare(manager, asked, "openai-chat").messages[-1]["content"]
            shown = prepare(manager, step, "openai-chat")
            kept.append(OPENING in str(shown.messages) or OPENING.strip() in str(shown.messages))
            if lines < 110:
                assert shown.messages[-1] == step[-1], "what was said was cut for what was recalled"
            told = [event.fields["reason"] for event in manager.ledger.read_events("s") if event.kind == "recalled"]
            assert kept[-1] == (told[-1] != because.TAKEN_BACK().to_json())
            assert prepare(manager, step, "openai-chat").messages == shown.messages
            assert manager.verify() == []
    assert kept[0]
    # A step that is larger than the room is cut in any case, and leaves room below it.
    assert not all(kept)


def test_recalled_text_outlives_a_compression_that_leaves_room_for_it(tmp_path: Path) -> None:
    *read, asked, step = long_session(80, 60)
    with make_manager(tmp_path, "always", 2_150) as manager:
        for history in read:
            prepare(manager, history, "openai-chat")
        first = prepare(manager, asked, "openai-chat")
        shown = prepare(manager, step, "openai-chat")
        assert shown.report.stages, "nothing was compressed"
        assert first.messages[-1] in shown.messages
        assert OPENING in first.messages[-1]["content"]


@pytest.mark.parametrize("wire", WIRES)
def test_long_sessions_are_alike_too_and_something_was_recalled(tmp_path: Path, wire: str) -> None:
    assert check_alike(long_session(112), wire, 2_000, tmp_path) > 0
