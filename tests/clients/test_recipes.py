"""Recipes of docs/how-to/clients.md with the real programs: clients that ``refold wrap`` does not know by name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold.testing import ScriptedProvider
from tests.clients.test_where_requests_go import CLIENTS

CONTINUE = """\
name: refold
version: 1.0.0
schema: v1
models:
  - name: gpt-4o
    provider: openai
    model: gpt-4o
    apiBase: %s
    apiKey: sk-scripted
    roles: [chat]
"""
RECIPES = {
    "mini/bin/mini": "{program} -t 'say hi' -y -m openai/gpt-4o --exit-immediately -l 0.01",
    "cn/node_modules/.bin/cn": f"printf '{CONTINUE}' \"$OPENAI_BASE_URL\" > c.yaml; {{program}} --config c.yaml -p hi",
    "cline/node_modules/.bin/cline": (
        "{program} auth -p openai -k sk-scripted -m gpt-4o -b $OPENAI_BASE_URL; "
        "timeout -s KILL 20 {program} -y 'say hello' >out 2>&1"
    ),
}
ENVIRON = {"OPENAI_API_KEY": "sk-scripted", "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", RECIPES)
def test_requests_of_a_recipe_go_through_the_gateway(path: str, tmp_path: Path) -> None:
    if not (CLIENTS / path).exists():
        pytest.skip(f"{path} is not installed in {CLIENTS}")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LITELLM_LOCAL_MODEL_COST_MAP": "True", **ENVIRON}
    with ScriptedProvider("ok") as provider:
        upstream = ("--openai-upstream", f"{provider.url}/v1")
        command = ["sh", "-c", RECIPES[path].format(program=CLIENTS / path)]
        done = subprocess.run(
            [sys.executable, "-m", "refold", "wrap", *upstream, "--", *command],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        asked = [one for one in provider.requests if one.json and "model" in one.json]
    assert asked, done.stdout + done.stderr
    assert " request" in done.stderr.splitlines()[-1]
    assert "no request came through" not in done.stderr
