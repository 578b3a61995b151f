"""One table for refold and its peers, in one run, on the same sessions: what it costs and what stays in view.

Each peer is the real library in its own environment (``build/peers/NAME``), made by this script; one that cannot be
installed is left out, with the reason. OpenHands needs Python 3.12: it is measured where one is found. All have the
same window (what the system prompt leaves is 2.5 times too small), the same token counter, the same prefix cache (write
1.25, read 0.1, output 5), and the same stand-in for a summariser, whose calls are billed. A peer acts at 0.75 of the
room that the system prompt leaves and comes down to 0.5, or has its own defaults where it takes no such numbers.

    python benchmarks/peers/run.py                      the sample sessions of this repository
    python benchmarks/peers/run.py --recorded           the recorded sessions of bench_replay too, where they are
    python benchmarks/peers/run.py --windows 64000 128000 200000    long recorded sessions in real windows
    python benchmarks/peers/run.py --peers langchain --no-install
    python benchmarks/peers/run.py --python ~/.pyenv/versions/3.12.1/bin/python
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from bench_depth import read_sessions  # noqa: E402
from bench_replay import DATA, FAR, Row, Task, make_tariff, read_lines, share  # noqa: E402
from figures import keep_figures  # noqa: E402
from remote import Entry, PeerFailed, RemotePeer, Worker  # noqa: E402

from refold.errors import RefoldError  # noqa: E402
from refold.formats.translate import can_translate, translate_messages  # noqa: E402
from refold.readers.file import read_file  # noqa: E402
from refold.readers.request_log import read_session  # noqa: E402
from refold.readers.session import Session  # noqa: E402
from refold.replay.policy import Allowance, PeerPolicy, Policy, PolicyRoom  # noqa: E402
from refold.replay.record import SessionRecord, add_probes  # noqa: E402
from refold.replay.run import replay_session  # noqa: E402
from refold.tokens import counter_for  # noqa: E402

READ = 0.1
SETS = ("tau_airline", "swe_mini", "agent_long")
# refold, and the ways that need no library: title → policy and settings.
OWN: dict[str, tuple[str, dict[str, str]]] = {
    "**refold**": ("default", {}),
    "refold, `depth: generous`": ("default", {"depth": "generous"}),
    "newest messages": ("last-n", {}),
    "old results masked": ("mask", {}),
    "older words trimmed": ("trim", {}),
}
LONG_TOKENS_MAX = 600_000
SAMPLES = ("coding_agent.json", "chat_zh.jsonl", "anthropic_thinking.json", "responses_agent.json")
CHAT = "openai-chat"
LANGCHAIN = ROOT / "src" / "refold" / "replay" / "langchain.py"
PEERS = (
    Entry(
        "langchain", "langchain", ROOT / "src/refold/replay/langchain.py", "Summarisation", "LangChain summarisation"
    ),
    Entry("pydantic", "pydantic-ai-harness", HERE / "pydantic_harness.py", "Tiered", "Pydantic AI harness"),
    Entry("headroom", "headroom-ai", HERE / "headroom_compress.py", "Headroom", "headroom"),
    Entry("openhands", "openhands-sdk", HERE / "openhands_condenser.py", "Condenser", "OpenHands condenser", (3, 12)),
    Entry("litellm", "litellm", HERE / "litellm_compress.py", "Compress", "litellm.compress"),
)
HEAD = [
    "system",
    "fits %",
    "valid %",
    "newest intact %",
    "bill ÷ raw",
    "whole bill ÷ raw",
    "copied text in view %",
    "far values in view %",
    "prefix breaks",
    "summaries",
    "ms per request",
    "sessions that failed",
]


@dataclass
class Results:
    """The results of one system on the sessions of a set; a session it failed on has no record."""

    title: str
    records: dict[str, SessionRecord] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def find_python(entry: Entry, arguments: argparse.Namespace) -> Path | None:
    """Return the interpreter of a peer's environment, made if need be; None if it cannot be installed."""
    folder = arguments.environments / entry.name
    python = folder / "bin" / "python"
    if python.exists() and (folder / "installed").exists():
        return python
    if arguments.no_install:
        return None
    base = find_base(entry, [sys.executable, *arguments.python, "python3.12", "python3.13", "python3.14"])
    if base is None:
        print(
            f"{entry.name} left out: it needs Python {'.'.join(map(str, entry.python))}; see --python", file=sys.stderr
        )
        return None
    subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
    made = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", entry.package], capture_output=True, text=True, check=False
    )
    if made.returncode:
        lines = [line for line in made.stderr.splitlines() if line.startswith("ERROR")]
        print(f"{entry.name} left out: {(lines or ['pip failed'])[-1][:200]}", file=sys.stderr)
        return None
    (folder / "installed").touch()
    return python


def find_base(entry: Entry, candidates: Sequence[str]) -> str | None:
    """Return the first interpreter that runs and is new enough for a peer."""
    code = f"import sys; sys.exit(sys.version_info < {entry.python})"
    for candidate in candidates:
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-c", code], capture_output=True, check=False).returncode == 0:
            return found
    return None


def find_version(entry: Entry, python: Path) -> str:
    code = f"from importlib.metadata import version; print(version({entry.package!r}))"
    told = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return f"{entry.title} {told.stdout.strip()}".strip()


def read_samples() -> Iterator[Session]:
    """Yield the sample sessions of this repository, as OpenAI chat."""
    for name in SAMPLES:
        for session in read_file(str(ROOT / "examples" / "sessions" / name)).sessions:
            if not can_translate(session.format, CHAT):
                continue
            messages = translate_messages(session.messages, session.format, CHAT)
            if isinstance(session.system, str):
                messages = [{"role": "system", "content": session.system}, *messages]
            yield add_probes(replace(session, messages=tuple(messages), format=CHAT, system=None, tools=None))


def read_recorded(name: str, sessions: int) -> Iterator[Session]:
    for line in read_lines(name, "held", sessions):
        yield read_session(json.loads(line), "recorded")


def replay_one(session: Session, title: str, task: Task, make_policy: Callable[[PolicyRoom], Policy]) -> SessionRecord:
    return replay_session(
        session,
        title,
        make_policy,
        task.make_budget,
        counter=counter_for("gpt-4o"),
        tariff=make_tariff(READ),
        with_recall=False,
    )


def run_own(
    sessions: Sequence[Session], title: str, window: str, policy: str, settings: dict[str, str] | None = None
) -> Results:
    results = Results(title)
    task = Task("", policy, READ, window, settings or {})
    for session in sessions:
        results.records[session.id] = replay_one(session, title, task, task.make_policy)
    return results


def run_peer(sessions: Sequence[Session], entry: Entry, python: Path, window: str) -> Results:
    results = Results(find_version(entry, python))
    task = Task("", "default", READ, window, {})
    worker: Worker | None = None
    for session in sessions:
        made: list[RemotePeer] = []
        try:
            worker = worker or entry.make_worker(python)
            holder = worker

            def make_peer(allowance: Allowance, holder: Worker = holder, made: list[RemotePeer] = made) -> RemotePeer:
                made.append(RemotePeer(holder, allowance))
                return made[-1]

            record = replay_one(session, entry.name, task, lambda room, make=make_peer: PeerPolicy(room, make))
            results.records[session.id] = replace(record, seconds=tuple(made[0].seconds))
        except (PeerFailed, RefoldError, BrokenPipeError) as error:
            results.failures[session.id] = str(error)
            if worker is not None:
                worker.close()
            worker = None
    if worker is not None:
        worker.close()
    return results


def print_row(results: Results, raw: Results) -> list[str]:
    cells = list_cells(results, raw)
    print(f"| {' | '.join(cells)} |", flush=True)
    return cells


def list_cells(results: Results, raw: Results) -> list[str]:
    """Return a row; a bill is compared with raw's for the same sessions."""
    records = list(results.records.values())
    row = Row(results.title, {READ: records}, [raw.records[one] for one in results.records])
    requests = [request for record in records for request in record.requests]
    far = row.probed(FAR)
    seconds = [one for record in records for one in record.seconds]
    return [
        results.title,
        share(sum(one.is_fit for one in requests), len(requests)),
        share(sum(not one.violations for one in requests), len(requests)),
        share(sum(one.is_intact for one in requests), len(requests)),
        f"{row.bill(READ):.2f}" if records else "–",
        f"{row.whole(READ):.2f}" if records else "–",
        share(sum(one.runs_in_view for one in requests), sum(one.runs for one in requests)),
        f"{share(far.in_view, far.whole)} ({far.whole})",
        str(sum(one.is_break for one in requests)),
        str(sum(len(one.asked) for one in requests)),
        f"{1000 * sum(seconds) / max(1, len(seconds)):.1f}",
        str(len(results.failures)),
    ]


def bench(
    name: str, sessions: Sequence[Session], peers: Sequence[tuple[Entry, Path]], window: str = "room"
) -> dict[str, object]:
    """Print the table of a set, and return it with the row of refold on the first session alone."""
    raw = run_own(sessions, "raw (everything, whatever the window)", window, "raw")
    requests = sum(len(one.requests) for one in raw.records.values())
    print(f"\n**{name}**, {len(sessions)} sessions, {requests:,} requests\n")
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
    rows = [print_row(raw, raw)]
    first: list[str] = []
    for title, (policy, settings) in OWN.items():
        results = run_own(sessions, title, window, policy, settings)
        rows.append(print_row(results, raw))
        first = first or list_cells(Results(title, dict(list(results.records.items())[:1])), raw)
    for entry, python in peers:
        results = run_peer(sessions, entry, python, window)
        rows.append(print_row(results, raw))
        for session, why in list(results.failures.items())[:1]:
            print(f"{entry.name} failed on {session}: {why}", file=sys.stderr)
    return {"sessions": len(sessions), "requests": requests, "head": HEAD, "rows": rows, "first": first}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="*", default=[entry.name for entry in PEERS])
    parser.add_argument("--recorded", action="store_true", help="recorded sessions too")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--sessions", type=int, default=20, help="how many of each recorded set")
    parser.add_argument("--windows", nargs="*", type=int, default=[], help="only long sessions, in these windows")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "peers", help="where peers are installed")
    parser.add_argument("--python", action="append", default=[], help="an interpreter for peers that need a newer one")
    parser.add_argument("--figures", type=Path, help="keep the tables in this file, which docs/make_figures.py reads")
    parser.add_argument("--no-install", action="store_true", help="only peers whose environment is there")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    chosen = [entry for entry in PEERS if entry.name in arguments.peers]
    found = [(entry, find_python(entry, arguments)) for entry in chosen]
    peers = [(entry, python) for entry, python in found if python is not None]
    if (arguments.recorded or arguments.windows) and not DATA.is_dir():
        sys.exit("no recorded sessions at ../shared/data")
    print("## refold and its peers (`benchmarks/peers/run.py`)")
    made: dict[str, object] = {}
    for window in arguments.windows:
        lines = read_sessions(window, arguments.sessions, LONG_TOKENS_MAX)
        sessions = [read_session(json.loads(line), "recorded") for line in lines]
        made[f"window {window}"] = bench(f"a window of {window:,}", sessions, peers, str(window))
    if not arguments.windows:
        made["samples"] = bench("sample sessions of this repository", list(read_samples()), peers)
        for name in arguments.sets if arguments.recorded else ():
            made[name] = bench(name, list(read_recorded(name, arguments.sessions)), peers)
    if arguments.figures:
        keep_figures(arguments.figures, made)


if __name__ == "__main__":
    main()
