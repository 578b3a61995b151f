"""What ``refold eval --ci`` demands of a compressor: shares between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass, fields

from refold.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """The least that must be retained, known (retained or recoverable) and answered; the most that may be wrong.

    ``mutated`` and ``stale`` are limits from above. Requests that do not fit or that a provider refuses always fail.
    """

    retained: float = 0.6
    known: float = 0.95
    mutated: float = 0.01
    stale: float = 0.02
    questions: float = 1.0

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if not 0 <= value <= 1:
                raise ConfigError("eval.{name} is {value}; give a share from 0 to 1", name=option.name, value=value)
