"""``refold serve``, ``key`` and ``mcp``: run the gateway with its web page, manage its keys, serve the context tools.

Only hashes of keys are stored; a key is printed once, when it is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.app import PlainTyper, app, format_examples
from refold.cli.input import make_workspace, open_workspace
from refold.cli.options import AsJson, Preset, Workspace
from refold.cli.output import note, write_json
from refold.cli.words import use_language
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.server.app import Application
    from refold.server.auth import KeyRing

keys = PlainTyper(help="Manage the keys of the gateway: add, list, revoke.")


@app.command(
    epilog=format_examples(
        "refold serve",
        "OPENAI_BASE_URL=http://127.0.0.1:7788/v1 my-agent",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:7788 claude",
    )
)
def serve(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen on; default: 127.0.0.1. Other addresses need keys."),
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port; default: 7788; 0: any free one.")] = None,
    openai_upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="Where OpenAI requests go; any compatible URL.")
    ] = None,
    anthropic_upstream: Annotated[str | None, typer.Option(metavar="URL", help="Where Anthropic requests go.")] = None,
    cache_marks: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="client: keep the client's cache marks; auto: move them after a compression."),
    ] = None,
    arrival: Annotated[
        bool | None, typer.Option("--arrival/--no-arrival", help="Shorten large tool results when they arrive.")
    ] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Processes; each session stays in one of them.")
    ] = 1,
    preset: Preset = None,
    workspace: Workspace = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings only, not every request.")] = False,
) -> None:
    """Run the gateway and the web page: any agent, any client, one URL.

    Requests are compressed when they have to be, and passed through unchanged otherwise. A workspace folder that does
    not exist is created.
    """
    make_workspace(workspace)
    from refold.server.serve import make_server, open_socket, tune_process

    given: dict[str, object] = {"host": host, "port": port, "cache_marks": cache_marks, "arrival": arrival}
    given |= {"openai_upstream": openai_upstream, "anthropic_upstream": anthropic_upstream}
    make = partial(_make_logging, "warning" if quiet else "info", workspace, preset, given)
    application = make()
    server = make_server(application)
    settings = application.settings
    bound = open_socket(settings.host, settings.port)
    port = bound.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    note("refold serves on http://{host}:{port}", host=host, port=port)
    if application.page is None:
        note("  no web page; install it with: pip install 'refold[web]'")
    else:
        note("  open it in a browser to see sessions, folds and statistics")
    typer.echo(f"  OPENAI_BASE_URL=http://{host}:{port}/v1    -> {settings.openai_upstream}", err=True)
    typer.echo(f"  ANTHROPIC_BASE_URL=http://{host}:{port}    -> {settings.anthropic_upstream}", err=True)
    tune_process()
    with application.announce(_name_locally(settings.host, port)) as beacon:
        if workers > 1:
            from refold.server.workers import Workers

            Workers(make, workers, beacon).run(bound, settings.shutdown_s)
        else:
            server.run(sockets=[bound])  # Until SIGINT or SIGTERM; requests in progress are finished first.
    note("refold stopped")


def _make_logging(level: str, workspace: str, preset: str | None, given: Mapping[str, object]) -> Application:
    from refold.server.monitoring import set_up_logs

    set_up_logs(level)
    return make_application(workspace, preset, given)


def _name_locally(host: str, port: int) -> str:
    """Return the gateway's address for a program on this machine, which cannot connect to a wildcard address."""
    address = ip_address(host) if host.replace(".", "").isdigit() or ":" in host else None
    if address is not None and address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_application(
    workspace: str,
    preset: str | None = None,
    given: Mapping[str, object] | None = None,
    *,
    window: int | None = None,
    keys: KeyRing | None = None,
    environ: Mapping[str, str] | None = None,
) -> Application:
    """Return the gateway of a workspace; ``given`` are settings of the command line, ``keys`` replaces its keys.

    ``environ`` names proxies and certificates; None: this process's environment.
    """
    from refold.config.load import load_config
    from refold.manager import ContextCompressionManager
    from refold.server.app import Application
    from refold.server.settings import choose_summariser, find_missing_switch, load_settings, settle_arrival
    from refold.web.app import WebPage, is_installed

    settings = load_settings(workspace, **given or {})
    config = load_config(workspace, call={"preset": preset, "window": window})
    use_language(config.language)
    if (missing := find_missing_switch(config, settings)) is not None:
        note(missing.template, **missing.values)
    config = settle_arrival(config, is_on=settings.arrival)
    manager = ContextCompressionManager(choose_summariser(config, settings), workspace)
    if config.tune == "auto":
        from refold.tuning import watch

        watch(manager, workspace)
    return Application(manager, settings, keys=keys, make_page=WebPage if is_installed() else None, environ=environ)


app.add_typer(keys, name="key")


@keys.command("add")
def add_key(
    tenant: Annotated[
        str, typer.Argument(metavar="TENANT", help="Owner of the key; a tenant sees only its own sessions.")
    ],
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Create a key. It is printed once; only its hash is stored."""
    from refold.server.auth import KeyRing

    stored, key = KeyRing(workspace).add(tenant)
    if as_json:
        write_json({"id": stored.id, "tenant": stored.tenant, "key": key})
        return
    note("key {id} of {tenant}; it is not shown again:", id=stored.id, tenant=stored.tenant)
    typer.echo(key)


@keys.command("list")
def list_keys(workspace: Workspace = "", as_json: AsJson = False) -> None:
    """List the valid keys."""
    from refold.server.auth import KeyRing

    found = KeyRing(workspace).list_keys()
    if as_json:
        write_json([{name: value for name, value in asdict(one).items() if name != "hash"} for one in found])
        return
    if not found:
        note("there are no keys; create one with: refold key add TENANT")
    for one in found:
        made = datetime.fromtimestamp(one.created_at, UTC).strftime("%Y-%m-%d %H:%M")
        typer.echo(f"{one.id}  {made}  {one.tenant}")


@keys.command("revoke")
def revoke_key(
    name: Annotated[str, typer.Argument(metavar="KEY|TENANT", help="Id of a key, or a tenant for all its keys.")],
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key. It stops working at once."""
    from refold.server.auth import KeyRing

    revoked = KeyRing(workspace).revoke(name)
    if as_json:
        write_json([{"id": one.id, "tenant": one.tenant} for one in revoked])
        return
    for one in revoked:
        note("revoked {id} of {tenant}", id=one.id, tenant=one.tenant)


@app.command(epilog=format_examples("claude mcp add refold -- refold mcp"))
def mcp(
    session: Annotated[
        str,
        typer.Option(
            "--session", "-s", metavar="SESSION", help="Session for calls that name none; also REFOLD_SESSION."
        ),
    ] = "",
    workspace: Workspace = "",
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP at /mcp instead of stdio.")] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="An address of this machine; default: 127.0.0.1.")
    ] = "",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65_535, show_default=False, help="Default: 7789.")
    ] = 0,
) -> None:
    """Serve the context tools to an MCP client, over stdio or HTTP."""
    from refold.config.load import McpBlock, read_block
    from refold.server.settings import is_local_host

    settings = read_block(McpBlock, Path(workspace))
    session, host, port = session or settings.session, host or settings.host, port or settings.port
    if http and not is_local_host(host):
        raise ConfigError(
            "--host {host} is not this machine, and MCP over HTTP asks for no key; use 127.0.0.1", host=host[:80]
        )
    try:
        from refold.mcp import make_server
    except ImportError as error:
        if (error.name or "").startswith("refold"):
            raise
        raise ConfigError("{name} is not installed; pip install 'refold[mcp]'", name=error.name) from None
    with open_workspace(workspace) as manager:
        server = make_server(manager, session)
        if http:
            note("refold serves MCP on http://{host}:{port}/mcp", host=host, port=port)
            server.run("streamable-http", host=host, port=port)  # At /mcp; it refuses host names of other machines.
        else:
            server.run("stdio")
