"""The coding session: an agent fixes a billing bug of Quayline and adds retries for webhooks, in OpenAI chat format.

This file holds the agent's voice (messages, native tool calls, their results); what happens is in the two chapters
files. Two distinct calls share one id in one place, as real traces do, each directly before its own result.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.make_sessions import coding_agent_bug, coding_agent_feature
from examples.make_sessions.quayline_source import FILES
from examples.make_sessions.story import Story, write_body, write_facts
from examples.make_sessions.workshop import Workshop

SEED = 20251112
SYSTEM = """You are the coding agent of the Quayline team. You work in /home/dev/quayline, a berth-booking service.

How you work
- Read before you write. Keep changes small; one purpose per commit.
- Use the tools; you may call several at once when they do not depend on each other.
- Paths are relative to the repository's root. Commands run in a shell with a limit of 120 seconds.
- Say what you found before you change anything that bills people.
- When a user states a rule, it holds until they take it back."""


def describe_tool(name: str, description: str, /, **properties: str) -> dict[str, Any]:
    """A tool definition whose parameters are all required; a value names its JSON type and meaning."""
    fields = {}
    for key, text in properties.items():
        kind, meaning = text.split(": ", 1)
        fields[key] = {"type": kind, "description": meaning}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    describe_tool("read_file", "Read a file with line numbers.", path="string: path from the root"),
    describe_tool(
        "write_file", "Create or replace a file.", path="string: path from the root", content="string: the whole file"
    ),
    describe_tool(
        "edit_file",
        "Replace one exact occurrence of a text in a file.",
        path="string: path from the root",
        old_text="string: text that occurs once",
        new_text="string: what takes its place",
    ),
    describe_tool("search", "Search the repository with a regular expression.", pattern="string: the expression"),
    describe_tool("run_command", "Run a shell command.", command="string: the command line"),
    describe_tool("http_get", "GET a URL of the staging API with the agent's key.", url="string: the address"),
]

Call = tuple[str, dict[str, Any], str]


class CodingAgent(Story):
    """The story as the coding agent tells it."""

    def __init__(self) -> None:
        super().__init__(SEED)
        self.shop = Workshop(FILES)
        self.wrong: list[tuple[str, str]] = []
        self.wrong_invoice = ""
        self.add({"role": "system", "content": SYSTEM})

    def user(self, text: str) -> None:
        self.add({"role": "user", "content": text})

    def say(self, text: str) -> None:
        self.add({"role": "assistant", "content": text})

    def act(self, text: str | None, *calls: Call, call_id: str | None = None) -> None:
        """One assistant message with its calls, then one result per call, in order."""
        ids = [call_id or "call_" + self.draw(24) for _ in calls]
        self.add(
            {
                "role": "assistant",
                "content": text,
                "tool_calls": [
                    {
                        "id": identity,
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
                    }
                    for identity, (name, arguments, _) in zip(ids, calls, strict=True)
                ],
            }
        )
        for identity, (_, _, output) in zip(ids, calls, strict=True):
            self.add({"role": "tool", "tool_call_id": identity, "content": output})

    def read(self, path: str) -> Call:
        return ("read_file", {"path": path}, self.shop.read_file(path))

    def search(self, pattern: str) -> Call:
        return ("search", {"pattern": pattern}, self.shop.search(pattern))

    def write(self, path: str, content: str) -> Call:
        return ("write_file", {"path": path, "content": content}, self.shop.write_file(path, content))

    def edit(self, path: str, old: str, new: str) -> Call:
        arguments = {"path": path, "old_text": old, "new_text": new}
        return ("edit_file", arguments, self.shop.edit_file(path, old, new))

    def run(self, command: str, output: str) -> Call:
        return ("run_command", {"command": command}, output)

    def get(self, url: str, output: str) -> Call:
        return ("http_get", {"url": url}, output)

    def commit(self, branch: str, subject: str) -> tuple[str, Call]:
        """Commit all changes; returns the hash and the call."""
        digest, output = self.shop.commit(branch, subject)
        return digest, self.run(f'git add -A && git commit -m "{subject}"', output)


def write_session(folder: Path) -> None:
    """Write the session and its facts into ``folder``."""
    agent = CodingAgent()
    fix = coding_agent_bug.tell(agent)
    coding_agent_feature.tell(agent, fix)
    write_body(folder / "coding_agent.json", {"model": "gpt-5.2", "messages": agent.messages, "tools": TOOLS})
    write_facts(folder / "coding_agent.facts.json", agent.facts)
