"""The contract of every integration, as cases that a test runs against it.

A test of an adapter writes a driver: how an agent of that framework is made with refold in it, and how it runs one
turn. The kit does the rest against a provider on loopback that refuses what providers refuse:

    @pytest.mark.parametrize("case", CASES)
    def test_contract(case: str, tmp_path: Path) -> None:
        run_case(case, MyDriver(), tmp_path)

A case that a framework cannot support is declared in ``unsupported`` with the reason; the run then says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args
from unittest import SkipTest

from refold.testing.rig import (
    WINDOW,
    AgentSetup,
    IntegrationDriver,
    Mode,
    Rig,
    has_record,
    list_requests,
    list_texts,
    read_sensor,
)
from refold.testing.script import Fault, RecordedRequest, ScriptedCall, ScriptedReply, drip
from refold.testing.server import ScriptedProvider
from refold.tokens import counter_for

__all__ = ["CASES", "AgentSetup", "run_case"]

STEPS = 24
TURN_S_MAX = 600.0
DONE = "All sensors are read; the hall is quiet."
# A red square of 1 × 1: the smallest picture that every decoder takes.
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


def _read_output(request: RecordedRequest) -> int:
    """Return the number of tokens that a request reserves for its answer."""
    named = ("max_completion_tokens", "max_output_tokens", "max_tokens")
    return next((request.json[name] for name in named if isinstance(request.json.get(name), int)), 0)


class Steps:
    """A model that reads ``steps`` × ``parallel`` sensors in each turn, then answers; every answer has its id."""

    def __init__(self, *, steps: int = STEPS, parallel: int = 1, thinking: bool = False, first: int = 0) -> None:
        self.steps, self.parallel, self.thinking, self.next = steps, parallel, thinking, first
        self.taken = 0
        self.answers = 0

    def __call__(self, request: RecordedRequest) -> ScriptedReply | Fault:  # noqa: ARG002 - a script is asked so
        self.answers += 1
        thought = f"Thought {self.answers}: what is next?" if self.thinking else ""
        name = f"answer-{self.answers}"
        if self.taken >= self.steps:
            self.taken = 0
            return ScriptedReply(DONE, thinking=thought, id=name)
        self.taken += 1
        calls = []
        for _ in range(self.parallel):
            calls.append(ScriptedCall("read_sensor", {"number": self.next}, f"call_{self.next}"))
            self.next += 1
        return ScriptedReply(f"Step {self.answers}.", tuple(calls), thinking=thought, id=name)


def expect_fits(rig: Rig, provider: ScriptedProvider) -> None:
    """Check that every request fits the window by another counter."""
    sizes = [rig.count_request(request) + _read_output(request) for request in list_requests(provider)]
    assert sizes
    assert max(sizes) <= WINDOW, f"a request has {max(sizes):,} tokens, the room for its answer included"


def expect_originals(rig: Rig, numbers: Sequence[int], session: str = "s1") -> None:
    """Check that every result is stored whole, and once."""
    texts = [json.dumps(message, ensure_ascii=False) for message in rig.stored(session)]
    for number in numbers:
        wanted = json.dumps(read_sensor(number), ensure_ascii=False)[1:-1]
        found = sum(wanted in text or json.dumps(wanted)[1:-1] in text for text in texts)
        assert found == 1, f"the result of sensor {number} is stored {found} times"


def expect_last_reply(rig: Rig) -> None:
    """Check that the model's last answer is stored although no request carried it yet."""
    assert DONE in json.dumps(rig.stored()[-1], ensure_ascii=False), "the last answer is not stored"


def _in_mode(mode: Mode) -> Callable[[Rig], None]:
    def case(rig: Rig) -> None:
        with rig.provider(Steps(steps=12)) as provider:
            agent = rig.make(provider, mode=mode)
            assert DONE in rig.run(agent, "Read all sensors.")
            expect_fits(rig, provider)
            requests = list_requests(provider)
            if "stream" in mode:
                assert all(request.is_streaming for request in requests)
            expect_originals(rig, range(12))
            expect_last_reply(rig)
            assert DONE in rig.run(agent, "And again.")
            expect_originals(rig, range(24))

    return case


def case_fits(rig: Rig) -> None:
    """A long run of tool calls: every request fits, is valid, keeps the task, and every original is stored."""
    with rig.provider(Steps()) as provider:
        assert DONE in rig.run(rig.make(provider), "Read all sensors of hall seven.")
        expect_fits(rig, provider)
        requests = list_requests(provider)
        assert len(requests) == STEPS + 1
        assert has_record(requests[-1]), "nothing was folded"
        assert any("hall seven" in text for text in list_texts(requests[-1].messages)), "the task is gone"
        expect_originals(rig, range(STEPS))


def case_hooked(rig: Rig) -> None:
    """The hook is really called: one turn, and the session is in the ledger."""
    with rig.provider(Steps(steps=1)) as provider:
        rig.run(rig.make(provider), "Read one sensor.")
    assert len(rig.stored()) >= 3, "refold never saw the conversation: the hook was not called"


def case_oversize(rig: Rig) -> None:
    """One result alone is larger than the window."""
    with rig.provider(Steps(steps=2, first=1_000)) as provider:
        assert DONE in rig.run(rig.make(provider), "Read the big ones.")
        expect_fits(rig, provider)
    expect_originals(rig, (1_000, 1_001))


def case_recall(rig: Rig) -> None:
    """The model calls recall in the loop and gets text that left its view."""
    steps = Steps()
    asked = ScriptedCall("context_recall", {"query": "reading-002-begins"}, "call_recall")

    def answer(request: RecordedRequest) -> ScriptedReply | Fault:
        if steps.answers == STEPS - 1:
            steps.answers += 1
            return ScriptedReply("I look it up.", (asked,), id="answer-recall")
        return steps(request)

    with rig.provider(answer) as provider:
        rig.run(rig.make(provider, has_context_tools=True), "Read all sensors.")
        before, after = list_requests(provider)[STEPS - 1 : STEPS + 1]
        count = [sum("reading-002-begins" in text for text in list_texts(one.messages)) for one in (before, after)]
        assert "context_recall" in json.dumps(before.json.get("tools")), "the tool is not offered"
        assert count[1] > count[0], "recall brought nothing back"


def case_undo(rig: Rig) -> None:
    """A compression that a person undoes is gone from the next request."""
    with rig.provider(Steps(steps=4), window=None) as provider:
        agent = rig.make(provider, window=32_000)
        rig.run(agent, "Read some sensors.")
        rig.run(agent, "Read some more.")
        with rig.manager() as manager:
            assert manager.compress("s1").success
        rig.run(agent, "And some more.")
        assert has_record(list_requests(provider)[-5])
        with rig.manager() as manager:
            manager.undo("s1")
        seen = len(provider.requests)
        rig.run(agent, "Once more.")
        first = provider.requests[seen]
        assert any("reading-000-begins" in text for text in list_texts(first.messages))


def case_restart(rig: Rig) -> None:
    """Another process continues the conversation, and the folds still hold."""
    with rig.provider(Steps(steps=16)) as provider:
        saved = _run_elsewhere(rig, provider, "Read all sensors.")
        with rig.manager() as manager:
            folds = manager.status("s1").compression_count
        before = list_requests(provider)[-1]
        assert folds > 0
        assert has_record(before)
        rig.run(rig.make(provider, saved=saved), "Go on.")
        after = list_requests(provider)[17]
        assert has_record(after), "the fold is gone after a restart"
        expect_fits(rig, provider)
        expect_originals(rig, range(32))


def case_reopened(rig: Rig) -> None:
    """A new agent for every turn, as in a web service."""
    saved = None
    with rig.provider(Steps(steps=3)) as provider:
        for turn in range(6):
            agent = rig.make(provider, saved=saved)
            assert DONE in rig.run(agent, f"Turn {turn}: read three sensors.")
            saved = agent.save()
        expect_fits(rig, provider)
        assert has_record(list_requests(provider)[-1])
    expect_originals(rig, range(18))


def case_parallel(rig: Rig) -> None:
    """Three calls in one answer."""
    with rig.provider(Steps(steps=8, parallel=3)) as provider:
        assert DONE in rig.run(rig.make(provider), "Read all sensors, three at a time.")
        expect_fits(rig, provider)
    expect_originals(rig, range(24))


def case_thinking(rig: Rig) -> None:
    """Thinking with a signature comes back as it was, or is gone whole."""
    with rig.provider(Steps(steps=16, thinking=True)) as provider:
        assert DONE in rig.run(rig.make(provider), "Read all sensors, and think.")
        expect_fits(rig, provider)
        newest = list_requests(provider)[-1].messages
        assert "Thought 16" in json.dumps(newest), "the newest thinking is gone"
    expect_originals(rig, range(16))


def case_images(rig: Rig) -> None:
    """A picture in the user's message reaches the provider."""
    with rig.provider(Steps(steps=2)) as provider:
        assert DONE in rig.run(rig.make(provider), "What is on this picture?", PICTURE)
        requests = list_requests(provider)
        for request in (requests[0], requests[-1]):
            assert PICTURE.partition(",")[2][:40] in json.dumps(request.messages), "the picture is gone"
    expect_originals(rig, range(2))


def case_apart(rig: Rig) -> None:
    """Three agents side by side, each in its own session."""
    with rig.provider(Steps(steps=1)) as provider:
        agents = {name: rig.make(provider, session=f"agent-{name}") for name in ("red", "green", "blue")}
        for turn in range(3):
            for name, agent in agents.items():
                rig.run(agent, f"This is the {name} hall, turn {turn}.")
    for name in agents:
        text = json.dumps(rig.stored(f"agent-{name}"))
        assert [other for other in agents if f"the {other} hall" in text] == [name]


def case_nameless(rig: Rig) -> None:
    """Without a name, a conversation is one session: it grows, folds, and goes on after a restart."""
    saved = None
    with rig.provider(Steps(steps=6)) as provider:
        for turn in range(4):
            agent = rig.make(provider, session="", saved=saved)
            for part in ("first", "second"):
                assert DONE in rig.run(agent, f"Turn {turn}, {part} half: read six sensors.")
            saved = agent.save()
        expect_fits(rig, provider)
        assert has_record(list_requests(provider)[-1]), "nothing was folded"
    with rig.manager() as manager:
        (session,) = [row.id for row in manager.ledger.list_sessions()]
    expect_originals(rig, range(48), session)


def case_strangers(rig: Rig) -> None:
    """Without a name, people who begin alike and are answered alike have a session each, after a restart, too."""
    people: dict[str, Any] = {}
    with rig.provider(lambda request: ScriptedReply(f"Noted {len(request.messages)}.")) as provider:
        for texts in (("Hello.", "Thanks."), ("The secret of {}.", "Again, the secret of {}.")):
            people = {
                name: rig.make(provider, session="", saved=people[name].save() if people else None) for name in "AB"
            }
            for text in texts:
                for name, agent in people.items():
                    rig.run(agent, text.format(name))
    with rig.manager() as manager:
        known = [row.id for row in manager.ledger.list_sessions()]
        found = [" ".join(hit.text for hit in manager.recall(one, "secret", 20)) for one in known]
    owners = ["".join(name for name in people if f"secret of {name}" in text) for text in found]
    assert set(filter(None, owners)) == {"A", "B"}, f"whose words recall finds in each session: {owners}"


def case_metadata(rig: Rig) -> None:
    """Metadata that the framework attached to a message is on the one that is sent, beside a fold."""
    with rig.provider(Steps(steps=16)) as provider:
        agent = rig.make(provider, metadata={"ticket": "T-42"})
        rig.run(agent, "Read all sensors.")
        found = [dict(one or {}) for one in agent.read_metadata(rig.read_sent(agent, provider))]
        assert any(one.get("ticket") == "T-42" for one in found), f"the metadata that was sent: {found}"


def case_usage(rig: Rig) -> None:
    """The provider's bill is on record, request by request."""
    with rig.provider(Steps(steps=5)) as provider:
        rig.run(rig.make(provider), "Read five sensors.")
        asked = len(list_requests(provider))
    with rig.manager() as manager:
        assert manager.figures("s1").bill.requests == asked


def case_overflow(rig: Rig) -> None:
    """The provider's window is smaller than announced: a refusal is answered once with less."""
    with rig.provider(Steps(steps=12), window=5_000) as provider:
        assert DONE in rig.run(rig.make(provider), "Read all sensors.")
        sent = len(list_requests(provider))
        assert 13 < sent <= 26, f"{sent} requests for 13 answers"
    expect_originals(rig, range(12))


def case_cancelled(rig: Rig) -> None:
    """A turn that is cancelled while the answer streams leaves a session that can continue."""
    steps = Steps(steps=1)
    # A framework may join the cancelled message with the next one: only the first request that has it is slow.
    slow = iter((True,))

    def answer(request: RecordedRequest) -> ScriptedReply | Fault:
        is_slow = "slowly" in request.prompt and next(slow, False)
        return drip("word " * 400, pause_s=0.05) if is_slow else steps(request)

    with rig.provider(answer) as provider:
        agent = rig.make(provider, mode="async_stream")
        rig.run(agent, "Read one sensor.")
        seen = len(provider.requests)
        rig.cancel(agent, "Now answer slowly.", lambda: len(provider.requests) > seen)
        assert DONE in rig.run(agent, "Read another.")
    expect_originals(rig, (0, 1))


def case_view(rig: Rig) -> None:
    """A conversation continues from its view as its history: no record is folded twice, no original is lost."""
    with rig.provider(Steps(steps=16)) as provider:
        agent = rig.make(provider)
        rig.run(agent, "Read all sensors of hall seven.")
        for turn in range(2):
            rig.wait(agent.load_view(rig.read_sent(agent, provider)))
            assert DONE in rig.run(agent, f"Turn {turn}: go on.")
        expect_fits(rig, provider)
        with rig.manager() as manager:
            found = manager.recall("s1", "reading-000-begins")
            assert any("reading-000-begins" in one.text for one in found)
            stored = [json.dumps(message, ensure_ascii=False) for message in rig.stored()]
        assert not any("⟦" in text for text in stored), "a record was stored as if somebody had said it"
        assert any("Turn 1: go on." in text for text in stored), "the session did not go on"


_CASES: dict[str, Callable[[Rig], None]] = {
    **{name.removeprefix("case_"): case for name, case in list(globals().items()) if name.startswith("case_")},
    **{mode: _in_mode(mode) for mode in get_args(Mode)},
}
CASES = tuple(_CASES)


def run_case(
    case: str, driver: IntegrationDriver, workspace: Path, *, count: Callable[[str], int] | None = None
) -> None:
    """Run one case of the contract; ``count`` counts the tokens of a text apart from refold, best with tiktoken."""
    unknown = sorted(set(driver.unsupported) - set(CASES))
    assert not unknown, f"there are no cases {unknown}"
    if reason := driver.unsupported.get(case):
        raise SkipTest(f"{type(driver).__name__} declares: {reason}")
    rig = Rig(driver, workspace, count or counter_for("gpt-4o").count_text)
    try:
        _CASES[case](rig)
    finally:
        rig.close()


def _run_elsewhere(rig: Rig, provider: ScriptedProvider, text: str) -> Any:
    """Run one turn in another process and return what its agent saved."""
    job = (type(rig.driver), rig.workspace, rig.find_url(provider), text)
    with get_context("spawn").Pool(1) as elsewhere:  # Leaving the block ends a process that hangs.
        return elsewhere.apply_async(_run_turn, job).get(TURN_S_MAX)


def _run_turn(kind: Callable[[], IntegrationDriver], workspace: Path, url: str, text: str) -> Any:
    rig = Rig(kind(), workspace, len)
    try:
        agent = rig.make(url)
        rig.run(agent, text)
        return agent.save()
    finally:
        rig.close()
