"""What the gateway adds: latency and throughput beside a bare pass-through on the same stack, in the same run.

Provider, bare pass-through and gateway are processes of their own; the driver sends requests of 1k, 50k and 200k tokens
that grow by one turn each time, as an agent's do. Writes a Markdown section to standard output.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp

SIZES = {"1k": 1_000, "50k": 50_000, "200k": 200_000}
WARM, ROUNDS, STEPS = 3, 25, 4
BARE_NAME = "bare pass-through"
CONCURRENT = 8
PEERS = {"litellm proxy": "litellm", "headroom proxy": "headroom"}

UPSTREAM = """
import sys
ANSWER = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"bench-1m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":1}}'
)
HEAD = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEAD})
    await send({"type": "http.response.body", "body": ANSWER})
import uvicorn
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", access_log=False)
"""

BARE = """
import sys
import aiohttp, uvicorn
client = None
async def app(scope, receive, send):
    global client
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                client = aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0))
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    pieces = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    own = (b"host", b"content-length")
    headers = {key.decode(): value.decode() for key, value in scope["headers"] if key not in own}
    url = f"http://127.0.0.1:{sys.argv[2]}{scope['path']}"
    async with client.post(url, data=b"".join(pieces), headers=headers) as answer:
        raw = [(key.lower(), value) for key, value in answer.raw_headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        async for chunk in answer.content.iter_any():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", access_log=False)
"""


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_process(command: list[str], port: int, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server and wait until it listens; its start time is kept on the process."""
    started = time.perf_counter()
    environment = {**os.environ, **env}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.perf_counter() - started > 90:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.01)
        process.start_seconds = time.perf_counter() - started  # type: ignore[attr-defined]
        yield process
    finally:
        process.terminate()
        process.wait(20)


def make_history(tokens: int, talk: int) -> list[dict[str, str]]:
    """A talk of about so many tokens, 200 or so in each message."""
    text = " ".join(f"value{talk}x{number} of the file" for number in range(22))
    count = max(2, tokens // 200)
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": f"{at}: {text}"} for at in range(count - count % 2)]


def make_bodies(tokens: int, talk: int, count: int) -> list[bytes]:
    """The requests of a talk that goes on: each one longer by an answer and a question."""
    history = make_history(tokens, talk)
    bodies = []
    for turn in range(count):
        history += [{"role": "user", "content": f"question {turn}"}]
        bodies.append(json.dumps({"model": "bench-1m", "messages": history}).encode())
        history += [{"role": "assistant", "content": "ok"}]
    return bodies


class Talks:
    """One server under measurement: its own talks, so that each of its sessions is warm, and its figures."""

    def __init__(self, name: str, url: str, pid: int, tokens: int, concurrent: int) -> None:
        self.name = name
        self.url = f"{url}/v1/chat/completions"
        self.pid = pid
        self.talks = [make_bodies(tokens, talk, WARM + ROUNDS * STEPS) for talk in range(concurrent)]
        self.latencies: list[float] = []
        self.seconds = self.cpu_s = 0.0

    async def ask(self, session: aiohttp.ClientSession, body: bytes) -> float:
        started = time.perf_counter()
        async with session.post(self.url, data=body, headers={"content-type": "application/json"}) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        return time.perf_counter() - started

    async def warm_up(self, session: aiohttp.ClientSession) -> None:
        for bodies in self.talks:
            for body in bodies[:WARM]:
                await self.ask(session, body)

    async def run_round(self, session: aiohttp.ClientSession, number: int) -> None:
        async def talk(bodies: list[bytes]) -> None:
            start = WARM + number * STEPS
            self.latencies.extend([await self.ask(session, body) for body in bodies[start : start + STEPS]])

        started, cpu = time.perf_counter(), read_cpu_s(self.pid)
        await asyncio.gather(*map(talk, self.talks))
        self.seconds += time.perf_counter() - started
        self.cpu_s += read_cpu_s(self.pid) - cpu

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


async def measure(servers: dict[str, tuple[str, int]], tokens: int, concurrent: int) -> list[Talks]:
    """Measure all servers in turns, a few requests each: what disturbs the machine disturbs them alike."""
    measured = [Talks(name, url, pid, tokens, concurrent) for name, (url, pid) in servers.items()]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for one in measured:
            await one.warm_up(session)
        for number in range(ROUNDS):
            for one in measured:
                await one.run_round(session, number)
    return measured


def read_memory_mb(pid: int) -> float:
    """Resident memory of a process; Linux only, 0 elsewhere."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * resource.getpagesize() / 1e6


def read_cpu_s(pid: int) -> float:
    """Processor time of a process so far; Linux only, 0 elsewhere."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def find_peer(name: str) -> Path | None:
    """A peer's own virtual environment beside the project's, if somebody made one."""
    python = Path(f".venv-{name}/bin/{name}")
    return python if python.exists() else None


def pick(latencies: list[float], share: float) -> float:
    return sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * share))] * 1_000


async def ask_many(url: str, count: int) -> None:
    """Send many small requests of many talks."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=16)) as session:

        async def ask(number: int) -> None:
            text = f"talk {number % 500}, request {number // 500}"
            body = {"model": "bench-1m", "messages": [{"role": "user", "content": text}]}
            async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                await answer.read()

        for start in range(0, count, 200):
            await asyncio.gather(*(ask(number) for number in range(start, min(count, start + 200))))


def print_rows(servers: dict[str, tuple[str, int]]) -> None:
    print("| request | concurrent | server | p50 ms | p99 ms | requests/s | CPU ms | p50 ÷ bare | throughput ÷ bare |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, tokens in SIZES.items():
        for concurrent in (1, CONCURRENT):
            print(f"{size}, {concurrent} at a time", file=sys.stderr)
            measured = asyncio.run(measure(servers, tokens, concurrent))
            bare = next(one for one in measured if one.name == BARE_NAME)
            base = pick(bare.latencies, 0.5)
            for one in measured:
                p50, p99 = pick(one.latencies, 0.5), pick(one.latencies, 0.99)
                cpu = one.cpu_s / len(one.latencies) * 1_000
                head = f"| {size} | {concurrent} | {one.name} | {p50:.2f} | {p99:.2f} | {one.rate:.0f} | {cpu:.2f}"
                print(f"{head} | {p50 / base:.2f} | {one.rate / bare.rate:.2f} |", flush=True)


def main() -> None:
    upstream, bare, gateway = find_port(), find_port(), find_port()
    many = int(os.environ.get("BENCH_REQUESTS", "10000"))
    with ExitStack() as stack:
        workspace = stack.enter_context(tempfile.TemporaryDirectory())
        provider = stack.enter_context(run_process([sys.executable, "-c", UPSTREAM, str(upstream)], upstream))
        passing = stack.enter_context(run_process([sys.executable, "-c", BARE, str(bare), str(upstream)], bare))
        command = [sys.executable, "-m", "refold", "serve", "--quiet", "--port", str(gateway), "-w", workspace]
        command += ["--openai-upstream", f"http://127.0.0.1:{upstream}/v1"]
        process = stack.enter_context(run_process(command, gateway, REFOLD_WINDOW="1000000"))
        servers = {
            "provider alone": (f"http://127.0.0.1:{upstream}", provider.pid),
            BARE_NAME: (f"http://127.0.0.1:{bare}", passing.pid),
            "refold gateway": (f"http://127.0.0.1:{gateway}", process.pid),
        }
        print("## Gateway\n")
        print(
            "`benchmarks/bench_gateway.py`: a warm session that grows by one turn per request and needs no compression;"
        )
        print("every process on the same machine, so ratios count.\n")
        idle = read_memory_mb(process.pid)
        print_rows(servers)
        asyncio.run(ask_many(servers["refold gateway"][0], many))
        started: float = process.start_seconds  # type: ignore[attr-defined]
        print(f"\nStart to first connection {started:.2f} s. Resident memory: {idle:.0f} MB idle, ", end="")
        print(f"{read_memory_mb(process.pid):.0f} MB after the requests above and {many:,} more.")
    for peer, name in PEERS.items():
        if find_peer(name) is None:
            print(f"\nNot measured here: {peer} (no `.venv-{name}` beside the project).")


if __name__ == "__main__":
    main()
