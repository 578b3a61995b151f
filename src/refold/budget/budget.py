"""Budgets: how large a prepared context may be, and the tiers at which we act.

A budget is a frozen value, computed from a window or given as one number. System prompt and tools count
within it. Nothing here looks at a conversation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from refold.conversation.message import frozen
from refold.errors import ConfigError

# Up to this room a limit in tokens holds as it is.
SCALE_ROOM = 80_000


@frozen
class Budget:
    """Tiers in tokens: warn at *warn*, compress at *soft*, never exceed *hard*, and compress down to *target*.

    ``is_of_room``: the tiers are shares of what the system prompt and the tools leave of the room, see ``above``.
    ``is_ruled``: a count rule (keep N messages) decides, not the token target; it applies to new messages, too.
    ``spacing``: tokens that a fold has to remove if a rule keeps more than the target, see ``spaced``.
    """

    hard: int
    soft: int
    warn: int
    target: int
    window: int
    is_of_room: bool = False
    is_ruled: bool = False
    spacing: int = 0

    def __post_init__(self) -> None:
        if self.hard < 1:
            raise ConfigError("the budget is {hard} tokens; give a positive number", hard=self.hard)
        if not 0 < self.target <= self.soft <= self.hard:
            raise ConfigError(
                "budget tiers must rise: target {target} <= soft {soft} <= hard {hard}; lower "
                "target_ratio or raise trigger_ratio",
                target=self.target,
                soft=self.soft,
                hard=self.hard,
            )

    def above(self, fixed_tokens: int) -> Budget:
        """Return the budget with its tiers above the tokens that no compression can remove: system prompt, tools."""
        if not self.is_of_room or fixed_tokens <= 0 or fixed_tokens >= self.hard:
            return self
        room = self.hard - fixed_tokens
        soft, warn, target = [fixed_tokens + tier * room // self.hard for tier in (self.soft, self.warn, self.target)]
        return Budget(self.hard, soft, warn, target, self.window)

    def spaced(self, kept_tokens: int) -> Budget:
        """Return the budget with *soft* so far above what a rule keeps that a fold takes ``spacing`` tokens (S4.5).

        Otherwise every turn would fold one turn: what a rule keeps is above the target, so no fold could reach it.
        """
        if not self.spacing or kept_tokens <= self.target:
            return self
        return replace(self, soft=max(self.soft, min(self.hard, kept_tokens + self.spacing)))


def read_tokens(value: object, name: str = "budget") -> int:
    """Return a number of tokens, which may be written: 8000, "8,000", "8k", "0.2M"."""
    if isinstance(value, str):
        bare = value.strip().lower().replace(",", "").replace("_", "")
        found = re.fullmatch(r"(-?[0-9]{1,60})(?:(\.[0-9]{1,60})?([km]))?", bare)
        if found is None:
            raise ConfigError(
                "{name} is {value!r}; write a number of tokens as 8000, 8,000 or 8k", name=name, value=value[:40]
            )
        factor = {"k": 1_000, "m": 1_000_000}.get(found[3] or "", 1)
        return int(found[1]) * factor + round(float(found[2] or 0) * factor)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError("{name} must be a whole number of tokens, not {kind}", name=name, kind=type(value).__name__)
    return value


def flat_budget(tokens: int) -> Budget:
    """Return the budget of a caller who names one number: soft = hard = target."""
    if not 1 <= tokens <= 1_000_000_000:
        raise ConfigError("budget is {tokens} tokens; give a number between 1 and 1,000,000,000", tokens=tokens)
    return Budget(hard=tokens, soft=tokens, warn=tokens, target=tokens, window=tokens)


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers as shares of the room (window less output reserve); ``target_tokens`` limits the target in tokens."""

    warn: float = 0.8
    soft: float = 0.9
    target: float = 0.45
    target_tokens: int | None = None


def window_budget(window: int, reserve: int, tiers: Tiers, *, margin: float = 0.0) -> Budget:
    """Return the tiers of a model's window; ``margin`` is by how much the counter may undercount."""
    if reserve < 0 or reserve >= window:
        raise ConfigError(
            "reserve is {reserve} but the window is {window}; lower reserve or set window",
            reserve=reserve,
            window=window,
        )
    hard = max(1, int((window - reserve) / (1.0 + margin)))
    soft = min(hard, max(1, int(hard * tiers.soft)))
    target = min(soft, max(1, int(hard * tiers.target)))
    if tiers.target_tokens is not None:
        # A limit in tokens grows with the room above 80,000, to twice as many at most.
        target = min(target, int(tiers.target_tokens * min(2.0, max(1.0, hard / SCALE_ROOM))))
    return Budget(
        hard=hard,
        soft=soft,
        warn=min(soft, max(1, int(hard * tiers.warn))),
        target=target,
        window=window,
    )
