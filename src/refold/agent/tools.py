"""Tools: plain Python functions, whose type hints become the schema, and the runner of their calls.

The docstring of a function is the tool's description. Arguments are validated and converted before the call; an error
message tells the model what to correct. The calls of one step run concurrently, each with a time-out and an output
limit. Every outcome, errors included, becomes a result for the model; no tool can end the run. A tool that never
returns is abandoned in a daemon thread.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from refold.agent.events import AgentEvent, ToolFinished, ToolStarted
from refold.conversation.reason import Language, detect_language
from refold.errors import ConfigError, RefoldError
from refold.formats.streamed import ToolCall
from refold.llm.port import ToolResult, clean_text
from refold.manager.flow import run_blocking

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

    def read_arguments(self, written: str | Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's validated arguments, given as JSON or parsed; raise ArgumentError if they are invalid."""
        if isinstance(written, str) and len(written) > ARGUMENT_CHARS_MAX:
            raise ArgumentError(f"the arguments have {len(written):,} characters; {ARGUMENT_CHARS_MAX:,} are the limit")
        try:
            given = dict(written) if isinstance(written, Mapping) else json.loads(written) if written.strip() else {}
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

    @property
    def function(self) -> Callable[..., Awaitable[str]]:
        """The tool as an async function with the names, types and description of its arguments."""

        @wraps(self.call)
        async def function(**arguments: Any) -> str:
            return await self.run(**arguments)

        return function

    def run_now(self, **arguments: Any) -> str:
        """Run the tool like ``run``, for callers without an event loop."""
        return str(run_blocking(lambda: self.run(**arguments)))


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
    description, lines = _read_documentation(inspect.getdoc(function) or "")
    model = _model_arguments(function, called, lines)
    schema = _drop_titles(model.model_json_schema())
    schema.pop("description", None)
    return Tool(called, description or called.replace("_", " "), schema, function, model, asks, timeout_s)


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
    except Exception as error:  # noqa: BLE001 - pydantic raises many types
        raise ConfigError(f"tool {name!r} has arguments that JSON cannot represent: {error}") from None


def _read_documentation(documentation: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's text before its first section, and the descriptions of the arguments."""
    text: list[str] = []
    arguments: dict[str, str] = {}
    section = ""
    for line in documentation.splitlines():
        heading = line.strip().lower()
        if heading in ("args:", "arguments:", "parameters:", "returns:", "raises:"):
            section = heading
        elif not section:
            text.append(line)
        elif section not in ("returns:", "raises:") and (written := _ARGUMENT_LINE.match(line)):
            arguments[written[1]] = written[2].strip()
    return "\n".join(text).strip(), arguments


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


Approve = Callable[[ToolCall, Tool], "bool | Awaitable[bool]"]
Emit = Callable[[AgentEvent], None]
INTERRUPTED = "[interrupted by the user: this call has no result, and may have run in part]"
_ERROR_CHARS_MAX = 2_000


@dataclass(frozen=True)
class Runner:
    """Runs calls against a set of tools."""

    tools: Mapping[str, Tool]
    limits: AgentLimits
    approve: Approve | None = None
    language: Language | None = None

    async def run_calls(self, calls: Sequence[ToolCall], emit: Emit, done: dict[str, ToolResult]) -> list[ToolResult]:
        """Return a result for each call, in order; ``done`` collects them and keeps them if this is cancelled."""
        gate = asyncio.Semaphore(self.limits.calls_at_once_max)

        async def run(number: int, call: ToolCall) -> None:
            async with gate:
                if number >= self.limits.calls_per_step_max:
                    text = f"not run: {self.limits.calls_per_step_max} calls in one step are the limit"
                    done[call.id] = ToolResult(call, text, True)
                    return
                emit(ToolStarted(call.id, call.name, call.arguments))
                tool, refusal = await self._admit(call)
                started = time.monotonic()  # The time for approval is not the tool's.
                whole, is_error = await self._run_one(call, tool) if tool is not None else (refusal, True)
                text = cut_output(whole, self.limits.tool_chars_max, self.language)
                done[call.id] = ToolResult(call, text, is_error)
                seconds = time.monotonic() - started
                emit(ToolFinished(call.id, call.name, text, is_error, seconds, len(whole)))

        async with asyncio.TaskGroup() as group:
            for number, call in enumerate(calls):
                group.create_task(run(number, call))
        return [done[call.id] for call in calls]

    async def _admit(self, call: ToolCall) -> tuple[Tool | None, str]:
        """Return the tool to run, or None and the message for the model."""
        tool = self.tools.get(call.name)
        if tool is None:
            near = get_close_matches(call.name, self.tools, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            return None, f"there is no tool {call.name[:80]!r}.{hint} Tools: {', '.join(self.tools) or 'none'}"
        try:
            tool.read_arguments(call.arguments)
        except ArgumentError as error:
            return None, str(error)
        if tool.asks and not await self._is_approved(call, tool):
            return None, "the user did not agree to this call; it was not run. Ask what to do instead."
        return tool, ""

    async def _run_one(self, call: ToolCall, tool: Tool) -> tuple[str, bool]:
        timeout = tool.timeout_s or self.limits.tool_timeout_s
        try:
            arguments = tool.read_arguments(call.arguments)
            return write_output(await _call_bounded(tool.call, arguments, timeout)), False
        except TimeoutError:
            return f"the tool did not return within {timeout:g} s and was abandoned", True
        except RefoldError as error:
            return str(error), True
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model sees it
            return f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX], True

    async def _is_approved(self, call: ToolCall, tool: Tool) -> bool:
        if self.approve is None:
            return False
        answer = self.approve(call, tool)
        return bool(await answer) if inspect.isawaitable(answer) else bool(answer)


async def _call_bounded(function: Callable[..., Any], arguments: dict[str, Any], timeout_s: float) -> object:
    """Return the tool's result or raise TimeoutError; a call that does not end is abandoned."""
    if inspect.iscoroutinefunction(function):
        task: asyncio.Future[Any] = asyncio.ensure_future(function(**arguments))
    else:
        task = _start_thread(function, arguments)
    try:
        finished, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not finished:
        # Not awaited: a tool that ignores its cancellation would block us forever.
        task.cancel()
        raise TimeoutError
    result = task.result()
    return await result if inspect.isawaitable(result) else result


def _start_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> asyncio.Future[Any]:
    """Run a function in its own daemon thread: a pool would wait for it at exit."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # From now on a cancellation is ignored: the thread cannot be stopped.

    def work() -> None:
        try:
            future.set_result(function(**arguments))
        except BaseException as error:  # noqa: BLE001 - handed over to the event loop
            # The event loop's futures cannot carry a StopIteration, and an exit would end the program.
            is_carried = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_carried else RuntimeError(f"{type(error).__name__}: {error}"))

    threading.Thread(target=work, name=f"refold-tool-{getattr(function, '__name__', '')}", daemon=True).start()
    return asyncio.wrap_future(future)


def cut_output(text: str, chars_max: int, language: Language | None = None) -> str:
    """Cut an output to its limit: head, a marker with the number of missing characters, tail.

    The marker is in the conversation's language, or the output's if that is unknown.
    """
    if len(text) <= chars_max:
        return text
    room = max(0, chars_max - 60)
    head, tail = room // 2, len(text) - (room - room // 2)
    # Cut at a line end if one is near.
    head = text.rfind("\n", max(0, head - 2_000), head) + 1 or head
    tail = text.find("\n", tail, min(len(text) - 1, tail + 2_000)) + 1 or tail
    is_chinese = (language or detect_language([text[:2_000] + text[-2_000:]])) == "zh"
    missing = tail - head
    marker = f"... [截断 {missing} 字符] ..." if is_chinese else f"... [truncated {missing} characters] ..."
    joint = "" if text[:head].endswith("\n") or not head else "\n"
    return f"{text[:head]}{joint}{marker}\n{text[tail:]}"
