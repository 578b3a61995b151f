"""The example on each framework's page runs as it is written, against a scripted provider."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.testing import ScriptedCall, ScriptedProvider, ScriptedReply

MODULES = {
    "langchain": "langchain_openai",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "litellm": "litellm",
    "llama_index": "llama_index.llms.openai",
    "haystack": "haystack",
    "crewai": "crewai",
    "adk": "google.adk.plugins",
    "strands": "strands.middleware",
    "agent_framework": "agent_framework_openai",
    "autogen": "autogen_ext.models.openai",
    "agno": "agno",
    "instructor": "instructor",
    "smolagents": "smolagents",
}
# What the model says in an example, where it is not a plain text.
ANSWERS = {
    "instructor": '{"name": "Paris."}',
    "smolagents": ScriptedReply("", (ScriptedCall("final_answer", {"answer": "Paris."}, "call_1"),)),
}


TEXT = "What is the capital of France?"
# What the names of each line in the index stand for, and what its user does next.
LINES = {
    "langchain": (
        "from langchain.agents import create_agent; from langchain_openai import ChatOpenAI\n"
        "from refold.integrations.langchain import RefoldMiddleware\nmodel, tools = ChatOpenAI(model='gpt-4o'), []",
        "print(agent.invoke({'messages': [('user', text)]})['messages'][-1].text)",
    ),
    "langchain deepagents": (
        "from deepagents import create_deep_agent; from langchain_openai import ChatOpenAI\n"
        "from refold.integrations.langchain_model import wrap_model\nmodel, tools = ChatOpenAI(model='gpt-4o'), []",
        "print(agent.invoke({'messages': [('user', text)]})['messages'][-1].text)",
    ),
    "openai_agents": (
        "from agents import Agent, Runner; from refold.integrations.openai_agents import RefoldSession\n"
        "agent, s = Agent(name='guide', model='gpt-4o'), RefoldSession('s1')",
        "print(line.final_output)",
    ),
    "pydantic_ai": (
        "from pydantic_ai import Agent; from refold.integrations.pydantic_ai import Refold\n"
        "model = 'openai-chat:gpt-4o'",
        "print(agent.run_sync(text).output)",
    ),
    "litellm": (
        "import asyncio, litellm; from refold.integrations.litellm import RefoldCallback",
        "asked = {'model': 'openai/gpt-4o', 'messages': [{'role': 'user', 'content': text}]}\n"
        "print(asyncio.run(litellm.acompletion(**asked)).choices[0].message.content)",
    ),
    "llama_index": (
        "import asyncio, os; from llama_index.core.agent.workflow import FunctionAgent\n"
        "from llama_index.llms.openai import OpenAI; from refold.integrations.llama_index import wrap_llm\n"
        "llm, tools = OpenAI(model='gpt-4o', api_base=os.environ['OPENAI_BASE_URL']), []",
        "async def ask():\n    print(await agent.run(text))\nasyncio.run(ask())",
    ),
    "haystack": (
        "from haystack.components.agents import Agent; from haystack.dataclasses import ChatMessage\n"
        "from haystack.components.generators.chat import OpenAIChatGenerator\n"
        "from refold.integrations.haystack import RefoldChatGenerator",
        "print(agent.run(messages=[ChatMessage.from_user(text)])['messages'][-1].text)",
    ),
    "crewai": (
        "from crewai import LLM, Agent; from refold.integrations.crewai import wrap_llm\n"
        "role, goal, story = 'guide', 'Answer questions.', 'You know the world.'",
        "print(agent.kickoff(text).raw)",
    ),
    "adk": (
        "import asyncio; from google.adk.agents import LlmAgent; from google.adk.apps import App\n"
        "from google.adk.models.lite_llm import LiteLlm; from google.adk.runners import InMemoryRunner\n"
        "from refold.integrations.adk import RefoldPlugin\n"
        "agent = LlmAgent(name='guide', model=LiteLlm('openai/gpt-4o'))",
        "events = asyncio.run(InMemoryRunner(app=app).run_debug(text, quiet=True))\n"
        "print(events[-1].content.parts[0].text)",
    ),
    "strands": (
        "from strands import Agent; from strands.models.openai import OpenAIModel\n"
        "from refold.integrations.strands import RefoldAgentPlugin\nmodel = OpenAIModel(model_id='gpt-4o')",
        "agent.callback_handler = lambda **_: None\nprint(agent(text).message['content'][0]['text'])",
    ),
    "agent_framework": (
        "import asyncio; from agent_framework import Agent\n"
        "from agent_framework.openai import OpenAIChatCompletionClient\n"
        "from refold.integrations.agent_framework import RefoldChatMiddleware\n"
        "client = OpenAIChatCompletionClient(model='gpt-4o')",
        "print(asyncio.run(agent.run(text)).text)",
    ),
    "autogen": (
        "import asyncio; from autogen_agentchat.agents import AssistantAgent\n"
        "from autogen_ext.models.openai import OpenAIChatCompletionClient\n"
        "from refold.integrations.autogen import wrap_client\nclient = OpenAIChatCompletionClient(model='gpt-4o')",
        "print(asyncio.run(agent.run(task=text)).messages[-1].to_text())",
    ),
    "agno": (
        "from agno.agent import Agent; from agno.models.openai import OpenAIChat\n"
        "from refold.integrations.agno import wrap_model",
        "agent.telemetry = False\nprint(agent.run(text).content)",
    ),
    "instructor": (
        "import instructor, refold; from openai import OpenAI; from pydantic import BaseModel",
        "class Text(BaseModel):\n    said: str\n"
        "asked = {'model': 'gpt-4o', 'messages': [{'role': 'user', 'content': text}]}\n"
        "print(client.chat.completions.create(response_model=Text, **asked).said)",
    ),
    "smolagents": (
        "import os, refold; from smolagents import OpenAIModel; known = os.environ\n"
        "model = OpenAIModel('gpt-4o', api_base=known['OPENAI_BASE_URL'], api_key=known['OPENAI_API_KEY'])",
        "print(model([{'role': 'user', 'content': [{'type': 'text', 'text': text}]}]).content)",
    ),
    "openai": (
        "import refold; from openai import OpenAI",
        "asked = client.chat.completions.create(model='gpt-4o', messages=[{'role': 'user', 'content': text}])\n"
        "print(asked.choices[0].message.content)",
    ),
}


def run_code(code: str, folder: Path, project_root: Path, answer: Any = "Paris.") -> list[str]:
    """Run a program against a provider that says Paris; return the lines it prints."""
    with ScriptedProvider(answer) as provider:
        environment = {
            "OPENAI_BASE_URL": provider.openai_url,
            "OPENAI_API_KEY": "any",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OTEL_SDK_DISABLED": "true",
            "PYTHONPATH": str(project_root / "src"),
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        assert provider.requests
    # CrewAI draws panels around the run.
    return [line for line in done.stdout.splitlines() if line and line[0] not in "╭│╰"]


@pytest.mark.parametrize("name", LINES)
def test_the_line_of_the_index_works_as_printed_the_first_time(name: str, project_root: Path, tmp_path: Path) -> None:
    page, _, row = name.partition(" ")  # The second word is the first of a row that has no page of its own.
    if row or page in MODULES:
        pytest.importorskip(row or MODULES[page], reason=f"needs {name}: make integrations")
    index = (project_root / "docs" / "integrations" / "index.md").read_text()
    line = re.findall(rf"\| {row}[^|`]*\| `([^`]+)` \| [^|]*\({page}\.md\)", index)[0]
    before, after = LINES[name]
    shown = line if re.match(r"[\w.]+ = ", line) else f"line = {line}"
    answer = (
        ScriptedReply("", (ScriptedCall("Text", {"said": "Paris."}, "call_1"),)) if name == "instructor" else "Paris."
    )
    lines = run_code(f"text = {TEXT!r}\n{before}\n{shown}\n{after}\n", tmp_path, project_root, answer)
    assert lines[-1] == "Paris."
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        stored = [str(manager.session(row.id).messages()) for row in manager.ledger.list_sessions()]
    assert len(stored) == 1
    assert "the capital of France" in stored[0]
    assert "Paris." in stored[0]


@pytest.mark.parametrize("name", MODULES)
def test_the_example_of_a_page_runs(name: str, project_root: Path, tmp_path: Path) -> None:
    pytest.importorskip(MODULES[name], reason=f"needs {name}: make integrations")
    page = (project_root / "docs" / "integrations" / f"{name}.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    lines = run_code(code, tmp_path, project_root, ANSWERS.get(name, "Paris."))
    assert lines[0] == "Paris."
    assert "France" in lines[1]
