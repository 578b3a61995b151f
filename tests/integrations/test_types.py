"""Options and ``client.refold`` under type checkers; at run time a wrong option is an error at construction."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import openai
import pytest

import refold
from refold import CompressionConfig
from refold.errors import ConfigError
from refold.integrations import FrameworkMissing, open_session
from refold.integrations.options import Settings

GOOD = """
import refold
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI
from refold.integrations import open_session

client = refold.wrap(OpenAI(api_key="any"), session="s1", workspace="work", window=8_000, reserve=500)
tokens: int = client.refold.status().tokens
found: str = client.refold.recall("capital")[0].text
text: str | None = client.chat.completions.create(model="gpt-4o", messages=[]).choices[0].message.content
others = (
    refold.wrap(AsyncOpenAI(api_key="any")).refold.id,
    refold.wrap(Anthropic(api_key="any"), depth="thrifty").refold.id,
    refold.wrap(AsyncAnthropic(api_key="any"), session=lambda: "s2").refold.id,
    open_session("s3", window=8_000).id,
)
"""
WRONG = {
    "a name": "refold.wrap(OpenAI(), windw=8_000)",
    "a value": 'refold.wrap(OpenAI(), trigger_ratio="large")',
    "a choice": 'refold.wrap(OpenAI(), depth="greedy")',
    "an attribute": "refold.wrap(OpenAI()).refold.stats()",
}
NODE = (
    Path(os.environ.get("REFOLD_NODE", Path(__file__).resolve().parents[2] / "build" / "node"))
    / "node_modules"
    / ".bin"
)


def list_checkers() -> list[Any]:
    mypy = pytest.param([sys.executable, "-m", "mypy", "--strict", "--no-incremental"], id="mypy")
    absent = pytest.mark.skipif(not (NODE / "pyright").exists(), reason="needs pyright: make node")
    return [mypy, pytest.param([str(NODE / "pyright"), "--pythonpath", sys.executable], id="pyright", marks=absent)]


@pytest.mark.slow
@pytest.mark.parametrize("checker", list_checkers())
def test_a_checker_accepts_what_is_right_and_finds_what_is_wrong(checker: list[str], tmp_path: Path) -> None:
    def check(code: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "program.py").write_text(code)
        path = f"{NODE}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": ""}
        command = [*checker, "program.py"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)

    right = check(GOOD)
    assert right.returncode == 0, right.stdout
    wrong = check("import refold\nfrom openai import OpenAI\n" + "\n".join(WRONG.values()) + "\n")
    lines = {int(line.split(":")[1]) for line in wrong.stdout.splitlines() if "program.py:" in line and "error" in line}
    assert lines == set(range(3, 3 + len(WRONG))), wrong.stdout


def test_the_types_know_every_setting() -> None:
    assert set(get_type_hints(Settings)) == set(CompressionConfig.model_fields)


@pytest.mark.parametrize("option", ["windw", "context_tool", "workspce", "sesion"])
def test_a_misspelt_option_is_an_error_at_construction(option: str, tmp_path: Path) -> None:
    client: Any = openai.OpenAI(api_key="any")
    given: Any = {option: 1}
    with pytest.raises(ConfigError, match=option):
        refold.wrap(client, workspace=tmp_path, **given)
    with pytest.raises(ConfigError, match=option):
        open_session("s1", workspace=tmp_path, **given)
    assert not list(tmp_path.iterdir())


ADAPTERS = {"langchain": "langchain", "adk": "adk", "openai_agents": "openai-agents", "haystack": "haystack"}


@pytest.mark.parametrize("module", ADAPTERS)
def test_an_absent_framework_is_an_import_error_that_names_the_extra(module: str) -> None:
    code = (
        "import sys\n"
        "for name in ('langchain', 'agents', 'google.adk', 'haystack'): sys.modules[name] = None\n"
        f"try: import refold.integrations.{module}\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert f"pip install 'refold[{ADAPTERS[module]}]'" in done.stdout, done.stderr
    assert issubclass(FrameworkMissing, ImportError)
