"""Agents: a loop over any model and any tools that never runs out of window; clients load when a model is asked.

agent = Agent(model, tools=[read_file], manager=manager)
async for event in agent.run("fix the failing test"): ...
"""

from refold.agent.events import AgentEvent
from refold.agent.limits import AgentLimits
from refold.agent.loop import Agent
from refold.agent.tools import Tool, make_tool

__all__ = ["Agent", "AgentEvent", "AgentLimits", "Tool", "make_tool"]
