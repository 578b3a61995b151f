"""Options: the check that a stage's numbers make sense, made when the stage is made.

A wrong number is the operator's to mend: the error names the option, what it is, and what it may be.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from refold.errors import ConfigError


def check_options(stage: Any) -> None:
    """Raise ConfigError for a count below zero or a share that is not between 0 and 1."""
    for option in fields(stage):
        value = getattr(stage, option.name)
        if isinstance(value, bool | str):
            continue
        if isinstance(value, int) and value < 0:
            raise ConfigError(f"{stage.name}.{option.name} is {value}; give 0 or more")
        if isinstance(value, float) and not 0 <= value <= 1:
            raise ConfigError(f"{stage.name}.{option.name} is {value}; give a share between 0 and 1")
