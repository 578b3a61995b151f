"""``refold mcp``: the context tools for any MCP client, over stdio; over HTTP with ``--http``."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

import typer

from refold.errors import ConfigError


def register(app: typer.Typer, epilog: str) -> None:
    """Add the command to the command line."""
    app.command("mcp", epilog=epilog)(mcp)


def mcp(
    session: Annotated[str, typer.Option("--session", "-s", help="Where a call names none; also REFOLD_SESSION.")] = "",
    workspace: Annotated[str, typer.Option("--workspace", "-w", metavar="FOLDER", help="Where .refold is.")] = ".",
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP at /mcp instead of stdio.")] = False,
    host: Annotated[str, typer.Option("--host", help="Only this machine by default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65_535)] = 7789,
) -> None:
    """Serve the context tools to an MCP client: claude mcp add refold -- refold mcp"""
    run(session, workspace, host if http else None, port)


def run(session: str, workspace: str, host: str | None, port: int) -> None:
    """Serve until the client leaves."""
    folder = Path(workspace)
    if not folder.is_dir():
        raise ConfigError(f"{workspace!r} is not a folder; --workspace names the folder that .refold is in")
    if host is not None and not _is_local(host):
        raise ConfigError(f"--host {host[:80]} is not this machine, and these tools have no lock; use 127.0.0.1")
    try:
        from refold.mcp.context_server import make_server, serve_http, serve_stdio
    except ImportError as error:
        if (error.name or "").startswith("refold"):
            raise
        raise ConfigError(f"{error.name} is not installed; pip install 'refold[mcp]'") from None
    from refold.config import load_config
    from refold.config.load import load_block
    from refold.manager import ContextCompressionManager

    named = load_block("mcp", {"REFOLD_SESSION": "session"}, folder).get("session", ("", ""))[0]
    with ContextCompressionManager(load_config(folder), folder) as manager:
        server = make_server(manager, session or str(named))
        if host is None:
            serve_stdio(server)
        else:
            typer.echo(f"refold serves MCP on http://{host}:{port}/mcp", err=True)
            serve_http(server, host, port)


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
