"""goose: hosts in the environment, then in its config.yaml."""

from __future__ import annotations

from pathlib import Path

from refold.cli.clients import files
from refold.cli.clients.start import UPSTREAMS, Launch, Start, name_urls
from refold.errors import ConfigError

__all__ = ["UPSTREAMS", "find_upstreams", "redirect"]


def find_upstreams(start: Start) -> dict[str, str]:
    """Return goose's addresses: for OpenAI a host of the environment, a base URL, then a host of the file."""
    import yaml

    folder = Path(start.environ.get("XDG_CONFIG_HOME") or start.home / ".config", "goose")
    if root := start.environ.get("GOOSE_PATH_ROOT"):
        folder = Path(root, "config")
    here, file = start.environ, files.read_object(folder / "config.yaml", yaml.safe_load)
    if here.get("OPENAI_BASE_PATH") or file.get("OPENAI_BASE_PATH"):
        raise ConfigError(
            "goose has {name}, which refold cannot follow; name the address with {option}",
            name="OPENAI_BASE_PATH",
            option="--openai-upstream",
        )
    hosts = [f"{str(one['OPENAI_HOST']).rstrip('/')}/v1" if one.get("OPENAI_HOST") else "" for one in (here, file)]
    openai = hosts[0] or here.get("OPENAI_BASE_URL") or file.get("OPENAI_BASE_URL") or hosts[1]
    anthropic = here.get("ANTHROPIC_HOST") or file.get("ANTHROPIC_HOST")
    return {"openai_upstream": str(openai or ""), "anthropic_upstream": str(anthropic or "")}


def redirect(start: Start, url: str) -> Launch:
    return Launch(start.command, {**name_urls(url), **files.skip_proxy(start.environ)})
