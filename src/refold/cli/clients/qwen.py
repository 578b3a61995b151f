"""Qwen Code: its options, the environment, .env files and its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from refold.cli.clients import files
from refold.cli.clients.places import Named, agree, list_named, read_dotenv
from refold.cli.clients.start import Launch, Start

UPSTREAMS = ("openai_upstream",)


def find_upstreams(start: Start) -> dict[str, str]:
    return agree(_list_qwen(start))


def _list_qwen(start: Start) -> Named:
    if flag := start.find_option("--openai-base-url"):
        yield "--openai-base-url", "openai_upstream", flag
    yield from list_named("environment", start.environ)
    for place in (start.folder, *start.folder.parents, start.home):
        for path in (place / ".qwen" / ".env", place / ".env"):
            yield from list_named(str(path), read_dotenv(path))
    for path, settings in _list_qwen_settings(start):
        yield from list_named(str(path), files.get_object(settings, "env"))
        if isinstance(url := files.get_object(settings, "security", "auth").get("baseUrl"), str) and url:
            yield str(path), "openai_upstream", url


def _list_qwen_settings(start: Start) -> list[tuple[Path, dict[str, Any]]]:
    given = start.environ.get("QWEN_CODE_SYSTEM_SETTINGS_PATH")
    paths = [Path(given or "/etc/qwen-code/settings.json")]
    paths += [place / ".qwen" / "settings.json" for place in (start.home, start.folder)]
    return [(path, files.read_object(path, json.loads)) for path in paths]


def redirect(start: Start, url: str) -> Launch:
    """Pass the address on the command line, which is stronger than everything but model providers."""
    kinds = [start.find_option("--auth-type")]
    for path, settings in _list_qwen_settings(start):
        if any("baseUrl" in json.dumps(models) for models in files.get_object(settings, "modelProviders").values()):
            raise files.refuse_managed("qwen", "modelProviders", path)
        kinds.append(files.get_object(settings, "security", "auth").get("selectedType"))
    kind = kinds[0] or next((one for one in reversed(kinds) if one), None)
    if kind not in (None, "openai"):
        raise files.refuse_service("qwen", f"auth type {kind}")
    command = (start.command[0], "--openai-base-url", f"{url}/v1", *files.drop_option(start, "--openai-base-url"))
    return Launch(command, {"OPENAI_BASE_URL": f"{url}/v1", **files.skip_proxy(start.environ)})
