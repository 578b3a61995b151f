"""Qwen Code and aider name addresses in many places, which all have to agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from refold.cli.clients import files
from refold.errors import ConfigError

_ADDRESSES = {
    "OPENAI_BASE_URL": "openai_upstream",
    "OPENAI_API_BASE": "openai_upstream",
    "AIDER_OPENAI_API_BASE": "openai_upstream",
    "ANTHROPIC_BASE_URL": "anthropic_upstream",
    "ANTHROPIC_API_BASE": "anthropic_upstream",
}
Named = Iterator[tuple[str, str, str]]


def agree(named: Named) -> dict[str, str]:
    """Return the address of each kind; raise ConfigError if two places name different ones."""
    found: dict[str, tuple[str, str]] = {}
    for where, side, url in named:
        other, known = found.setdefault(side, (where, url))
        if known.rstrip("/") != url.rstrip("/"):
            raise ConfigError(
                "{where} and {other} name different addresses; name the right one with {option}",
                where=where,
                other=other,
                option=f"--{side.replace('_', '-')}",
            )
    return {side: url for side, (_, url) in found.items()}


def list_named(where: str, variables: Mapping[str, Any]) -> Named:
    for name, side in _ADDRESSES.items():
        if isinstance(url := variables.get(name), str) and url:
            yield f"{name} ({where})", side, url


def read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of a .env file."""
    try:
        lines = files.read_text(path).splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise files.refuse_file(str(path), type(error).__name__) from None
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    found = {name.strip(): value.partition(" #")[0].strip().strip("\"'") for name, equals, value in pairs if equals}
    for name in _ADDRESSES:
        if "$" in found.get(name, ""):
            raise files.refuse_file(str(path), f"{name} contains $")
    return found
