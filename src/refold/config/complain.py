"""From pydantic's errors to sentences: which setting, where it was written, what it is, what to write instead.

It never shows a long value, and never more than the first thing that is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refold.config.layers import Merged
from refold.config.reading import show
from refold.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_ADVICE = {
    "int_parsing": "give a whole number",
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "int_parsing_size": "give a smaller number",
    "float_parsing": "give a number",
    "float_type": "give a number",
    "finite_number": "give a finite number",
    "bool_parsing": "give on or off",
    "bool_type": "give on or off",
    "string_type": "give text",
    "tuple_type": "give a list",
    "list_type": "give a list",
    "dict_type": "give a table",
}


def refuse_values(error: ValidationError, merged: Merged) -> ConfigError:
    """Return a ConfigError for the first value that is not what its setting takes."""
    wrong = error.errors(include_url=False)
    first = wrong[0]
    name = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
    name, given = _find_setting(name, merged)
    if name == "window":
        return ConfigError(
            f"{merged.where(name)}window is {show(given)}; give a number of tokens (1 or more), "
            "or a table of model and tokens"
        )
    return ConfigError(f"{merged.where(name)}{name} is {show(given)}; {_advise(first)}")


def _find_setting(path: str, merged: Merged) -> tuple[str, object]:
    """Return the setting that an error's path lies in: the longest flat name it begins with."""
    parts = path.split(".")
    for length in (2, 1):
        name = ".".join(parts[:length])
        if name in merged.values:
            return name, merged.values[name]
    return path, None


def _advise(wrong: ErrorDetails) -> str:
    context: dict[str, Any] = wrong.get("ctx") or {}
    kind = wrong["type"]
    if kind == "value_error":
        return str(context.get("error", wrong["msg"]))
    if kind == "literal_error":
        return f"give {context['expected']}"
    if kind == "greater_than_equal":
        return f"give {context['ge']:,} or more"
    if kind == "greater_than":
        return f"give more than {context['gt']:,}"
    if kind == "less_than_equal":
        return f"give {context['le']:,} or less"
    advice = _ADVICE.get(kind)
    return advice or wrong["msg"][:1].lower() + wrong["msg"][1:]
