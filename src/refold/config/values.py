"""The kinds of value a setting has, and how each may be written.

A share is ``0.75`` or ``75%``; a switch is on or off; a count is a whole number within stated limits (L9). A wrong
value raises ValueError with a sentence; whoever knows the setting's name and place makes the ConfigError of it.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from refold.ledger.place import LedgerPlace

TOKENS_MAX = 1_000_000_000


def _refuse_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"give a number, not {'on' if value else 'off'}")
    if isinstance(value, str):
        # People write 64_000 and 64,000; the environment has only strings.
        return value.strip().replace(",", "").replace("_", "")
    return value


def _read_share(value: object) -> object:
    value = _refuse_switch(value)
    if isinstance(value, str) and value.endswith("%"):
        try:
            return float(value[:-1]) / 100
        except ValueError:
            raise ValueError("give a share such as 0.75 or 75%") from None
    return value


def _read_limit(value: object) -> object:
    """A share of the window, or tokens. 75 could be either, so neither is guessed."""
    read = _read_share(value)
    if isinstance(read, str):
        try:
            read = float(read)
        except ValueError:
            raise ValueError("give a share such as 0.75 or 75%, or a number of tokens") from None
    if isinstance(read, int | float) and 1 < read <= 100:
        raise ValueError(f"{read:g} could be tokens or percent; write 0.75 or 75% for a share, or tokens above 100")
    return read


def _refuse_set(value: object) -> object:
    if isinstance(value, set | frozenset):
        raise ValueError("give a list: a set has no order")
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_refuse_set)]
Count = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=0, le=TOKENS_MAX)]
Positive = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=1, le=TOKENS_MAX)]
Share = Annotated[float, BeforeValidator(_read_share), Field(gt=0, le=1)]
Score = Annotated[float, BeforeValidator(_read_share), Field(ge=0, le=1)]
Limit = Annotated[float, BeforeValidator(_read_limit), Field(gt=0, le=TOKENS_MAX)]
Attempts = Annotated[int, BeforeValidator(_refuse_switch), Field(ge=1, le=20)]
Seconds = Annotated[float, BeforeValidator(_refuse_switch), Field(gt=0, le=3_600)]
LanguageName = Literal["en", "zh"]
# An address may hold a password: it is a value that never prints one.
Place = Annotated[
    LedgerPlace | None,
    PlainValidator(lambda value: None if value is None else LedgerPlace(value), json_schema_input_type=str | None),
    PlainSerializer(str, when_used="unless-none"),
]


def is_share(hint: object) -> bool:
    """Tell whether a setting of this type is a share, or may be one."""
    return not {Share, Limit}.isdisjoint((hint, *get_args(hint)))


def write_share(value: float) -> str:
    """Return a share as people say it: 0.8 is ``80%``. A limit in tokens stays a number."""
    return f"{value * 100:.6g}%" if value <= 1 else f"{value:,g}"


def share_of(limit: float, window: int) -> float:
    """Return a limit as a share of the window, whichever way it was written."""
    return limit if limit <= 1 else min(1.0, limit / window)
