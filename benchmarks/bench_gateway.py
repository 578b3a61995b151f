"""Overhead of the gateway: latency and throughput beside a bare pass-through on the same stack, in the same run.

Provider, bare pass-through, gateway and, where their programs are at hand, other gateways are processes of their own.
The driver sends requests of 1k, 50k and 200k tokens that grow by one turn each time, as an agent's do. All are
measured in turns, a few requests each, and ratios are medians over the rounds: what disturbs one disturbs the others.
Other gateways are found by BENCH_LITELLM and BENCH_HEADROOM, the paths of their programs. Writes a Markdown section.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp

SIZES = {"1k": 1_000, "50k": 50_000, "200k": 200_000}
WARM, STEPS = 3, 4
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "25"))
BARE_NAME = "bare pass-through"
CONCURRENT = 8
KEY = "sk-bench-5f1c0e9a7b3d4826a1c4e7f09b2d6835"  # Of nobody: LiteLLM does not start without one.
START_S_MAX = 240
PEER_NAMES = ("LiteLLM proxy", "headroom proxy")
PEER_TOKENS_MAX = 100_000  # Larger ones of theirs take minutes when they come together.
PEER_ROUNDS = int(os.environ.get("BENCH_PEER_ROUNDS", "3"))

UPSTREAM = """
import sys
ANSWER = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"bench-1m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"ok"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}'
)
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body")
    answer = ANSWER % (size // 5, size // 5 + 1)
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": answer})
import uvicorn
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", access_log=False, timeout_keep_alive=75)
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
                connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
                client = aiohttp.ClientSession(auto_decompress=False, connector=connector)
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
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", access_log=False, timeout_keep_alive=75)
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
            if process.poll() is not None or time.perf_counter() - started > START_S_MAX:
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
    """The requests of a growing talk: each one longer by an answer and a question."""
    history = make_history(tokens, talk)
    bodies = []
    for turn in range(count):
        history += [{"role": "user", "content": f"question {turn}"}]
        bodies.append(json.dumps({"model": "bench-1m", "messages": history}).encode())
        history += [{"role": "assistant", "content": "ok"}]
    return bodies


class Talks:
    """One server under measurement: its own talks, so that each of its sessions is warm, and its figures by round."""

    def __init__(self, name: str, url: str, pid: int, tokens: int, concurrent: int) -> None:
        self.name = name
        self.url = f"{url}/v1/chat/completions"
        self.pid = pid
        # Every talk is one of a kind: none begins as that of another measurement.
        first = 1_000_000 * concurrent + tokens
        self.talks = [make_bodies(tokens, first + talk, WARM + ROUNDS * STEPS) for talk in range(concurrent)]
        self.latencies: dict[int, list[float]] = {}
        self.rates: dict[int, float] = {}
        self.cpu_s = 0.0

    async def ask(self, session: aiohttp.ClientSession, body: bytes) -> float:
        started = time.perf_counter()
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        async with session.post(self.url, data=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        return time.perf_counter() - started

    async def warm_up(self, session: aiohttp.ClientSession) -> None:
        for bodies in self.talks:
            for body in bodies[:WARM]:
                await self.ask(session, body)

    async def run_round(self, session: aiohttp.ClientSession, number: int) -> None:
        latencies: list[float] = []

        async def talk(bodies: list[bytes]) -> None:
            start = WARM + number * STEPS
            latencies.extend([await self.ask(session, body) for body in bodies[start : start + STEPS]])

        started, cpu = time.perf_counter(), read_cpu_s(self.pid)
        await asyncio.gather(*map(talk, self.talks))
        self.rates[number] = len(latencies) / (time.perf_counter() - started)
        self.cpu_s += read_cpu_s(self.pid) - cpu
        self.latencies[number] = latencies

    @property
    def all_latencies(self) -> list[float]:
        return [one for latencies in self.latencies.values() for one in latencies]

    def compare(self, base: Talks) -> tuple[float, float]:
        """How its latency and its throughput compare with another's, round by round: the median."""
        slower = [statistics.median(own) / statistics.median(base.latencies[at]) for at, own in self.latencies.items()]
        faster = [own / base.rates[at] for at, own in self.rates.items()]
        return statistics.median(slower), statistics.median(faster)


async def measure(servers: dict[str, tuple[str, int]], tokens: int, concurrent: int) -> list[Talks]:
    """Measure all servers in turns, a few requests each."""
    measured = [Talks(name, url, pid, tokens, concurrent) for name, (url, pid) in servers.items()]
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)  # Others close what is idle after five seconds.
    async with aiohttp.ClientSession(connector=connector) as session:
        for one in measured:
            await one.warm_up(session)
        for number in range(ROUNDS):
            for one in measured:
                # Others take far longer; a few rounds tell as much.
                if one.name not in PEER_NAMES or number % max(1, ROUNDS // PEER_ROUNDS) == 0:
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
    """Processor time of a process and its threads so far; Linux only, 0 elsewhere."""
    spent = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            spent += int(file.read_text().split()[0])
        except OSError:  # A thread that has ended.
            continue
    return spent / 1e9


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
            chosen = servers
            if concurrent > 1 and tokens > PEER_TOKENS_MAX:
                chosen = {name: server for name, server in servers.items() if name not in PEER_NAMES}
            measured = asyncio.run(measure(chosen, tokens, concurrent))
            bare = next(one for one in measured if one.name == BARE_NAME)
            for one in measured:
                slower, faster = one.compare(bare)
                latencies = one.all_latencies
                p50, p99, rate = pick(latencies, 0.5), pick(latencies, 0.99), statistics.median(one.rates.values())
                cpu = one.cpu_s / len(latencies) * 1_000
                head = f"| {size} | {concurrent} | {one.name} | {p50:.2f} | {p99:.2f} | {rate:.0f} | {cpu:.2f}"
                print(f"{head} | {slower:.2f} | {faster:.2f} |", flush=True)


async def probe_while_large(url: str, megabytes: int = 30) -> tuple[int, float, float, float]:
    """Send one large body and ask for /livez meanwhile; return the count, median and slowest in ms, and the seconds.

    The body needs compression: its conversation is far larger than the window.
    """
    words = "the build of module seven printed a warning about line endings and went on. " * 12
    turns = [{"role": ("user", "assistant")[at % 2], "content": f"{at} {words}"} for at in range(megabytes * 1_000)]
    body = json.dumps({"model": "gpt-4o", "messages": [*turns, {"role": "user", "content": "and now?"}]}).encode()
    latencies: list[float] = []
    async with aiohttp.ClientSession() as session:
        begun = time.perf_counter()
        sending = asyncio.ensure_future(session.post(f"{url}/v1/chat/completions", data=io.BytesIO(body)))
        while not sending.done():
            asked = time.perf_counter()
            async with session.get(f"{url}/livez") as answer:
                await answer.read()
            latencies.append(time.perf_counter() - asked)
            await asyncio.sleep(0.005)
        (await sending).close()
    return len(latencies), pick(latencies, 0.5), max(latencies) * 1_000, time.perf_counter() - begun


def print_probes(url: str) -> None:
    """Print how /livez answers while one large body is parsed and compressed."""
    count, middle, slowest, seconds = asyncio.run(probe_while_large(url))
    print(f"\nWhile a body of 30 MB was prepared ({seconds:.1f} s), `/livez` answered {count} times:")
    print(f"p50 {middle:.1f} ms, slowest {slowest:.0f} ms.")


def find_peer(name: str) -> str | None:
    """The program of another gateway: named by the environment, or in a virtual environment beside the project."""
    named = os.environ.get(f"BENCH_{name.upper()}", f".venv-{name}/bin/{name}")
    return named if Path(named).exists() else None


@contextmanager
def run_litellm(program: str, port: int, upstream: int) -> Iterator[subprocess.Popen[bytes]]:
    """LiteLLM's proxy with one model and no database."""
    settings = (
        "model_list: [{model_name: bench-1m, litellm_params: {model: openai/bench-1m, api_key: none, "
        f"api_base: 'http://127.0.0.1:{upstream}/v1'}}}}]\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "litellm.yaml"
        file.write_text(settings)
        command = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
        env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": KEY}
        with run_process(command, port, **env) as process:
            yield process


@contextmanager
def run_headroom(program: str, port: int, upstream: int) -> Iterator[subprocess.Popen[bytes]]:
    """Headroom's proxy with its compression on, without what would answer from a cache or make requests wait."""
    command = [program, "proxy", "--port", str(port), "--no-cache", "--no-rate-limit", "--no-telemetry"]
    with tempfile.TemporaryDirectory() as folder:
        env = {"OPENAI_TARGET_API_URL": f"http://127.0.0.1:{upstream}", "HOME": folder}
        with run_process(command, port, **env) as process:
            yield process


PEERS = dict(zip(("litellm", "headroom"), zip(PEER_NAMES, (run_litellm, run_headroom), strict=True), strict=True))


def main() -> None:
    only_large = "--large" in sys.argv
    upstream, bare, gateway = find_port(), find_port(), find_port()
    many = int(os.environ.get("BENCH_REQUESTS", "10000"))
    missing: list[str] = []
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
        idle = read_memory_mb(process.pid)
        starts = [f"refold {process.start_seconds:.1f} s, {idle:.0f} MB"]  # type: ignore[attr-defined]
        for name, (title, run) in PEERS.items():
            program = find_peer(name)
            if program is None:
                missing.append(f"{title} (`BENCH_{name.upper()}` names no program)")
                continue
            port = find_port()
            peer = stack.enter_context(run(program, port, upstream))
            servers[title] = (f"http://127.0.0.1:{port}", peer.pid)
            memory = read_memory_mb(peer.pid)
            starts.append(f"{title} {peer.start_seconds:.1f} s, {memory:.0f} MB")  # type: ignore[attr-defined]
        if only_large:
            print_probes(servers["refold gateway"][0])
            return
        print("## Gateway\n")
        print("`benchmarks/bench_gateway.py`: a warm session that grows by one turn per request, nothing to compress.")
        print(f"Every process on the same machine; ratios are medians of {ROUNDS} rounds in turns.\n")
        print_rows(servers)
        asyncio.run(ask_many(servers["refold gateway"][0], many))
        print_probes(servers["refold gateway"][0])
        print(f"\nStart to first connection and resident memory then: {'; '.join(starts)}.")
        print(f"refold after the requests above and {many:,} more: {read_memory_mb(process.pid):.0f} MB.")
    if missing:
        print(f"\nNot measured here: {', '.join(missing)}.")


if __name__ == "__main__":
    main()
