"""Plain Python functions as tools: type hints become the schema, the docstring the description.

Arguments are validated and converted before the call; an error message tells the model what to correct. The calls
themselves are made in ``runner``.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from refold.errors import ConfigError
from refold.llm.port import clean_text

ARGUMENT_CHARS_MAX = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARGUMENT_LINE = re.compile(r"^\s*+(?:``)?(\w++)(?:``)?\s*+(?:\([^)]*+\)\s*+)?:\s*+(\S.*)$")


class ArgumentError(ValueError):
    """A call's arguments are invalid; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. ``asks``: the user must approve. ``timeout_s`` overrides the run's limit."""

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Callable[..., Any] = field(repr=False)
    arguments: type[BaseModel] = field(repr=False)
    asks: bool = False
    timeout_s: float | None = None

    def read_arguments(self, written: str) -> dict[str, Any]:
        """Return a call's validated arguments; raise ArgumentError if they are invalid."""
        if len(written) > ARGUMENT_CHARS_MAX:
            raise ArgumentError(f"the arguments have {len(written):,} characters; {ARGUMENT_CHARS_MAX:,} are the limit")
        try:
            given = json.loads(written) if written.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"the arguments are not valid JSON ({error}); send one JSON object") from None
        if not isinstance(given, dict):
            raise ArgumentError(f"the arguments must be one JSON object, not {type(given).__name__}")
        try:
            checked = self.arguments.model_validate(given)
        except ValidationError as error:
            raise ArgumentError(_describe_problems(error, self.schema)) from None
        return {name: getattr(checked, name) for name in type(checked).model_fields}

    async def run(self, **arguments: Any) -> str:
        """Call the tool, in a thread if it is not async, and return its result as text."""
        if inspect.iscoroutinefunction(self.call):
            return write_output(await self.call(**arguments))
        return write_output(await asyncio.to_thread(self.call, **arguments))


def make_tool(
    function: Callable[..., Any] | Tool, *, name: str = "", asks: bool = False, timeout_s: float | None = None
) -> Tool:
    """Return a function, sync or async, as a tool."""
    if isinstance(function, Tool):
        return function
    if not callable(function):
        raise ConfigError(f"a tool is a function with type hints, not {type(function).__name__}")
    called = name or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(called):
        raise ConfigError(f"a tool cannot be called {called[:80]!r}; use letters, digits, '_' and '-', 64 at most")
    documentation = inspect.getdoc(function) or ""
    model = _model_arguments(function, called, _read_argument_lines(documentation))
    schema = _drop_titles(model.model_json_schema())
    schema.pop("description", None)
    return Tool(called, _describe(documentation, called), schema, function, model, asks, timeout_s)


def make_tools(functions: Iterable[Callable[..., Any] | Tool]) -> dict[str, Tool]:
    """Return tools by name; raise ConfigError for a duplicate name."""
    tools: dict[str, Tool] = {}
    for function in functions:
        tool = make_tool(function)
        if tool.name in tools:
            raise ConfigError(f"two tools are called {tool.name!r}; rename one")
        tools[tool.name] = tool
    return tools


def _model_arguments(function: Callable[..., Any], name: str, lines: Mapping[str, str]) -> type[BaseModel]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(f"the type hints of tool {name!r} cannot be read: {error}") from None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"tool {name!r} takes {parameter}; a model can only give named arguments")
        hint = hints.get(parameter.name, Any)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, Field(default, description=lines.get(parameter.name)))
    try:
        return create_model(name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields)
    except Exception as error:  # noqa: BLE001 - pydantic has many ways to say that it cannot
        raise ConfigError(f"tool {name!r} has arguments that JSON cannot represent: {error}") from None


def _describe(documentation: str, name: str) -> str:
    """Return the part of a docstring before the list of arguments."""
    lines: list[str] = []
    for line in documentation.splitlines():
        if line.strip().lower() in ("args:", "arguments:", "parameters:", "returns:", "raises:"):
            break
        lines.append(line)
    return "\n".join(lines).strip() or name.replace("_", " ")


def _read_argument_lines(documentation: str) -> dict[str, str]:
    found: dict[str, str] = {}
    is_inside = False
    for line in documentation.splitlines():
        heading = line.strip().lower()
        if heading in ("args:", "arguments:", "parameters:"):
            is_inside = True
        elif heading in ("returns:", "raises:"):
            is_inside = False
        elif is_inside and (written := _ARGUMENT_LINE.match(line)):
            found[written[1]] = written[2].strip()
    return found


def _drop_titles(schema: Any) -> Any:
    """Return a schema without titles: they repeat the names, and every request pays for them."""
    if isinstance(schema, dict):
        return {
            key: (
                {name: _drop_titles(one) for name, one in value.items()}
                if key in ("properties", "$defs") and isinstance(value, dict)
                else _drop_titles(value)
            )
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_drop_titles(one) for one in schema] if isinstance(schema, list) else schema


def _describe_problems(error: ValidationError, schema: Mapping[str, Any]) -> str:
    problems = [
        f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False)[:5]
    ]
    takes = ", ".join(schema.get("properties", {})) or "nothing"
    return f"wrong arguments: {'; '.join(problems)}. The tool takes: {takes}."


def write_output(value: object) -> str:
    """Return a tool's result as text: a string unchanged, anything else as JSON if possible."""
    if isinstance(value, str):
        return clean_text(value) or "(no output)"
    if value is None:
        return "(no output)"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace") or "(no output)"
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return clean_text(str(value))
