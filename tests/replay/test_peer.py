"""Other compressors in the same replay: their requests are counted, checked and billed like ours."""

from typing import Any

import pytest

from refold.budget import Budget, Tariff
from refold.errors import FormatError
from refold.readers.session import Session
from refold.replay.policy import Allowance, PeerPolicy, find_baselines
from refold.replay.record import SessionRecord
from refold.replay.run import ReplayJob, Terms, replay_session
from refold.tokens import CacheRules, counter_for
from tests.rigs.convert import to_anthropic
from tests.rigs.histories import agent_messages

TARIFF = Tariff(CacheRules(read=0.1, write=1.25, lifetime_s=300), output=5.0)
BUDGET = Budget(hard=2_000, soft=2_000, warn=2_000, target=1_000, window=2_000)
SESSION = Session("s", tuple(agent_messages(30)))


class HalfAway:
    """Summarises the older half of the conversation once there are more than 20 messages."""

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.state: list[dict[str, Any]] = []

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.state += new
        if len(self.state) > 20:
            stop = 13 if self.state[2]["role"] == "user" else 12
            summary = self.allowance.ask("\n".join(str(one.get("content")) for one in self.state[2:stop]))
            self.state[2:stop] = [{"role": "user", "content": f"So far: {summary}"}]
        return list(self.state)


def replay(peer: Any) -> SessionRecord:
    counter = counter_for("gpt-4o")
    return replay_session(
        SESSION, "peer", lambda room: PeerPolicy(room, peer), lambda _: BUDGET, counter=counter, tariff=TARIFF
    )


def test_a_peers_requests_are_counted_checked_and_billed_with_its_summaries() -> None:
    record = replay(HalfAway)
    asked = [one for request in record.requests for one in request.asked]
    assert asked
    assert all(one.prompt_tokens > one.reply_tokens > 0 for one in asked)
    assert record.charge(TARIFF).summariser > 0
    assert sum(request.is_break for request in record.requests) == len(asked)
    assert not any(request.violations for request in record.requests)
    raw = replay_session(
        SESSION,
        "raw",
        find_baselines()["raw"],
        lambda _: BUDGET,
        counter=counter_for("gpt-4o"),
        tariff=TARIFF,
        with_recall=False,
    )
    assert record.requests[-1].tokens < raw.requests[-1].tokens
    assert [one.tokens for one in record.requests[:5]] == [one.tokens for one in raw.requests[:5]]


def test_a_peer_counts_with_our_counter() -> None:
    counts: list[int] = []

    class Counting(HalfAway):
        def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
            sent = super().prepare(new)
            counts.append(self.allowance.count(sent))
            return sent

    record = replay(Counting)
    fixed = record.requests[0].tokens - counts[0]
    assert [request.tokens - fixed for request in record.requests] == counts


def test_a_session_in_another_format_is_a_problem_of_its_own() -> None:
    body = to_anthropic(agent_messages(5))
    session = Session("s", tuple(body["messages"]), "anthropic", body.get("system"))
    with pytest.raises(FormatError, match="OpenAI chat"):
        replay_session(
            session,
            "peer",
            lambda room: PeerPolicy(room, HalfAway),
            lambda _: BUDGET,
            counter=counter_for("gpt-4o"),
            tariff=TARIFF,
        )


def test_langchain_is_a_baseline_where_it_is_installed() -> None:
    pytest.importorskip("langchain", reason="LangChain is not installed")
    record = ReplayJob(SESSION, "langchain", Terms("gpt-4o", 3_000)).run()
    assert not record.problem
    assert not any(request.violations for request in record.requests)
    assert any(request.asked for request in record.requests), "its summaries are billed"
    assert record.requests[-1].tokens < 3_000
