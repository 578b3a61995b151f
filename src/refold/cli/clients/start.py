"""A program as it would be started, and as it is started behind a gateway."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

UPSTREAMS = ("openai_upstream", "anthropic_upstream")


def name_client(program: str) -> str:
    return Path(program).name.removesuffix(".exe").removesuffix(".cmd")


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """How a program would be started without refold."""

    command: tuple[str, ...]
    environ: Mapping[str, str]
    folder: Path

    @property
    def home(self) -> Path:
        return Path(self.environ.get("HOME") or self.environ.get("USERPROFILE") or Path.home())

    def list_options(self, *names: str) -> list[tuple[int, str]]:
        """Return the values of an option, each with the index of the argument after it; ``--`` ends the options."""
        found, end = [], self.command.index("--") if "--" in self.command else len(self.command)
        for index, argument in enumerate(self.command[:end]):
            name, equals, value = argument.partition("=")
            if argument in names and index + 1 < end:
                found.append((index + 2, self.command[index + 1]))
            elif equals and name in names:
                found.append((index + 1, value))
        return found

    def find_option(self, *names: str) -> str | None:
        """Return the last value of an option."""
        return next((value for _, value in reversed(self.list_options(*names))), None)


@dataclass(frozen=True, slots=True)
class Launch:
    """How a program is started behind a gateway: its command line and the variables to add.

    ``secret`` is text for a file that only the user can read; its path takes the place of ``SECRET`` in the command.
    """

    command: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    secret: str = ""
    secret_name: str = "settings.json"


SECRET = "\0secret"


@contextmanager
def write_secret(launch: Launch) -> Iterator[tuple[str, ...]]:
    """Write the file of a launch, if it has one; yield its command. The file is deleted at the end."""
    if not launch.secret:
        yield launch.command
        return
    with tempfile.TemporaryDirectory(prefix="refold-") as folder:  # Only its owner can enter it.
        path = Path(folder, launch.secret_name)
        path.write_text(launch.secret, encoding="utf-8")
        yield tuple(str(path) if one == SECRET else one for one in launch.command)


def name_urls(url: str) -> dict[str, str]:
    """Return the variables from which most programs read their provider's address."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_HOST": url,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_BASE": url,
        "ANTHROPIC_HOST": url,
    }


def find_upstreams(start: Start) -> dict[str, str]:
    environ = start.environ
    return {
        "openai_upstream": environ.get("OPENAI_BASE_URL") or environ.get("OPENAI_API_BASE") or "",
        "anthropic_upstream": environ.get("ANTHROPIC_BASE_URL") or environ.get("ANTHROPIC_API_BASE") or "",
    }


def redirect(start: Start, url: str) -> Launch:
    return Launch(start.command, name_urls(url))
