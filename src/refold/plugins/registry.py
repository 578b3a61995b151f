"""Which plugins there are: those that packages declare as entry points, and those that were registered in this process.

Nothing is looked for before a setting names something that is not built in, and nothing is imported before it is
used. A name that nobody knows is the operator's mistake and raises; a plugin that is there and does not load is left
out, and every report says so.
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
# Edits are known by their stage: what is recalled for a message is taken back where a view does not fit.
_RESERVED = frozenset({"recall"})
_WHENS = ("arrival", "batch", "hard")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin: what it is, who brought it, and how to get it."""

    kind: Kind
    name: str
    origin: str
    load: Callable[[], Any]


_registered: dict[tuple[Kind, str], Plugin] = {}
StageType = TypeVar("StageType", bound=type[Stage])


def register_stage(stage: StageType) -> StageType:
    """Make a stage known by its ``name``; a decorator for classes. The name of a built-in stage is refused."""
    name = _check_name(getattr(stage, "name", ""), f"{stage.__module__}.{stage.__qualname__}")
    _registered["stage", name] = Plugin("stage", name, stage.__module__, lambda: stage)
    return stage


def register_summariser(name: str, make: Callable[[], object]) -> None:
    """Make a model known: ``make()`` returns anything with ``complete(prompt)``; settings name it ``plugin:NAME``."""
    _check_name(name, "register_summariser")
    _registered["summariser", name] = Plugin("summariser", name, getattr(make, "__module__", ""), lambda: make)


def unregister(kind: Kind, name: str) -> None:
    """Take back what was registered; nothing happens if it was not."""
    _registered.pop((kind, name), None)


def find_plugins(kind: Kind | None = None) -> list[Plugin]:
    """Return every plugin there is, by name; what was registered comes before what is installed."""
    found = {(one.kind, one.name): one for one in _find_installed()} | _registered
    return sorted((one for one in found.values() if kind in (None, one.kind)), key=lambda one: (one.kind, one.name))


def make_stage(name: str, options: Mapping[str, object]) -> GuardedStage:
    """Return a plugin's stage with its options; one that does not load stands there with the reason.

    Options that it does not take, or refuses, are a ConfigError: they are the operator's words.
    """
    plugin = _find("stage", name)
    try:
        kind = plugin.load()
        when = kind.when
        if when not in _WHENS or not callable(getattr(kind, "arrive" if when == "arrival" else "propose", None)):
            raise TypeError(f"it is no stage: when = {when!r}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may raise anything when it is imported
        return GuardedStage(name, failure=_describe_unloaded(plugin, error))
    try:
        return GuardedStage(name, when, kind(**options))
    except Exception as error:  # noqa: BLE001
        raise ConfigError(f"plugins.{name}: the stage refused its options ({type(error).__name__}: {error})") from None


def load_summariser(name: str) -> tuple[object | None, str]:
    """Return a plugin's model, or None and why there is none."""
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
        raise ConfigError(f"there is no {kind} plugin '{name}'; there are: {there}. Install or register it first")
    return known[name]


def _describe_unloaded(plugin: Plugin, error: BaseException) -> str:
    why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return f"plugin {plugin.name} of {plugin.origin} could not be loaded ({why}); it was left out"


def _check_name(name: object, whose: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{whose}: a plugin's name is lower-case letters, digits and '_', not {name!r}")
    if name in STAGES or name in _RESERVED:
        raise ConfigError(f"{whose}: '{name}' is a built-in stage; choose another name")
    return name


@lru_cache(maxsize=1)
def _find_installed() -> tuple[Plugin, ...]:
    found: dict[tuple[Kind, str], Plugin] = {}
    for kind, group in GROUPS.items():
        for point in entry_points(group=group):
            # A package that takes a built-in stage's name, or none that can be written, is not listed.
            if _NAME.fullmatch(point.name) and point.name not in STAGES and point.name not in _RESERVED:
                found.setdefault((kind, point.name), _read_point(kind, point))
    return tuple(found.values())


def _read_point(kind: Kind, point: EntryPoint) -> Plugin:
    origin = point.dist.name if point.dist is not None else point.value
    return Plugin(kind, point.name, origin, point.load)
