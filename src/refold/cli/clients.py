"""The clients that ``refold wrap`` knows: where each would send its requests, and how to lead them to a gateway.

A client reads its provider's address from several places. Each reader below goes through the client's own places in the
client's own order, so that the gateway forwards requests, and the keys in them, to the address that the client itself
would have used. A file that cannot be read, or a choice that the gateway cannot take part in, is a ConfigError: refold
never guesses an address. The orders were found by running the clients (tests/clients).
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from refold.errors import ConfigError

_CHATGPT = "https://chatgpt.com/backend-api/codex"
_TRUE = ("1", "true", "yes", "on")
TRUSTED = "yes"
_BYTES_MAX = 100_000_000


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


@dataclass(frozen=True, slots=True)
class Client:
    """``find_upstreams`` returns the addresses that a client would use, only those that differ from the default."""

    upstreams: tuple[str, ...]
    find_upstreams: Callable[[Start], dict[str, str]]
    redirect: Callable[[Start, str], Launch]


# Any program


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


def _find_usual(start: Start) -> dict[str, str]:
    environ = start.environ
    return {
        "openai_upstream": environ.get("OPENAI_BASE_URL") or environ.get("OPENAI_API_BASE") or "",
        "anthropic_upstream": environ.get("ANTHROPIC_BASE_URL") or environ.get("ANTHROPIC_API_BASE") or "",
    }


def _redirect_any(start: Start, url: str) -> Launch:
    return Launch(start.command, name_urls(url))


# Claude Code

_SERVICES = ("BEDROCK", "VERTEX", "FOUNDRY", "MANTLE", "ANTHROPIC_AWS", "ANTHROPIC_GOOGLE_CLOUD", "GATEWAY")
_CLAUDE_MANAGED = ("/etc/claude-code", "/Library/Application Support/ClaudeCode", "C:/Program Files/ClaudeCode")


def _find_claude(start: Start) -> dict[str, str]:
    """Return Claude Code's address: the process's environment first, then each of its settings files over it."""
    variables = dict(start.environ)
    for where, settings in _list_claude_settings(start):
        variables.update(_take_env(settings, where))
    if start.list_options("--worktree", "-w") or {"-w", "--worktree"} & set(start.command):
        _check_claude_worktree(start)
    return {"anthropic_upstream": variables.get("ANTHROPIC_BASE_URL", "")}


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
        places = dict.fromkeys((start.folder, find_repository(start.folder)))
        paths += [place / ".claude" / "settings.local.json" for place in places]
    yield from ((str(path), _read_object(path, json.loads)) for path in paths)
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
        return _read_object(path, json.loads)
    return _parse_object(given, json.loads, "--settings")


def _check_claude_worktree(start: Start) -> None:
    """Refuse a new worktree whose settings name an address: it has the files of a commit, not those of this folder."""
    root = find_repository(start.folder)
    for commit in ("HEAD", "origin/HEAD"):
        search = ["git", "-C", str(root), "grep", "-q", "ANTHROPIC_BASE_URL", commit, "--", ".claude/settings.json"]
        if subprocess.run(search, capture_output=True, check=False).returncode == 0:
            raise ConfigError(
                "the new worktree has its own .claude/settings.json with ANTHROPIC_BASE_URL; name the address with "
                "--anthropic-upstream, or create the worktree first and start in it"
            )


def _redirect_claude(start: Start, url: str) -> Launch:
    """Pass the address with ``--settings``, which is stronger than every settings file of the user."""
    settings, variables, has_line = _read_claude_flag(start), dict(start.environ), False
    for where, layer in (*_list_claude_settings(start), *_list_claude_managed()):
        block = _take_env(layer, where)
        if "ANTHROPIC_BASE_URL" in block and where.startswith(_CLAUDE_MANAGED):
            raise _refuse_managed("claude", "ANTHROPIC_BASE_URL", where)
        variables.update(block)
        has_line = has_line or "statusLine" in layer
    for service in _SERVICES:
        if variables.get(f"CLAUDE_CODE_USE_{service}", "").lower() in _TRUE:
            raise _refuse_service("claude", f"CLAUDE_CODE_USE_{service}")
    if variables.get("ANTHROPIC_UNIX_SOCKET"):
        raise _refuse_service("claude", "ANTHROPIC_UNIX_SOCKET")
    added = {"ANTHROPIC_BASE_URL": url, **_skip_proxy(variables)}
    line = (
        {} if has_line or sys.platform == "win32" else {"statusLine": {"type": "command", "command": _show_line(url)}}
    )
    merged = json.dumps({**line, **settings, "env": {**settings.get("env", {}), **added}})
    given = start.find_option("--settings")
    # The text of a settings file may hold a token, and other users can read command lines.
    is_file = given is not None and not given.lstrip().startswith("{")
    command = (start.command[0], "--settings", SECRET if is_file else merged, *_drop_option(start, "--settings"))
    return Launch(command, added, secret=merged if is_file else "")


def _list_claude_managed() -> Iterator[tuple[str, dict[str, Any]]]:
    for folder in map(Path, _CLAUDE_MANAGED):
        paths = (folder / "managed-settings.json", *sorted((folder / "managed-settings.d").glob("*.json")))
        yield from ((str(path), _read_object(path, json.loads)) for path in paths)


# Without refold's own imports, because Claude Code runs it every few hundred milliseconds.
_LINE = """
import json, sys, urllib.request
counts = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=1))
k = lambda tokens: f"{tokens / 1000:.0f}k"
before, after = counts["newest_before"], counts["newest_after"]
sizes = f"{k(before)} → {k(after)}" if after < before else k(before)
print(f"refold {sizes} · {counts['requests']}" if before else "refold")
"""


def _show_line(url: str) -> str:
    """Return the command of a status line: the newest request's size, as sent and as forwarded, and the requests."""
    return shlex.join((sys.executable, "-S", "-c", f"exec({_LINE.strip()!r})", url))


def _take_env(settings: dict[str, Any], where: str) -> dict[str, str]:
    block = settings.get("env", {})
    if not isinstance(block, dict):
        raise _refuse_file(where, "env is not an object")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in block.items()}


# Codex

_CODEX_FIXED = ("oss", "ollama", "lmstudio", "amazon-bedrock")
_CODEX_MANAGED = (Path("/etc/codex/managed_config.toml"), Path("/etc/codex/requirements.toml"))


def _find_codex(start: Start) -> dict[str, str]:
    """Return the address of Codex's provider; OPENAI_BASE_URL and a project's own config.toml do not change it."""
    settings = _read_codex(start)
    provider = str(settings.get("model_provider") or "openai")
    if provider == "openai":
        url = settings.get("openai_base_url")
    else:
        url = settings.get("model_providers", {}).get(provider, {}).get("base_url")
    if isinstance(url, str) and url:
        return {"openai_upstream": url}
    return {"openai_upstream": _CHATGPT if _has_chatgpt_login(start, settings) else ""}


def _read_codex(start: Start) -> dict[str, Any]:
    """Return Codex's settings: system, user, profile, then ``-c``; each changes what the one before says."""
    home = _find_codex_home(start)
    paths = [Path("/etc/codex/config.toml"), home / "config.toml"]
    if profile := start.find_option("-p", "--profile"):
        paths.append(home / f"{profile}.config.toml")
    settings: dict[str, Any] = {}
    for path in paths:
        settings = _merge(settings, _read_object(path, tomllib.loads))
    for _, given in start.list_options("-c", "--config"):
        settings = _merge(settings, _read_override(given))
    return settings


def _read_override(given: str) -> dict[str, Any]:
    """Return ``a.b=value`` as nested objects; a value that is not TOML is text."""
    name, _, text = given.partition("=")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip().strip("\"'")
    for key in reversed(name.strip().split(".")):
        value = {key: value}
    return dict(value) if isinstance(value, dict) else {}


def _redirect_codex(start: Start, url: str) -> Launch:
    """Change the address of the provider that Codex uses; its name stays, because Codex lists sessions by it."""
    settings = _read_codex(start)
    for path in (*_CODEX_MANAGED, _find_codex_home(start) / "managed_config.toml"):
        for name in ("model_provider", "openai_base_url", "model_providers"):
            if name in _read_object(path, tomllib.loads):
                raise _refuse_managed("codex", name, path)
    provider = str(settings.get("model_provider") or "openai")
    if "--oss" in start.command or provider in _CODEX_FIXED:
        raise _refuse_service("codex", "--oss" if "--oss" in start.command else f"model_provider {provider}")
    if not re.fullmatch(r"[\w-]+", provider):
        raise ConfigError("refold cannot lead the Codex provider {name!r} to a gateway; rename it", name=provider)
    name = "openai_base_url" if provider == "openai" else f"model_providers.{provider}.base_url"
    # Codex obeys the last -c, and those behind a subcommand come after those before it.
    at = max((index for index, _ in start.list_options("-c", "--config")), default=1)
    command = (*start.command[:at], "-c", f"{name}={json.dumps(f'{url}/v1')}", *start.command[at:])
    key = start.environ.get("OPENAI_API_KEY", "")
    has_login = start.environ.get("CODEX_API_KEY") or (_find_codex_home(start) / "auth.json").exists()
    # Codex itself reads the key of its environment only under this name.
    login = {"CODEX_API_KEY": key} if key and not has_login and provider == "openai" else {}
    return Launch(command, {**login, **_skip_proxy(start.environ)})


def _find_codex_home(start: Start) -> Path:
    return Path(start.environ.get("CODEX_HOME") or start.home / ".codex")


def _has_chatgpt_login(start: Start, settings: Mapping[str, Any]) -> bool:
    """Return whether Codex is logged in with ChatGPT, whose tokens are valid at ChatGPT's address only."""
    if start.environ.get("CODEX_API_KEY"):
        return False
    stored = _read_object(_find_codex_home(start) / "auth.json", json.loads)
    if not stored and settings.get("cli_auth_credentials_store") in ("keyring", "auto"):
        raise ConfigError(
            "Codex keeps its login in the keyring, so refold cannot know which address it is valid at; name it: "
            "--openai-upstream {chatgpt} for a ChatGPT login, https://api.openai.com/v1 for a key",
            chatgpt=_CHATGPT,
        )
    mode = stored.get("auth_mode")
    return mode == "chatgpt" if mode else bool(stored.get("tokens")) and not stored.get("OPENAI_API_KEY")


# opencode

_PACKAGES = {
    "@ai-sdk/openai": "openai_upstream",
    "@ai-sdk/openai-compatible": "openai_upstream",
    "@ai-sdk/anthropic": "anthropic_upstream",
}


def _find_opencode(start: Start) -> dict[str, str]:
    """Return the addresses of opencode's providers; that of the chosen model comes before others of its kind."""
    routes = _list_opencode_routes(start)
    return {side: url for _, side, url in reversed(routes)}


def _redirect_opencode(start: Start, url: str) -> Launch:
    """Add the gateway's address to the settings in opencode's environment, for every provider that it forwards to."""
    text = start.environ.get("OPENCODE_CONFIG_CONTENT") or "{}"
    settings = _parse_object(text, json.loads, "OPENCODE_CONFIG_CONTENT")
    chosen = _find_opencode(start)
    for name, side, address in _list_opencode_routes(start):
        if chosen[side] == address:
            added = {"provider": {name: {"options": {"baseURL": f"{url}/v1"}}}}
            settings = _merge(settings, added)
    return Launch(start.command, {"OPENCODE_CONFIG_CONTENT": json.dumps(settings), **_skip_proxy(start.environ)})


@lru_cache(maxsize=4)
def _list_opencode_routes(start: Start) -> list[tuple[str, str, str]]:
    """Return provider, kind and address of opencode's providers, that of the chosen model first."""
    settings = _ask_opencode(start)
    providers: dict[str, Any] = {"openai": {}, "anthropic": {}, **settings.get("provider", {})}
    chosen = (start.find_option("-m", "--model") or str(settings.get("model") or "")).partition("/")[0]
    usual = _find_usual(start)
    routes = []
    for name, provider in providers.items():
        side = _PACKAGES.get(str(provider.get("npm") or f"@ai-sdk/{name}"))
        address = (provider.get("options") or {}).get("baseURL") or ""
        if side is not None and (address or name in ("openai", "anthropic")):
            routes.append((name, side, address or usual[side]))
    return sorted(routes, key=lambda route: route[0] != chosen)


def _ask_opencode(start: Start) -> dict[str, Any]:
    """Return the settings that opencode itself puts together from all its files."""
    # In the terminal the first argument may be the project's folder.
    places = [start.folder / one for one in start.command[1:2] if (start.folder / one).is_dir()]
    try:
        done = subprocess.run(
            [start.command[0], "debug", "config"],
            cwd=places[0] if places else start.folder,
            env=dict(start.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _refuse_file("opencode debug config", type(error).__name__) from None
    return _parse_object(done.stdout, json.loads, "opencode debug config")


# Qwen Code and aider: all places that name an address have to agree

_ADDRESSES = {
    "OPENAI_BASE_URL": "openai_upstream",
    "OPENAI_API_BASE": "openai_upstream",
    "AIDER_OPENAI_API_BASE": "openai_upstream",
    "ANTHROPIC_BASE_URL": "anthropic_upstream",
    "ANTHROPIC_API_BASE": "anthropic_upstream",
}
Named = Iterator[tuple[str, str, str]]


def _agree(named: Named) -> dict[str, str]:
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


def _list_named(where: str, variables: Mapping[str, Any]) -> Named:
    for name, side in _ADDRESSES.items():
        if isinstance(url := variables.get(name), str) and url:
            yield f"{name} ({where})", side, url


def _read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of a .env file."""
    try:
        lines = _read_text(path).splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise _refuse_file(str(path), type(error).__name__) from None
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    found = {name.strip(): value.partition(" #")[0].strip().strip("\"'") for name, equals, value in pairs if equals}
    for name in _ADDRESSES:
        if "$" in found.get(name, ""):
            raise _refuse_file(str(path), f"{name} contains $")
    return found


def _find_qwen(start: Start) -> dict[str, str]:
    return _agree(_list_qwen(start))


def _list_qwen(start: Start) -> Named:
    if flag := start.find_option("--openai-base-url"):
        yield "--openai-base-url", "openai_upstream", flag
    yield from _list_named("environment", start.environ)
    for place in (start.folder, *start.folder.parents, start.home):
        for path in (place / ".qwen" / ".env", place / ".env"):
            yield from _list_named(str(path), _read_dotenv(path))
    for path, settings in _list_qwen_settings(start):
        yield from _list_named(str(path), _get(settings, "env"))
        if isinstance(url := _get(settings, "security", "auth").get("baseUrl"), str) and url:
            yield str(path), "openai_upstream", url


def _list_qwen_settings(start: Start) -> list[tuple[Path, dict[str, Any]]]:
    given = start.environ.get("QWEN_CODE_SYSTEM_SETTINGS_PATH")
    paths = [Path(given or "/etc/qwen-code/settings.json")]
    paths += [place / ".qwen" / "settings.json" for place in (start.home, start.folder)]
    return [(path, _read_object(path, json.loads)) for path in paths]


def _redirect_qwen(start: Start, url: str) -> Launch:
    """Pass the address on the command line, which is stronger than everything but model providers."""
    kinds = [start.find_option("--auth-type")]
    for path, settings in _list_qwen_settings(start):
        if any("baseUrl" in json.dumps(models) for models in _get(settings, "modelProviders").values()):
            raise _refuse_managed("qwen", "modelProviders", path)
        kinds.append(_get(settings, "security", "auth").get("selectedType"))
    kind = kinds[0] or next((one for one in reversed(kinds) if one), None)
    if kind not in (None, "openai"):
        raise _refuse_service("qwen", f"auth type {kind}")
    command = (start.command[0], "--openai-base-url", f"{url}/v1", *_drop_option(start, "--openai-base-url"))
    return Launch(command, {"OPENAI_BASE_URL": f"{url}/v1", **_skip_proxy(start.environ)})


def _find_aider(start: Start) -> dict[str, str]:
    return _agree(_list_aider(start))


def _list_aider(start: Start) -> Named:
    if flag := start.find_option("--openai-api-base"):
        yield "--openai-api-base", "openai_upstream", flag
    yield from _list_named("environment", start.environ)
    for path in (*_list_places(start, ".env"), *(start.folder / one for _, one in start.list_options("--env-file"))):
        yield from _list_named(str(path), _read_dotenv(path))
    for path, settings in _list_aider_settings(start):
        variables = dict(str(one).partition("=")[::2] for one in settings.get("set-env") or ())
        yield from _list_named(str(path), variables)
        if isinstance(url := settings.get("openai-api-base"), str) and url:
            yield str(path), "openai_upstream", url


def _list_aider_settings(start: Start) -> list[tuple[Path, dict[str, Any]]]:
    import yaml

    paths = (
        *_list_places(start, ".aider.conf.yml"),
        *(start.folder / one for _, one in start.list_options("--config")),
    )
    return [(path, _read_object(path, yaml.safe_load)) for path in paths]


def _redirect_aider(start: Start, url: str) -> Launch:
    """Pass the addresses on the command line, which is stronger than files; its ``set-env`` replaces that of a file."""
    # The variables of a file may hold a key, and other users can read command lines.
    inherited = [str(one) for _, settings in _list_aider_settings(start)[-1:] for one in settings.get("set-env") or ()]
    kept = [value for _, value in start.list_options("--set-env")]
    urls = name_urls(url)
    variables = [one for one in kept if one.partition("=")[0] not in urls]
    variables += [f"{name}={urls[name]}" for name in ("OPENAI_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL")]
    rest = Start((start.command[0], *_drop_option(start, "--openai-api-base")), start.environ, start.folder)
    options = [part for one in variables for part in ("--set-env", one)]
    command = (
        start.command[0],
        "--openai-api-base",
        urls["OPENAI_API_BASE"],
        *options,
        *_drop_option(rest, "--set-env"),
    )
    return Launch(command, {**dict(one.partition("=")[::2] for one in inherited), **urls, **_skip_proxy(start.environ)})


def _list_places(start: Start, name: str) -> list[Path]:
    return [place / name for place in dict.fromkeys((start.home, find_repository(start.folder), start.folder))]


def _get(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a nested object, empty if there is none."""
    for name in names:
        inner = settings.get(name)
        settings = inner if isinstance(inner, dict) else {}
    return dict(settings)


# pi

_PI_OTHER = ("install", "remove", "uninstall", "update", "list", "config")


def _find_pi(start: Start) -> dict[str, str]:
    """Return the addresses in pi's models.json; it reads none from the environment."""
    folder = _find_pi_folder(start)
    for place in (folder, start.folder / ".pi"):
        given = _read_object(place / "settings.json", json.loads)
        if given.get("packages") or given.get("extensions"):
            raise _refuse_extension(place / "settings.json")
        for path in sorted((place / "extensions").rglob("*.[jt]s")):
            try:
                is_harmless = "registerProvider" not in _read_text(path)
            except (OSError, ValueError):
                is_harmless = path.is_dir()
            if not is_harmless:
                raise _refuse_extension(path)
    if extension := start.find_option("-e", "--extension"):
        raise _refuse_extension(extension)
    providers = _get(_read_object(folder / "models.json", json.loads), "providers")
    found = {f"{name}_upstream": _get(providers, name).get("baseUrl") for name in ("openai", "anthropic")}
    return {side: url for side, url in found.items() if isinstance(url, str)}


def _redirect_pi(start: Start, url: str) -> Launch:
    """Change the addresses of pi's providers by an extension, which keeps their models and keys."""
    if start.command[1:2] and start.command[1] in _PI_OTHER:
        return Launch(start.command)
    changes = {"anthropic": url, "openai": f"{url}/v1"}
    lines = [
        f"pi.registerProvider({json.dumps(name)}, {{ baseUrl: {json.dumps(at)} }});" for name, at in changes.items()
    ]
    code = f"export default function (pi) {{ {' '.join(lines)} }}\n"
    command = (start.command[0], "--extension", SECRET, *start.command[1:])
    return Launch(command, _skip_proxy(start.environ), secret=code, secret_name="refold.js")


def _find_pi_folder(start: Start) -> Path:
    return Path(start.environ.get("PI_CODING_AGENT_DIR") or start.home / ".pi" / "agent")


def _refuse_extension(where: object) -> ConfigError:
    return ConfigError(
        "an extension of pi ({where}) may change the address of a provider; name the addresses with --openai-upstream "
        "and --anthropic-upstream",
        where=str(where),
    )


# Files


def find_repository(folder: Path) -> Path:
    """Return the root of the main working tree that a folder belongs to; the folder itself outside a repository."""
    for place in (folder, *folder.parents):
        mark = place / ".git"
        if mark.is_dir():
            return place
        if mark.is_file():
            return _follow_worktree(mark) or place
    return folder


def _follow_worktree(mark: Path) -> Path | None:
    """Return the main working tree of a linked one; None if the file names something else, such as a submodule."""
    try:
        folder = mark.parent / mark.read_text(encoding="utf-8").strip().removeprefix("gitdir:").strip()
        return (folder / (folder / "commondir").read_text(encoding="utf-8").strip()).resolve().parent
    except (OSError, ValueError):
        return None


def _read_text(path: Path) -> str:
    """Return a file's text; raise OSError or ValueError for one that is endless, as a clone's link to a device is."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or path.samefile(os.devnull)):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    with path.open("rb") as file:
        content = file.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content.decode("utf-8-sig")


def _read_object(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the object that a settings file holds, empty if there is no file."""
    try:
        text = _read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise _refuse_file(str(path), type(error).__name__) from None
    return _parse_object(text, parse, str(path)) if text.strip() else {}


def _parse_object(text: str, parse: Callable[[str], Any], where: str) -> dict[str, Any]:
    try:
        found = parse(text)
    except Exception as error:  # noqa: BLE001 - each parser has errors of its own
        raise _refuse_file(where, type(error).__name__) from None
    if not isinstance(found, dict):
        raise _refuse_file(where, "it is not an object")
    return found


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = _merge(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _drop_option(start: Start, name: str) -> tuple[str, ...]:
    """Return the arguments without an option and its values."""
    dropped: set[int] = set()
    for index, _ in start.list_options(name):
        dropped |= (
            {index - 1}
            if "=" in start.command[index - 1] and start.command[index - 2] != name
            else {index - 1, index - 2}
        )
    return tuple(one for index, one in enumerate(start.command) if index and index not in dropped)


def _skip_proxy(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to this machine away from a proxy, where one is set."""
    if not any(
        variables.get(name)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    ):
        return {}
    known = variables.get("NO_PROXY") or variables.get("no_proxy") or ""
    return dict.fromkeys(("NO_PROXY", "no_proxy"), f"{known},127.0.0.1,localhost".lstrip(","))


def _refuse_file(where: str, why: str) -> ConfigError:
    return ConfigError(
        "{where} cannot be read ({why}), so refold cannot know where requests go; repair it, or name the address "
        "with --openai-upstream or --anthropic-upstream",
        where=where,
        why=why,
    )


def _refuse_managed(program: str, name: str, path: object) -> ConfigError:
    return ConfigError(
        "{path} sets {name} for everybody on this machine, so {program} would not use refold's gateway; "
        "run it without refold",
        path=str(path),
        name=name,
        program=program,
    )


def _refuse_service(program: str, name: str) -> ConfigError:
    return ConfigError(
        "{program} is set to another service ({name}), which refold's gateway cannot forward to; run it without refold",
        program=program,
        name=name,
    )


_BOTH = ("openai_upstream", "anthropic_upstream")
ANY = Client(_BOTH, _find_usual, _redirect_any)
CLIENTS: Mapping[str, Client] = {
    "claude": Client(("anthropic_upstream",), _find_claude, _redirect_claude),
    "codex": Client(("openai_upstream",), _find_codex, _redirect_codex),
    "opencode": Client(_BOTH, _find_opencode, _redirect_opencode),
    "qwen": Client(("openai_upstream",), _find_qwen, _redirect_qwen),
    "aider": Client(_BOTH, _find_aider, _redirect_aider),
    "pi": Client(_BOTH, _find_pi, _redirect_pi),
}


def find_client(program: str) -> Client:
    """Return how a program is led to a gateway, by the name of its file."""
    return CLIENTS.get(name_client(program), ANY)


def name_client(program: str) -> str:
    return Path(program).name.removesuffix(".exe").removesuffix(".cmd")


def find_upstreams(start: Start, given: Mapping[str, str | None]) -> dict[str, str]:
    """Return where requests go: the addresses of the command line, else those that the program would have used."""
    client = find_client(start.command[0])
    chosen = {name: url for name, url in given.items() if url}
    if not set(client.upstreams) <= set(chosen):
        chosen = {**{name: url for name, url in client.find_upstreams(start).items() if url}, **chosen}
    return chosen


def check_choice_of_folder(start: Start, given: Mapping[str, str | None]) -> None:
    """Raise ConfigError if files that somebody else may have written choose an address, and the user did not agree."""
    from refold.config.load import find_user_folder
    from refold.llm.errors import show_url

    if all(given.get(name) for name in find_client(start.command[0]).upstreams):
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
    if client is ANY:
        return {}
    here = client.find_upstreams(start)
    with tempfile.TemporaryDirectory(prefix="refold-") as empty:
        # Files that the user names on the command line are the user's choice. The program is no such file: one of its
        # name in a clone would be run.
        program, *arguments = start.command
        program = str(start.folder / program) if len(Path(program).parts) > 1 else program
        command = (program, *(_make_absolute(one, start.folder) for one in arguments))
        try:
            away = client.find_upstreams(Start(command, start.environ, Path(empty)))
        except ConfigError:
            away = {}
    return {name: here.get(name, "") for name in client.upstreams if here.get(name, "") != away.get(name, "")}


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
