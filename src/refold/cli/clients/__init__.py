"""The clients that ``refold wrap`` knows: where each would send its requests, and how to lead them to a gateway.

A client reads its provider's address from several places. The module of each client goes through the client's own
places in the client's own order, so that the gateway forwards requests, and the keys in them, to the address that the
client itself would have used. The orders were found by running the clients (tests/clients).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from refold.cli.clients.start import SECRET, Launch, Start, name_client, write_secret
from refold.errors import ConfigError

__all__ = [
    "CLIENTS",
    "SECRET",
    "TRUSTED",
    "Launch",
    "Start",
    "find_client",
    "find_upstreams",
    "list_variables",
    "write_secret",
]
TRUSTED = "yes"
CLIENTS = ("claude", "codex", "opencode", "qwen", "aider", "pi", "kilo", "kilocode", "goose")
_MODULES = {"kilo": "opencode", "kilocode": "opencode"}


class Client(Protocol):
    """A client's module. ``find_upstreams`` returns the addresses it would use, only those that differ from default."""

    UPSTREAMS: tuple[str, ...]

    def find_upstreams(self, start: Start) -> dict[str, str]: ...
    def redirect(self, start: Start, url: str) -> Launch: ...


def find_client(program: str) -> Client:
    """Return how a program is led to a gateway, by the name of its file."""
    name = name_client(program)
    module = _MODULES.get(name, name) if name in CLIENTS else "start"
    return cast("Client", import_module(f"{__name__}.{module}"))


def find_upstreams(start: Start, given: Mapping[str, str | None]) -> dict[str, str]:
    """Return where requests go: the addresses of the command line, else those that the program would have used."""
    client = find_client(start.command[0])
    chosen = {name: url for name, url in given.items() if url}
    if not set(client.UPSTREAMS) <= set(chosen):
        chosen = {**{name: url for name, url in client.find_upstreams(start).items() if url}, **chosen}
    return chosen


def list_variables(start: Start) -> dict[str, str]:
    """Return the program's environment, with the variables that its own settings add."""
    read = getattr(find_client(start.command[0]), "list_variables", None)
    return dict(start.environ) if read is None else read(start)


def list_choices(start: Start) -> list[Start]:
    """Return the ways to start a program that may lead to different addresses."""
    listed = getattr(find_client(start.command[0]), "list_choices", None)
    return [start] if listed is None else listed(start)


def check_choice_of_folder(start: Start, given: Mapping[str, str | None]) -> None:
    """Raise ConfigError if files that somebody else may have written choose an address, and the user did not agree."""
    from refold.config.load import find_user_folder
    from refold.llm.errors import show_url

    if all(given.get(name) for name in find_client(start.command[0]).UPSTREAMS):
        return
    kept = find_user_folder(start.folder)
    chosen = {name: url for name, url in find_choice_of_folder(start).items() if not given.get(name)}
    urls = {name: url for name, url in chosen.items() if not kept.trusts(name_choice(start, url), TRUSTED)}
    if urls:
        raise ConfigError(
            "files in {folder} make {program} send its requests to {urls}, and somebody else may have written them; if "
            "you trust them, run 'refold trust', or name the address with {options}",
            folder=start.folder,
            program=name_client(start.command[0]),
            urls=", ".join(show_url(url)[:200] if url else "its default address" for url in urls.values()),
            options=", ".join(f"--{name.replace('_', '-')}" for name in urls),
        )


def find_choice_of_folder(start: Start) -> dict[str, str]:
    """Return the addresses that a program uses only because of the folder it starts in, its default as empty text."""
    client = find_client(start.command[0])
    if name_client(start.command[0]) not in CLIENTS:
        return {}
    here = client.find_upstreams(start)
    with tempfile.TemporaryDirectory(prefix="refold-") as empty:
        # Files that the user names on the command line are the user's choice. The program is no such file: one of its
        # name in a clone would be run.
        program, *arguments = start.command
        program = str(start.folder / program) if len(Path(program).parts) > 1 else program
        command = (program, *(_make_absolute(argument, start.folder) for argument in arguments))
        try:
            away = client.find_upstreams(Start(command, start.environ, Path(empty)))
        except ConfigError:
            away = {}
    return {name: here.get(name, "") for name in client.UPSTREAMS if here.get(name, "") != away.get(name, "")}


def _make_absolute(argument: str, folder: Path) -> str:
    """Return an argument with the whole path of the file that it names; a folder of a project becomes ``.``."""
    name, equals, value = argument.rpartition("=")
    try:
        if (folder / argument).is_dir():
            return "."
        return f"{name}{equals}{folder / value}" if value and (folder / value).is_file() else argument
    except (OSError, ValueError):  # A long text.
        return argument


def name_choice(start: Start, url: str) -> str:
    """Return the name under which trust in an address that a folder chooses is kept."""
    return f"{name_client(start.command[0])} at {url}"
