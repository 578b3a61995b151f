"""Fixtures of the command line's tests: a shell in an empty folder, and a session with large tool outputs."""

import json
from pathlib import Path

import pytest

from tests.rigs.cli import ProcessShell, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    # Settings are looked for upwards to the root of a repository: the folder is its own.
    (tmp_path / ".git").mkdir()
    (tmp_path / "home").mkdir()
    return Shell(tmp_path)


@pytest.fixture
def process(shell: Shell) -> ProcessShell:
    """The same folder, with a process for each command."""
    return ProcessShell(shell.folder)


def make_session(steps: int = 12) -> list[dict[str, object]]:
    """An OpenAI chat in which each step calls a tool that answers with forty lines."""
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Why does the build of release 4.17.2 fail?"},
    ]
    for step in range(steps):
        call = {
            "id": f"call_{step}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"logs/{step}.log"})},
        }
        lines = "\n".join(f"{step:02d}:{line:02d} worker {line * 7 + step} finished in {line} ms" for line in range(40))
        messages.append({"role": "assistant", "content": f"I look at log {step}.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": lines})
    messages.append({"role": "assistant", "content": "Log 7 names the cause."})
    messages.append({"role": "user", "content": "Then mend it, please."})
    return messages


@pytest.fixture
def session(shell: Shell) -> list[dict[str, object]]:
    """The session, also as session.json in the shell's folder."""
    messages = make_session()
    shell.write("session.json", json.dumps(messages))
    return messages
