"""aider: its options, the environment, .env files and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refold.cli.clients import files
from refold.cli.clients.places import Named, agree, list_named, read_dotenv
from refold.cli.clients.start import Launch, Start, name_urls

UPSTREAMS = ("openai_upstream", "anthropic_upstream")


def find_upstreams(start: Start) -> dict[str, str]:
    return agree(_list_aider(start))


def _list_aider(start: Start) -> Named:
    if flag := start.find_option("--openai-api-base"):
        yield "--openai-api-base", "openai_upstream", flag
    yield from list_named("environment", start.environ)
    for path in (*_list_places(start, ".env"), *(start.folder / one for _, one in start.list_options("--env-file"))):
        yield from list_named(str(path), read_dotenv(path))
    for path, settings in _list_aider_settings(start):
        variables = dict(str(setting).partition("=")[::2] for setting in settings.get("set-env") or ())
        yield from list_named(str(path), variables)
        if isinstance(url := settings.get("openai-api-base"), str) and url:
            yield str(path), "openai_upstream", url


def _list_aider_settings(start: Start) -> list[tuple[Path, dict[str, Any]]]:
    import yaml

    paths = (
        *_list_places(start, ".aider.conf.yml"),
        *(start.folder / one for _, one in start.list_options("--config")),
    )
    return [(path, files.read_object(path, yaml.safe_load)) for path in paths]


def redirect(start: Start, url: str) -> Launch:
    """Pass the addresses on the command line, which is stronger than files; its ``set-env`` replaces that of a file."""
    # The variables of a file may hold a key, and other users can read command lines.
    inherited = [str(one) for _, settings in _list_aider_settings(start)[-1:] for one in settings.get("set-env") or ()]
    kept = [value for _, value in start.list_options("--set-env")]
    urls = name_urls(url)
    variables = [one for one in kept if one.partition("=")[0] not in urls]
    variables += [f"{name}={urls[name]}" for name in ("OPENAI_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL")]
    rest = Start((start.command[0], *files.drop_option(start, "--openai-api-base")), start.environ, start.folder)
    options = [part for variable in variables for part in ("--set-env", variable)]
    command = (
        start.command[0],
        "--openai-api-base",
        urls["OPENAI_API_BASE"],
        *options,
        *files.drop_option(rest, "--set-env"),
    )
    return Launch(
        command, {**dict(one.partition("=")[::2] for one in inherited), **urls, **files.skip_proxy(start.environ)}
    )


def _list_places(start: Start, name: str) -> list[Path]:
    return [place / name for place in dict.fromkeys((start.home, files.find_repository(start.folder), start.folder))]
