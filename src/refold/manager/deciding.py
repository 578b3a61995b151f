"""When a session is compressed by itself: triggers, reported usage, the brake (L9), the switch, what was undone.

Pure functions over numbers and a session's settings; whoever calls them stores what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refold.budget import Budget, Carry, Counts, Economics, Tariff, Trigger, decide
from refold.budget.economics import check_economics, count_removable
from refold.config import CompressionConfig
from refold.manager.session import OpenSession
from refold.tokens.models import ModelInfo

BRAKE = "brake"
FORCED = "forced"
REPORTED = "reported"
# Why the next request is compressed after a provider's overflow error; that recovery depends on no other model.
REFUSED = "the provider refused the last request as too long"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to compress now. ``note`` tells a user why not, or why in spite of a switch."""

    trigger: Trigger
    acts: bool
    note: str = ""
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Brake:
    """How many compressions in a row did not help, with which model, and what the last one said."""

    misses: int = 0
    model: str = ""
    why: str = ""

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Brake:
        """Return the brake of a session; released if there is none, or none that can be read."""
        stored = settings.get(BRAKE)
        if not isinstance(stored, Mapping) or not isinstance(stored.get("misses"), int):
            return cls()
        return cls(stored["misses"], str(stored.get("model", "")), str(stored.get("why", "")))

    def to_settings(self) -> dict[str, object] | None:
        """Return what is stored; None takes the setting away."""
        return {"misses": self.misses, "model": self.model, "why": self.why} if self.misses else None

    def is_on(self, model: str, attempts_max: int) -> bool:
        """Tell whether automatic compressions are stopped for this model."""
        return self.misses >= attempts_max and self.model == model

    def missed(self, model: str, why: str) -> Brake:
        """Return the brake after one more compression that did not help."""
        return Brake(self.misses + 1 if self.model == model else 1, model, why)


@dataclass(frozen=True, slots=True)
class Reported:
    """What a provider said of one request: its input tokens, what we had counted, and the edits it was made under."""

    model: str
    input_tokens: int
    counted_tokens: int
    marker: str

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Reported | None:
        """Return the last report of a session, if there is one that can be read."""
        stored = settings.get(REPORTED)
        if not isinstance(stored, Mapping):
            return None
        figures = stored.get("input_tokens"), stored.get("counted_tokens")
        if not all(isinstance(figure, int) for figure in figures):
            return None
        return cls(
            str(stored.get("model", "")),
            stored["input_tokens"],
            stored["counted_tokens"],
            str(stored.get("marker", "")),
        )

    def to_settings(self) -> dict[str, object]:
        """Return what is stored."""
        return {
            "model": self.model,
            "input_tokens": self.input_tokens,
            "counted_tokens": self.counted_tokens,
            "marker": self.marker,
        }

    def count_now(self, session: OpenSession, model: str, tokens: int) -> int | None:
        """Return the provider's figure for the view (S3.4): that of the request, and our count of what came since.

        Only a request that was sent after the last compression says anything about the view as it is now.
        """
        if self.model != model or self.marker != session.marker:
            return None
        return max(0, self.input_tokens + tokens - self.counted_tokens)


def is_refused(session: OpenSession) -> bool:
    """Tell whether the provider refused the last request as too long, and nothing was compressed since."""
    return session.row.settings.get(FORCED) == REFUSED


def decide_plain(session: OpenSession, config: CompressionConfig, budget: Budget, tokens: int) -> Trigger:
    """Return the trigger that the view's own size fires."""
    return decide(
        Counts(tokens, len(session.items), session.turns), above_fixed(session, budget, tokens), config.thresholds()
    )


def above_fixed(session: OpenSession, budget: Budget, tokens: int) -> Budget:
    """Return the tiers above what no compression can take away: system prompt, tools, leading system messages."""
    fixed = tokens - session.item_tokens
    for item in session.items:
        if item.is_fold or item.role != "system":
            break
        fixed += item.tokens
    return budget.above(fixed)


def decide_now(
    session: OpenSession,
    config: CompressionConfig,
    budget: Budget,
    *,
    tokens: int,
    model: str,
    reported_tokens: int | None,
    economics: Economics | None = None,
    head_tokens: int = 0,
) -> Decision:
    """Say whether a trigger fires and whether anything holds it back. *hard* is never held back (L1)."""
    counts = Counts(tokens, len(session.items), session.turns, reported_tokens)
    trigger = decide(counts, budget, config.thresholds())
    forced = session.row.settings.get(FORCED)
    if isinstance(forced, str) and forced and trigger.strength != "hard":
        trigger = Trigger("soft", forced, True)
    if not trigger.acts and economics is not None:
        economic = check_economics(tokens, head_tokens, budget, economics)
        trigger = economic if economic.acts or trigger.strength == "none" else trigger
    if not trigger.acts:
        return Decision(trigger, False, trigger.reason)
    if trigger.strength == "hard":
        note = "" if config.is_auto else f"automatic compression is off, but {trigger.reason}: it had to be done"
        return Decision(trigger, True, note)
    if not config.is_auto:
        return Decision(trigger, False, f"automatic compression is off: {trigger.reason}", True)
    brake = Brake.read(session.row.settings)
    if brake.is_on(model, config.max_compaction_attempts):
        return Decision(
            trigger,
            False,
            f"automatic compression has stopped: {brake.misses} in a row did not help ({brake.why}); compress by hand, "
            "use another model or change the settings to start it again",
            True,
        )
    return Decision(trigger, True)


def make_economics(config: CompressionConfig, info: ModelInfo, carry: Carry) -> Economics | None:
    """Return what the economic trigger needs, if it is switched on."""
    return Economics(Tariff.of_model(info), carry, share_min=config.economic_ratio) if config.economic else None


def advance_carry(carry: Carry, tokens: int, budget: Budget) -> Carry:
    """Return the carry after a request that changed nothing."""
    return carry.advance(tokens, count_removable(tokens, budget, carry))
