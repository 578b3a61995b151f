"""Plugins: your own stages and summarisers, installed as a package or registered by a line of code.

Settings name a plugin (``ladder``, ``compact_model: plugin:NAME``), never a file or module to load. Nothing is looked
up before a setting names something that is not built in. An unknown name raises; a plugin that fails to load is left
out, and every report says so. A plugin's stage runs behind a guard: exceptions, results that are not edits, and edits
that break a law are left out and reported. The guard cannot stop a stage that never returns or mutates messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import entry_points
from inspect import isgenerator
from typing import Any, Literal, TypeVar, cast

from refold.conversation import because
from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Reason, join_reasons, text_reason
from refold.conversation.view import Edit, View
from refold.errors import ConfigError, FormatError
from refold.ladder.run import take_edits
from refold.ledger.codec import find_invalid
from refold.stages import STAGES
from refold.stages.stage import Ask, Goal, Proposal, Proposed, Reply, Stage, When

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
    """Return a plugin's stage, or one that reports why it did not load; raise ConfigError if it rejects its options."""
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
        raise ConfigError(
            "plugins.{name}: the stage rejected its options ({kind}: {error})",
            name=name,
            kind=type(error).__name__,
            error=error,
        ) from None


def load_summariser(name: str) -> tuple[object | None, Reason]:
    """Return a plugin's model; or None, and why it could not be loaded."""
    plugin = _find("summariser", name)
    try:
        made = plugin.load()
        model = made if hasattr(made, "complete") and not isinstance(made, type) else made()
        if not callable(getattr(model, "complete", None)):
            raise TypeError("it has no complete(prompt)")
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return None, _describe_unloaded(plugin, error)
    return model, NO_REASON


def _find(kind: Kind, name: str) -> Plugin:
    known = {one.name: one for one in find_plugins(kind)}
    if name not in known:
        there = ", ".join(known) or "none"
        raise ConfigError(
            "there is no {kind} plugin '{name}'; known plugins: {there}. Install or register it first",
            kind=kind,
            name=name,
            there=there,
        )
    return known[name]


def _describe_unloaded(plugin: Plugin, error: BaseException) -> Reason:
    return because.PLUGIN_MISSING(name=plugin.name, origin=plugin.origin, detail=_describe_error(error))


def _describe_error(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_WHY_CHARS_MAX]


def _check_name(name: object, whose: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            "{whose}: a plugin's name has lower-case letters, digits and '_', unlike {name!r}", whose=whose, name=name
        )
    if name in STAGES or name in _RESERVED:
        raise ConfigError("{whose}: '{name}' is a built-in stage; choose another name", whose=whose, name=name)
    return name


@lru_cache(maxsize=1)
def _find_installed() -> tuple[Plugin, ...]:
    found: dict[tuple[Kind, str], Plugin] = {}
    for kind, group in GROUPS.items():
        for point in entry_points(group=group):
            # Skip names of built-in stages, and names that a settings file cannot contain.
            if _NAME.fullmatch(point.name) and point.name not in STAGES and point.name not in _RESERVED:
                origin = point.dist.name if point.dist is not None else point.value
                found.setdefault((kind, point.name), Plugin(kind, point.name, origin, point.load))
    return tuple(found.values())


ASKS_MAX = 8
_WHY_CHARS_MAX = 200


@dataclass(frozen=True)
class GuardedStage:
    """A plugin's stage under its name in the settings; ``failure`` says why it could not be loaded."""

    name: str
    when: When = "batch"
    inner: Any = None
    failure: Reason = NO_REASON

    def propose(self, view: View, goal: Goal) -> Proposal:
        """Return the plugin's valid proposals."""
        if self.inner is None:
            return Proposed([], self.failure)
        try:
            proposed = self.inner.propose(view, goal)
            answered = (yield from _limit_asks(cast("Proposal", proposed))) if isgenerator(proposed) else proposed
            proposal = answered if isinstance(answered, Proposed) else Proposed(list(answered or ()))
            # Try the edits here: later, an invalid edit would fail without a hint at the plugin.
            signed = [self._sign(edit) for edit in proposal.edits]
            _check_covers(view, signed)
            _, report = take_edits(view, signed, self.name)
            note = proposal.note if isinstance(proposal.note, Reason) else text_reason(str(proposal.note))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
            return Proposed([], self.describe(error))
        refused = because.PLUGIN_REJECTED(name=self.name, because=report.note) if report.note else NO_REASON
        return Proposed(list(report.edits), join_reasons((note, refused)), bool(proposal.is_failed))

    def arrive(self, message: Message) -> list[Edit]:
        """Return the plugin's rendering of one message: only shorter texts of tool results are allowed."""
        if self.inner is None:
            return []
        try:
            return [self._sign(edit) for edit in self.inner.arrive(message) if _is_shorter(edit, message)]
        except (Exception, SystemExit):  # noqa: BLE001 - the message stays as it is
            return []

    def describe(self, error: BaseException) -> Reason:
        """Return the note about a failure."""
        return because.PLUGIN_FAILED(name=self.name, detail=_describe_error(error))

    def _sign(self, edit: object) -> Edit:
        """Set the plugin's name as the stage of an edit, so that no plugin can pass for clamp."""
        if not isinstance(edit, Edit):
            raise TypeError(f"{type(edit).__name__} is not an Edit")
        wrong = next(find_invalid(edit), "")
        if wrong:
            raise FormatError(f"its edit has an invalid {wrong}")
        return replace(edit, stage=self.name, id="")


def _check_covers(view: View, edits: Sequence[Edit]) -> None:
    """Refuse a fold that no view would show: it needs all covered messages, in their order."""
    place = {message.id: at for at, message in enumerate(view.messages)}
    for edit in edits:
        places = [place.get(message_id, -1) for message_id in edit.covers]
        if -1 in places:
            raise FormatError("its edit covers a message that is not in the view")
        if edit.kind == "fold" and places != sorted(places):
            raise FormatError("its fold covers messages out of order")


def _limit_asks(asking: Generator[Ask, Reply, Any]) -> Generator[Ask, Reply, Any]:
    reply = cast("Reply", None)
    try:
        for _ in range(ASKS_MAX + 1):
            ask = asking.send(reply)
            if not isinstance(ask, Ask):
                raise TypeError(f"it yielded a {type(ask).__name__}, not an Ask")
            reply = yield ask
    except StopIteration as done:
        return done.value
    finally:
        asking.close()
    raise RuntimeError(f"it asked more than {ASKS_MAX} times")


def _is_shorter(edit: Edit, message: Message) -> bool:
    at = edit.part
    if edit.kind != "replace" or edit.covers != (message.id,) or at is None or not 0 <= at < len(message.parts):
        return False
    part = message.parts[at]
    return part.kind == "result" and not part.inside and len(edit.text) < len(part.text)
