"""The callback and the functions for LiteLLM keep the contract of integrations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.testing.integration import CASES, AgentSetup, run_case
from tests.integrations.gathering import gather_chat
from tests.tokens.oracle import count_reference

pytest.importorskip("litellm", reason="needs litellm: make integrations")

import litellm

from refold.integrations import open_session
from refold.integrations.litellm import RefoldCallback, acompletion, completion

SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


class LiteLLMAgent:
    """A loop on LiteLLM's functions."""

    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.history: list[Any] = list(setup.saved or [])
        self.session = open_session(
            setup.session, workspace=setup.workspace, window=setup.window, reserve=setup.reserve, format="openai-chat"
        )
        self.tools: list[Any] = [
            {"type": "function", "function": {"name": tool.__name__, "description": "Read.", "parameters": SCHEMA}}
            for tool in setup.tools
        ]
        if setup.has_context_tools:
            self.tools += self.session.tools("openai")

    def request(self) -> dict[str, Any]:
        is_streamed = "stream" in self.setup.mode
        return {
            "model": f"openai/{self.setup.model}",
            "messages": list(self.history),
            "tools": self.tools,
            "max_tokens": 500,
            "api_base": self.setup.url,
            "api_key": "any",
            "num_retries": 0,
            **({"stream": True, "stream_options": {"include_usage": True}} if is_streamed else {}),
        }

    def ask(self, text: str, image: str) -> None:
        parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
        name = {"name": self.setup.metadata["ticket"]} if self.setup.metadata else {}
        self.history.append({"role": "user", "content": parts if image else text, **name})

    def run(self, text: str, image: str = "") -> Any:
        self.ask(text, image)
        return self.run_async() if self.setup.mode.startswith("async") else self.run_now()

    def run_now(self) -> str:
        while True:
            done = self.take(completion(refold=self.session, **self.request()))
            if done is not None:
                return done

    async def run_async(self) -> str:
        while True:
            answer = await acompletion(refold=self.session, **self.request())
            done = self.take([one async for one in answer] if "stream" in self.setup.mode else answer)
            if done is not None:
                return done

    def take(self, answer: Any) -> str | None:
        is_whole = hasattr(answer, "choices")
        message = answer.choices[0].message.model_dump(exclude_none=True) if is_whole else gather_chat(answer)
        self.history.append(message)
        calls = message.get("tool_calls") or []
        known = {tool.__name__: tool for tool in self.setup.tools}
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            text = known[name](**json.loads(arguments)) if name in known else self.session.run_tool(name, arguments)
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        return None if calls else str(message["content"])

    def save(self) -> Any:
        return self.history

    def load_view(self, messages: list[Any]) -> None:
        self.history = list(messages)

    def read_metadata(self, messages: list[Any]) -> list[Mapping[str, Any]]:
        return [{"ticket": message.get("name")} for message in messages]

    def close(self) -> None:
        self.session.manager.close()


class CallbackAgent(LiteLLMAgent):
    """A loop on ``litellm.acompletion`` itself, with the callback set."""

    def __init__(self, setup: AgentSetup) -> None:
        super().__init__(setup)
        self.callback = RefoldCallback(manager=self.session.manager, window=setup.window)

    async def run(self, text: str, image: str = "") -> Any:
        self.ask(text, image)
        while True:
            litellm.callbacks = [self.callback]
            answer = await litellm.acompletion(**self.request(), metadata={"session_id": self.setup.session})
            done = self.take([one async for one in answer] if "stream" in self.setup.mode else answer)
            if done is not None:
                await self.wait_for_log(done)
                return done

    async def wait_for_log(self, answer: str) -> None:
        """Let LiteLLM log the answer: an application's loop keeps running, this one ends with the turn."""
        for _ in range(400):
            if self.session.messages()[-1].get("content") == answer:
                return
            await asyncio.sleep(0.05)

    def close(self) -> None:
        litellm.callbacks = []
        # LiteLLM copies a callback into further lists when it first uses it.
        for name, value in vars(litellm).items():
            if name.endswith("_callback") and isinstance(value, list) and self.callback in value:
                value.remove(self.callback)
        super().close()


class LiteLLMDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return LiteLLMAgent(setup)


class CallbackDriver(LiteLLMDriver):
    unsupported: ClassVar[Mapping[str, str]] = {
        **LiteLLMDriver.unsupported,
        "sync": "LiteLLM calls no hook in its sync functions: use refold.integrations.litellm.completion",
        "stream": "LiteLLM calls no hook in its sync functions: use refold.integrations.litellm.completion",
        "overflow": "LiteLLM's hooks do not see a refused request: use refold.integrations.litellm.acompletion",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return CallbackAgent(setup)


@pytest.mark.parametrize("driver", [LiteLLMDriver, CallbackDriver], ids=["functions", "callback"])
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))
