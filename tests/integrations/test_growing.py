"""Frameworks without an adapter of their own: a program of each grows a conversation until it folds.

The pages of the first three show programs behind the gateway, which are run as they are printed; the others use
``refold.wrap``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.testing import RecordedRequest, ScriptedCall, ScriptedProvider, ScriptedReply
from refold.testing.provider_rules import find_violations
from refold.testing.rig import list_requests, list_texts, read_sensor

pytestmark = pytest.mark.slow
STEPS = 24
DONE = "Log 7 is loud."
TASK = "logs of hall seven"


class Script:
    """A model that reads a log at each step, then answers; ``write`` writes a step as a framework expects it."""

    def __init__(self, write: Callable[[int, bool, RecordedRequest], ScriptedReply]) -> None:
        self.write, self.step = write, count()

    def __call__(self, request: RecordedRequest) -> ScriptedReply:
        step = next(self.step)
        return self.write(step, step >= STEPS, request)


def write_dspy(step: int, is_last: bool, request: RecordedRequest) -> ScriptedReply:
    if "next_tool_name" not in json.dumps(request.messages[0]):
        return ScriptedReply(
            f"[[ ## reasoning ## ]]\nI read all.\n\n[[ ## answer ## ]]\n{DONE}\n\n[[ ## completed ## ]]"
        )
    name, given = ("finish", "{}") if is_last else ("read_log", f'{{"number": {step}}}')
    fields = {"next_thought": f"Thought {step}.", "next_tool_name": name, "next_tool_args": given, "completed": ""}
    return ScriptedReply("\n\n".join(f"[[ ## {key} ## ]]\n{value}" for key, value in fields.items()))


def write_claude(step: int, is_last: bool, request: RecordedRequest) -> ScriptedReply:
    if is_last or "mcp__logs__read_log" not in json.dumps(request.json.get("tools")):
        return ScriptedReply(DONE)
    return ScriptedReply(f"Step {step}.", (ScriptedCall("mcp__logs__read_log", {"number": step}, f"toolu_{step}"),))


def write_browser(step: int, is_last: bool, request: RecordedRequest) -> ScriptedReply:
    if "expert judge" in json.dumps(request.messages[0]):
        verdict = {"reasoning": "It read all.", "verdict": True, "failure_reason": "", "impossible_task": False}
        return ScriptedReply(json.dumps({**verdict, "reached_captcha": False}))
    done = {"done": {"text": DONE, "success": True}}
    said = {
        "thinking": "I go on.",
        "evaluation_previous_goal": "Good.",
        "memory": f"Read {step}.",
        "next_goal": "More.",
    }
    return ScriptedReply(json.dumps({**said, "action": [done if is_last else {"read_log": {"number": step}}]}))


def write_smolagents(step: int, is_last: bool, _: RecordedRequest) -> ScriptedReply:
    name, given = ("final_answer", {"answer": DONE}) if is_last else ("read_log", {"number": step})
    return ScriptedReply(f"Step {step}.", (ScriptedCall(name, given, f"call_{step}"),))


def write_instructor(step: int, is_last: bool, _: RecordedRequest) -> ScriptedReply:
    given: dict[str, Any] = {"loud": step, "text": DONE} if is_last else {"loud": step, "text": f"Log {step} is quiet."}
    # Each third answer is of the wrong shape first: instructor sends it back with the error.
    return ScriptedReply("", (ScriptedCall("Found", given if step % 3 else {"loud": "seven"}, f"call_{step}"),))


SMOLAGENTS = """
import os
from pathlib import Path
import refold
from smolagents import OpenAIModel, ToolCallingAgent, tool

@tool
def read_log(number: int) -> str:
    '''Read one log file.

    Args:
        number: the number of the file.
    '''
    return Path(f"log-{number}.txt").read_text()

model = OpenAIModel("gpt-4o", api_base=os.environ["OPENAI_BASE_URL"], api_key="any", max_tokens=500)
model.client = refold.wrap(model.client, workspace="work", window=8_000, reserve=1_000)
agent = ToolCallingAgent(tools=[read_log], model=model, max_steps=60, verbosity_level=0)
print(agent.run("Read all logs of hall seven and say which is loud."))
"""
INSTRUCTOR = """
from pathlib import Path
import instructor, refold
from openai import OpenAI
from pydantic import BaseModel

class Found(BaseModel):
    loud: int
    text: str

client = instructor.from_openai(refold.wrap(OpenAI(), workspace="work", window=8_000, reserve=1_000))
said = [{"role": "user", "content": "I send the logs of hall seven one by one; say which is loud."}]
for number in range(24):
    said.append({"role": "user", "content": Path(f"log-{number}.txt").read_text()})
    found = client.chat.completions.create(model="gpt-4o", messages=said, response_model=Found, max_tokens=500)
    said.append({"role": "assistant", "content": found.text})
    if "is loud" in found.text:
        break
print(found.text)
"""
# The module that must be there, the script, the program (empty: that of the page, behind the gateway), and the window.
CASES: dict[str, tuple[str, Any, str, int]] = {
    "dspy": ("dspy", write_dspy, "", 8_000),
    "claude_agent_sdk": ("claude_agent_sdk", write_claude, "", 12_000),
    "browser_use": ("browser_use", write_browser, "", 16_000),
    "smolagents": ("smolagents", write_smolagents, SMOLAGENTS, 8_000),
    "instructor": ("instructor", write_instructor, INSTRUCTOR, 8_000),
}


def run_program(folder: Path, code: str, provider: ScriptedProvider, *before: str) -> str:
    """Run a program in a folder with log files, and return what it prints."""
    (folder / "agent.py").write_text(code)
    for number in range(STEPS):
        (folder / f"log-{number}.txt").write_text(read_sensor(number))
    environment = {
        **{name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ},
        "OPENAI_BASE_URL": provider.openai_url,
        "OPENAI_API_KEY": "any",
        "ANTHROPIC_BASE_URL": provider.anthropic_url,
        "ANTHROPIC_API_KEY": "any",
        "ANONYMIZED_TELEMETRY": "false",
        "BROWSER_USE_LOGGING_LEVEL": "result",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
    }
    command = [*before, sys.executable, "agent.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-3_000:]}"
    return done.stdout


@pytest.mark.parametrize("name", CASES)
def test_a_conversation_grows_until_it_folds_and_recall_finds_it(name: str, project_root: Path, tmp_path: Path) -> None:
    module, write, code, window = CASES[name]
    pytest.importorskip(module, reason=f"needs {name}: make integrations")
    if name == "browser_use" and shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    wrap = () if code else (sys.executable, "-m", "refold", "wrap", "--")
    if not code:
        page = (project_root / "docs" / "integrations" / f"{name}.md").read_text()
        code = re.findall(r"```python\n(.*?)```", page, re.S)[0]
        settings = CompressionConfig(window=window, reserve=1_000)
        (tmp_path / "refold.yaml").write_text(f"window: {settings.window}\nreserve: {settings.reserve}\n")
    with ScriptedProvider(Script(write), window=window) as provider:
        assert DONE in run_program(tmp_path, code, provider, *wrap)
        requests = list_requests(provider)
    assert len(requests) >= STEPS
    assert all(find_violations(request.wire, request.messages) == [] for request in requests)
    folded = [any("⟦" in text or "⟨" in text for text in list_texts(request.messages)) for request in requests]
    assert any(folded[-3:]), "nothing was folded"
    assert any(TASK in text for text in list_texts(requests[-1].json)), "the task is gone"
    with ContextCompressionManager(CompressionConfig(), tmp_path / ("." if wrap else "work")) as manager:
        known = {row.id: row.messages for row in manager.ledger.list_sessions()}
        main = max(known, key=known.__getitem__)
        hits = manager.recall(main, "reading-002-begins")
        assert any("reading-002-begins" in hit.text for hit in hits), known
