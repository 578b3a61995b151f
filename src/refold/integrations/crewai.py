"""CrewAI: an LLM whose calls fit their window, for agents, crews and flows.

    llm = wrap_llm(LLM(model="gpt-4o"), workspace="work")
    agent = Agent(role=…, goal=…, backstory=…, llm=llm)

Without ``session`` every task of every agent is a session. CrewAI's hooks change the agent's own messages, and see no
refused request; the LLM gets a copy that fits, and the agent keeps its history.
"""

from __future__ import annotations

import copy
import json
import types
from collections.abc import Callable
from typing import Any

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.manager.flow import run_blocking

try:
    from crewai import BaseLLM
    from crewai.tools.base_tool import Tool
    from crewai.utilities.agent_utils import extract_tool_call_info
except ImportError as error:
    raise ConfigError(f"wrap_llm needs crewai 1.15.20 or newer ({error})") from error


class RefoldCalls:
    """The calls of an LLM, which send requests that fit and store every answer."""

    # No annotations here: Pydantic would take them for fields of the LLM.
    __slots__ = ()

    def call(self: Any, messages: Any, *rest: Any, **options: Any) -> Any:
        """Return the model's answer."""
        send: Any = super().call  # type: ignore[misc]
        session = self.session_for(options.get("from_agent"), options.get("from_task"))
        before = self.get_token_usage_summary()
        answer = session.call(
            lambda prepared: send(list(prepared.messages), *rest, **options),
            **_read_request(self, messages, rest, options),
        )
        session.commit(_read_answer(answer, options), _read_usage(before, self.get_token_usage_summary()))
        return answer

    async def acall(self: Any, messages: Any, *rest: Any, **options: Any) -> Any:
        """The same as ``call``, for callers with an event loop."""
        send: Any = super().acall  # type: ignore[misc]
        session = self.session_for(options.get("from_agent"), options.get("from_task"))
        before = self.get_token_usage_summary()
        answer = await session.call_async(
            lambda prepared: send(list(prepared.messages), *rest, **options),
            **_read_request(self, messages, rest, options),
        )
        await session.commit_async(_read_answer(answer, options), _read_usage(before, self.get_token_usage_summary()))
        return answer

    def is_context_window_overflowing_threshold(self, *_: Any, **__: Any) -> bool:
        """Return False: requests always fit, so CrewAI has nothing to summarise."""
        return False

    def is_tool_result_overflowing_threshold(self, *_: Any, **__: Any) -> tuple[bool, int]:
        """Return False: a large result is stored whole and shortened in the request, not put into a file."""
        return False, 0


def wrap_llm(llm: Any, session: str | Callable[[Any, Any], str] | None = None, **options: Any) -> Any:
    """Return a copy of an LLM whose calls fit their window.

    ``session`` is a name, or a function of the agent and the task that call. ``llm.refold`` is the session that was
    named, ``llm.session_for(agent, task)`` that of a task: undo, recall, tools.
    """
    if not isinstance(llm, BaseLLM):
        raise ConfigError(f"wrap_llm takes an LLM of CrewAI, not {type(llm).__name__}")
    opened = open_session(session if isinstance(session, str) else "unnamed", format="openai-chat", **options)

    def find_session(_: Any, agent: Any = None, task: Any = None) -> Any:
        name = session(agent, task) if callable(session) else session or _name_session(agent, task)
        return opened.named(name)

    kind, wrapped = type(llm), copy.copy(llm)
    own = {"refold": property(lambda _: opened), "session_for": find_session, "__module__": __name__}
    fitted = types.new_class(f"Refold{kind.__name__}", (RefoldCalls, kind), exec_body=lambda body: body.update(own))
    object.__setattr__(wrapped, "__class__", fitted)
    return wrapped


def make_tool(tool: Any) -> Tool:
    """Return a context tool as a tool of CrewAI."""
    return Tool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.arguments,
        func=lambda **arguments: run_blocking(lambda: tool.run(**arguments)),
    )


def _name_session(agent: Any, task: Any) -> str:
    ids = [str(one.id) for one in (task, agent) if getattr(one, "id", None)]
    if not ids:
        raise ConfigError("name the session: wrap_llm(llm, session=…); this call belongs to no agent and no task")
    return "-".join(ids)


def _read_request(llm: Any, messages: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    tools = rest[0] if rest else options.get("tools")
    model = str(llm.model)
    return {"messages": said, "tools": tools or None, "model": model.partition("/")[2] or model}


def _read_answer(answer: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the message that an agent will add for an answer; nothing where the LLM ran the tool itself."""
    if options.get("available_functions"):
        return []
    if isinstance(answer, list):
        found = [info for call in answer if (info := extract_tool_call_info(call))]
        calls = [
            {"id": name, "type": "function",
             "function": {"name": function, "arguments": given if isinstance(given, str) else json.dumps(given)}}
            for name, function, given in found
        ]  # fmt: skip
        return [{"role": "assistant", "content": None, "tool_calls": calls}] if calls else []
    text = answer.model_dump_json() if hasattr(answer, "model_dump_json") else str(answer)
    return [{"role": "assistant", "content": text}] if text else []


def _read_usage(before: Any, after: Any) -> dict[str, Any] | None:
    prompt, cached = (
        getattr(after, name) - getattr(before, name) for name in ("prompt_tokens", "cached_prompt_tokens")
    )
    if prompt <= 0:
        return None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": after.completion_tokens - before.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": max(0, cached)},
    }
