"""``refold serve``: the gateway and the HTTP interface, until somebody stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refold.cli.help import write_examples
from refold.cli.options import Preset, Workspace
from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.server.app import Application
    from refold.server.auth import KeyRing


@dataclass(frozen=True, slots=True)
class ServeWish:
    """What the command line says; None where it says nothing."""

    workspace: str = "."
    host: str | None = None
    port: int | None = None
    openai_upstream: str | None = None
    anthropic_upstream: str | None = None
    cache_marks: str | None = None
    preset: str | None = None
    arrival: bool | None = None
    quiet: bool = False


def run(wish: ServeWish) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are finished first."""
    if not Path(wish.workspace).is_dir():
        raise ConfigError(f"{wish.workspace!r} is not a folder; --workspace names the folder that .refold is in")
    try:
        from refold.server.serving import make_server, open_socket, tune_process
    except ImportError as error:
        if (error.name or "").startswith("refold"):
            raise
        raise ConfigError(f"{error.name} is not installed; install it with: pip install 'refold[server]'") from None
    from refold.server.logs import set_up_logs

    set_up_logs("warning" if wish.quiet else "info")
    application = make_application(wish)
    server = make_server(application)
    settings = application.settings
    bound = open_socket(settings.host, settings.port)
    port = bound.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    typer.echo(f"refold serves on http://{host}:{port}", err=True)
    if application.page is None:
        typer.echo("  without a page; to get one: pip install 'refold[web]'", err=True)
    else:
        typer.echo("  open it in a browser to see sessions, folds and figures", err=True)
    typer.echo(f"  OPENAI_BASE_URL=http://{host}:{port}/v1    -> {settings.openai_upstream}", err=True)
    typer.echo(f"  ANTHROPIC_BASE_URL=http://{host}:{port}    -> {settings.anthropic_upstream}", err=True)
    tune_process()
    server.run(sockets=[bound])
    typer.echo("refold has stopped", err=True)


def make_application(wish: ServeWish, *, keys: KeyRing | None = None, has_page: bool = True) -> Application:
    """Return the gateway that a command line asks for; ``keys`` are others than the workspace's."""
    from refold.config.load import load_config
    from refold.manager import ContextCompressionManager
    from refold.server.app import Application
    from refold.server.managers import settle_arrival
    from refold.server.settings import load_settings
    from refold.server.summaries import choose_summariser

    settings = load_settings(
        wish.workspace,
        host=wish.host,
        port=wish.port,
        openai_upstream=wish.openai_upstream,
        anthropic_upstream=wish.anthropic_upstream,
        cache_marks=wish.cache_marks,
        arrival=wish.arrival,
    )
    config = load_config(wish.workspace, call={"preset": wish.preset})
    config = settle_arrival(config, is_on=settings.arrival)
    manager = ContextCompressionManager(choose_summariser(config, settings), wish.workspace)
    if config.tune == "auto":
        from refold.tuning import watch

        watch(manager, wish.workspace)
    return Application(manager, settings, keys=keys, make_page=_find_page() if has_page else None)


def _find_page() -> Callable[[Application], object] | None:
    """Return how to make the page; None where the extra for it is not installed."""
    from refold.web.mount import Page, is_installed

    return Page if is_installed() else None


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""

    examples = write_examples(
        "refold serve",
        "OPENAI_BASE_URL=http://127.0.0.1:7788/v1 my-agent",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:7788 claude",
    )

    @app.command(epilog=examples)
    def serve(
        host: Annotated[
            str | None, typer.Option(metavar="ADDRESS", help="Where to listen; unset: 127.0.0.1. Wider only with keys.")
        ] = None,
        port: Annotated[
            int | None, typer.Option(metavar="PORT", help="The port; unset: 7788; 0: any free one.")
        ] = None,
        openai_upstream: Annotated[
            str | None, typer.Option(metavar="URL", help="Where OpenAI requests go; any compatible URL.")
        ] = None,
        anthropic_upstream: Annotated[
            str | None, typer.Option(metavar="URL", help="Where Anthropic requests go.")
        ] = None,
        cache_marks: Annotated[
            str | None,
            typer.Option(
                metavar="HOW", help="client: leave Anthropic's marks alone; auto: move them after a compression."
            ),
        ] = None,
        arrival: Annotated[
            bool | None, typer.Option("--arrival/--no-arrival", help="Shorten large tool results when they arrive.")
        ] = None,
        preset: Preset = None,
        workspace: Workspace = ".",
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings only, not every request.")] = False,
    ) -> None:
        """Run the gateway and the page: any agent, any client, one URL.

        It compresses on the way and passes the rest through.
        """
        run(ServeWish(workspace, host, port, openai_upstream, anthropic_upstream, cache_marks, preset, arrival, quiet))
