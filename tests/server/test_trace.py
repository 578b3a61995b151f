"""How much of the tree a request through the gateway goes through: the numbers may fall, never grow."""

import threading
from collections.abc import Callable

from tests.rigs.server import Rig, make_body, wait_for
from tests.rigs.tracing import Trace, traced

# Files outside the pure core. A request that needs one more has grown a layer: find out why before raising it.
WARM_MAX = 33


def talk(count: int) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": f"message {at} says a few words"} for at in range(count)]


def send(rig: Rig, count: int) -> Trace:
    """Send a conversation and return what the gateway called for it."""
    loop = rig.application._loop
    assert loop is not None

    def run_there(switch: Callable[[], object]) -> None:
        done = threading.Event()
        loop.call_soon_threadsafe(lambda: (switch(), done.set()))
        assert done.wait(60)

    with traced(run_there) as trace:
        assert rig.post("openai-chat", make_body("openai-chat", talk(count))).status_code == 200
        wait_for(lambda: rig.application.gateway.requests == 0)
    return trace


def test_a_warm_request_with_one_more_turn_stays_within_few_files(rig: Rig) -> None:
    for count in (7, 9, 11):
        send(rig, count)
    trace = send(rig, 13)
    assert "manager/append.py" in trace.calls, "the gateway's thread is traced"
    assert len(trace.shell) <= WARM_MAX, trace.shell
    assert trace.count("digest_message") == 2
    assert trace.count("parse") == 2


def test_a_cold_request_hashes_and_parses_each_message_once(rig: Rig) -> None:
    trace = send(rig, 7)
    assert trace.count("digest_message") == 7
    assert trace.count("parse") <= 7
