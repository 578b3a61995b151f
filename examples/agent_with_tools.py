"""An agent with two plain functions as tools, in a window far too small for what they return.

Run it anywhere: ``python examples/agent_with_tools.py``. The provider is a scripted one on this machine; in your own
program, ``Agent(model="gpt-4o", key=…)`` is all that changes. It needs ``pip install 'refold[llm]'``.
"""

from __future__ import annotations

import asyncio
import tempfile

from refold import CompressionConfig, ContextCompressionManager
from refold.agent import Agent
from refold.testing import ScriptedProvider, call_tool, say


def read_log(day: int) -> str:
    """Read the log of a day.

    Args:
        day: of this month
    """
    return "\n".join(f"day {day:02d} line {line}: request took {line % 90} ms" for line in range(400))


def count_errors(day: int) -> int:
    """Count the errors of a day.

    Args:
        day: of this month
    """
    return 3 if day == 7 else 0


async def main() -> None:
    script = [call_tool("read_log", {"day": day}) for day in range(1, 11)]
    script += [call_tool("count_errors", {"day": 7}), say("Day 7 had three errors.")]
    with ScriptedProvider(script, window=12_000) as provider:
        # By default the agent's own model writes the summaries; this one only knows its script.
        config = CompressionConfig(window=12_000, summariser="extract")
        manager = ContextCompressionManager(config, tempfile.mkdtemp())
        agent = Agent(model="scripted-1", base_url=provider.openai_url, tools=[read_log, count_errors], manager=manager)
        async for event in agent.run("Which day had errors?"):
            if event.kind == "compacted":
                print("folded:", event)
            elif event.kind == "finished":
                print("answer:", event)
        manager.close()


if __name__ == "__main__":
    asyncio.run(main())
