"""A client that summarises its conversation itself gets the originals to read, as far as the window allows."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.rigs.server import PATHS, make_body
from tests.server.test_one_fold import make_step

CLAUDE = (
    "CRITICAL: Respond with TEXT ONLY. Your task is to create a detailed summary of the conversation so far, paying "
    "close attention to the user's explicit requests and your previous actions."
)
CODEX = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM."
STATED = "Keep the port 48213 in config/ports.toml, whatever you do."


def grow(rig: Any, wire: str, newest: list[dict[str, Any]], steps: int, session: str) -> tuple[Any, list[Any]]:
    """Send a session step by step until it has been folded, then its newest message; return the answer and its body."""
    from tests.laws.test_growth import convert

    history: list[dict[str, Any]] = [{"role": "user", "content": STATED}]
    for number in range(steps):
        history += make_step(number, 60)
        rig.post(wire, make_body(wire, convert(wire, history)[0]), x_refold_session=session).raise_for_status()
    assert rig.manager.ledger.read_session(session).compression_count > 0
    messages = [*convert(wire, history)[0], *newest] if "type" in newest[0] else convert(wire, [*history, *newest])[0]
    answer = rig.post(wire, make_body(wire, messages), x_refold_session=session)
    answer.raise_for_status()
    sent = json.loads(rig.provider.requests[-1].body)
    return answer, sent["input" if wire == "openai-responses" else "messages"]


@pytest.mark.parametrize("prompt", [CLAUDE, CODEX])
@pytest.mark.parametrize("wire", list(PATHS))
def test_a_clients_own_summary_reads_the_originals(start: Callable[..., Any], wire: str, prompt: str) -> None:
    rig = start(config={"window": 60_000, "trigger_ratio": 0.4, "target_tokens": 9_000})
    answer, sent = grow(rig, wire, [{"role": "user", "content": prompt}], 22, "talk")
    assert answer.headers["x-refold-reason"] == "originals"
    text = json.dumps(sent, ensure_ascii=False)
    assert "⟦" not in text, "no record of ours"
    assert all(f"line {number}.0-59:" in text for number in range(22))
    row = rig.manager.ledger.read_session("talk")
    assert row.compression_count >= 1, "the session keeps its folds"


@pytest.mark.parametrize("wire", list(PATHS))
def test_what_does_not_fit_is_folded_from_the_originals(start: Callable[..., Any], wire: str) -> None:
    rig = start(config={"window": 60_000, "trigger_ratio": 0.4, "target_tokens": 9_000}, window=60_000)
    answer, sent = grow(rig, wire, [{"role": "user", "content": CLAUDE}], 90, "talk")
    before, after = (int(one) for one in answer.headers["x-refold-tokens"].split("->"))
    assert answer.headers["x-refold-reason"] == "originals"
    hard = rig.manager.status("talk").hard
    assert 0.76 * hard < after <= hard < before, "as much as the window takes by a careful count"
    assert all(f"line {number}.0-59:" in json.dumps(sent) for number in range(75, 90))


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_tool_that_quotes_such_a_prompt_changes_nothing(start: Callable[..., Any], wire: str) -> None:
    rig = start(config={"window": 60_000, "trigger_ratio": 0.4, "target_tokens": 9_000})
    step = make_step(900, 3)
    step[1]["content"] = CLAUDE
    answer, sent = grow(rig, wire, step, 22, "talk")
    assert answer.headers["x-refold-reason"] != "originals"
    assert "⟦" in json.dumps(sent, ensure_ascii=False)


def test_what_was_forgotten_stays_hidden(start: Callable[..., Any]) -> None:
    rig = start(config={"window": 60_000, "trigger_ratio": 0.4, "target_tokens": 9_000})
    from tests.laws.test_growth import convert

    grow(rig, "anthropic", make_step(900, 3), 22, "talk")
    rig.manager.forget("talk", f"m:{rig.manager.ledger.read_messages('talk')[4].digest[:8]}")
    history: list[dict[str, Any]] = [{"role": "user", "content": STATED}]
    for number in range(22):
        history += make_step(number, 60)
    history += [*make_step(900, 3), {"role": "user", "content": CLAUDE}]
    body = make_body("anthropic", convert("anthropic", history)[0])
    answer = rig.post("anthropic", body, x_refold_session="talk")
    assert answer.headers["x-refold-reason"] != "originals"


def test_originals_go_to_a_provider_that_is_asked_to_compact(start: Callable[..., Any]) -> None:
    """Codex ends the input with a trigger, and the provider writes the compaction."""
    rig = start(config={"window": 60_000, "trigger_ratio": 0.4, "target_tokens": 9_000})
    answer, sent = grow(rig, "openai-responses", [{"type": "compaction_trigger"}], 22, "talk")
    assert answer.headers["x-refold-reason"] == "originals"
    assert sent[-1] == {"type": "compaction_trigger"}
    assert "⟦" not in json.dumps(sent, ensure_ascii=False)
