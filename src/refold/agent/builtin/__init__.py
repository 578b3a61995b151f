"""The built-in tools (``--tools files,shell``). All of them work in one workspace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.agent.tools import Tool

GROUPS = ("files", "shell")


def make_builtin_tools(groups: list[str], folder: str | Path = ".") -> list[Tool]:
    """Return the tools of these groups; raise ConfigError for an unknown group."""
    # Imported here: the search of files runs in a process that needs none of the rest.
    from refold.agent.builtin.files import FileTools
    from refold.agent.builtin.shell import make_run_command
    from refold.agent.builtin.workspace import Workspace

    workspace = Workspace(folder)
    tools: list[Tool] = []
    for group in dict.fromkeys(groups):
        if group == "files":
            tools += FileTools(workspace).list_tools()
        elif group == "shell":
            tools.append(make_run_command(workspace))
        else:
            raise ConfigError(f"unknown group of tools {group[:40]!r}; choose from {', '.join(GROUPS)}")
    return tools
