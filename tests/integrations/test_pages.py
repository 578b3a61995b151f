"""The example on each framework's page runs as it is written, against a scripted provider."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold.testing import ScriptedProvider

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
}


@pytest.mark.parametrize("name", MODULES)
def test_the_example_of_a_page_runs(name: str, project_root: Path, tmp_path: Path) -> None:
    pytest.importorskip(MODULES[name], reason=f"needs {name}: make integrations")
    page = (project_root / "docs" / "integrations" / f"{name}.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    with ScriptedProvider("Paris.") as provider:
        environment = {
            "OPENAI_BASE_URL": provider.openai_url,
            "OPENAI_API_KEY": "any",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "OTEL_SDK_DISABLED": "true",
            "PYTHONPATH": str(project_root / "src"),
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        # CrewAI draws panels around the run.
        lines = [line for line in done.stdout.splitlines() if line and line[0] not in "╭│╰"]
        assert lines[0] == "Paris."
        assert "France" in lines[1]
        assert provider.requests
