"""Tuning: replay stored sessions with other settings, and propose settings that would have served them better.

``propose`` tries one knob after the other on all sessions and changes nothing. It proposes a change only if every
request still fits and is valid, as many values stay in view as now, and the whole bill (with re-reads of hidden text)
is lower by enough to matter. A knob has bounds; a value outside them is for a person to set. The search is short and
deterministic.

``apply`` changes the settings and logs it. ``watch`` serves ``tune: auto``: after a number of compressions it looks for
better settings in its own thread and applies them. A failure is noted and has no other effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from refold.budget import Tariff
from refold.config import CompressionConfig
from refold.config.save import save_settings
from refold.conversation import because
from refold.errors import RefoldError
from refold.ledger.codec import load_json
from refold.ledger.records import Event
from refold.ledger.sql.ledger import Ledger
from refold.manager import ContextCompressionManager
from refold.manager.notices import Notice
from refold.readers.session import Session
from refold.replay.record import add_probes
from refold.replay.report import Tally, tally_preset
from refold.replay.run import replay_with
from refold.tokens import model_info

# A change breaks cached prefixes and users' expectations, so it has to be worth that.
SAVING_MIN = 0.03
# The share of values in view may drop by at most this many percentage points.
VIEW_LOSS_MAX = 1.0
TRIALS_MAX = 24
SESSIONS_MAX = 12
MESSAGES_MAX = 4_000
# A session of a few messages shows nothing about folding.
MESSAGES_MIN = 8


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting, its bounds and the values or factors to try; ``switch`` must be on for it to matter."""

    name: str
    least: float
    most: float
    values: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    switch: str = ""

    def find_values(self, config: CompressionConfig) -> list[float]:
        """Return the values to try besides the current one; empty if these settings do not use the knob."""
        held = getattr(config, self.name)
        if held is None or (self.switch and not getattr(config, self.switch)):
            return []
        tried = [*self.values, *(round(held * factor) for factor in self.factors)]
        within = {min(self.most, max(self.least, value)) for value in tried}
        return sorted(type(held)(value) for value in within if value != held)


KNOBS = (
    Knob("trigger_ratio", 0.5, 0.98, values=(0.6, 0.75, 0.9, 0.98)),
    Knob("target_ratio", 0.1, 0.5, values=(0.15, 0.25, 0.4, 0.5)),
    Knob("economic_ratio", 0.3, 0.8, values=(0.35, 0.45, 0.6, 0.8), switch="economic"),
    Knob("threshold_rounds", 20, 400, factors=(0.5, 1.5, 2.0)),
    Knob("threshold_tokens", 2_000, 400_000, factors=(0.5, 1.5, 2.0)),
    Knob("retention_count", 4, 200, factors=(0.5, 1.5)),
    Knob("max_turns", 10, 200, factors=(0.5, 1.5, 2.0)),
    Knob("keep_recent", 3, 50, factors=(0.5, 1.5)),
    Knob("keep_last_turns", 2, 50, factors=(0.5, 1.5)),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of settings over all sessions. ``cost`` is the whole bill in input tokens at the plain price."""

    cost: float
    in_view_percent: float | None
    peak_tokens: int
    prefix_changes: int
    is_sound: bool

    @classmethod
    def of(cls, tally: Tally) -> Figures:
        is_sound = tally.fit.part == tally.fit.whole and tally.valid.part == tally.valid.whole and not tally.problems
        return cls(tally.whole_bill, tally.probes.view_percent, tally.tokens_peak, tally.breaks, is_sound)


@dataclass(frozen=True, slots=True)
class TuningStep:
    """One change that paid off: the setting, its value and the figures of the sessions, before and after."""

    name: str
    value_before: float
    value: float
    before: Figures
    after: Figures

    @property
    def saving(self) -> float:
        """The share of the whole bill that this step alone would have saved."""
        return 1 - self.after.cost / self.before.cost if self.before.cost else 0.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of a search: its ``changes``, none if the current settings are best, and the ``steps`` to them."""

    sessions: int
    requests: int
    now: Figures
    then: Figures
    changes: Mapping[str, float] = field(default_factory=dict)
    trials: int = 0
    steps: tuple[TuningStep, ...] = ()

    @property
    def saving(self) -> float:
        """The share of the bill that the changes would have saved."""
        return 1 - self.then.cost / self.now.cost if self.now.cost else 0.0


def read_stored(manager: ContextCompressionManager, sessions_max: int = SESSIONS_MAX) -> list[Session]:
    """Return the sessions that changed last and are long enough to be useful: originals only, with their probes."""
    found: list[Session] = []
    ledger = manager.ledger
    for row in ledger.list_sessions(limit=sessions_max * 10):
        ids = ledger.read_path(row.id).ids[:MESSAGES_MAX]
        if len(ids) < MESSAGES_MIN:
            continue
        stored = [message for message in ledger.read_messages(row.id, ids) if not message.is_forgotten]
        session = Session(
            id=row.id,
            messages=tuple(load_json(message.raw) for message in stored),
            format=row.wire,
            times=tuple(message.created_at for message in stored),
            model=row.model,
            bytes=sum(len(message.raw) for message in stored),
        )
        found.append(add_probes(session))
        if len(found) == sessions_max:
            break
    return found


def propose(
    sessions: Sequence[Session],
    config: CompressionConfig,
    *,
    trials_max: int = TRIALS_MAX,
    tell: Callable[[int], None] = lambda _trials: None,
) -> Tuning:
    """Replay sessions with the settings in force and with others, and return the changes that pay off."""
    first = _try_settings(sessions, config)
    now = best = Figures.of(first)
    changes: dict[str, float] = {}
    steps: list[TuningStep] = []
    trials = 1
    # Twice: the effect of one knob depends on the others.
    for knob in (*KNOBS, *KNOBS) if first.requests else ():
        held = config.replace(**changes) if changes else config
        start, value_before = best, getattr(held, knob.name)
        for value in knob.find_values(held):
            if trials >= trials_max:
                break
            tell(trials)
            trials += 1
            try:
                tried = Figures.of(_try_settings(sessions, held.replace(**{knob.name: value})))
            except RefoldError:
                continue  # These settings conflict, such as a target above its trigger.
            if _is_better(tried, best, now):
                best, changes = tried, {**changes, knob.name: value}
        if best is not start:
            steps.append(TuningStep(knob.name, value_before, changes[knob.name], start, best))
    if now.cost and 1 - best.cost / now.cost < SAVING_MIN:
        best, changes, steps = now, {}, []
    return Tuning(len(sessions), first.requests, now, best, changes, trials, tuple(steps))


def _is_better(tried: Figures, best: Figures, now: Figures) -> bool:
    if not tried.is_sound or tried.cost >= best.cost:
        return False
    if tried.in_view_percent is None or now.in_view_percent is None:
        return True
    return tried.in_view_percent >= now.in_view_percent - VIEW_LOSS_MAX


def _try_settings(sessions: Sequence[Session], config: CompressionConfig) -> Tally:
    models = {session.id: model_info(config.model or session.model or None) for session in sessions}
    records = [replay_with(session, "tried", config, models[session.id], with_recall=False) for session in sessions]
    return tally_preset("tried", records, lambda record: Tariff.of_model(models[record.session]))


# Compressions between two searches: a change needs time to take effect.
COMPRESSIONS_BETWEEN = 20
SESSIONS_WATCHED = 4


def apply(workspace: str | Path, ledger: Ledger, tuning: Tuning, now: float, *, by: str = "tune") -> CompressionConfig:
    """Write the changes into the project's file and the event log; return the new settings."""
    config = save_settings(workspace, dict(tuning.changes))
    rows = ledger.list_sessions(limit=1)
    fields = {"by": by, "changes": dict(tuning.changes), "now": asdict(tuning.now), "then": asdict(tuning.then)}
    if rows:
        listed = ", ".join(f"{name} = {value:g}" for name, value in tuning.changes.items())
        ledger.add_event(rows[0].id, Event("tuned", now, {"reason": because.TUNED(changes=listed).to_json(), **fields}))
    return config


def watch(manager: ContextCompressionManager, workspace: str | Path, every: int = COMPRESSIONS_BETWEEN) -> TuningWatch:
    """Tune a manager's settings automatically from now on."""
    watching = TuningWatch(manager, workspace, every)
    manager.on("compressed", watching.see)
    return watching


class TuningWatch:
    """Counts compressions and searches for better settings now and then, one search at a time."""

    def __init__(self, manager: ContextCompressionManager, workspace: str | Path, every: int) -> None:
        self._manager = manager
        self._workspace = workspace
        self._every = every
        self._count = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.last: Tuning | None = None
        self.problem = ""

    def see(self, notice: Notice) -> None:
        """Count a compression; search again after enough of them."""
        with self._lock:
            self._count += 1
            is_due = self._count >= self._every and not (self._thread and self._thread.is_alive())
            if not is_due:
                return
            self._count = 0
            self._thread = threading.Thread(target=self._look, args=(notice.time,), name="refold-tune", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the current search is over."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _look(self, now: float) -> None:
        manager = self._manager
        try:
            tuning = propose(read_stored(manager, SESSIONS_WATCHED), manager.config)
            self.last = tuning
            if tuning.changes:
                apply(self._workspace, manager.ledger, tuning, now, by="tune: auto")
                # On top of the current settings: a caller's own are in no file.
                manager.adopt(manager.config.replace(**tuning.changes))
        except Exception as error:  # noqa: BLE001 - a look for better settings must never end a conversation
            self.problem = f"{type(error).__name__}: {error}"
