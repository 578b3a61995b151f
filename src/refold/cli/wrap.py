"""``refold wrap``: run another program behind the gateway.

A running gateway of the workspace is used if it sends requests where the program's requests are meant to go.
Otherwise a gateway is started in this process, on a free port of this machine; no other wrap uses it, and it ends with
the program. The program gets the terminal, and the gateway's address through its environment and arguments. Only the
workspace's ledger is written. The command exits with the program's exit code. The address contains an id of this run,
so that the gateway can count its requests separately.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from refold.cli.app import app, format_examples
from refold.cli.clients import Start, check_choice_of_folder, find_client, find_upstreams, write_secret
from refold.cli.options import Preset, Workspace
from refold.cli.output import note
from refold.cli.words import count_things, shorten_tokens, tr
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.server.app import Application
    from refold.server.beacon import RunningGateway
    from refold.server.monitoring import RunCounts

# The first part of a run's address; written here too, because the server is imported only where it is needed.
RUNS = "/wrap"
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


@dataclass(frozen=True, slots=True)
class WrapRequest:
    """A run: the program as it would be started, and where its requests are meant to go."""

    start: Start
    upstreams: Mapping[str, str]
    workspace: str = "."
    preset: str | None = None
    log: str | None = None
    window: int | None = None


def _run_wrapped(request: WrapRequest) -> tuple[int, str]:
    """Run the program behind a gateway; return its exit code and a line about what the gateway did."""
    from refold.server.auth import PREFIX

    started, run_id = time.time(), secrets.token_hex(8)
    # The key that the program would send, if it is a gateway's key.
    given = [request.start.environ.get(name, "") for name in _KEYS]
    key = next((one for one in given if one.startswith(PREFIX)), "")
    running = _find_usable(request, key)

    def run_at(address: str) -> int:
        launch = find_client(request.start.command[0]).redirect(request.start, f"{address}{RUNS}/{run_id}")
        with write_secret(launch) as command:
            return run_program(command, {**request.start.environ, **launch.environ})

    if running is None:
        code, counts = _run_alone(request, run_at, run_id)
        return code, sum_up(counts, request.workspace, started)
    code, url = run_at(running.beacon.url), running.beacon.url
    asked = _ask_counts(running, request.workspace, run_id, key)
    if asked is None:
        return code, tr(
            "the gateway {url} ended while the program was running; its requests failed from then on", url=url
        )
    return code, sum_up(asked, request.workspace, started)


def _run_alone(request: WrapRequest, run_at: Callable[[str], int], run_id: str) -> tuple[int, RunCounts]:
    """Run the program behind a gateway in this process; return its exit code and the counts of its requests."""
    from refold.llm.errors import show_url
    from refold.server.serve import BackgroundServer

    _quiet_logs(request.log)
    application = _make_application(request)
    openai, anthropic = (show_url(application.settings.find_url(side)) for side in ("openai", "anthropic"))
    with BackgroundServer(application) as server:
        note("refold: gateway {url}, started for this run", url=server.url)
        note("refold: requests go to {openai} and {anthropic}", openai=openai, anthropic=anthropic)
        code = run_at(server.url)
    return code, application.metrics.find_run("", run_id)


def _find_usable(request: WrapRequest, key: str) -> RunningGateway | None:
    """Return the workspace's running gateway and print its address; None if no gateway suits this run."""
    from refold.server.beacon import find_running

    running = find_running(request.workspace, key)
    if running is None:
        return None
    why, url = _find_obstacle(running, request), running.beacon.url
    if why:
        note("refold: the gateway {url} runs but is not used: {why}", url=url, why=why)
        return None
    note("refold: gateway {url}, already running (pid {pid})", url=url, pid=running.beacon.pid)
    openai, anthropic = running.described.get("openai_upstream"), running.described.get("anthropic_upstream")
    note("refold: requests go to {openai} and {anthropic}", openai=openai, anthropic=anthropic)
    return running


def _find_obstacle(running: RunningGateway, request: WrapRequest) -> str:
    """Return why a running gateway cannot serve this run; empty if it can."""
    from refold.llm.errors import show_url

    described, own = running.described, running.beacon.url
    if running.needs_key:
        return tr("it requires a key, and no API key in the environment is one of its keys")
    if request.log:
        return tr("--log needs a gateway that is started for this run")
    if request.window:
        return tr("--window needs a gateway that is started for this run")
    if request.preset and request.preset != described.get("preset"):
        return tr("its preset is {preset}", preset=described.get("preset"))
    for name, wanted in request.upstreams.items():
        # The program's own settings may lead to this very gateway.
        if not f"{wanted}/".startswith(f"{own}/") and show_url(wanted).rstrip("/") != str(described.get(name)).rstrip(
            "/"
        ):
            return tr("it sends requests to {url}", url=described.get(name))
    return ""


def _ask_counts(running: RunningGateway, workspace: str, run_id: str, key: str) -> RunCounts | None:
    """Return what a running gateway counted for this run; None if that gateway has ended or been replaced."""
    from refold.server.beacon import ask_gateway, find_running
    from refold.server.monitoring import RunCounts

    now = find_running(workspace, key)
    if now is None or now.beacon != running.beacon:
        return None
    status, answer = ask_gateway(f"{running.beacon.url}{RUNS}/{run_id}", key)
    return RunCounts(**answer) if status == 200 else None


def _has_host(url: str) -> bool:
    try:
        return urlsplit(url).hostname is not None
    except ValueError:
        return False


def _make_application(request: WrapRequest) -> Application:
    from refold.cli.serve import make_application
    from refold.server.auth import KeyRing

    workspace = Path(request.workspace)
    # The gateway is reachable from this machine only, while the program runs, so it requires no key.
    keys = KeyRing(workspace / ".refold" / "wrapped")
    given = {"host": "127.0.0.1", "port": 0, **request.upstreams}
    application = make_application(
        request.workspace, request.preset, given, window=request.window, keys=keys, has_page=False
    )
    # Create no memory folder in a project that does not use memory.
    if not (workspace / "memory").is_dir():
        application.manager.pages = "off"
    return application


def _quiet_logs(path: str | None) -> None:
    """Keep the gateway's log away from the program's terminal: into a file, or nowhere."""
    import logging

    from refold.server.monitoring import JsonLines

    handler = logging.FileHandler(path, encoding="utf-8") if path else logging.NullHandler()
    handler.setFormatter(JsonLines())
    for name in ("refold", "refold.server", "uvicorn", "uvicorn.error", "aiohttp", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("refold.server").setLevel(logging.INFO)


def run_program(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program on this terminal until it ends; return its exit code, 128 and more after a signal."""
    send = _forward_signals()
    try:
        child = subprocess.Popen(command, env=dict(environ))
    except OSError as error:
        raise ConfigError("{command!r} cannot be run: {why}", command=command[0], why=error.strerror or error) from None
    send(child)
    code = child.wait()
    return 128 - code if code < 0 else code


_SIGNALS = (signal.SIGINT, signal.SIGTERM) + (() if sys.platform == "win32" else (signal.SIGHUP, signal.SIGQUIT))


@contextmanager
def _restore_signals() -> Iterator[None]:
    """Restore the signal handlers on exit: after our last line is printed, not as soon as the program ends."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _forward_signals() -> Callable[[subprocess.Popen[bytes]], None]:
    """Ignore Ctrl-C, which the terminal sends to the program too, and forward requests to end.

    Return a function that names the program once it is started: a signal that came before is forwarded then. The
    handlers are functions, because a program inherits what its parent ignores.
    """
    started: list[subprocess.Popen[bytes]] = []
    waiting: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        if started:
            started[0].send_signal(number)
        else:
            waiting.append(number)

    def ignore(_number: int, _: FrameType | None) -> None:
        pass

    def send(child: subprocess.Popen[bytes]) -> None:
        started.append(child)
        for number in waiting:
            child.send_signal(number)

    for number in _SIGNALS:
        is_from_terminal = number in (signal.SIGINT, getattr(signal, "SIGQUIT", None))
        if signal.getsignal(number) is not signal.SIG_IGN:  # As nohup sets it, for the program too.
            signal.signal(number, ignore if is_from_terminal else forward)
    return send


def sum_up(counts: RunCounts, workspace: str, since: float) -> str:
    """Return what the gateway did for this run, as one line."""
    from refold.cli.input import open_workspace
    from refold.manager.usage import Bill, sum_requests

    if not counts.requests:
        return tr("no request came through")
    before, after = counts.tokens_before, counts.tokens_after
    parts = [count_things(counts.requests, "request"), tr("{after} tokens", after=shorten_tokens(after))]
    if after < before:
        parts[1] = tr("{before} → {after} tokens", before=shorten_tokens(before), after=shorten_tokens(after))
    bill, largest = Bill(), ("", 0)
    with open_workspace(workspace) as manager:
        for session_id in counts.sessions:
            row = manager.ledger.read_session(session_id)
            if row is None:
                continue
            bill += sum_requests([one for one in manager.figures(row.id).requests if one.time >= since])
            largest = max(largest, (row.id, row.messages), key=lambda one: one[1])
    if bill.priced and bill.dollars_saved >= 0.005:
        parts.append(tr("${dollars:,.2f} saved", dollars=bill.dollars_saved))
    if largest[0]:
        parts.append(tr("session {name}", name=largest[0]))
    return tr(", ").join(parts)


@app.command(
    epilog=format_examples(
        "refold wrap claude", 'refold wrap codex exec "fix the failing test"', "refold wrap -- python my_agent.py"
    ),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def wrap(
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM [ARGUMENTS]...", help="Program to run, and its arguments.")
    ],
    openai_upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="Where OpenAI requests go; default: where the program sends them.")
    ] = None,
    anthropic_upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where Anthropic requests go; default: where the program sends them."),
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="FILE", help="Log file of the gateway; default: no log.")] = None,
    preset: Preset = None,
    window: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, help="The model's window; default: what is known of it.")
    ] = None,
    workspace: Workspace = "",
) -> None:
    """Run claude, codex or any program behind a gateway.

    The program's own settings are not changed, and the exit code is the program's.
    """
    from refold.config.load import copy_environment

    if not command:
        raise ConfigError("name the program to run: refold wrap claude, or refold wrap -- COMMAND")
    start = Start(tuple(command), copy_environment(), Path.cwd())
    if shutil.which(command[0], path=start.environ.get("PATH")) is None and not Path(command[0]).exists():
        raise ConfigError("{command!r} is not installed, or not on the PATH", command=command[0])
    given = {"openai_upstream": openai_upstream, "anthropic_upstream": anthropic_upstream}
    upstreams = find_upstreams(start, given)
    check_choice_of_folder(start, given)
    find_client(command[0]).redirect(start, "")  # Refuses before a gateway is started.
    for url in upstreams.values():
        if not _has_host(url):
            raise ConfigError(
                "{url!r} is not a URL; it came from the command line, the environment or the program's settings",
                url=url[:80],
            )
    with _restore_signals():
        code, line = _run_wrapped(WrapRequest(start, upstreams, workspace, preset, log, window))
        typer.echo(f"refold: {line}", err=True)
    raise typer.Exit(code)
