"""The blocks ``chat`` and ``mcp`` of a settings file: settings of commands rather than of compression.

An unknown name or an invalid value raises ConfigError with file and line. A project's file may have been written by
somebody else, so it cannot set the address that keys are sent to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from refold.config.load import load_block
from refold.config.names import suggest
from refold.errors import ConfigError, Sentence


def _read_text(value: object) -> object:
    """Accept a list of strings, joined by commas, and a whole number."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _refuse_switch(value: object) -> object:
    if isinstance(value, bool | float):
        raise ValueError("not a whole number")
    return value


Text = Annotated[str, BeforeValidator(_read_text)]
Port = Annotated[int, BeforeValidator(_refuse_switch)]


class CommandBlock(BaseModel):
    """A block: its settings, the environment variables that set them, and what only the user's own file may set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    variables: ClassVar[Mapping[str, str]]
    user_only: ClassVar[frozenset[str]] = frozenset()


class ChatBlock(CommandBlock):
    """Settings of ``refold chat`` and of the page's chat."""

    name: ClassVar[str] = "chat"
    variables: ClassVar[Mapping[str, str]] = {
        "REFOLD_CHAT_MODEL": "model",
        "REFOLD_CHAT_BASE_URL": "base_url",
        "REFOLD_CHAT_TOOLS": "tools",
        "REFOLD_CHAT_SYSTEM": "system",
        "REFOLD_CHAT_SUMMARIES": "summaries",
    }
    user_only: ClassVar[frozenset[str]] = frozenset({"base_url"})

    model: Text = ""
    base_url: Text = ""
    tools: Text = ""
    system: Text = ""
    summaries: Text = ""


class McpBlock(CommandBlock):
    """Settings of ``refold mcp``."""

    name: ClassVar[str] = "mcp"
    variables: ClassVar[Mapping[str, str]] = {"REFOLD_SESSION": "session"}

    session: Text = ""
    host: Text = "127.0.0.1"
    port: Port = 7789


BlockType = TypeVar("BlockType", bound=CommandBlock)


def read_block(kind: type[BlockType], folder: Path, environ: Mapping[str, str] | None = None) -> BlockType:
    """Return a block's settings in a workspace; precedence: user's file < project's file < environment."""
    # With an empty environment there is no user's file, so this reads the project's file alone.
    for name, (_, place) in load_block(kind.name, {}, folder, {}).items():
        if name in kind.user_only:
            variable = next(key for key, setting in kind.variables.items() if setting == name)
            raise ConfigError(
                f"{place}: {kind.name}.{name} decides where keys are sent, so a project cannot set it; set it in "
                f"~/.config/refold/config.yaml or as {variable}"
            )
    found = load_block(kind.name, kind.variables, folder, environ)
    try:
        return kind(**{name: value for name, (value, _) in found.items()})
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
    name = str(wrong["loc"][0])
    value, place = found[name]
    if wrong["type"] == "extra_forbidden":
        known = Sentence("; known settings: {names}", names=", ".join(kind.model_fields))
        hint = suggest(name, kind.model_fields) or known
        setting = f"{kind.name}.{name[:40]}"
        raise ConfigError(
            Sentence("{where}unknown setting '{name}'{hint}", where=f"{place}: ", name=setting, hint=hint)
        )
    wanted = "a whole number" if kind.model_fields[name].annotation is int else "text"
    raise ConfigError(f"{place}: {kind.name}.{name} must be {wanted}, not {str(value)[:40]!r}")
