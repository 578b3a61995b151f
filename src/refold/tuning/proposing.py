"""What would have served the stored sessions better: one knob after the other, each tried on all of them.

A change is proposed only if every request still fits and is valid, as many values stay in view as now, and the bill is
lower by enough to matter. The search is short and takes the same way every time; nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from refold.budget import Budget, Tariff
from refold.config import CompressionConfig
from refold.errors import RefoldError
from refold.readers.session import Session
from refold.replay.policy import LadderPolicy, Policy, Room
from refold.replay.record import SessionRecord
from refold.replay.run import Measured, replay_session
from refold.replay.tally import Tally, tally_preset
from refold.tokens import counter_for, model_info
from refold.tokens.models import ModelInfo
from refold.tuning.knobs import KNOBS

# A change breaks cached prefixes and people's habits: it has to be worth that.
SAVING_MIN = 0.03
# Values in view may be fewer by no more than this, in points of a hundred.
VIEW_LOSS_MAX = 1.0
TRIALS_MAX = 24


@dataclass(frozen=True, slots=True)
class Figures:
    """What settings gave over all sessions. ``cost`` is in input tokens at the plain price."""

    cost: float
    in_view_percent: float | None
    peak_tokens: int
    prefix_changes: int
    is_sound: bool

    @classmethod
    def of(cls, tally: Tally) -> Figures:
        """Take what counts out of a tally."""
        is_sound = tally.fit.part == tally.fit.whole and tally.valid.part == tally.valid.whole and not tally.problems
        return cls(tally.charge.total, tally.probes.view_percent, tally.tokens_peak, tally.breaks, is_sound)


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was found: ``changes`` are empty if what holds now is best. ``trials`` counts what was tried."""

    sessions: int
    requests: int
    now: Figures
    then: Figures
    changes: Mapping[str, float] = field(default_factory=dict)
    trials: int = 0

    @property
    def saving(self) -> float:
        """The share of the bill that the changes would have saved."""
        return 1 - self.then.cost / self.now.cost if self.now.cost else 0.0


def propose(
    sessions: Sequence[Session],
    config: CompressionConfig,
    *,
    trials_max: int = TRIALS_MAX,
    tell: Callable[[int], None] = lambda _trials: None,
) -> Tuning:
    """Replay sessions with the settings in force and with others, and return the changes that pay."""
    first = _try_settings(sessions, config)
    now = best = Figures.of(first)
    changes: dict[str, float] = {}
    trials = 1
    # Twice: what one knob may do depends on where the others stand.
    for knob in (*KNOBS, *KNOBS) if first.requests else ():
        held = config.replace(**changes) if changes else config
        for value in knob.find_values(held):
            if trials >= trials_max:
                break
            tell(trials)
            trials += 1
            try:
                tried = Figures.of(_try_settings(sessions, held.replace(**{knob.name: value})))
            except RefoldError:
                continue  # A target above its trigger, a reserve above its window: no settings at all.
            if _is_better(tried, best, now):
                best, changes = tried, {**changes, knob.name: value}
    if now.cost and 1 - best.cost / now.cost < SAVING_MIN:
        best, changes = now, {}
    return Tuning(len(sessions), first.requests, now, best, changes, trials)


def _is_better(tried: Figures, best: Figures, now: Figures) -> bool:
    if not tried.is_sound or tried.cost >= best.cost:
        return False
    if tried.in_view_percent is None or now.in_view_percent is None:
        return True
    return tried.in_view_percent >= now.in_view_percent - VIEW_LOSS_MAX


def _try_settings(sessions: Sequence[Session], config: CompressionConfig) -> Tally:
    records = [_replay(session, config) for session in sessions]
    models = {session.id: session.model for session in sessions}
    return tally_preset("tried", records, lambda record: Tariff.of_model(_model_of(config, models[record.session])))


def _model_of(config: CompressionConfig, model: str) -> ModelInfo:
    return model_info(config.model or model or None)


def _replay(session: Session, config: CompressionConfig) -> SessionRecord:
    info = _model_of(config, session.model)
    counter = counter_for(info.name or None)

    def make_policy(room: Room) -> Policy:
        return LadderPolicy(room, config)

    def make_budget(_measured: Measured) -> Budget:
        return config.budget(info, counter.margin)

    try:
        return replay_session(
            session, "tried", make_policy, make_budget, counter, Tariff.of_model(info), with_recall=False
        )
    except RefoldError as error:
        return SessionRecord(session.id, "tried", len(session.messages), 0, 0, problem=str(error))
