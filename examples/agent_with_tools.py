"""An agent with two plain functions as tools, in a window far too small for all that they return.

It folds a few times, each time deeply, and in between every request repeats the one before it byte for byte: a provider
reads that part from its cache, at a tenth of the price. Run it anywhere: ``python examples/agent_with_tools.py``. The
provider is a scripted one on this machine; in your own program, ``Agent(model="gpt-4o", key=…)`` is all that changes.
It needs the extra ``llm``.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from itertools import pairwise

from refold import CompressionConfig, ContextCompressionManager
from refold.agent import Agent
from refold.agent.events import Compressed, Finished
from refold.testing import RecordedRequest, ScriptedProvider, call_tool, say

WINDOW = 24_000


def read_log(day: int) -> str:
    """Read the log of a day.

    Args:
        day: of this month
    """
    return "\n".join(f"day {day:02d} line {line}: request took {line % 90} ms" for line in range(90))


def count_errors(day: int) -> int:
    """Count the errors of a day.

    Args:
        day: of this month
    """
    return 3 if day == 7 else 0


def count_kept(requests: Sequence[RecordedRequest]) -> int:
    """Count the requests that begin with the whole request before them."""
    return sum(new.messages[: len(old.messages)] == old.messages for old, new in pairwise(requests))


async def main() -> None:
    script = [call_tool("read_log", {"day": day}) for day in range(1, 31)]
    script += [call_tool("count_errors", {"day": 7}), say("Day 7 had three errors.")]
    with ScriptedProvider(script, window=WINDOW) as provider:
        # By default the agent's own model writes the summaries; this one only knows its script.
        config = CompressionConfig(window=WINDOW, summariser="extract")
        manager = ContextCompressionManager(config, tempfile.mkdtemp())
        agent = Agent(model="scripted-1", base_url=provider.openai_url, tools=[read_log, count_errors], manager=manager)
        async for event in agent.run("Which day had errors?"):
            if isinstance(event, Compressed):
                print(f"folded: {event.tokens_before:,} -> {event.tokens_after:,} tokens")
            elif isinstance(event, Finished):
                print("answer:", event.text)
        kept, count = count_kept(provider.requests), len(provider.requests)
        print(f"{kept} of {count - 1} requests repeat the one before them: the prefix is stable")
        manager.close()


if __name__ == "__main__":
    asyncio.run(main())
