"""A session continues with a model of another kind, and back: valid on both sides, every original as it was."""

from pathlib import Path

import pytest

from refold.agent.events import Compressed, Finished
from refold.agent.models import Translated, speak
from refold.errors import ConfigError
from refold.testing import RecordedRequest, ScriptedProvider, call_tool, say
from tests.agent.test_overflow import write_history
from tests.rigs.agent import WIRES, check_stored, make_agent, make_manager, make_model, pick, run_all
from tests.rigs.effort import first_of

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")


def read_port(service: str) -> str:
    """Read the port of a service."""
    return f"{service} listens on 7341"


def answer(request: RecordedRequest) -> object:
    is_asked = "port" in str(request.messages[-1])
    return (
        call_tool("read_port", {"service": "ledger"})
        if is_asked and "listens" not in str(request.messages[-1])
        else say(f"This is {request.wire}.")
    )


@pytest.mark.parametrize("wire", WIRES)
async def test_another_kind_of_model_continues_and_the_first_one_after_it(wire: str, tmp_path: Path) -> None:
    other = WIRES[1 - WIRES.index(wire)]
    with ScriptedProvider(answer) as provider, make_manager(tmp_path) as manager:  # type: ignore[arg-type]
        for spoken in (wire, other, wire):
            before = [one.raw for one in manager.ledger.read_messages("s")] if manager.ledger.read_session("s") else []
            agent = make_agent(provider, manager, spoken, [read_port])
            events = await run_all(agent, "Which port is it?")
            assert pick(events, Finished)[0].text == f"This is {spoken}."
            assert provider.requests[-1].wire == spoken
            assert [one.raw for one in manager.ledger.read_messages("s")][: len(before)] == before
            check_stored(manager, wire)
        row = manager.ledger.read_session("s")
        assert row is not None
        assert row.wire == wire
        assert manager.verify("s") == []
        assert len(manager.ledger.read_messages("s")) == 12


@pytest.mark.slow
@pytest.mark.parametrize("wire", first_of(WIRES, 1))
async def test_folds_hold_for_a_model_of_another_kind(wire: str, tmp_path: Path) -> None:
    other = WIRES[1 - WIRES.index(wire)]
    script = ["I looked at it, the item is fine. " * 12] * 60
    with (
        ScriptedProvider(script, window=12_000) as provider,
        make_manager(tmp_path, window=12_000, economic=False) as manager,
    ):
        agent, folded = make_agent(provider, manager, wire), False
        asked = [one["content"] for one in write_history(wire) if one["role"] == "user"]
        while not folded:
            folded = bool(pick(await run_all(agent, asked.pop(0)), Compressed))
        before = len(provider.requests)
        then = await run_all(make_agent(provider, manager, other), "And now?")
        assert pick(then, Compressed) == []
        assert pick(then, Finished)[0].text.startswith("I looked at it")
        assert len(provider.requests) == before + 1
        assert provider.requests[-1].wire == other
        assert len(provider.requests[-1].messages) < len(manager.ledger.read_messages("s")) // 2
        assert manager.undo("s").edits


def test_a_session_in_a_format_that_nobody_translates_is_refused_in_words() -> None:
    with ScriptedProvider("x") as provider:
        model = make_model(provider)
        with pytest.raises(ConfigError, match="take a model of the same kind, or a new session"):
            speak(model, "openai-responses", "s")
        translated = speak(model, "anthropic")
        assert isinstance(translated, Translated)
        assert speak(translated, "openai-chat") is model
