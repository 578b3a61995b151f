"""Settings files of clients, and errors that say why requests cannot be led to a gateway.

A file that cannot be read, or a choice that the gateway cannot take part in, is a ConfigError: refold never guesses an
address.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.cli.clients.start import Start

_BYTES_MAX = 100_000_000


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


def read_text(path: Path) -> str:
    """Return a file's text; raise OSError or ValueError for one that is endless, as a clone's link to a device is."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or path.samefile(os.devnull)):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    with path.open("rb") as file:
        content = file.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content.decode("utf-8-sig")


def read_object(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the object that a settings file holds, empty if there is no file."""
    try:
        text = read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise refuse_file(str(path), type(error).__name__) from None
    return parse_object(text, parse, str(path)) if text.strip() else {}


def parse_object(text: str, parse: Callable[[str], Any], where: str) -> dict[str, Any]:
    try:
        found = parse(text)
    except Exception as error:  # noqa: BLE001 - each parser has errors of its own
        raise refuse_file(where, type(error).__name__) from None
    if not isinstance(found, dict):
        raise refuse_file(where, "it is not an object")
    return found


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = merge(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def drop_option(start: Start, name: str) -> tuple[str, ...]:
    """Return the arguments without an option and its values."""
    dropped: set[int] = set()
    for index, _ in start.list_options(name):
        dropped |= (
            {index - 1}
            if "=" in start.command[index - 1] and start.command[index - 2] != name
            else {index - 1, index - 2}
        )
    return tuple(one for index, one in enumerate(start.command) if index and index not in dropped)


def skip_proxy(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to this machine away from a proxy, where one is set."""
    if not any(
        variables.get(name)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    ):
        return {}
    known = variables.get("NO_PROXY") or variables.get("no_proxy") or ""
    return dict.fromkeys(("NO_PROXY", "no_proxy"), f"{known},127.0.0.1,localhost".lstrip(","))


def refuse_file(where: str, why: str) -> ConfigError:
    return ConfigError(
        "{where} cannot be read ({why}), so refold cannot know where requests go; repair it, or name the address "
        "with --openai-upstream or --anthropic-upstream",
        where=where,
        why=why,
    )


def refuse_managed(program: str, name: str, path: object) -> ConfigError:
    return ConfigError(
        "{path} sets {name} for everybody on this machine, so {program} would not use refold's gateway; "
        "run it without refold",
        path=str(path),
        name=name,
        program=program,
    )


def refuse_service(program: str, name: str) -> ConfigError:
    return ConfigError(
        "{program} is set to another service ({name}), which refold's gateway cannot forward to; run it without refold",
        program=program,
        name=name,
    )


def get_object(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a nested object, empty if there is none."""
    for name in names:
        inner = settings.get(name)
        settings = inner if isinstance(inner, dict) else {}
    return dict(settings)
