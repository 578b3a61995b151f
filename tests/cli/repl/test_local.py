"""``refold chat`` with the small model on this machine: no key, no network, a real answer."""

from pathlib import Path

import pytest

from refold.agent.models import find_ollama
from refold.llm.openai import NAME, WINDOW, find_local_model
from tests.agent.test_overflow import write_history
from tests.rigs.agent import check_stored, make_manager
from tests.rigs.cli import Shell

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_local_model() is None, reason="needs the small model: refold local install"),
    pytest.mark.skipif(bool(find_ollama()), reason="an Ollama runs on this machine, and comes first"),
]
NO_KEYS = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "ANTHROPIC_API_KEY": ""}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / ".git").mkdir()
    return Shell(tmp_path)


def test_without_a_key_the_small_model_answers_a_pipe_and_the_first_line_says_why(shell: Shell) -> None:
    ran = shell.refold("chat", "--once", stdin=b"Say hello.", **NO_KEYS)
    assert ran.code == 0, ran.err
    assert ran.text.strip()
    assert NAME in ran.err
    assert "no key is set and no Ollama runs; the small local model is installed" in ran.err


def test_a_session_that_is_larger_than_its_window_continues_with_it(shell: Shell) -> None:
    with make_manager(shell.folder) as manager:
        manager.append("small", write_history("openai-chat", 30), format="openai-chat")
        assert manager.status("small").tokens > 3 * WINDOW
    ran = shell.refold("chat", "--once", "--session", "small", stdin=b"Answer with one word: yes or no?", **NO_KEYS)
    assert ran.code == 0, ran.err
    assert ran.text.strip()
    assert "undo with /undo" in ran.err
    with make_manager(shell.folder) as manager:
        assert "The port of service 4 is 4028." in str(manager.recall("small", "port of service 4"))
        check_stored(manager, "openai-chat", "small")
