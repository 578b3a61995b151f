"""``refold mcp``: the context tools for any MCP client, over stdio; over HTTP with ``--http``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from refold.cli.help import write_examples
from refold.cli.options import Workspace
from refold.errors import ConfigError


@dataclass(frozen=True, slots=True)
class McpWish:
    """What the command line says; empty where it says nothing."""

    session: str = ""
    workspace: str = "."
    http: bool = False
    host: str = ""
    port: int = 0


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("mcp", epilog=write_examples("claude mcp add refold -- refold mcp"))(mcp)


def mcp(
    session: Annotated[
        str, typer.Option("--session", "-s", metavar="SESSION", help="Where a call names none; also REFOLD_SESSION.")
    ] = "",
    workspace: Workspace = ".",
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP at /mcp instead of stdio.")] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="An address of this machine; 127.0.0.1 if unset.")
    ] = "",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65_535, show_default=False, help="7789 if unset.")
    ] = 0,
) -> None:
    """Serve the context tools to an MCP client, over stdio or HTTP."""
    run(McpWish(session, workspace, http, host, port))


def run(wish: McpWish) -> None:
    """Serve until the client leaves."""
    folder = Path(wish.workspace)
    if not folder.is_dir():
        raise ConfigError(f"{wish.workspace!r} is not a folder; --workspace names the folder that .refold is in")
    from refold.cli.blocks import MCP, read_block
    from refold.server.settings import is_local_host

    settings = read_block(MCP, folder)
    session = wish.session or str(settings.get("session", ""))
    host = wish.host or str(settings.get("host", "127.0.0.1"))
    port = wish.port or int(settings.get("port", 7789))
    if wish.http and not is_local_host(host):
        raise ConfigError(f"--host {host[:80]} is not this machine, and these tools have no lock; use 127.0.0.1")
    try:
        from refold.mcp.context_server import make_server, serve_http, serve_stdio
    except ImportError as error:
        if (error.name or "").startswith("refold"):
            raise
        raise ConfigError(f"{error.name} is not installed; pip install 'refold[mcp]'") from None
    from refold.config import load_config
    from refold.manager import ContextCompressionManager

    with ContextCompressionManager(load_config(folder), folder) as manager:
        server = make_server(manager, session)
        if wish.http:
            typer.echo(f"refold serves MCP on http://{host}:{port}/mcp", err=True)
            serve_http(server, host, port)
        else:
            serve_stdio(server)
