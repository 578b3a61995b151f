"""Real Codex: sessions that ran behind ``refold wrap`` resume without it, and the other way round."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold.testing import ScriptedProvider
from tests.clients.test_where_requests_go import CLIENTS, PROGRAMS

CODEX = CLIENTS / PROGRAMS["codex"][0]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CODEX.exists(), reason=f"codex is not installed in {CLIENTS}")]


def test_the_last_session_is_the_last_one_with_and_without_refold(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home / ".codex", work, tmp_path / "ledger"):
        folder.mkdir(parents=True)
    (home / ".codex" / "auth.json").write_text('{"OPENAI_API_KEY": "key"}')
    with ScriptedProvider("ok") as provider:
        (home / ".codex" / "config.toml").write_text(f'openai_base_url = "{provider.url}/v1"\n')

        def ask(*arguments: str, is_wrapped: bool) -> list[str]:
            """Run Codex once; return what the person said in the conversation that it sent."""
            wrapper = [sys.executable, "-m", "refold", "wrap", "-w", str(tmp_path / "ledger")] if is_wrapped else []
            done = subprocess.run(
                [*wrapper, str(CODEX), "exec", "--skip-git-repo-check", *arguments],
                cwd=work,
                env={"PATH": os.environ["PATH"], "HOME": str(home)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            items = [one.json["input"] for one in provider.requests if one.json and "input" in one.json][-1]
            parts = [part["text"] for item in items if item.get("role") == "user" for part in item["content"]]
            return [text for text in parts if not text.startswith(("<", "#"))]

        assert ask("one alone", is_wrapped=False) == ["one alone"]
        assert ask("two wrapped", is_wrapped=True) == ["two wrapped"]
        last = ("resume", "--last")
        assert ask(*last, "more alone", is_wrapped=False) == ["two wrapped", "more alone"]
        assert ask(*last, "more wrapped", is_wrapped=True) == ["two wrapped", "more alone", "more wrapped"]
        assert ask("three alone", is_wrapped=False) == ["three alone"]
        assert ask(*last, "again wrapped", is_wrapped=True) == ["three alone", "again wrapped"]
