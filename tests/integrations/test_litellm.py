"""The callback and the functions for LiteLLM keep the contract of integrations."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.testing import ScriptedProvider
from refold.testing.integration import CASES, DONE, AgentSetup, Steps, run_case
from refold.testing.rig import has_record, read_sensor
from tests.integrations.gathering import gather_chat
from tests.rigs.oracle import count_reference

pytest.importorskip("litellm", reason="needs litellm: make integrations")

import httpx
import litellm
import openai

from refold import CompressionConfig, ContextCompressionManager
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


async def test_requests_without_a_session_name_are_recognised_by_their_messages(tmp_path: Path) -> None:
    callback = RefoldCallback(workspace=tmp_path, window=8_000, reserve=1_000)
    litellm.callbacks = [callback]
    histories: dict[str, list[Any]] = {"red": [], "blue": []}
    with ScriptedProvider(lambda request: f"Noted: {request.prompt[:20]}", window=8_000) as provider:
        for turn in range(20):
            for hall, history in histories.items():
                history.append({"role": "user", "content": f"The {hall} hall, {turn}: {read_sensor(turn)}"})
                answer = await litellm.acompletion(
                    model="openai/gpt-4o", messages=history, api_base=provider.openai_url, api_key="any"
                )
                history.append(answer.choices[0].message.model_dump(exclude_none=True))
        assert has_record(provider.requests[-1])
    litellm.callbacks = []
    stored = [str(callback.refold.named(row.id).messages()) for row in callback.manager.ledger.list_sessions()]
    assert len(stored) == 2
    assert sorted("The red hall" in text for text in stored) == [False, True]
    callback.manager.close()


SETTINGS = """model_list:
  - model_name: gpt-4o
    litellm_params: {{model: openai/gpt-4o, api_base: "{upstream.openai_url}", api_key: any}}
  - model_name: claude-sonnet-5-5
    litellm_params: {{model: anthropic/claude-sonnet-5-5, api_base: "{upstream.anthropic_url}", api_key: any}}
litellm_settings: {{callbacks: my_callbacks.handler}}
general_settings: {{master_key: sk-any}}
"""
HANDLER = """from refold.integrations.litellm import RefoldCallback
handler = RefoldCallback(workspace="work", window=8_000, reserve=1_000)
"""


@contextmanager
def run_proxy(folder: Path, upstream: ScriptedProvider) -> Iterator[str]:
    """Run LiteLLM's proxy with refold in it, and return its address."""
    (folder / "settings.yaml").write_text(SETTINGS.format(upstream=upstream))
    (folder / "my_callbacks.py").write_text(HANDLER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("litellm")), "--config", "settings.yaml", "--port", str(port)]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DISABLE_SCHEMA_UPDATE": "true"}
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [*command, "--host", "127.0.0.1"], cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/health/liveliness", timeout=2)
                break
            except httpx.HTTPError:
                assert running.poll() is None, (folder / "log").read_text()[-3_000:]
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


TOOL = {"name": "read_sensor", "description": "Read.", "parameters": SCHEMA}


def run_chat(client: openai.OpenAI, said: list[Any]) -> None:
    tools: Any = [{"type": "function", "function": TOOL}]
    while DONE not in str(said[-1]):
        answer = client.chat.completions.create(model="gpt-4o", messages=said, tools=tools, max_tokens=400)
        said.append(answer.choices[0].message.model_dump(exclude_none=True))
        for call in said[-1].get("tool_calls") or ():
            text = read_sensor(**json.loads(call["function"]["arguments"]))
            said.append({"role": "tool", "tool_call_id": call["id"], "content": text})


def run_responses(client: openai.OpenAI, said: list[Any]) -> None:
    tools: Any = [{"type": "function", **TOOL}]
    while DONE not in str(said[-1]):
        reply = client.responses.create(model="gpt-4o", input=said, tools=tools, max_output_tokens=400)
        said += [one.model_dump(exclude_none=True) for one in reply.output]
        for one in reply.output:
            if one.type == "function_call":
                text = read_sensor(**json.loads(one.arguments))
                said.append({"type": "function_call_output", "call_id": one.call_id, "output": text})


def run_messages(client: openai.OpenAI, said: list[Any]) -> None:
    tools = [{"name": "read_sensor", "description": "Read.", "input_schema": SCHEMA}]
    while DONE not in str(said[-1]):
        body = {"model": "claude-sonnet-5-5", "messages": said, "tools": tools, "max_tokens": 400}
        answer = httpx.post(f"{client.base_url}messages", json=body, headers=client.auth_headers, timeout=60)
        assert answer.status_code == 200, answer.text
        said.append({"role": "assistant", "content": answer.json()["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "content": read_sensor(**one["input"])}
            for one in answer.json()["content"]
            if one["type"] == "tool_use"
        ]
        said += [{"role": "user", "content": results}] if results else []


@pytest.mark.slow
@pytest.mark.skipif(find_spec("litellm_proxy_extras") is None, reason="needs litellm[proxy]: make integrations")
def test_nameless_clients_of_the_proxy_fit_on_all_three_wires(tmp_path: Path) -> None:
    runs = {"chat": run_chat, "responses": run_responses, "messages": run_messages}
    with ScriptedProvider(Steps(steps=20), window=8_000) as upstream, run_proxy(tmp_path, upstream) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-any", max_retries=0)
        for name, run in runs.items():
            run(client, [{"role": "user", "content": f"Read all sensors of the {name} hall."}])
            assert has_record(upstream.requests[-1]), f"{name}: nothing was folded"
    with ContextCompressionManager(CompressionConfig(), tmp_path / "work") as manager:
        stored = [str(manager.session(row.id).messages()) for row in manager.ledger.list_sessions()]
    for name in runs:
        assert sum(f"the {name} hall" in text for text in stored) == 1, f"{name}: one conversation is one session"
