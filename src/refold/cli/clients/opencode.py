"""opencode, and Kilo, which is made from it: each prints the settings that its files amount to."""

from __future__ import annotations

import json
import subprocess
from functools import lru_cache
from typing import Any

from refold.cli.clients import files
from refold.cli.clients.start import Launch, Start, name_client
from refold.cli.clients.start import find_upstreams as name_usual

UPSTREAMS = ("openai_upstream", "anthropic_upstream")
_PACKAGES = {
    "@ai-sdk/openai": "openai_upstream",
    "@ai-sdk/openai-compatible": "openai_upstream",
    "@ai-sdk/anthropic": "anthropic_upstream",
}


def find_upstreams(start: Start) -> dict[str, str]:
    """Return the addresses of the providers; that of the chosen model comes before others of its kind."""
    routes = _list_routes(start)
    return {side: url for _, side, url in reversed(routes)}


def list_choices(start: Start) -> list[Start]:
    """Return the program with its usual model, and with one of each other provider, as ``-m`` chooses it."""
    others = [name for name, _, _ in _list_routes(start) if name not in ("openai", "anthropic")]
    return [start, *(Start((*start.command, "-m", f"{name}/"), start.environ, start.folder) for name in others)]


def redirect(start: Start, url: str) -> Launch:
    """Add the gateway's address to the settings in the environment, for every provider that it forwards to."""
    variable = f"{'KILO' if name_client(start.command[0]).startswith('kilo') else 'OPENCODE'}_CONFIG_CONTENT"
    settings = files.parse_object(start.environ.get(variable) or "{}", json.loads, variable)
    chosen = find_upstreams(start)
    for name, side, address in _list_routes(start):
        if chosen[side] == address:
            added = {"provider": {name: {"options": {"baseURL": f"{url}/v1"}}}}
            settings = files.merge(settings, added)
    return Launch(start.command, {variable: json.dumps(settings), **files.skip_proxy(start.environ)})


@lru_cache(maxsize=4)
def _list_routes(start: Start) -> list[tuple[str, str, str]]:
    """Return provider, kind and address of the providers, that of the chosen model first."""
    settings = _ask_program(start)
    providers: dict[str, Any] = {"openai": {}, "anthropic": {}, **settings.get("provider", {})}
    chosen = (start.find_option("-m", "--model") or str(settings.get("model") or "")).partition("/")[0]
    usual = name_usual(start)
    routes = []
    for name, provider in providers.items():
        side = _PACKAGES.get(str(provider.get("npm") or f"@ai-sdk/{name}"))
        address = (provider.get("options") or {}).get("baseURL") or ""
        if side is not None and (address or name in ("openai", "anthropic")):
            routes.append((name, side, address or usual[side]))
    return sorted(routes, key=lambda route: route[0] != chosen)


def _ask_program(start: Start) -> dict[str, Any]:
    """Return the settings that the program itself puts together from all its files."""
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
        raise files.refuse_file(f"{name_client(start.command[0])} debug config", type(error).__name__) from None
    return files.parse_object(done.stdout, json.loads, f"{name_client(start.command[0])} debug config")
