"""pi, which reads addresses from its own file alone: an extension leads it to the gateway."""

from __future__ import annotations

import json
from pathlib import Path

from refold.cli.clients import files
from refold.cli.clients.start import SECRET, Launch, Start
from refold.errors import ConfigError

UPSTREAMS = ("openai_upstream", "anthropic_upstream")
_PI_OTHER = ("install", "remove", "uninstall", "update", "list", "config")


def find_upstreams(start: Start) -> dict[str, str]:
    """Return the addresses in pi's models.json; it reads none from the environment."""
    folder = _find_pi_folder(start)
    for place in (folder, start.folder / ".pi"):
        given = files.read_object(place / "settings.json", json.loads)
        if given.get("packages") or given.get("extensions"):
            raise _refuse_extension(place / "settings.json")
        for path in sorted((place / "extensions").rglob("*.[jt]s")):
            try:
                is_harmless = "registerProvider" not in files.read_text(path)
            except (OSError, ValueError):
                is_harmless = path.is_dir()
            if not is_harmless:
                raise _refuse_extension(path)
    if extension := start.find_option("-e", "--extension"):
        raise _refuse_extension(extension)
    providers = files.get_object(files.read_object(folder / "models.json", json.loads), "providers")
    found = {f"{name}_upstream": files.get_object(providers, name).get("baseUrl") for name in ("openai", "anthropic")}
    return {side: url for side, url in found.items() if isinstance(url, str)}


def redirect(start: Start, url: str) -> Launch:
    """Change the addresses of pi's providers by an extension, which keeps their models and keys."""
    if start.command[1:2] and start.command[1] in _PI_OTHER:
        return Launch(start.command)
    changes = {"anthropic": url, "openai": f"{url}/v1"}
    lines = [
        f"pi.registerProvider({json.dumps(name)}, {{ baseUrl: {json.dumps(at)} }});" for name, at in changes.items()
    ]
    code = f"export default function (pi) {{ {' '.join(lines)} }}\n"
    command = (start.command[0], "--extension", SECRET, *start.command[1:])
    return Launch(command, files.skip_proxy(start.environ), secret=code, secret_name="refold.js")


def _find_pi_folder(start: Start) -> Path:
    return Path(start.environ.get("PI_CODING_AGENT_DIR") or start.home / ".pi" / "agent")


def _refuse_extension(where: object) -> ConfigError:
    return ConfigError(
        "an extension of pi ({where}) may change the address of a provider; name the addresses with --openai-upstream "
        "and --anthropic-upstream",
        where=str(where),
    )
