"""Claude Code: its settings files in its own order, and its status line."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from refold.cli.clients import files
from refold.cli.clients.start import SECRET, Launch, Start
from refold.errors import ConfigError

UPSTREAMS = ("anthropic_upstream",)
_TRUE = ("1", "true", "yes", "on")
_SERVICES = ("BEDROCK", "VERTEX", "FOUNDRY", "MANTLE", "ANTHROPIC_AWS", "ANTHROPIC_GOOGLE_CLOUD", "GATEWAY")
_CLAUDE_MANAGED = ("/etc/claude-code", "/Library/Application Support/ClaudeCode", "C:/Program Files/ClaudeCode")


def list_variables(start: Start) -> dict[str, str]:
    """Return Claude Code's variables: the process's environment first, then each of its settings files over it."""
    variables = dict(start.environ)
    for where, settings in _list_claude_settings(start):
        variables.update(_take_env(settings, where))
    return variables


def find_upstreams(start: Start) -> dict[str, str]:
    """Return Claude Code's address."""
    if start.list_options("--worktree", "-w") or {"-w", "--worktree"} & set(start.command):
        _check_claude_worktree(start)
    return {"anthropic_upstream": list_variables(start).get("ANTHROPIC_BASE_URL", "")}


def _list_claude_settings(start: Start) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield Claude Code's settings with their place, from the weakest to the strongest."""
    folder = Path(start.environ.get("CLAUDE_CONFIG_DIR") or start.home / ".claude")
    old = folder / ".config.json"
    beside = folder if start.environ.get("CLAUDE_CONFIG_DIR") else start.home
    paths = [old if old.exists() else beside / ".claude.json"]
    given = start.find_option("--setting-sources")
    sources = ("user", "project", "local") if given is None else tuple(one.strip() for one in given.split(","))
    if "user" in sources:
        paths.append(folder / "settings.json")
    if "project" in sources:
        paths.append(start.folder / ".claude" / "settings.json")
    if "local" in sources:
        places = dict.fromkeys((start.folder, files.find_repository(start.folder)))
        paths += [place / ".claude" / "settings.local.json" for place in places]
    yield from ((str(path), files.read_object(path, json.loads)) for path in paths)
    yield "--settings", _read_claude_flag(start)


def _read_claude_flag(start: Start) -> dict[str, Any]:
    """Return the settings of Claude Code's command line; the last of several ``--settings`` counts."""
    given = start.find_option("--settings")
    if given is None:
        return {}
    if not given.lstrip().startswith("{"):
        path = start.folder / given
        if not path.exists():
            raise ConfigError("the settings file {path} does not exist", path=given)
        return files.read_object(path, json.loads)
    return files.parse_object(given, json.loads, "--settings")


def _check_claude_worktree(start: Start) -> None:
    """Refuse a new worktree whose settings name an address: it has the files of a commit, not those of this folder."""
    root = files.find_repository(start.folder)
    for commit in ("HEAD", "origin/HEAD"):
        search = ["git", "-C", str(root), "grep", "-q", "ANTHROPIC_BASE_URL", commit, "--", ".claude/settings.json"]
        if subprocess.run(search, capture_output=True, check=False).returncode == 0:
            raise ConfigError(
                "the new worktree has its own .claude/settings.json with ANTHROPIC_BASE_URL; name the address with "
                "--anthropic-upstream, or create the worktree first and start in it"
            )


def redirect(start: Start, url: str) -> Launch:
    """Pass the address with ``--settings``, which is stronger than every settings file of the user."""
    settings, variables, has_line = _read_claude_flag(start), dict(start.environ), False
    for where, layer in (*_list_claude_settings(start), *_list_claude_managed()):
        block = _take_env(layer, where)
        if "ANTHROPIC_BASE_URL" in block and where.startswith(_CLAUDE_MANAGED):
            raise files.refuse_managed("claude", "ANTHROPIC_BASE_URL", where)
        variables.update(block)
        has_line = has_line or "statusLine" in layer
    for service in _SERVICES:
        if variables.get(f"CLAUDE_CODE_USE_{service}", "").lower() in _TRUE:
            raise files.refuse_service("claude", f"CLAUDE_CODE_USE_{service}")
    if variables.get("ANTHROPIC_UNIX_SOCKET"):
        raise files.refuse_service("claude", "ANTHROPIC_UNIX_SOCKET")
    added = {"ANTHROPIC_BASE_URL": url, **files.skip_proxy(variables)}
    line = (
        {} if has_line or sys.platform == "win32" else {"statusLine": {"type": "command", "command": _show_line(url)}}
    )
    merged = json.dumps({**line, **settings, "env": {**settings.get("env", {}), **added}})
    given = start.find_option("--settings")
    # The text of a settings file may hold a token, and other users can read command lines.
    is_file = given is not None and not given.lstrip().startswith("{")
    command = (start.command[0], "--settings", SECRET if is_file else merged, *files.drop_option(start, "--settings"))
    return Launch(command, added, secret=merged if is_file else "")


def _list_claude_managed() -> Iterator[tuple[str, dict[str, Any]]]:
    for folder in map(Path, _CLAUDE_MANAGED):
        paths = (folder / "managed-settings.json", *sorted((folder / "managed-settings.d").glob("*.json")))
        yield from ((str(path), files.read_object(path, json.loads)) for path in paths)


# Without refold's own imports, because Claude Code runs it every few hundred milliseconds.
_LINE = """
import json, sys, urllib.request
counts = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=1))
k = lambda tokens: f"{tokens / 1000:.0f}k"
before, after = counts["newest_before"], counts["newest_after"]
sizes = f"{k(before)} → {k(after)}" if after < before else k(before)
print("refold", *([sizes, "·", counts["requests"]] if before else []), *(f"· {page}" for page in sys.argv[2:]))
"""


def _show_line(url: str) -> str:
    """Return the command of a status line: the newest request's size, as sent and as forwarded, requests, the page.

    Claude Code clears the screen, and with it the line that named the page.
    """
    page = [f"{url.partition('/wrap/')[0]}/ui"] if find_spec("nicegui") else []
    return shlex.join((sys.executable, "-S", "-c", f"exec({_LINE.strip()!r})", url, *page))


def _take_env(settings: dict[str, Any], where: str) -> dict[str, str]:
    block = settings.get("env", {})
    if not isinstance(block, dict):
        raise files.refuse_file(where, "env is not an object")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in block.items()}
