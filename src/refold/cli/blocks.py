"""Settings of commands that are no settings of compression: the blocks ``chat`` and ``mcp`` of a file of ours.

Unknown names and wrong values are errors with file and line. What says where keys are sent is not taken from a file of
the project: somebody else may have written that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from refold.config.load import load_block
from refold.config.names import suggest
from refold.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its settings with the type of each, the variables that set some, and what a project may not set."""

    name: str
    kinds: Mapping[str, type]
    variables: Mapping[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()


CHAT = Block(
    "chat",
    {"model": str, "base_url": str, "tools": str, "system": str, "summaries": str},
    {
        "REFOLD_CHAT_MODEL": "model",
        "REFOLD_CHAT_BASE_URL": "base_url",
        "REFOLD_CHAT_TOOLS": "tools",
        "REFOLD_CHAT_SYSTEM": "system",
        "REFOLD_CHAT_SUMMARIES": "summaries",
    },
    own=frozenset({"base_url"}),
)
MCP = Block("mcp", {"session": str, "host": str, "port": int}, {"REFOLD_SESSION": "session"})


def read_block(block: Block, folder: Path, environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return what is set of a block in a workspace; user's file < project's < environment."""
    # Without an environment there is no user's file: what is left is the project's.
    for name, (_, place) in load_block(block.name, {}, folder, {}).items():
        if name in block.own:
            variable = next(key for key, setting in block.variables.items() if setting == name)
            raise ConfigError(
                f"{place}: {block.name}.{name} says where keys are sent, so a project cannot set it; write it into "
                f"~/.config/refold/config.yaml, or set {variable}"
            )
    found = load_block(block.name, block.variables, folder, environ)
    return {name: _read_value(block, name, value, place) for name, (value, place) in found.items()}


def _read_value(block: Block, name: str, value: object, place: str) -> str | int:
    kind = block.kinds.get(name)
    if kind is None:
        hint = suggest(name, block.kinds) or f"; there are {', '.join(block.kinds)}"
        raise ConfigError(f"{place}: unknown setting '{block.name}.{name[:40]}'{hint}")
    if isinstance(value, list) and kind is str and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if kind is int and isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str | int) or (kind is int and not isinstance(value, int)):
        wanted = "text" if kind is str else "a whole number"
        raise ConfigError(f"{place}: {block.name}.{name} must be {wanted}, not {str(value)[:40]!r}")
    return value if kind is int else str(value)
