"""Real clients play a task of many steps behind ``refold wrap``, as benchmarks/clients/run.py measures them."""

import argparse
import importlib.util
import shutil
import sys
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
