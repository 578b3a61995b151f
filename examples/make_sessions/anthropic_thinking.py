"""The incident session: an operations agent of an invented online grocer, as a body of the Anthropic messages API.

This file holds the voice: thinking blocks with signatures, tool use (also in parallel), results, one of them an
error, a document, a picture, marks for the cache. What happens is in ``anthropic_thinking_plot``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.make_sessions import anthropic_thinking_plot
from examples.make_sessions.story import Story, write_body, write_facts

SEED = 20260209
SYSTEM = """You are Beacon, the operations agent of Larkspur Grocers, an online grocer. You help the engineer on duty
through an incident: you read metrics, logs, changes and tables, you propose, and you act only when told.

- Numbers come from tools, never from memory. Say which query a number came from.
- Anything that moves money, restarts a service or pages a person needs a yes in this conversation.
- Keep the timeline: each finding with its time.
- Customer data stays in this conversation: order numbers are fine, names and cards are not."""
CACHED = {"type": "ephemeral"}


def describe_tool(name: str, description: str, /, **properties: str) -> dict[str, Any]:
    """A tool definition; every property is a required string."""
    fields = {key: {"type": "string", "description": text} for key, text in properties.items()}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"name": name, "description": description, "input_schema": schema}


TOOLS = [
    describe_tool("query_metrics", "Values of a metric, one per minute.", metric="its name", window="for example 90m"),
    describe_tool("search_logs", "Search the logs of a service.", service="its name", query="words or key=value"),
    describe_tool("list_changes", "Deploys and config changes.", since="UTC time"),
    describe_tool("get_config", "The rendered config of a service.", service="its name"),
    describe_tool("run_sql", "Run a read-only query on the replica.", query="SQL"),
    describe_tool("list_pods", "Pods of a service.", service="its name"),
    describe_tool("set_flag", "Set a feature flag. Needs approval.", flag="its name", value="new value"),
    describe_tool("create_refund_batch", "Draft a batch of reversals.", file="CSV of orders", reason="code"),
    describe_tool("post_update", "Post to the incident channel.", text="the update"),
    {**describe_tool("get_dashboard", "A picture of a dashboard.", name="its name"), "cache_control": CACHED},
]

Call = tuple[str, dict[str, Any], Any]


class Beacon(Story):
    """The story as the operations agent tells it."""

    def __init__(self) -> None:
        super().__init__(SEED)

    def user(self, text: str, *blocks: dict[str, Any]) -> None:
        """A person's message, with documents before the words."""
        self.add({"role": "user", "content": [*blocks, {"type": "text", "text": text}] if blocks else text})

    def think(self, text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": text, "signature": self.draw_base64(self.rng.randrange(280, 520))}

    def step(self, thought: str | None, text: str | None, *calls: Call, failed: tuple[int, ...] = ()) -> None:
        """One assistant message; when it calls tools, the message of their results follows."""
        content: list[dict[str, Any]] = []
        if thought == "redacted":
            content.append({"type": "redacted_thinking", "data": self.draw_base64(640)})
        elif thought:
            content.append(self.think(thought))
        if text:
            content.append({"type": "text", "text": text})
        results = []
        for number, (name, arguments, output) in enumerate(calls):
            identity = "toolu_01" + self.draw(22)
            content.append({"type": "tool_use", "id": identity, "name": name, "input": arguments})
            result = {"type": "tool_result", "tool_use_id": identity, "content": output}
            results.append({**result, "is_error": True} if number in failed else result)
        self.add({"role": "assistant", "content": content})
        if results:
            self.add({"role": "user", "content": results})


def write_session(folder: Path) -> None:
    """Write the session and its facts into ``folder``."""
    beacon = Beacon()
    anthropic_thinking_plot.tell(beacon)
    mark_newest(beacon)
    body = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 16000,
        "thinking": {"type": "enabled", "budget_tokens": 8000},
        "system": [{"type": "text", "text": SYSTEM, "cache_control": CACHED}],
        "tools": TOOLS,
        "messages": beacon.messages,
    }
    write_body(folder / "anthropic_thinking.json", body)
    write_facts(folder / "anthropic_thinking.facts.json", beacon.facts)


def mark_newest(beacon: Beacon) -> None:
    """Put cache marks where a client puts them: on the newest message and on the results before it."""
    newest = beacon.messages[-1]
    newest["content"] = [{"type": "text", "text": newest["content"], "cache_control": CACHED}]
    for message in reversed(beacon.messages[:-1]):
        last = message["content"][-1]
        if isinstance(last, dict) and last["type"] == "tool_result":
            last["cache_control"] = CACHED
            return
