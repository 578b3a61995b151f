"""Codex: its provider, from config.toml, profiles and ``-c``, and where its login is valid."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refold.cli.clients import files
from refold.cli.clients.start import Launch, Start
from refold.errors import ConfigError

UPSTREAMS = ("openai_upstream",)
_CHATGPT = "https://chatgpt.com/backend-api/codex"
_CODEX_FIXED = ("oss", "ollama", "lmstudio", "amazon-bedrock")
_CODEX_MANAGED = (Path("/etc/codex/managed_config.toml"), Path("/etc/codex/requirements.toml"))


def find_upstreams(start: Start) -> dict[str, str]:
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
        settings = files.merge(settings, files.read_object(path, tomllib.loads))
    for _, given in start.list_options("-c", "--config"):
        settings = files.merge(settings, _read_override(given))
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


def redirect(start: Start, url: str) -> Launch:
    """Change the address of the provider that Codex uses; its name stays, because Codex lists sessions by it."""
    settings = _read_codex(start)
    for path in (*_CODEX_MANAGED, _find_codex_home(start) / "managed_config.toml"):
        for name in ("model_provider", "openai_base_url", "model_providers"):
            if name in files.read_object(path, tomllib.loads):
                raise files.refuse_managed("codex", name, path)
    provider = str(settings.get("model_provider") or "openai")
    if "--oss" in start.command or provider in _CODEX_FIXED:
        raise files.refuse_service("codex", "--oss" if "--oss" in start.command else f"model_provider {provider}")
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
    return Launch(command, {**login, **files.skip_proxy(start.environ)})


def _find_codex_home(start: Start) -> Path:
    return Path(start.environ.get("CODEX_HOME") or start.home / ".codex")


def _has_chatgpt_login(start: Start, settings: Mapping[str, Any]) -> bool:
    """Return whether Codex is logged in with ChatGPT, whose tokens are valid at ChatGPT's address only."""
    if start.environ.get("CODEX_API_KEY"):
        return False
    stored = files.read_object(_find_codex_home(start) / "auth.json", json.loads)
    if not stored and settings.get("cli_auth_credentials_store") in ("keyring", "auto"):
        raise ConfigError(
            "Codex keeps its login in the keyring, so refold cannot know which address it is valid at; name it: "
            "--openai-upstream {chatgpt} for a ChatGPT login, https://api.openai.com/v1 for a key",
            chatgpt=_CHATGPT,
        )
    mode = stored.get("auth_mode")
    return mode == "chatgpt" if mode else bool(stored.get("tokens")) and not stored.get("OPENAI_API_KEY")
