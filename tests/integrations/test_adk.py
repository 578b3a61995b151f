"""The plugin for Google's ADK keeps the contract of integrations, with OpenAI's and with Anthropic's models."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.testing import ScriptedCall, ScriptedProvider, ScriptedReply
from refold.testing.integration import CASES, AgentSetup, run_case
from tests.rigs.oracle import count_reference

pytest.importorskip("google.adk.plugins", reason="needs google-adk: make integrations")
pytest.importorskip("litellm")

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from refold.integrations.adk import AdkCodec, RefoldPlugin


class AdkAgent:
    def __init__(self, setup: AgentSetup) -> None:
        self.setup = setup
        self.events: list[Event] = list(setup.saved or [])
        self.sent: list[types.Content] = []
        provider = "anthropic" if setup.wire == "anthropic" else "openai"
        model = LiteLlm(f"{provider}/{setup.model}", api_base=setup.url, api_key="any", max_tokens=500, num_retries=0)
        self.plugin = RefoldPlugin(
            setup.session,
            workspace=setup.workspace,
            context_tools=setup.has_context_tools,
            window=setup.window,
            reserve=setup.reserve,
        )
        agent = LlmAgent(name="reader", model=model, tools=list(setup.tools), before_model_callback=self.watch)
        self.runner = InMemoryRunner(agent, app_name="kit", plugins=[self.plugin])

    def watch(self, callback_context: Any, llm_request: Any) -> None:
        self.sent = llm_request.contents

    async def run(self, text: str, image: str = "") -> str:
        parts = [types.Part(text=text, part_metadata=dict(self.setup.metadata) or None)]
        if image:
            data = base64.b64decode(image.partition(",")[2])
            parts.append(types.Part.from_bytes(data=data, mime_type="image/png"))
        service = self.runner.session_service
        session = await service.create_session(app_name="kit", user_id="u")
        for event in self.events:
            await service.append_event(session, event)
        mode = StreamingMode.SSE if "stream" in self.setup.mode else StreamingMode.NONE
        answer = ""
        try:
            async for event in self.runner.run_async(
                user_id="u",
                session_id=session.id,
                new_message=types.Content(role="user", parts=parts),
                run_config=RunConfig(streaming_mode=mode),
            ):
                if event.is_final_response() and event.content:
                    answer = "".join(part.text or "" for part in event.content.parts or () if not part.thought)
        finally:
            stored = await service.get_session(app_name="kit", user_id="u", session_id=session.id)
            self.events = list(stored.events)
        return answer

    def save(self) -> Any:
        return self.events

    def load_view(self, messages: list[Any]) -> None:
        self.events = [
            Event(author="reader" if content.role == "model" else "user", content=content, invocation_id="view")
            for content in messages
        ]

    def read_metadata(self, messages: list[Any]) -> list[Any]:
        return [part.part_metadata for content in messages for part in content.parts or ()]

    async def close(self) -> None:
        await self.runner.close()
        self.plugin.manager.close()


class AdkDriver:
    wire = "openai-chat"
    unsupported: ClassVar[Mapping[str, str]] = {
        "thinking": "chat completions do not carry thinking with a signature",
    }

    def make_agent(self, setup: AgentSetup) -> Any:
        return AdkAgent(setup)


class AdkClaudeDriver(AdkDriver):
    wire = "anthropic"
    unsupported: ClassVar[Mapping[str, str]] = {}


@pytest.mark.parametrize("driver", [AdkDriver, AdkClaudeDriver], ids=lambda one: one.wire)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract_of_integrations(case: str, driver: Any, tmp_path: Path) -> None:
    run_case(case, driver(), tmp_path, count=lambda text: count_reference("o200k_base", text))


def test_results_of_parallel_calls_without_ids_stay_in_one_content(tmp_path: Path) -> None:
    contents = [types.Content(role="user", parts=[types.Part(text="Read everything.")])]
    for step in range(8):
        calls = [types.Part.from_function_call(name="read", args={"n": step * 3 + at}) for at in range(3)]
        texts = ["\n".join(f"line {n} of {step}.{at}" for n in range(120)) for at in range(3)]
        results = [types.Part.from_function_response(name="read", response={"result": text}) for text in texts]
        contents += [types.Content(role="model", parts=calls), types.Content(role="user", parts=results)]
    codec = AdkCodec()
    with ContextCompressionManager(CompressionConfig(window=6_000, reserve=500), tmp_path) as manager:
        session = manager.session("s1", format="openai-chat", codec=codec)
        prepared = session.prepare(contents)
        sent = prepared.messages
    assert len(sent) < len(contents)
    assert {source.kind for source in prepared.sources} >= {"fold", "whole"}
    answered = [
        (len(before.parts), [part.function_response.name for part in after.parts])
        for before, after in pairwise(sent)
        if before.parts[0].function_call
    ]
    assert answered
    assert all(answer == (3, ["read"] * 3) for answer in answered)
    assert sent[-1] is contents[-1] or len(sent[-1].parts) == 3


def test_every_user_and_every_agent_has_a_session_of_its_own(tmp_path: Path) -> None:
    move = ScriptedCall("transfer_to_agent", {"agent_name": "helper"}, "call_1")
    script = [ScriptedReply("I pass you on.", (move,)), "Helped.", "Hello."]
    with ScriptedProvider(script) as provider:
        model = LiteLlm("openai/gpt-4o", api_base=provider.openai_url, api_key="any")
        helper = LlmAgent(name="helper", model=model, description="helps")
        agent = LlmAgent(name="reader", model=model, sub_agents=[helper])
        plugin = RefoldPlugin(workspace=tmp_path, window=8_000)
        runner = InMemoryRunner(agent, app_name="kit", plugins=[plugin])

        async def work() -> None:
            for user in ("ann", "bob"):
                await runner.session_service.create_session(app_name="kit", user_id=user, session_id="one")
                said = types.Content(role="user", parts=[types.Part(text=f"I am {user}.")])
                async for _ in runner.run_async(user_id=user, session_id="one", new_message=said):
                    pass
            await runner.close()

        asyncio.run(work())
        found = {name: json.dumps(plugin.manager.session(name).messages()) for name in list_names(plugin)}
        plugin.manager.close()
    assert set(found) == {"kit/ann/one", "kit/ann/one/helper", "kit/bob/one"}
    assert "bob" not in found["kit/ann/one"]
    assert "Helped." in found["kit/ann/one/helper"]


def list_names(plugin: RefoldPlugin) -> list[str]:
    return [row.id for row in plugin.manager.ledger.list_sessions()]
