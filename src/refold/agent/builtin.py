"""The built-in tools (``--tools files,shell``): the groups and what is in each. All work in one workspace."""

from __future__ import annotations

from pathlib import Path

from refold.agent.files import FileTools
from refold.agent.shell import make_run_command
from refold.agent.tools import Tool
from refold.agent.workspace import Workspace
from refold.errors import ConfigError

GROUPS = ("files", "shell")


def make_builtin_tools(groups: list[str], folder: str | Path = ".") -> list[Tool]:
    """Return the tools of these groups; an unknown group is a ConfigError."""
    workspace = Workspace(folder)
    tools: list[Tool] = []
    for group in dict.fromkeys(groups):
        if group == "files":
            tools += FileTools(workspace).list_tools()
        elif group == "shell":
            tools.append(make_run_command(workspace))
        else:
            raise ConfigError(f"there is no group of tools {group[:40]!r}; there are {', '.join(GROUPS)}")
    return tools
