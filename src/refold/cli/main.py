"""``refold``: the command line, put together of its commands.

Importing this module loads typer and nothing heavier; each command imports its own work when it runs.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from refold import __version__
from refold.cli.chat import register as register_chat
from refold.cli.doctor import register as register_doctor
from refold.cli.ending import EXIT_CODES, run_to_end
from refold.cli.file_commands import register as register_file_commands
from refold.cli.help import COLUMNS_MAX, PlainGroup, dress, write_examples
from refold.cli.init import register as register_init
from refold.cli.key import register as register_key
from refold.cli.local import register as register_local
from refold.cli.mcp import register as register_mcp
from refold.cli.serve import register as register_serve
from refold.cli.session_commands import register as register_session_commands
from refold.cli.tune import register as register_tune
from refold.cli.wrap import register as register_wrap

EXAMPLES = write_examples(
    "refold chat                                  talk; the window never overflows",
    "refold serve                                 a gateway for agents, and a page",
    "refold compact talk.json -b 8k -o fits.json  make a conversation fit",
    "refold replay ~/.claude/projects             what would have been saved",
)

app = typer.Typer(
    name="refold",
    help="Keep a long conversation inside the model's window, and lose nothing.",
    epilog=f"{EXAMPLES}\n\nExit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()),
    cls=PlainGroup,
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": COLUMNS_MAX},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"refold {__version__}")
        raise typer.Exit


@app.callback()
def refold(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keep a long conversation inside the model's window, and lose nothing."""


for register in (
    register_init,
    register_doctor,
    register_local,
    register_chat,
    register_serve,
    register_wrap,
    register_key,
    register_mcp,
    register_file_commands,
    register_tune,
    register_session_commands,
):
    register(app)
dress(app)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run_to_end(app))
