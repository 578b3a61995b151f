"""Where settings come from: the one place that reads the environment and people's files.

preset < user (``~/.config/refold/config.yaml``) < project (``refold.yaml``, else ``x-agent.yaml``) < environment
(``REFOLD_…``) < session < call. A broken file or value raises ConfigError with file, line and name. Nothing is
ever written, and a file that does not exist is no error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refold.config.layers import Layer
from refold.config.names import OTHER_BLOCKS, suggest
from refold.config.reading import read_yaml, show
from refold.config.schema import CompressionConfig, read_layer
from refold.errors import ConfigError

BLOCK = "compression"
PROJECT_FILES = ("refold.yaml", "x-agent.yaml")
PREFIX = "REFOLD_"
BYTES_MAX = 1_000_000
# Variables that are ours but no setting of compression.
NO_SETTINGS = frozenset({"REFOLD_DEBUG", "REFOLD_COMPACT_KEY", "REFOLD_TEST_POSTGRES"})
# The providers' own names, and ours for the key of the summaries' own model (S3.10).
MODEL_VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "REFOLD_COMPACT_KEY",
)
# S2.3: the names of the document that preset `offload` comes from.
ALIASES = {
    f"SYNAPSE_{name}": f"REFOLD_{name}"
    for name in (
        "COMPACT_TRIGGER_THRESHOLD",
        "COMPACT_TARGET_TOKENS",
        "COMPACT_PRESERVE_COUNT",
        "COMPACT_MODEL",
        "COMPACT_RETRY_COUNT",
    )
}


def load_config(
    workspace: str | Path | None = None,
    *,
    session: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> CompressionConfig:
    """Return the settings that hold in a workspace (the current folder unless named), all layers considered."""
    variables = os.environ if environ is None else environ
    layers = [
        *_read_file("user", user_file(variables)),
        *_read_file("project", project_file(workspace)),
        *_read_environment(variables),
    ]
    if session:
        layers.append(read_layer("session", session, "session"))
    if call:
        layers.append(read_layer("call", {key: value for key, value in call.items() if value is not None}, "call"))
    config = CompressionConfig(layers)
    embeddings = config.recall.embeddings
    key_name = "" if isinstance(embeddings, str) else embeddings.key_env
    return config.with_variables(read_model_variables(variables, key_name))


def copy_environment() -> dict[str, str]:
    """Return this process's environment, for a program that it runs."""
    return dict(os.environ)


def read_model_variables(environ: Mapping[str, str] | None = None, key_name: str = "") -> dict[str, str]:
    """Return the variables that say where models are reached; a key stands in the environment and nowhere else.

    ``key_name`` is the variable that the settings name for the key of a service.
    """
    variables = os.environ if environ is None else environ
    return {name: text for name in (*MODEL_VARIABLES, key_name) if (text := variables.get(name, "").strip())}


def load_block(
    block: str,
    variables: Mapping[str, str],
    workspace: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, tuple[object, str]]:
    """Return the settings of another part of refold, each with where it was set: user's file < project's < environment.

    ``variables`` names the setting of each environment variable. Values are as written; who asks checks them.
    """
    taken = os.environ if environ is None else environ
    found: dict[str, tuple[object, str]] = {}
    for path in (user_file(taken), project_file(workspace)):
        if path is None or not os.path.lexists(path) or path.name == "x-agent.yaml":
            continue
        place = _shorten(path)
        settings, lines = read_yaml(_read_text(path, place), place)
        inner = settings.get(block) or {}
        if not isinstance(inner, dict):
            raise ConfigError(f"{place}:{lines.get(block, 1)}: {block} must be a block of settings, not {show(inner)}")
        for key, value in inner.items():
            line = lines.get(f"{block}.{key}")
            found[str(key)] = (value, f"{place}:{line}" if line else place)
    for variable, name in variables.items():
        if text := taken.get(variable, "").strip():
            found[name] = (text, variable)
    return found


def is_debugging() -> bool:
    """Tell whether ``REFOLD_DEBUG`` asks for tracebacks."""
    return os.environ.get("REFOLD_DEBUG", "").lower() not in {"", "0", "off", "false", "no"}


def user_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return where the user's own settings are, whether the file exists or not; None if there is no home."""
    variables = os.environ if environ is None else environ
    base = variables.get("XDG_CONFIG_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "refold" / "config.yaml"
    home = variables.get("HOME") or variables.get("USERPROFILE")
    return Path(home) / ".config" / "refold" / "config.yaml" if home else None


def project_file(workspace: str | Path | None = None) -> Path | None:
    """Return the nearest project file, from the workspace upwards to the root of its repository, or None."""
    folder = Path(workspace) if workspace is not None else Path.cwd()
    folder = folder.absolute()
    for candidate in (folder, *folder.parents):
        for name in PROJECT_FILES:
            # Also a folder or a link to nothing: it is refused where it is read.
            if os.path.lexists(candidate / name):
                return candidate / name
        if (candidate / ".git").exists():
            break
    return None


def _read_file(layer: str, path: Path | None) -> list[Layer]:
    if path is None or not os.path.lexists(path):
        return []
    place = _shorten(path)
    settings, lines = read_yaml(_read_text(path, place), place)
    return [_read_settings("user" if layer == "user" else "project", settings, lines, path, place)]


def _read_settings(layer: Any, settings: dict[object, object], lines: dict[str, int], path: Path, place: str) -> Layer:
    """Return the layer of a file: its ``compression`` block and, in a file of ours, the top level too."""
    places = {name: f"{place}:{line}" for name, line in lines.items()}
    block = settings.get(BLOCK)
    if block is not None and not isinstance(block, dict):
        raise ConfigError(f"{places.get(BLOCK, place)}: {BLOCK} must be a block of settings, not {show(block)}")
    inner_places = {name.removeprefix(f"{BLOCK}."): at for name, at in places.items() if name.startswith(f"{BLOCK}.")}
    inner = read_layer(layer, block or {}, place, inner_places)
    if path.name == "x-agent.yaml":
        return inner  # The rest of that file belongs to another program.
    outer = read_layer(layer, _leave_others(settings), place, places)
    for name in outer.values.keys() & inner.values.keys():
        if outer.values[name] != inner.values[name]:
            raise ConfigError(
                f"{outer.source(name).place}: {name} is {show(outer.values[name])}, but the {BLOCK} block says "
                f"{show(inner.values[name])} ({inner.source(name).place}); keep one of them"
            )
    return Layer(layer, {**outer.values, **inner.values}, place, {**places, **inner_places})


def _leave_others(settings: Mapping[object, object]) -> dict[object, object]:
    return {key: value for key, value in settings.items() if key != BLOCK and key not in OTHER_BLOCKS}


def _read_text(path: Path, place: str) -> str:
    try:
        # One that is masked by a link to /dev/null is empty; opening a pipe would wait for ever.
        if not (path.is_file() or path.is_char_device()):
            what = "a folder" if path.is_dir() else "a link to nothing" if path.is_symlink() else "no file"
            raise ConfigError(f"{place}: is {what}; a settings file is a text of 'name: value' lines, or is not there")
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{place}: cannot be read: {error.strerror or error}") from None
    if len(content) > BYTES_MAX:
        raise ConfigError(f"{place}: larger than {BYTES_MAX:,} bytes; that is no settings file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place}: not UTF-8 text (byte {error.start})") from None


def _shorten(path: Path) -> str:
    """Return a path as people say it: relative to where they are, or to their home."""
    for base, prefix in ((Path.cwd(), ""), (Path(os.environ.get("HOME") or "/nonexistent"), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base)}"
    return str(path)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: ``fold.keep_turns`` is ``REFOLD_FOLD_KEEP_TURNS``."""
    return PREFIX + name.replace(".", "_").upper()


def known_variables() -> dict[str, str]:
    """Return every variable that is read, and the setting it gives."""
    known = CompressionConfig.known
    names = [*known.settings, *(f"{block}.{option}" for block, options in known.blocks.items() for option in options)]
    return {variable_of(name): name for name in sorted(names)} | {"REFOLD_AUTO": "auto_compress"}


def _read_environment(environ: Mapping[str, str]) -> list[Layer]:
    known = known_variables()
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    for variable in sorted(environ):
        name = known.get(ALIASES.get(variable, variable))
        text = environ[variable].strip()
        if name is None:
            _refuse_typo(variable, known)
        if name is None or not text:
            continue
        value = _read_variable(name, text, variable)
        if name in values and values[name] != value:
            raise ConfigError(
                f"{places[name]} = {show(values[name])} and {variable} = {show(value)} are one setting; unset one"
            )
        values[name] = value
        places[name] = variable
    return [Layer("environment", values, "", places)] if values else []


def _refuse_typo(variable: str, known: Mapping[str, str]) -> None:
    """Refuse a variable that looks like one of ours misspelt; other programs' REFOLD_… variables are left alone."""
    if not variable.startswith(PREFIX) or variable in NO_SETTINGS:
        return
    hint = suggest(variable.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in known], near=0.85)
    if hint:
        raise ConfigError(f"unknown environment variable '{variable}'{hint.replace(chr(39), chr(39) + PREFIX, 1)}")


def _read_variable(name: str, text: str, variable: str) -> object:
    """Return a variable's text as the setting takes it: lists by commas, tables as JSON, the rest as written."""
    if name == "ladder":
        return [stage.strip() for stage in text.split(",") if stage.strip()]
    if name in ("window", "recall.embeddings") and text.startswith("{"):
        import json

        try:
            return json.loads(text)
        except ValueError:
            raise ConfigError(f"{variable}: not a JSON table: {show(text)}") from None
    return text
