"""``refold serve --workers N``: one address, several processes, each session in one of them."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from refold import ContextCompressionManager
from refold.server.workers import find_route
from refold.testing import ScriptedProvider
from tests.rigs.server import make_body, wait_for
from tests.server.test_commands import run_gateway


def write(head: str, body: object = None, path: str = "/v1/chat/completions") -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def say(*texts: str) -> dict[str, object]:
    roles = ("user", "assistant")
    told = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "m", "messages": [{"role": "system", "content": "You are brief."}, *told]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (write("X-Refold-Session: a\r\n", say("hi")), write("x-refold-session: a\r\n", say("other"))),
        (write("Session_id: 17\r\n", say("hi")), write("session_id: 17\r\n", say("other"))),
        (write("", say("hi")), write("", say("hi", "Hello.", "And now?"))),
        (write("", say("x" * 900)), write("", say("x" * 900, "Hello.", "And now?"))),
        (
            write("", {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}),
            write("", {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x"}]}]}),
        ),
        (write("", {"input": "hi", "model": "a"}), write("", {"input": "hi", "model": "b"})),
        (write("", say("one"), "/wrap/0123456789ab/v1/messages"), write("", say("two"), "/wrap/0123456789ab/v1/x")),
    ],
    ids=["named", "conversation", "growing", "long", "blocks", "responses", "run"],
)
def test_requests_of_one_session_have_one_route(first: bytes, second: bytes) -> None:
    assert find_route(first)
    assert find_route(first) == find_route(second)


def test_other_sessions_have_other_routes_and_the_page_has_its_own() -> None:
    routes = {find_route(write("", say(f"task {number}"))) for number in range(20)}
    assert len(routes) == 20
    for path in ("/ui/sessions", "/api/sessions", "/metrics", "/"):
        assert find_route(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()) == b""


def test_a_request_that_has_not_come_whole_is_looked_at_again() -> None:
    whole = write("", say("a question of some words"))
    assert find_route(b"POST /v1/chat") is None
    assert find_route(whole[:-30]) is None
    assert find_route(whole[: whole.index(b"of some")]) is None


def list_children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    commands = {int(one): Path(f"/proc/{one}/cmdline").read_bytes() for one in listed}
    return [one for one, command in commands.items() if b"spawn_main" in command]


def is_alive(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/livez", timeout=60, trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.slow
def test_two_processes_answer_everything_also_after_one_was_killed(tmp_path: Path) -> None:
    with (
        ScriptedProvider("ok") as provider,
        run_gateway(tmp_path, "--workers", "2", "--openai-upstream", f"{provider.url}/v1", "--quiet") as (url, process),
    ):

        def talk(name: str) -> list[str]:
            answers, messages = [], []
            for turn in range(6):
                messages += [{"role": "user", "content": f"{name} {turn}"}]
                body = make_body("openai-chat", messages)
                for _ in range(50):  # The connection of a killed process breaks: clients send again.
                    try:
                        answer = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False)
                        break
                    except httpx2.TransportError:
                        time.sleep(0.2)
                assert answer.status_code == 200, answer.text
                answers.append(answer.headers["x-refold-session"])
                messages += [{"role": "assistant", "content": "ok"}]
            return answers

        wait_for(lambda: is_alive(url))
        children = list_children(process.pid)
        assert len(children) == 2
        with ThreadPoolExecutor(8) as threads:
            told = [threads.submit(talk, f"agent {number}") for number in range(8)]
            wait_for(lambda: len(provider.requests) > 8)
            os.kill(children[1], signal.SIGKILL)
            sessions = {name for one in told for name in one.result()}
        assert len(sessions) == 8
        wait_for(lambda: len(list_children(process.pid)) == 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        assert [manager.status(name).messages for name in sessions] == [11] * 8
        assert [one for one in manager.verify() if "write-ahead" not in one.what] == []
