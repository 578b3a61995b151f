"""Real clients play a task of many steps behind ``refold wrap``, as benchmarks/clients/run.py measures them."""

import argparse
import importlib.util
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.clients.test_where_requests_go import CLIENTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="POSIX programs")]


def load_script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "clients" / "run.py"
    spec = importlib.util.spec_from_file_location("run_clients", path)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "qwen"])
def test_a_client_finishes_a_task_that_is_larger_than_the_window(name: str) -> None:
    script = load_script()
    client = next(one for one in script.CLIENTS if one.name == name)
    program = CLIENTS / "npm" / "node_modules" / ".bin" / name
    if not program.exists() or shutil.which("node") is None:
        pytest.skip(f"{name} is not installed in {CLIENTS}: python benchmarks/clients/run.py --install")
    options = argparse.Namespace(steps=20, lines=160, window=60_000, told=False, dump=None)
    found = script.play(client, program, options)
    assert found["steps"] == 20
    assert found["refused"] <= 1, "the refusal by which the gateway learns the window"
    assert found["largest"] <= 60_000
    assert " → " in found["summary"][0], "it was compressed"


def test_reminders_of_claude_code_do_not_pile_up_nor_do_their_cache_marks(tmp_path: Path) -> None:
    """With newer models it sends one after each step, as a system message."""
    script = load_script()
    client = replace(next(one for one in script.CLIENTS if one.name == "claude"), model="claude-opus-5")
    program = CLIENTS / "npm" / "node_modules" / ".bin" / "claude"
    if not program.exists():
        pytest.skip(f"claude is not installed in {CLIENTS}: python benchmarks/clients/run.py --install")
    options = argparse.Namespace(steps=24, lines=160, window=120_000, told=False, dump=str(tmp_path))
    found = script.play(client, program, options)
    assert " → " in found["summary"][0], "it was compressed"
    lines = (tmp_path / "claude.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [json.loads(line)["body"] for line in lines]
    sent = [body for body in asked if body and script.find_shell(body)]
    assert max(json.dumps(body).count('"cache_control"') for body in sent) <= 4
    newest = sent[-1]["messages"]
    steps = sum(message["role"] == "assistant" for message in newest)
    assert 0 < json.dumps(newest).count("tokens left") <= steps + 2
