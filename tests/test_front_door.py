"""What most users need: ``wrap``, ``compress``, ``Session``; sizes as people write them; a result that prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import CompressionConfig, ConfigError, ContextCompressionManager

TYPED = """
import openai
import refold

client = refold.wrap(openai.OpenAI(api_key="x"), session="s1", window="128k", workspace="{workspace}")
reveal_type(client.refold)
reveal_type(client.refold.status())
reveal_type(client.chat.completions)
reveal_type(refold.Session("s1", window="64k").status())
refold.compress([], budget="8k")
"""


def make_work(count: int = 40) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the bug."}]
    for at in range(count):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "run", "arguments": '{"command": "pytest"}'}}
        log = "\n".join(f"tests/test_{at}.py::t{one} PASSED" for one in range(60))
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": f"c{at}", "content": log}]
    return messages


def test_a_prepared_context_prints_what_happened_in_three_lines() -> None:
    work = make_work()
    prepared = refold.compress(work, budget="8k")
    sizes, why, did = str(prepared).splitlines()
    assert prepared.report is not None
    assert sizes.startswith(f"{prepared.report.tokens_before:,} → {prepared.total_tokens:,} tokens (−")
    assert sizes.endswith(f"{len(work):,} → {len(prepared.messages):,} messages")
    assert why == f"why: {prepared.report.reason}"
    assert "fold −" in did
    assert "of at most 8,000 tokens" in did
    whole = str(refold.compress(work[:3], budget="8k"))
    assert "3 messages: nothing was compressed" in whole
    assert "did: nothing; " in whole


@pytest.mark.parametrize("written", [8_000, "8000", "8,000", "8_000", "8k", "8K", "0.008M"])
def test_a_budget_is_taken_as_people_write_it(written: int | str) -> None:
    prepared = refold.compress(make_work(), budget=written)
    assert prepared.report is not None
    assert prepared.report.budget.hard == 8_000


def test_a_window_is_taken_as_people_write_it_everywhere(tmp_path: Path) -> None:
    assert CompressionConfig(window="128k", reserve="4k").window == 128_000
    assert CompressionConfig(window={"*": "64k"}, target_tokens="9k").target_tokens == 9_000
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        manager.prepare_context_sync("s1", make_work(2), window="20k", reserve="2k")
        assert manager.status("s1").window == 20_000
        session = manager.session("s2", window="30k")
        session.prepare(make_work(2))
        assert session.status().window == 30_000
    (tmp_path / "refold.yaml").write_text("window: 32k\n")
    session = refold.Session("s3", workspace=tmp_path, window="16k")
    prepared = session.prepare(make_work(30))
    assert prepared.total_tokens <= 16_000
    assert session.status().compression_count == 1


@pytest.mark.parametrize("wrong", ["many", "8kk", "", True, 8.5, "-5"])
def test_a_size_that_is_none_is_refused_at_construction(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError):
        refold.compress(make_work(1), budget=wrong)
    with pytest.raises(ConfigError, match="window"):
        CompressionConfig(window=wrong)
    with pytest.raises(ConfigError, match="window"):
        refold.Session("s", workspace=tmp_path, window=wrong)


@pytest.mark.slow
def test_a_wrapped_client_and_its_session_type_check(tmp_path: Path, project_root: Path) -> None:
    pytest.importorskip("openai", reason="openai is not installed; the types of its client are needed")
    file = tmp_path / "typed.py"
    file.write_text(TYPED.format(workspace=tmp_path))
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(project_root / ".mypy_cache"), str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.stdout.count("ManagedSession") == 1, ran.stdout
    assert ran.stdout.count("SessionStatus") == 2, ran.stdout
    assert "Completions" in ran.stdout
    assert "error" not in ran.stdout, ran.stdout
