"""Agents: a loop over any model and any tools that never runs out of window; clients load when a model is asked.

agent = Agent(model, tools=[read_file], manager=manager)
async for event in agent.run("fix the failing test"): ...

Each name is loaded when it is first used: the search of files runs in a process that wants none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.agent.events import AgentEvent
    from refold.agent.limits import AgentLimits
    from refold.agent.loop import Agent
    from refold.agent.tools import Tool, make_tool

__all__ = ["Agent", "AgentEvent", "AgentLimits", "Tool", "make_tool"]

_HOMES = {"Agent": "loop", "AgentEvent": "events", "AgentLimits": "limits", "Tool": "tools", "make_tool": "tools"}

if not TYPE_CHECKING:  # Else a type checker would accept any name at all.

    def __getattr__(name: str) -> object:
        """Load a public name from its module the first time it is asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted(__all__)
