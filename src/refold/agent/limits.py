"""Limits of an agent run. Every loop in this package ends by one of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from refold.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Limits of one run. ``repeats_max`` identical steps in a row end it."""

    steps_max: int = 200
    calls_at_once_max: int = 8
    calls_per_step_max: int = 64
    tool_timeout_s: float = 120.0
    tool_chars_max: int = 1_000_000
    answer_chars_max: int = 2_000_000
    answer_stall_s: float = 300.0
    attempts_max: int = 3
    delay_s: float = 0.5
    delay_max_s: float = 20.0
    repeats_max: int = 6
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(f"{one.name} is {value!r}; give a number above 0")
