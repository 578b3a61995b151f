"""``refold.wrap`` keeps the contract of integrations, on each interface of the providers' SDKs."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from refold.integrations.streamed import StreamedReply
from refold.testing import ScriptedReply, ScriptedUsage, integration
from refold.testing.answers import WIRES
from refold.testing.integration import CASES, AgentSetup, run_case
from tests.integrations.driving import ChatAgent, ChatDriver, ClaudeDriver, ResponsesDriver
from tests.rigs.oracle import count_reference

DRIVERS = (ClaudeDriver, ChatDriver, ResponsesDriver)


def list_cases() -> list[Any]:
    """Return every case on every wire; ``make test`` takes the wires in turn, without the case with processes."""
    return [
        pytest.param(
            *(case, driver),
            id=f"{case}-{driver.wire}",
            marks=() if driver is DRIVERS[at % len(DRIVERS)] and case != "restart" else pytest.mark.slow,
        )
        for at, case in enumerate(CASES)
        for driver in DRIVERS
    ]


@pytest.mark.parametrize(("case", "driver"), list_cases())
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


class UnseenAgent(ChatAgent):
    """Sends its requests past refold."""

    def wrap(self, client: Any) -> Any:
        client.refold = super().wrap(client).refold
        return client


class ForgetfulAgent(ChatAgent):
    """Loses the metadata and the picture of every message."""

    def write_user(self, text: str, image: str) -> Any:
        return {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("hooked", UnseenAgent),
        ("sync", UnseenAgent),
        ("images", UnseenAgent),
        ("images", ForgetfulAgent),
        pytest.param("metadata", ForgetfulAgent, marks=pytest.mark.slow),
        pytest.param("apart", UnseenAgent, marks=pytest.mark.slow),
        pytest.param("usage", UnseenAgent, marks=pytest.mark.slow),
        pytest.param("cancelled", UnseenAgent, marks=pytest.mark.slow),
    ],
)
def test_a_broken_adapter_fails_the_contract(case: str, kind: type[ChatAgent], tmp_path: Path) -> None:
    class BrokenDriver(ChatDriver):
        def make_agent(self, setup: AgentSetup) -> Any:
            return kind(setup)

    with pytest.raises(AssertionError):
        run_case(case, BrokenDriver(), tmp_path)


@pytest.mark.parametrize("wire", list(WIRES))
def test_a_stream_is_stored_if_it_begins_with_events_of_no_format(wire: str) -> None:
    reply = StreamedReply()
    for event in ({"type": "keepalive"}, {"type": "ping"}, {"object": "chat.completion.chunk"}):
        reply.add(event)
    for _, event in WIRES[wire][1](
        ScriptedReply("It is 3."), ScriptedUsage(1, 2), {"model": "m", "stream_options": {}}
    ):
        reply.add(event)
    whole = reply.take(is_closed=True)
    assert whole is not None
    assert "It is 3." in str(whole["reply"])


class HangingAgent:
    """Takes long for a turn, and leaves a file when it is done."""

    def __init__(self, setup: AgentSetup) -> None:
        self.workspace = setup.workspace

    def run(self, text: str) -> str:
        time.sleep(10)
        (self.workspace / "done").touch()
        return text

    def save(self) -> None: ...


class HangingDriver(ChatDriver):
    def make_agent(self, setup: AgentSetup) -> Any:
        return HangingAgent(setup)


def test_a_framework_that_hangs_in_another_process_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "TURN_S_MAX", 0.5)
    with pytest.raises(multiprocessing.TimeoutError):
        run_case("restart", HangingDriver(), tmp_path)
    assert not (tmp_path / "done").exists()
