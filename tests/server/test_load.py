"""Many at a time and for long: no error, nothing left open, memory flat. Slow; `make test-all` runs it."""

import asyncio
import gc
import json
import resource
import time
from pathlib import Path

import aiohttp
import pytest

from refold.testing.answers import WIRES, encode_event
from refold.testing.script import ScriptedReply, ScriptedUsage
from tests.rigs.effort import up_to
from tests.rigs.server import PATHS, wait_for
from tests.server.raw_upstream import RawUpstream, play_chunks

STREAMS = 200
SECONDS = 60.0
pytestmark = pytest.mark.slow


def read_memory_mb() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
    except OSError:
        pytest.skip("memory is read from /proc, which is not there")


def count_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def talk(session, url, number, until):
    """One session: streams one after the other, the history growing, started again when it is long."""
    wire = list(PATHS)[number % 3]
    key = "input" if wire == "openai-responses" else "messages"
    messages, count = [], 0
    while time.monotonic() < until:
        if len(messages) > 12:
            messages = []
        messages.append({"role": "user", "content": f"talk {number}, question {count} " + "word " * 40})
        body = {"model": "scripted-1", "max_tokens": 50, "stream": True, key: messages}
        headers = {"anthropic-version": "2023-06-01", "x-refold-session": f"talk-{number}"}
        async with session.post(f"{url}{PATHS[wire]}", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert "failed-open" not in answer.headers["x-refold-reason"], answer.headers
            whole = await answer.read()
        assert whole
        messages.append({"role": "assistant", "content": f"answer {count}"})
        count += 1
        await asyncio.sleep(0.2)
    return count


async def run_talks(url, seconds):
    until = time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
        return sum(await asyncio.gather(*(talk(session, url, number, until) for number in range(STREAMS))))


def test_two_hundred_streaming_sessions_for_a_minute(start):
    reply = ScriptedReply("A streamed answer of some words. " * 4)
    events = WIRES["openai-chat"][1](reply, ScriptedUsage(100, 20), {"model": "m"})
    chunks = [encode_event(*event) for event in events]
    with RawUpstream(play_chunks(chunks, pause_s=0.01)) as upstream:
        rig = start(upstream=upstream.url, config={"window": 16_000})
        asyncio.run(run_talks(rig.url, 15))
        gc.collect()
        memory, files = read_memory_mb(), count_files()
        count = asyncio.run(run_talks(rig.url, SECONDS))
        gc.collect()
        wait_for(lambda: rig.application.gateway.requests == 0)
        grown = read_memory_mb() - memory
        assert count > STREAMS * 3
        assert grown < 60, f"memory grew by {grown:.0f} MB over {count} requests"
        # The clients' own connections have just been closed; the other ends follow when their loop gets to it.
        wait_for(lambda: count_files() < files + 100)
        assert rig.manager.verify() == []


def test_the_description_holds_whatever_is_asked(start):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    import warnings

    from hypothesis import HealthCheck, settings

    rig = start()
    rig.post(
        "openai-chat", {"model": "scripted-1", "messages": [{"role": "user", "content": "hi"}]}, x_refold_session="s"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = rig.http.get("/api/openapi.json").json()
        del described["paths"]["/api/events"]  # It does not end by itself.
        schema = schemathesis.openapi.from_dict(described)
        for operation in schema.get_all_operations():

            @settings(max_examples=up_to(60), deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @schemathesis_given(operation.ok())
            def check(case):
                answer = case.call(base_url=rig.url)
                assert answer.status_code < 500 or answer.status_code in (502, 503, 504), (
                    case.as_curl_command(),
                    answer.text,
                )
                json.loads(answer.text) if answer.text else None

            check()


def schemathesis_given(operation):
    from hypothesis import given

    return given(case=operation.as_strategy())
