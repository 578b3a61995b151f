"""An agent loop over any model and any tools that never overflows the context window.

agent = Agent(model, tools=[read_file], manager=manager)
async for event in agent.run("fix the failing test"): ...

Names are imported on first use: the file search runs in a process that needs none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.agent.events import AgentEvent
    from refold.agent.loop import Agent
    from refold.agent.tools import AgentLimits, Tool, make_tool

__all__ = ["Agent", "AgentEvent", "AgentLimits", "Tool", "make_tool"]

_HOMES = {"Agent": "loop", "AgentEvent": "events", "AgentLimits": "tools", "Tool": "tools", "make_tool": "tools"}

if not TYPE_CHECKING:  # Otherwise a type checker would accept any name.

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted(__all__)
