"""``refold wrap``: run another program behind the gateway.

A running gateway of the workspace is used if it sends requests where the program's requests are meant to go.
Otherwise a gateway is started in this process, on a free port of this machine. It listens at once and loads while the
program starts. Other wraps of the workspace use it, too; when it ends, one of them takes its address over. The program
gets the terminal, and the gateway's address through its environment and arguments. Only the workspace's ledger is
written. The command exits with the program's exit code. The address contains an id of this run, so that the gateway can
count its requests separately.
"""

from __future__ import annotations

import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Self
from urllib.parse import urlsplit

import typer

from refold.cli.app import app, format_examples, read_extras
from refold.cli.clients import Start, check_choice_of_folder, find_client, find_upstreams, list_variables, write_secret
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
# How long a request that came at the very end waits for the gateway; how often a gateway is asked whether it is there.
LOAD_S_MAX, WATCH_S = 30.0, 30.0
# A program that has asked nothing for so long may not use the gateway's address.
SILENCE_S = 15.0
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
    environ: Mapping[str, str] | None = None
    recall_tool: bool = False

    @property
    def is_particular(self) -> bool:
        """True if its gateway has settings that other runs of the workspace did not ask for."""
        return bool(self.log or self.window or self.preset or self.recall_tool)


class OwnGateway:
    """A gateway in this process: it listens when it is made, and loads in a thread once the program was started.

    ``port`` is that of a gateway whose place it takes. ``error`` is why it did not start.
    """

    def __init__(self, request: WrapRequest, port: int = 0, *, is_shared: bool = True) -> None:
        self._request, self._is_shared = request, is_shared
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.error: Exception | None = None
        self._lock, self._is_over, self._stack = threading.Lock(), threading.Event(), ExitStack()
        self._application: Application | None = None
        self._loading = threading.Thread(target=self._load, name="refold-load", daemon=True)

    def start(self) -> None:
        """Load the gateway; requests wait until it is there."""
        self._loading.start()

    def _load(self) -> None:
        if self._is_over.wait(0.05):  # A program that ends at once needs no gateway.
            return
        try:
            from refold.server.serve import BackgroundServer

            with self._lock:
                if self._is_over.is_set():  # The program ended meanwhile.
                    return
                _quiet_logs(self._request.log)
                application = _make_application(self._request)
                application.ends_with_runs = True
                self._stack.enter_context(BackgroundServer(application, self._socket))
                if self._is_shared:
                    self._stack.enter_context(application.announce(self.url))
                self._application = application
        except Exception as error:  # noqa: BLE001 - reported when the program has ended, and at once on the terminal
            self.error = error
            self._socket.close()
            note("refold: the gateway did not start: {why}", why=str(error)[:300])

    def count(self, run_id: str) -> RunCounts | None:
        """Return the counts of a run; None if the gateway was not loaded, so that no request was answered."""
        return self._application.metrics.find_run("", run_id) if self._application is not None else None

    def close(self) -> None:
        """Finish the requests in flight, then end. A gateway that is still loading is given up."""
        with suppress(ValueError, OSError):  # The socket of a gateway that did not start is closed.
            if self._loading.ident is not None and select.select([self._socket], [], [], 0)[0]:
                self._loading.join(LOAD_S_MAX)  # Somebody else's request waits to be answered.
        self._is_over.set()
        with self._lock:
            self._stack.close()
            self._socket.close()


class _Successor:
    """Watches the gateway of another wrap, and takes its address over when it ends: its runs go on."""

    def __init__(self, request: WrapRequest, url: str) -> None:
        self.own: OwnGateway | None = None
        self._request, self._port = request, urlsplit(url).port or 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="refold-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self.own is not None:
            self.own.close()

    def _watch(self) -> None:
        while not self._is_over.wait(0.1):
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=WATCH_S) as watched:
                    watched.recv(1)  # Until it ends, or closes a connection that asks for nothing.
            except TimeoutError:
                pass
            except OSError:
                try:
                    own = OwnGateway(self._request, self._port)
                except OSError:  # Another wrap was faster.
                    continue
                own.start()
                self.own = own
                return


def _run_wrapped(request: WrapRequest) -> tuple[int, str]:
    """Run the program behind a gateway; return its exit code and a line about what the gateway did."""
    started, run_id = time.time(), secrets.token_hex(8)
    # The key that the program would send, if it is a gateway's key.
    given = [request.start.environ.get(name, "") for name in _KEYS]
    key = next((one for one in given if one.startswith("rk-")), "")
    running, is_alone = _find_usable(request, key)

    def run_at(address: str, begin: Callable[[], None] = lambda: None) -> int:
        url = f"{address}{RUNS}/{run_id}"
        launch = find_client(request.start.command[0]).redirect(request.start, url)
        with write_secret(launch) as command, _notice_silence(url, key, request.start.command[0]):
            return run_program(command, {**request.start.environ, **launch.environ}, begin)

    if running is None:
        own = OwnGateway(request, is_shared=is_alone and not request.is_particular)
        try:
            _introduce(own.url, request)
            code = run_at(own.url, own.start)
        finally:
            own.close()
        if own.error is not None:
            raise own.error
        return code, sum_up(own.count(run_id), request.workspace, started)
    url = running.beacon.url
    with _Successor(request, url) if running.described.get("ends_with_runs") else nullcontext() as successor:
        code = run_at(url)
    if successor is not None and successor.own is not None:
        return code, sum_up(successor.own.count(run_id), request.workspace, started)
    asked = _ask_counts(running, request.workspace, run_id, key)
    if asked is None:
        return code, tr(
            "the gateway {url} ended while the program was running; its requests failed from then on", url=url
        )
    return code, sum_up(asked, request.workspace, started)


@contextmanager
def _notice_silence(url: str, key: str, program: str) -> Iterator[None]:
    """Say so after a while if no request has arrived: as the window's title if the program has the whole screen."""

    def look() -> None:
        from refold.server.beacon import ask_gateway

        status, counts = ask_gateway(url, key)
        if status == 200 and not counts.get("requests"):
            said = tr(
                "refold: no request of {program} has arrived in {seconds:.0f} s; if it has asked a model by now, it "
                "does not use refold's address: set its base URL to {url} (Anthropic) or {url}/v1 (OpenAI)",
                program=Path(program).name,
                seconds=SILENCE_S,
                url=url,
            )
            typer.echo(f"\033]2;{said}\a" if _has_screen() else f"{said}\n", nl=False, err=True)

    timer = threading.Timer(SILENCE_S, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _has_screen() -> bool:
    """Return whether a program reads single keys from this terminal: a line of ours would spoil its screen."""
    try:
        import termios

        return not termios.tcgetattr(sys.stderr.fileno())[3] & termios.ICANON
    except (ImportError, OSError, ValueError, termios.error):
        return False


def _introduce(url: str, request: WrapRequest) -> None:
    """Print the gateway's address, its page and where requests go; read the settings before the program starts."""
    from refold.config.load import check_record, load_config
    from refold.llm.errors import show_url
    from refold.server.settings import load_settings

    for name in ("uvicorn", *sorted(read_extras().get("server", ()))):  # Imported once the program runs.
        if find_spec(name.replace("-", "_")) is None:
            raise ModuleNotFoundError(name=name)
    check_record(request.workspace)
    load_config(request.workspace, call={"preset": request.preset, "window": request.window})
    settings = load_settings(request.workspace, host="127.0.0.1", port=0, **request.upstreams)
    if find_spec("nicegui") is None:
        note("refold: gateway {url}, started for this run", url=url)
    else:
        note("refold: gateway {url}, started for this run; its page: {url}/ui", url=url)
    openai, anthropic = (show_url(settings.find_url(side)) for side in ("openai", "anthropic"))
    note("refold: requests go to {openai} and {anthropic}", openai=openai, anthropic=anthropic)


def _find_usable(request: WrapRequest, key: str) -> tuple[RunningGateway | None, bool]:
    """Return the running gateway that suits this run, printing its address, and whether there is no other one."""
    from refold.server.beacon import find_running

    running = find_running(request.workspace, key)
    if running is None:
        return None, True
    why, url = _find_obstacle(running, request), running.beacon.url
    if why:
        note("refold: the gateway {url} runs but is not used: {why}", url=url, why=why)
        return None, False
    note("refold: gateway {url}, already running (pid {pid})", url=url, pid=running.beacon.pid)
    openai, anthropic = running.described.get("openai_upstream"), running.described.get("anthropic_upstream")
    note("refold: requests go to {openai} and {anthropic}", openai=openai, anthropic=anthropic)
    return running, False


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
    if request.recall_tool:
        return tr("--recall-tool needs a gateway that is started for this run")
    if request.preset and request.preset != described.get("preset"):
        return tr("its preset is {preset}", preset=described.get("preset"))
    for name, wanted in request.upstreams.items():
        # The program's own settings may lead to this very gateway.
        known = str(described.get(name)).rstrip("/")
        if not f"{wanted}/".startswith(f"{own}/") and show_url(wanted).rstrip("/") != known:
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
    given: dict[str, object] = {"host": "127.0.0.1", "port": 0, **request.upstreams}
    if request.recall_tool:
        given["recall_tool"] = True
    application = make_application(
        request.workspace, request.preset, given, window=request.window, keys=keys, environ=request.environ
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


def run_program(command: Sequence[str], environ: Mapping[str, str], begin: Callable[[], None] = lambda: None) -> int:
    """Run a program on this terminal until it ends; return its exit code, 128 and more after a signal.

    ``begin`` is called once it has been started.
    """
    send = _forward_signals()
    try:
        child = subprocess.Popen(command, env=dict(environ))
    except OSError as error:
        raise ConfigError("{command!r} cannot be run: {why}", command=command[0], why=error.strerror or error) from None
    send(child)
    begin()
    code = child.wait()
    return 128 - code if code < 0 else code


_SIGNALS = (signal.SIGINT, signal.SIGTERM) + (() if sys.platform == "win32" else (signal.SIGHUP, signal.SIGQUIT))


def _forward_signals() -> Callable[[subprocess.Popen[bytes]], None]:
    """Ignore Ctrl-C, which the terminal sends to the program too, and forward requests to end.

    Return a function that names the program once it is started: a signal that came before is forwarded then. The
    handlers are functions, because a program inherits what its parent ignores. They stay: a signal that comes while the
    last line is printed is the program's, too.
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


def sum_up(counts: RunCounts | None, workspace: str, since: float) -> str:
    """Return what the gateway did for this run, as one line."""
    if counts is None or not counts.requests:
        return tr("no request came through")
    from refold.cli.input import open_workspace
    from refold.manager.usage import Bill, sum_requests

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
            bill += sum_requests([request for request in manager.figures(row.id).requests if request.time >= since])
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
    recall_tool: Annotated[
        bool, typer.Option("--recall-tool", help="Give the agent a tool to search what was folded.")
    ] = False,
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
    request = WrapRequest(start, upstreams, workspace, preset, log, window, list_variables(start), recall_tool)
    code, line = _run_wrapped(request)
    typer.echo(f"refold: {line}", err=True)
    raise typer.Exit(code)
