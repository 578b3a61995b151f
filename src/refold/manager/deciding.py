"""When a session is compressed by itself: triggers, reported usage, economics, the brake (L9), the switch. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from refold.budget import Budget, Carry, Counts, Economics, Tariff, Trigger, decide
from refold.budget.economics import check_economics, count_removable
from refold.config import CompressionConfig
from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason, read_reason
from refold.ladder.plan import count_unsent
from refold.manager.session import FORCED, Brake, OpenSession
from refold.tokens.models import ModelInfo

# What releases the brake beside a new turn: so many messages, or such a share of the room.
RELEASE_MESSAGES = 10


RELEASE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to compress now. ``note`` tells a user why not, or why in spite of a switch."""

    trigger: Trigger
    acts: bool
    note: Reason = NO_REASON
    is_held: bool = False


def decide_plain(session: OpenSession, config: CompressionConfig, budget: Budget, tokens: int) -> Trigger:
    """Return the trigger that the view's own size fires."""
    counts = Counts(tokens, len(session.items), session.turns, spoken=session.spoken)
    return decide(counts, above_fixed(session, budget, tokens), config.thresholds())


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
    unsent = count_unsent(session.items, session.unsent)
    counts = Counts(tokens, len(session.items), session.turns, reported_tokens, unsent, session.spoken)
    trigger = decide(counts, budget, config.thresholds())
    forced = read_reason(session.row.settings.get(FORCED))
    if forced and trigger.strength != "hard":
        trigger = Trigger("soft", forced, True)
    if not trigger.acts and economics is not None:
        economic = check_economics(counts, head_tokens, budget, economics)
        trigger = economic if economic.acts or trigger.strength == "none" else trigger
    if not trigger.acts:
        return Decision(trigger, False, trigger.reason)
    if trigger.strength == "hard":
        note = NO_REASON if config.is_auto else because.HAD_TO(because=trigger.reason)
        return Decision(trigger, True, note)
    if not config.is_auto:
        return Decision(trigger, False, because.HELD_OFF(because=trigger.reason), True)
    brake = Brake.read(session.row.settings)
    if brake.is_on(model, config.max_compaction_attempts) and not is_released(brake, session, tokens, budget.hard):
        return Decision(trigger, False, because.BRAKED(misses=brake.misses, because=brake.why), True)
    return Decision(trigger, True)


def is_released(brake: Brake, session: OpenSession, tokens: int, hard: int) -> bool:
    """Tell whether enough came since the last compression that did not help for the next one to be worth a try (L9).

    A failed one is tried again with the next turn. One that worked but left its own trigger standing would do so
    again at once: it waits until the view has grown.
    """
    if brake.tokens:
        return tokens >= brake.tokens + RELEASE_SHARE * hard
    return len(session.ids) >= brake.messages + RELEASE_MESSAGES or session.has_turn_since(brake.messages)


def make_economics(config: CompressionConfig, info: ModelInfo, carry: Carry) -> Economics | None:
    """Return what the economic trigger needs, if it is switched on."""
    return Economics(Tariff.of_model(info), carry, share_min=config.economic_ratio) if config.economic else None


def advance_carry(carry: Carry, tokens: int, budget: Budget) -> Carry:
    """Return the carry after a request that changed nothing."""
    return carry.advance(tokens, count_removable(tokens, budget, carry))
