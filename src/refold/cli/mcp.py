"""``refold mcp``: serve the context tools to an MCP client, over stdio or HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refold.cli.app import app, format_examples
from refold.cli.input import Workspace
from refold.cli.words import tr, use_language
from refold.errors import ConfigError


@app.command(epilog=format_examples("claude mcp add refold -- refold mcp"))
def mcp(
    session: Annotated[
        str,
        typer.Option(
            "--session", "-s", metavar="SESSION", help="Session of calls that name none; also REFOLD_SESSION."
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
    folder = Path(workspace)
    if not folder.is_dir():
        raise ConfigError(
            tr("{workspace!r} is not a folder; --workspace names the folder that holds .refold", workspace=workspace)
        )
    from refold.config.load import McpBlock, read_block
    from refold.server.settings import is_local_host

    settings = read_block(McpBlock, folder)
    session, host, port = session or settings.session, host or settings.host, port or settings.port
    if http and not is_local_host(host):
        raise ConfigError(
            tr("--host {host} is not this machine, and MCP over HTTP asks for no key; use 127.0.0.1", host=host[:80])
        )
    try:
        from refold.mcp.context_server import make_server, serve_http, serve_stdio
    except ImportError as error:
        if (error.name or "").startswith("refold"):
            raise
        raise ConfigError(tr("{name} is not installed; pip install 'refold[mcp]'", name=error.name)) from None
    from refold.config import load_config
    from refold.manager import ContextCompressionManager

    config = load_config(folder)
    use_language(config.language)
    with ContextCompressionManager(config, folder) as manager:
        server = make_server(manager, session)
        if http:
            typer.echo(tr("refold serves MCP on http://{host}:{port}/mcp", host=host, port=port), err=True)
            serve_http(server, host, port)
        else:
            serve_stdio(server)
