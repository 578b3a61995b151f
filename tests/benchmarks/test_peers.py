"""A peer in a process of its own is replayed like one in ours."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.remote import Entry, PeerFailed, RemotePeer, Worker
from refold.budget import Budget, Tariff
from refold.readers.session import Session
from refold.replay.policy import PeerPolicy
from refold.replay.run import replay_session
from refold.tokens import CacheRules, counter_for
from tests.rigs.histories import agent_messages

TARIFF = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300), output=5.0)
BUDGET = Budget(hard=1_500, soft=1_500, warn=1_500, target=1_000, window=1_500)
PEER = """
class Cut:
    def __init__(self, allowance):
        self.allowance, self.messages = allowance, []

    def prepare(self, new):
        print("libraries print")
        self.messages += new
        if any("break" in str(one.get("content")) for one in new):
            raise ValueError("cannot")
        while self.allowance.count(self.messages) > self.allowance.tokens:
            stop = 5 if self.messages[2]["role"] == "user" else 4
            words = self.allowance.ask(str(self.messages[2:stop]))
            self.messages[2:stop] = [{"role": "user", "content": words}]
        return list(self.messages)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    (tmp_path / "cut.py").write_text(PEER)
    made = Entry("cut", "cut", tmp_path / "cut.py", "Cut", "Cut").make_worker(Path(sys.executable))
    yield made
    made.close()


def test_it_counts_with_our_counter_asks_our_stand_in_and_may_print(worker: Worker) -> None:
    session = Session("s", tuple(agent_messages(20)))
    record = replay_session(
        session,
        "cut",
        lambda room: PeerPolicy(room, lambda allowance: RemotePeer(worker, allowance)),
        lambda _: BUDGET,
        counter=counter_for("gpt-4o"),
        tariff=TARIFF,
    )
    assert all(request.is_fit and not request.violations for request in record.requests)
    assert any(request.asked for request in record.requests)
    breaks = [request.is_break for request in record.requests]
    assert breaks == [bool(request.asked) for request in record.requests], "what it did not change is sent unchanged"


def test_an_error_of_the_peer_is_named_and_the_next_session_continues(worker: Worker) -> None:
    counter = counter_for("gpt-4o")

    def replay(*texts: str) -> int:
        messages = [{"role": role, "content": text} for text in texts for role in ("user", "assistant")]
        return len(
            replay_session(
                Session("s", tuple(messages)),
                "cut",
                lambda room: PeerPolicy(room, lambda allowance: RemotePeer(worker, allowance)),
                lambda _: BUDGET,
                counter=counter,
                tariff=TARIFF,
            ).requests
        )

    with pytest.raises(PeerFailed, match="ValueError: cannot"):
        replay("hello", "break")
    assert replay("hello", "again") == 2
