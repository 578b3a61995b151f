"""Drivers for the contract of integrations: loops on the providers' SDKs with a wrapped client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import anthropic
import openai

import refold
from refold.testing.integration import AgentSetup
from tests.integrations.gathering import gather_chat

SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
ABOUT = "Read one sensor."


class ChatAgent:
    """A loop on chat completions. It keeps the SDK's own objects in its history."""

    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[Any] = list(setup.saved or [])
        self.is_async = setup.mode.startswith("async")
        kind = openai.AsyncOpenAI if self.is_async else openai.OpenAI
        self.plain = kind(base_url=setup.url, api_key="any", max_retries=0)
        self.client = self.wrap(self.plain)
        self.functions = {tool.__name__: tool for tool in setup.tools}
        self.tools = [
            {"type": "function", "function": {"name": name, "description": ABOUT, "parameters": SCHEMA}}
            for name in self.functions
        ]
        self.tools += self.client.refold.tools("openai") if setup.has_context_tools else []

    def wrap(self, client: Any) -> Any:
        setup = self.setup
        settings = {"window": setup.window, "reserve": setup.reserve}
        return refold.wrap(client, session=setup.session, workspace=setup.workspace, **settings)

    def close(self) -> Any:
        self.client.refold.manager.close()
        return self.plain.close()

    def save(self) -> Any:
        return self.history

    def load_view(self, messages: list[Any]) -> None:
        self.history = list(messages)

    def run(self, text: str, image: str = "") -> Any:
        self.history.append(self.write_user(text, image))
        return self.run_async() if self.is_async else self.run_now()

    def run_now(self) -> str:
        while True:
            reply = self.ask()
            answered = self.take(reply.__enter__() if hasattr(reply, "__enter__") else reply)
            if answered is not None:
                return answered

    async def run_async(self) -> str:
        while True:
            reply = await self.ask()
            if "stream" in self.setup.mode:
                reply = [event async for event in reply]
            answered = self.take(reply)
            if answered is not None:
                return answered

    def call(self, name: str, arguments: str) -> str:
        if name in self.functions:
            return self.functions[name](**json.loads(arguments))
        return self.client.refold.run_tool(name, arguments)

    def write_user(self, text: str, image: str) -> Any:
        parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
        return {
            "role": "user",
            "content": parts if image else text,
            **({"name": "T-42"} if self.setup.metadata else {}),
        }

    def read_metadata(self, messages: list[Any]) -> list[Mapping[str, Any]]:
        return [{"ticket": message.get("name")} for message in messages]

    def ask(self) -> Any:
        return self.client.chat.completions.create(
            model=self.setup.model,
            messages=self.history,
            tools=self.tools,
            max_tokens=500,
            stream="stream" in self.setup.mode,
        )

    def take(self, reply: Any) -> str | None:
        message = reply.choices[0].message if hasattr(reply, "choices") else gather_chat(reply)
        self.history.append(message)
        calls = message.tool_calls if hasattr(message, "tool_calls") else message.get("tool_calls")
        for call in calls or ():
            spoken = call if isinstance(call, dict) else call.model_dump()
            text = self.call(spoken["function"]["name"], spoken["function"]["arguments"])
            self.history.append({"role": "tool", "tool_call_id": spoken["id"], "content": text})
        if calls:
            return None
        return message.content if hasattr(message, "content") else message["content"]


class ChatDriver:
    """``refold.wrap`` on OpenAI's chat completions."""

    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return ChatAgent(setup)


class ClaudeAgent(ChatAgent):
    """A loop on Anthropic's messages; its history holds the SDK's blocks."""

    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history = list(setup.saved or [])
        self.is_async = setup.mode.startswith("async")
        kind = anthropic.AsyncAnthropic if self.is_async else anthropic.Anthropic
        self.plain = kind(base_url=setup.url, api_key="any", max_retries=0)
        self.client = self.wrap(self.plain)
        self.functions = {tool.__name__: tool for tool in setup.tools}
        self.tools = [{"name": name, "description": ABOUT, "input_schema": SCHEMA} for name in self.functions]
        self.tools += self.client.refold.tools("anthropic") if setup.has_context_tools else []

    def write_user(self, text: str, image: str) -> Any:
        source = {"type": "base64", "media_type": "image/png", "data": image.partition(",")[2]}
        parts = [{"type": "text", "text": text}, {"type": "image", "source": source}]
        return {"role": "user", "content": parts if image else text}

    def ask(self) -> Any:
        return self.client.messages.create(
            model=self.setup.model,
            messages=self.history,
            tools=self.tools,
            max_tokens=500,
            stream="stream" in self.setup.mode,
        )

    def take(self, reply: Any) -> str | None:
        content = reply.content if hasattr(reply, "content") else gather_claude(reply)
        self.history.append({"role": "assistant", "content": content})
        blocks = [block if isinstance(block, dict) else block.model_dump() for block in content]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block["id"],
                "content": self.call(block["name"], json.dumps(block["input"])),
            }
            for block in blocks
            if block["type"] == "tool_use"
        ]
        if results:
            self.history.append({"role": "user", "content": results})
            return None
        return "".join(block["text"] for block in blocks if block["type"] == "text")


def gather_claude(events: Any) -> list[dict[str, Any]]:
    """Return the blocks of a streamed answer, as an application puts them together."""
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.type == "content_block_start":
            blocks[event.index] = event.content_block.model_dump(exclude_none=True)
        elif event.type == "content_block_delta":
            delta, block = event.delta, blocks[event.index]
            if delta.type == "text_delta":
                block["text"] += delta.text
            elif delta.type == "input_json_delta":
                block["written"] = block.get("written", "") + delta.partial_json
    for block in blocks.values():
        if "written" in block:
            block["input"] = json.loads(block.pop("written"))
    return list(blocks.values())


class ClaudeDriver:
    """``refold.wrap`` on Anthropic's messages."""

    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {
        "metadata": "a message of this interface has no field for any",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return ClaudeAgent(setup)


class ResponsesAgent(ChatAgent):
    """A loop on OpenAI's Responses; its history holds the SDK's items."""

    def __init__(self, setup: AgentSetup) -> None:
        super().__init__(setup)
        self.tools = [
            {"type": "function", "name": name, "description": ABOUT, "parameters": SCHEMA, "strict": False}
            for name in self.functions
        ]
        self.tools += self.client.refold.tools("responses") if setup.has_context_tools else []

    def write_user(self, text: str, image: str) -> Any:
        parts = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": image, "detail": "auto"}]
        return {"role": "user", "content": parts if image else text}

    def ask(self) -> Any:
        return self.client.responses.create(
            model=self.setup.model,
            input=self.history,
            tools=self.tools,
            max_output_tokens=500,
            store=False,
            stream="stream" in self.setup.mode,
        )

    def take(self, reply: Any) -> str | None:
        whole = reply if hasattr(reply, "output") else next(e.response for e in reply if e.type == "response.completed")
        self.history += whole.output
        calls = [item for item in whole.output if item.type == "function_call"]
        for call in calls:
            text = self.call(call.name, call.arguments)
            self.history.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
        return None if calls else whole.output_text


class ResponsesDriver:
    """``refold.wrap`` on OpenAI's Responses."""

    wire = "openai-responses"
    unsupported: ClassVar[Mapping[str, str]] = {
        "metadata": "an item of this interface has no field for any",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return ResponsesAgent(setup)
