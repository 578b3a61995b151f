"""opencode, which says itself what its files amount to."""

from __future__ import annotations

import json
import subprocess
from functools import lru_cache
from typing import Any

from refold.cli.clients import files
from refold.cli.clients.start import Launch, Start
from refold.cli.clients.start import find_upstreams as name_usual

UPSTREAMS = ("openai_upstream", "anthropic_upstream")
_PACKAGES = {
    "@ai-sdk/openai": "openai_upstream",
    "@ai-sdk/openai-compatible": "openai_upstream",
    "@ai-sdk/anthropic": "anthropic_upstream",
}


def find_upstreams(start: Start) -> dict[str, str]:
    """Return the addresses of opencode's providers; that of the chosen model comes before others of its kind."""
    routes = _list_opencode_routes(start)
    return {side: url for _, side, url in reversed(routes)}


def redirect(start: Start, url: str) -> Launch:
    """Add the gateway's address to the settings in opencode's environment, for every provider that it forwards to."""
    text = start.environ.get("OPENCODE_CONFIG_CONTENT") or "{}"
    settings = files.parse_object(text, json.loads, "OPENCODE_CONFIG_CONTENT")
    chosen = find_upstreams(start)
    for name, side, address in _list_opencode_routes(start):
        if chosen[side] == address:
            added = {"provider": {name: {"options": {"baseURL": f"{url}/v1"}}}}
            settings = files.merge(settings, added)
    return Launch(start.command, {"OPENCODE_CONFIG_CONTENT": json.dumps(settings), **files.skip_proxy(start.environ)})


@lru_cache(maxsize=4)
def _list_opencode_routes(start: Start) -> list[tuple[str, str, str]]:
    """Return provider, kind and address of opencode's providers, that of the chosen model first."""
    settings = _ask_opencode(start)
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
        raise files.refuse_file("opencode debug config", type(error).__name__) from None
    return files.parse_object(done.stdout, json.loads, "opencode debug config")
