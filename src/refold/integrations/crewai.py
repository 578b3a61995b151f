"""CrewAI: an LLM whose calls fit their window, for agents, crews and flows.

    llm = wrap_llm(LLM(model="gpt-4o"), workspace="work")
    agent = Agent(role=…, goal=…, backstory=…, llm=llm)

Without ``session`` every task of every agent is a session. CrewAI's hooks change the agent's own messages, and see no
refused request; the LLM gets a copy that fits, and the agent keeps its history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MethodAdapter, needs
from refold.integrations.parts import write_call
from refold.manager.managed import ManagedSession

with needs("wrap_llm", "crewai 1.15.20"):
    from crewai import BaseLLM
    from crewai.tools.base_tool import Tool
    from crewai.utilities.agent_utils import extract_tool_call_info

_FIGURES = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens")


class CrewAdapter(MethodAdapter):
    """Fits the calls of an LLM. Without a name, every task of every agent is a session."""

    methods: ClassVar = {"call": "call", "acall": "call_async"}
    base = BaseLLM
    # Requests always fit, so CrewAI has nothing to summarise, and large results need no file.
    more: ClassVar = {
        "is_context_window_overflowing_threshold": lambda *_, **__: False,
        "is_tool_result_overflowing_threshold": lambda *_, **__: (False, 0),
    }

    def find_name(self, agent: Any = None, task: Any = None) -> str:
        """Return the ids of the task and the agent."""
        return "-".join(str(one.id) for one in (task, agent) if getattr(one, "id", None))

    def find_session(self, options: Mapping[str, Any]) -> ManagedSession:
        return self.session_for(options.get("from_agent"), options.get("from_task"))

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply]:
        """Return a reader of answers; the usage of a call is the difference of the LLM's sums."""
        before = owner.get_token_usage_summary()

        def read(answer: Any) -> ModelReply:
            now = owner.get_token_usage_summary()
            used = {name: getattr(now, name) - getattr(before, name) for name in _FIGURES}
            return ModelReply(_read_answer(answer, options), used)

        return read


wrap_llm = CrewAdapter.wrap


def make_tool(tool: Any) -> Tool:
    """Return a context tool as a tool of CrewAI."""
    return Tool(name=tool.name, description=tool.description, args_schema=tool.arguments, func=tool.run_now)


def _read_answer(answer: Any, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the message that an agent will add for an answer; nothing where the LLM ran the tool itself."""
    if options.get("available_functions") or not answer:
        return []
    if not isinstance(answer, list):
        text = answer.model_dump_json() if hasattr(answer, "model_dump_json") else str(answer)
        return [{"role": "assistant", "content": text}]
    found = filter(None, map(extract_tool_call_info, answer))
    calls = [write_call(*call) for call in found]
    return [{"role": "assistant", "content": None, "tool_calls": calls}] if calls else []
