"""The known plugins: entry points of installed packages, and plugins registered in this process.

Nothing is looked up before a setting names something that is not built in, and nothing is imported before it is used.
An unknown name is the operator's mistake and raises; a plugin that fails to load is left out, and every report says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeVar

from refold.errors import ConfigError
from refold.plugins.guard import GuardedStage
from refold.stages import STAGES
from refold.stages.stage import Stage

Kind = Literal["stage", "summariser"]
GROUPS: dict[Kind, str] = {"stage": "refold.stages", "summariser": "refold.summarisers"}
PREFIX = "plugin:"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Edits of this stage are ours: recalled text is withdrawn when a view does not fit.
_RESERVED = frozenset({"recall"})
_WHENS = ("arrival", "batch", "hard")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin: its kind, its name, the package it comes from, and a function that loads it."""

    kind: Kind
    name: str
    origin: str
    load: Callable[[], Any]


_registered: dict[tuple[Kind, str], Plugin] = {}
StageType = TypeVar("StageType", bound=type[Stage])


def register_stage(stage: StageType) -> StageType:
    """Register a stage under its ``name``; a class decorator. Names of built-in stages are refused."""
    name = _check_name(getattr(stage, "name", ""), f"{stage.__module__}.{stage.__qualname__}")
    _registered["stage", name] = Plugin("stage", name, stage.__module__, lambda: stage)
    return stage


def register_summariser(name: str, make: Callable[[], object]) -> None:
    """Register a summariser: ``make()`` returns an object with ``complete(prompt)``. Settings: ``plugin:NAME``."""
    _check_name(name, "register_summariser")
    _registered["summariser", name] = Plugin("summariser", name, getattr(make, "__module__", ""), lambda: make)


def unregister(kind: Kind, name: str) -> None:
    """Remove a registered plugin; do nothing if there is none."""
    _registered.pop((kind, name), None)


def find_plugins(kind: Kind | None = None) -> list[Plugin]:
    """Return all plugins sorted by name; registered ones take precedence over installed ones."""
    found = {(one.kind, one.name): one for one in _find_installed()} | _registered
    return sorted((one for one in found.values() if kind in (None, one.kind)), key=lambda one: (one.kind, one.name))


def make_stage(name: str, options: Mapping[str, object]) -> GuardedStage:
    """Return a plugin's stage with its options; a stage that fails to load only reports why.

    Raise ConfigError if the stage rejects its options, because the operator wrote them.
    """
    plugin = _find("stage", name)
    try:
        kind = plugin.load()
        when = kind.when
        if when not in _WHENS or not callable(getattr(kind, "arrive" if when == "arrival" else "propose", None)):
            raise TypeError(f"it is not a stage: when = {when!r}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may raise anything when it is imported
        return GuardedStage(name, failure=_describe_unloaded(plugin, error))
    try:
        return GuardedStage(name, when, kind(**options))
    except Exception as error:  # noqa: BLE001
        raise ConfigError(f"plugins.{name}: the stage rejected its options ({type(error).__name__}: {error})") from None


def load_summariser(name: str) -> tuple[object | None, str]:
    """Return a plugin's model; or None, and why it could not be loaded."""
    plugin = _find("summariser", name)
    try:
        made = plugin.load()
        model = made if hasattr(made, "complete") and not isinstance(made, type) else made()
        if not callable(getattr(model, "complete", None)):
            raise TypeError("it has no complete(prompt)")
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return None, _describe_unloaded(plugin, error)
    return model, ""


def _find(kind: Kind, name: str) -> Plugin:
    known = {one.name: one for one in find_plugins(kind)}
    if name not in known:
        there = ", ".join(known) or "none"
        raise ConfigError(f"there is no {kind} plugin '{name}'; known plugins: {there}. Install or register it first")
    return known[name]


def _describe_unloaded(plugin: Plugin, error: BaseException) -> str:
    why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return f"plugin {plugin.name} of {plugin.origin} could not be loaded ({why}); it was left out"


def _check_name(name: object, whose: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{whose}: a plugin's name has lower-case letters, digits and '_', unlike {name!r}")
    if name in STAGES or name in _RESERVED:
        raise ConfigError(f"{whose}: '{name}' is a built-in stage; choose another name")
    return name


@lru_cache(maxsize=1)
def _find_installed() -> tuple[Plugin, ...]:
    found: dict[tuple[Kind, str], Plugin] = {}
    for kind, group in GROUPS.items():
        for point in entry_points(group=group):
            # Skip names of built-in stages, and names that a settings file cannot contain.
            if _NAME.fullmatch(point.name) and point.name not in STAGES and point.name not in _RESERVED:
                found.setdefault((kind, point.name), _read_point(kind, point))
    return tuple(found.values())


def _read_point(kind: Kind, point: EntryPoint) -> Plugin:
    origin = point.dist.name if point.dist is not None else point.value
    return Plugin(kind, point.name, origin, point.load)
