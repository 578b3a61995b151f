"""refold installs beside each framework with the extras that its users usually take."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BESIDE = {
    "langchain": ("langchain-openai", "langchain-anthropic", "deepagents", "langgraph-checkpoint-sqlite"),
    "openai-agents": ("openai-agents[litellm,voice]",),
    "pydantic-ai": ("pydantic-ai",),
    "litellm": ("litellm[proxy]",),
    "llama-index": ("llama-index", "llama-index-llms-anthropic"),
    "haystack": ("haystack-ai", "anthropic-haystack"),
    "crewai": ("crewai[tools,anthropic]",),
    "adk": ("google-adk", "litellm", "mcp"),
    "strands": ("strands-agents[openai,anthropic]", "strands-agents-tools"),
    "agent-framework": ("agent-framework-core", "agent-framework-openai", "agent-framework-anthropic"),
    "autogen": ("autogen-agentchat", "autogen-ext[openai]"),
    "agno": ("agno", "openai", "anthropic"),
}


@pytest.mark.slow
@pytest.mark.parametrize("extra", BESIDE)
def test_an_extra_resolves_beside_its_framework(extra: str, project_root: Path, tmp_path: Path) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("needs uv: make integrations")
    wanted = tmp_path / "wanted.in"
    wanted.write_text("\n".join([f"refold[{extra},server,llm] @ {project_root.as_uri()}", *BESIDE[extra]]) + "\n")
    done = subprocess.run(
        [uv, "pip", "compile", "-q", "--python-version", "3.12", str(wanted)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert f"refold[{extra}" in done.stdout or "refold @" in done.stdout
