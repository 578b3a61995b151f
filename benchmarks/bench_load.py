"""Gateways under load, on one PostgreSQL: many sessions with folds, a killed gateway, slow clients, memory, capacity.

    python benchmarks/bench_load.py load --sessions 100 --requests 20    two gateways, one killed and restarted
    python benchmarks/bench_load.py slow --connections 1000              clients that send one byte a second
    python benchmarks/bench_load.py soak --count 100000                  memory while requests come, on SQLite
    python benchmarks/bench_load.py capacity --gateways 1 2 4            requests per second by size, bytes per message
    python benchmarks/bench_load.py workers --workers 1 2                requests per second by processes of one gateway
    python benchmarks/bench_load.py fold --sessions 12 --requests 24     processor time of each request, one gateway and
                                                                         two that take turns on one ledger

Everything runs on this machine, on loopback: PostgreSQL, the provider's stand-in, the gateways and the clients, so the
figures are those of all of them together. A client whose connection breaks sends the same request to another gateway,
as a load balancer does. Nothing may be refused, and what was answered must be in the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from bench_gateway import BARE, UPSTREAM, find_port, pick, read_cpu_s, read_memory_mb, run_process

from refold.ledger.place import LedgerPlace
from refold.ledger.postgres import PostgresLedger
from refold.manager.flow import LEASE_S
from refold.testing.postgres import PostgresServer, find_binaries

WINDOW = 3_000
WORDS = 120
RETRIES_MAX = 60
# Growing agents: in this window about every fourth request folds.
AGENT_WINDOW, AGENT_WARM = 4_500, 3
QUIET_S, QUIET_MAX_S = 0.03, 2.0
CONCURRENT = 40
Message = dict[str, str]


@dataclass(slots=True)
class Figures:
    latencies: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    broken: int = 0
    histories: dict[str, list[Message]] = field(default_factory=dict)


class Gateway:
    """One gateway process, which can be killed and started again on the same port."""

    def __init__(self, url: str, upstream: int, folder: Path, window: int = WINDOW, workers: int = 1) -> None:
        """``url`` is the address of the ledger; empty for a file in the folder."""
        self.port = find_port()
        self._stack = ExitStack()
        self._environment = {"REFOLD_WINDOW": str(window), "REFOLD_RESERVE": "500"}
        if url:
            self._environment["REFOLD_LEDGER"] = url
        self._command = [sys.executable, "-m", "refold", "serve", "--quiet", "--port", str(self.port)]
        self._command += ["-w", str(folder), "--openai-upstream", f"http://127.0.0.1:{upstream}/v1"]
        self._command += ["--workers", str(workers)]
        self.process: Any = None

    def start(self) -> None:
        self.process = self._stack.enter_context(run_process(self._command, self.port, **self._environment))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._stack.close()

    def close(self) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def start_postgres(stack: ExitStack) -> str:
    """Start a server that ends with the stack; return its address."""
    binaries = find_binaries()
    if binaries is None:
        sys.exit("no PostgreSQL here: install its server")
    server = PostgresServer(binaries)
    server.start()
    stack.callback(server.remove)
    return server.url()


@contextmanager
def run_all(
    gateways: int, window: int = WINDOW, *, on_sqlite: bool = False, workers: int = 1, is_one_file: bool = False
) -> Iterator[tuple[list[Gateway], str, str]]:
    """Start a server, a provider, the bare pass-through and gateways; yield gateways, bare address, ledger address.

    On SQLite each gateway has a ledger of its own, or all have one file.
    """
    with ExitStack() as stack:
        url = "" if on_sqlite else start_postgres(stack)
        upstream, bare = find_port(), find_port()
        stack.enter_context(run_process([sys.executable, "-c", UPSTREAM, str(upstream)], upstream))
        stack.enter_context(run_process([sys.executable, "-c", BARE, str(bare), str(upstream)], bare))
        made = []
        if on_sqlite and is_one_file:
            url = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "ledger.db")
        for _ in range(gateways):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            gateway = Gateway(url, upstream, folder, window, workers)
            gateway.start()
            stack.callback(gateway.close)
            made.append(gateway)
        yield made, f"http://127.0.0.1:{bare}", url


def read_database_cpu_s() -> float:
    """Return the processor time of all PostgreSQL processes that this script started; Linux only."""
    own = set(_list_children(os.getpid(), "postgres"))
    return sum(map(read_cpu_s, own)) if own else 0.0


def _list_children(pid: int, named: str = "") -> Iterator[int]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = file.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == pid:
            child = int(file.parent.name)
            if named in name:
                yield child
            yield from _list_children(child, named)


def say(session: str, turn: int) -> str:
    return f"Turn {turn} of {session}: " + " ".join(f"value{turn}x{number}" for number in range(WORDS // 3))


async def ask(
    client: aiohttp.ClientSession, urls: Sequence[str], session: str, history: list[Message], found: Figures
) -> None:
    """Send one request, to the next gateway if a connection breaks."""
    body = json.dumps({"model": "bench-1m", "messages": history}).encode()
    headers = {"content-type": "application/json", "x-refold-session": session, "authorization": "Bearer sk-bench"}
    first = hash(session) % len(urls)
    begun = time.perf_counter()
    for attempt in range(RETRIES_MAX):
        url = urls[(first + attempt) % len(urls)]
        try:
            async with client.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
                await answer.read()
                if answer.status != 200:
                    found.refused.append(answer.status)
                    return
                break
        except (TimeoutError, aiohttp.ClientError, ConnectionError):
            found.broken += 1
            await asyncio.sleep(0.2)
    else:
        found.refused.append(0)
        return
    found.ends.append(time.perf_counter())
    found.latencies.append(found.ends[-1] - begun)
    found.histories[session] = list(history)


async def run_load(urls: Sequence[str], sessions: int, requests: int, name: str, halfway: Any = None) -> Figures:
    """Let every session send its requests one after the other, many sessions at the same time."""
    found = Figures()
    gate = asyncio.Semaphore(CONCURRENT)
    total, done = sessions * requests, 0
    is_told = halfway is None

    async def talk(number: int) -> None:
        nonlocal done, is_told
        session, history = f"{name}-{number}", []
        for turn in range(requests):
            history += [{"role": "user", "content": say(session, turn)}]
            async with gate:
                await ask(client, urls, session, history, found)
            history += [{"role": "assistant", "content": "ok"}]
            done += 1
            if not is_told and done >= total // 2:
                is_told = True
                asyncio.get_running_loop().run_in_executor(None, halfway)

    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        await asyncio.gather(*map(talk, range(sessions)))
    return found


def check_ledger(url: str, histories: dict[str, list[Message]]) -> tuple[int, int, int, int]:
    """Return the numbers of distinct texts stored, of answered messages that are missing, of folds and of findings."""
    ledger = PostgresLedger(LedgerPlace(url))
    stored = missing = folds = 0
    for row in ledger.list_sessions(limit=100_000):
        name = row.id.rpartition("/")[2]
        texts = {json.loads(one.raw)["content"] for one in ledger.list_messages(row.id, limit=100_000) if one.raw}
        stored += len(texts)
        folds += sum(one.edit.kind == "fold" for one in ledger.read_edits(row.id, active_only=False))
        missing += sum(one["content"] not in texts for one in histories.pop(name, ()))
    missing += sum(len(history) for history in histories.values())
    findings = len(ledger.verify())
    ledger.close()
    return stored, missing, folds, findings


def measure_load(sessions: int, requests: int) -> None:
    with run_all(2) as (gateways, bare, url):
        plain = asyncio.run(run_load([bare], sessions, requests, "bare"))

        killed: list[float] = []

        def kill_one() -> None:
            killed.append(time.perf_counter())
            gateways[0].kill()
            time.sleep(3)
            gateways[0].start()
            killed.append(time.perf_counter())

        begun = time.perf_counter()
        found = asyncio.run(run_load([one.url for one in gateways], sessions, requests, "load", kill_one))
        took = time.perf_counter() - begun
        for gateway in gateways:
            gateway.close()
        stored, missing, folds, findings = check_ledger(url, dict(found.histories))
    count = sessions * requests
    print(f"{sessions} sessions x {requests} requests, window {WINDOW:,}, {CONCURRENT} at a time, two gateways, one")
    print("killed (SIGKILL) at half of the requests and started again three seconds later")
    answered, broken = len(found.latencies), found.broken
    print(f"answered {answered:,} of {count:,}, refused {len(found.refused)}, connections broken {broken}")
    print(f"distinct texts stored {stored:,}, answered and not stored {missing}, folds {folds:,}, findings {findings}")
    own50, own99 = pick(found.latencies, 0.5), pick(found.latencies, 0.99)
    print(f"{count / took:.0f} requests/s; p50 {own50:.0f} ms, p99 {own99:.0f} ms, retries included")
    print(describe_phases(found, killed))
    p50, p99 = pick(plain.latencies, 0.5), pick(plain.latencies, 0.99)
    print(f"bare pass-through: p50 {p50:.0f} ms, p99 {p99:.0f} ms; ratios {own50 / p50:.1f} and {own99 / p99:.1f}")


def describe_phases(found: Figures, killed: Sequence[float]) -> str:
    """Return the latencies before the kill, until the killed gateway is back and has warmed up, and after that."""
    gone, back = killed[0], killed[-1] + LEASE_S
    phases: dict[str, list[float]] = {"before the kill": [], "while it was away": [], "after": []}
    for end, latency in zip(found.ends, found.latencies, strict=True):
        phase = "before the kill" if end < gone else "after" if end - latency > back else "while it was away"
        phases[phase].append(latency)
    told = [
        f"{name}: p50 {pick(own, 0.5):.0f}, p99 {pick(own, 0.99):.0f}, slowest {1e3 * max(own):.0f} ms ({len(own):,})"
        for name, own in phases.items()
        if own
    ]
    return f"{'; '.join(told)}; the gateway was back after {killed[-1] - gone:.1f} s"


async def hold_slow(port: int, count: int, seconds: float) -> tuple[int, list[float]]:
    """Open connections that send one byte a second; return how many were open at the end, and others' latencies."""
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000\r\n\r\n")
        writers.append(writer)
    latencies: list[float] = []
    ends = time.perf_counter() + seconds
    async with aiohttp.ClientSession() as client:
        while time.perf_counter() < ends:
            for writer in writers:
                if not writer.is_closing():
                    writer.write(b"x")
            begun = time.perf_counter()
            async with client.get(f"http://127.0.0.1:{port}/livez") as answer:
                assert answer.status == 200
            latencies.append(time.perf_counter() - begun)
            await asyncio.sleep(1)
    still = sum(not writer.is_closing() for writer in writers)
    for writer in writers:
        writer.close()
    return still, latencies


def measure_slow(count: int) -> None:
    with run_all(1) as (gateways, _, _):
        before = read_memory_mb(gateways[0].process.pid)
        still, latencies = asyncio.run(hold_slow(gateways[0].port, count, 15.0))
        after = read_memory_mb(gateways[0].process.pid)
    print(f"{count} slow connections for 15 s: {still} still open, memory {before:.0f} -> {after:.0f} MB")
    print(f"/livez meanwhile: median {1e3 * statistics.median(latencies):.1f} ms, worst {1e3 * max(latencies):.1f} ms")


def measure_soak(count: int) -> None:
    """Send requests of ever new sessions, ten each, and print the gateway's memory on the way."""
    marks = sorted({count // 20, count // 10, count * 3 // 10, count // 2, count * 7 // 10, count})
    with run_all(1, on_sqlite=True) as (gateways, _, _):
        pid = gateways[0].process.pid
        print(f"memory of one gateway: start {read_memory_mb(pid):.0f} MB", flush=True)
        done = 0
        for mark in marks:
            sessions = (mark - done) // 10
            found = asyncio.run(run_load([gateways[0].url], sessions, 10, f"soak{mark}"))
            done += sessions * 10
            assert not found.refused, found.refused[:5]
            print(f"{done:,} requests in {done // 10:,} sessions: {read_memory_mb(pid):.0f} MB", flush=True)


def measure_capacity(gateways: Sequence[int], seconds_of: int) -> None:
    print(
        "| gateways | request tokens | requests/s | p50 ms | p99 ms | CPU ms of gateways per request | of PostgreSQL |"
    )
    print("|---|---|---|---|---|---|---|")
    for count in gateways:
        for turns, words in ((12, "about 200"),):
            with run_all(count, window=1_000_000) as (made, _, url):
                pids = [one.process.pid for one in made]
                cpu, database = sum(map(read_cpu_s, pids)), read_database_cpu_s()
                begun = time.perf_counter()
                found = asyncio.run(run_load([one.url for one in made], seconds_of, turns, f"cap{count}"))
                took = time.perf_counter() - begun
                spent, asked = sum(map(read_cpu_s, pids)) - cpu, read_database_cpu_s() - database
                rate = len(found.latencies) / took
                row = f"{pick(found.latencies, 0.5):.0f} | {pick(found.latencies, 0.99):.0f}"
                print(
                    f"| {count} | {words} per turn | {rate:.0f} | {row} | {1e3 * spent / len(found.latencies):.1f} | "
                    f"{1e3 * asked / len(found.latencies):.1f} |"
                )
                if count == gateways[-1]:
                    print(f"\n{describe_bytes(url)}")


def measure_workers(workers: Sequence[int], sessions: int, requests: int) -> None:
    """Print requests per second by the number of a gateway's processes, with a fold in about every fourth one."""
    print("| ledger | workers | requests/s | p50 ms | p99 ms | CPU ms of the gateway per request |")
    print("|---|---|---|---|---|---|")
    for on_sqlite in (True, False):
        for count in workers:
            with run_all(1, on_sqlite=on_sqlite, workers=count) as ((made,), _, _):
                pids = [made.process.pid, *_list_children(made.process.pid)]
                cpu, begun = sum(map(read_cpu_s, pids)), time.perf_counter()
                found = asyncio.run(run_load([made.url], sessions, requests, f"workers{count}"))
                rate = len(found.latencies) / (time.perf_counter() - begun)
                spent = 1e3 * (sum(map(read_cpu_s, pids)) - cpu) / len(found.latencies)
                row = f"{rate:.0f} | {pick(found.latencies, 0.5):.0f} | {pick(found.latencies, 0.99):.0f} | {spent:.1f}"
                print(f"| {'SQLite' if on_sqlite else 'PostgreSQL'} | {count} | {row} |")


def make_agent_step(agent: int, number: int) -> list[dict[str, Any]]:
    """Return one step of an agent: a call, and a result of about 600 tokens."""
    words = ("build", "cache", "index", "queue", "parser", "socket", "worker", "schema")
    path = f"src/{words[(agent + number) % 8]}/{words[number % 8]}_{number}.py"
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "read_file", "arguments": json.dumps({"path": path})},
    }
    lines = [
        f"{line:4d}  def {words[(line + number) % 8]}_{line * 31 % 97}(value: int): return value + {line * number}"
        for line in range(27)
    ]
    said = f"I read {path}, because the {words[(number * 3) % 8]} fails at step {number} with code {number * 37 % 251}."
    return [
        {"role": "assistant", "content": said, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "\n".join(lines)},
    ]


def read_process_s(pids: Sequence[int]) -> float:
    """Return the processor time of processes, with threads that have ended; Linux only."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


async def wait_quiet(pids: Sequence[int]) -> float:
    """Wait until processes do nothing any more; return their processor time."""
    ends, spent = time.perf_counter() + QUIET_MAX_S, read_process_s(pids)
    while time.perf_counter() < ends:
        await asyncio.sleep(QUIET_S)
        before, spent = spent, read_process_s(pids)
        if spent - before < 0.0005:
            break
    return spent


async def run_agents(urls: Sequence[str], pids: Sequence[int], sessions: int, requests: int) -> dict[bool, list[float]]:
    """Return the processor seconds of each request with what it left to do, by whether it folded; gateways in turn."""
    found: dict[bool, list[float]] = {True: [], False: []}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        for agent in range(AGENT_WARM + sessions):
            history: list[dict[str, Any]] = [
                {"role": "user", "content": f"Task {agent}: find out why the build fails."}
            ]
            headers = {"x-refold-session": f"agent-{agent}", "authorization": "Bearer sk-bench"}
            edits = "0"
            for number in range(requests):
                history += make_agent_step(agent, number)
                body = {"model": "bench-1m", "messages": history}
                before = await wait_quiet(pids)
                url = f"{urls[number % len(urls)]}/v1/chat/completions"
                async with client.post(url, json=body, headers=headers) as answer:
                    await answer.read()
                    assert answer.status == 200, answer.status
                    edits, known = answer.headers["x-refold-edits"], edits
                if agent >= AGENT_WARM:
                    found[edits != known].append(await wait_quiet(pids) - before)
    return found


def measure_fold(sessions: int, requests: int) -> None:
    """Print the processor time per request, and what two gateways that take turns on one ledger cost in addition."""
    print(f"growing agents, {requests} requests each, window {AGENT_WINDOW:,}, one request at a time; CPU ms with the")
    print("work that a request leaves to the background")
    print("| ledger | gateways | folds | folding request, median | other request, median | mean of all | of one |")
    print("|---|---|---|---|---|---|---|")
    for on_sqlite in (True, False):
        alone = 0.0
        for count in (1, 2):
            with run_all(count, AGENT_WINDOW, on_sqlite=on_sqlite, is_one_file=True) as (made, _, _):
                pids = [one.process.pid for one in made]
                found = asyncio.run(run_agents([one.url for one in made], pids, sessions, requests))
            mean = statistics.mean(found[True] + found[False])
            alone = alone or mean
            folding, other = (1e3 * statistics.median(found[is_fold]) for is_fold in (True, False))
            share = f"{len(found[True])} of {len(found[True]) + len(found[False])}"
            row = f"{share} | {folding:.1f} | {other:.1f} | {1e3 * mean:.1f} | {mean / alone:.2f}x"
            print(f"| {'SQLite' if on_sqlite else 'PostgreSQL'} | {count} | {row} |", flush=True)


def describe_bytes(url: str) -> str:
    """Return how many bytes a message takes in PostgreSQL, with its indexes."""
    import psycopg

    with psycopg.connect(url) as db:
        sizes = dict(
            db.execute(
                "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
                "(SELECT relnamespace FROM pg_class WHERE relname = 'message' AND relkind = 'r' LIMIT 1)"
            ).fetchall()
        )
        count, body = db.execute("SELECT count(*), coalesce(avg(length(body)), 0) FROM message").fetchone() or (0, 0)
    total = sum(sizes.values())
    each = total / max(1, count)
    return f"{count:,} messages of {float(body):.0f} bytes take {each:.0f} bytes each in PostgreSQL, with indexes"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("load", "slow", "soak", "capacity", "workers", "fold"))
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--count", type=int, default=8_000)
    parser.add_argument("--gateways", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    wish = parser.parse_args(arguments)
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"## Load: {wish.what} (`benchmarks/bench_load.py`)\n\n```text\nload average at the start: {load}")
    if wish.what == "load":
        measure_load(wish.sessions, wish.requests)
    elif wish.what == "slow":
        measure_slow(wish.connections)
    elif wish.what == "soak":
        measure_soak(wish.count)
    elif wish.what == "workers":
        measure_workers(wish.workers, wish.sessions, wish.requests)
    elif wish.what == "fold":
        measure_fold(wish.sessions, wish.requests)
    else:
        measure_capacity(wish.gateways, wish.sessions)
    print("```")
    return 0


if __name__ == "__main__":
    sys.exit(main())
