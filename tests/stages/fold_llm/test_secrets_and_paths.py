"""Secrets stay out of prompts, pages and logs; a path in a tool's text is text, never a file that is read."""

from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.offload import OffloadFolder
from refold.testing import ScriptedModel, fail
from tests.rigs.model import GOOD, chatting, parse, says, working

KEY = "sk-ant-" + "a1B2" * 12
PASSWORD = "hunter-2-forever"
CONFIG = CompressionConfig.preset("archive").replace(threshold_rounds=10, retention_count=4)


def leaking() -> list[Any]:
    return [
        says("user", f"I always use the key {KEY} for the import."),
        says("assistant", f"We decided to use it. The database has password: {PASSWORD}"),
        *chatting(12),
    ]


def read_pages(folder: Path) -> str:
    pages = [path for path in folder.rglob("*") if path.suffix in (".md", ".json")]
    return "\n".join(path.read_text(encoding="utf-8") for path in pages)


@pytest.mark.parametrize("answers", ["The garden is planned.", fail(500)])
def test_secrets_are_masked_before_the_summariser_the_pages_and_the_log(tmp_path: Path, answers: Any) -> None:
    model = ScriptedModel(answers)
    manager = ContextCompressionManager(CONFIG.replace(compact_retry_count=1), tmp_path, llm=model)
    manager.prepare_context_sync("s1", leaking())
    assert model.requests
    asked = "\n".join(request.prompt for request in model.requests)
    pages = read_pages(tmp_path)
    log = str(manager.ledger.read_events("s1"))
    assert "## " in pages
    for text in (asked, pages, log):
        assert KEY not in text
        assert PASSWORD not in text
    assert "[redacted: anthropic key]" in asked
    assert KEY in manager.expand("s1", f"m:{manager.ledger.read_messages('s1')[0].digest[:12]}")
    manager.close()


def test_without_masking_secrets_are_sent_as_they_are(tmp_path: Path) -> None:
    model = ScriptedModel("The garden is planned.")
    manager = ContextCompressionManager(CONFIG.replace(redact=False), tmp_path, llm=model)
    manager.prepare_context_sync("s1", leaking())
    assert KEY in model.requests[0].prompt
    manager.close()


def test_a_secret_that_a_model_makes_up_or_a_provider_quotes_is_not_logged(tmp_path: Path) -> None:
    told = f"{GOOD}\n- The key is {KEY}."
    config = CompressionConfig(window=4_000, reserve=500)
    manager = ContextCompressionManager(config, tmp_path, llm=ScriptedModel(told))
    manager.prepare_context_sync("s1", working(40))
    log = str(manager.ledger.read_events("s1"))
    assert "'summary.dropped'" in log
    assert KEY not in log
    manager.close()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that nobody may read, and ways to it from the session's folder."""
    secret = tmp_path / "secret.txt"
    secret.write_text("TOP SECRET WORDS")
    mine, other = tmp_path / "offloaded" / "s1", tmp_path / "offloaded" / "s2"
    for folder in (mine, other):
        folder.mkdir(parents=True)
    (other / "00000000000000aa.txt").write_text("TOP SECRET WORDS")
    (mine / "00000000000000bb.txt").symlink_to(secret)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../../x",
        "../secret.txt",
        "secret.txt",
        "offloaded/s2/00000000000000aa.txt",
        "offloaded/s1/../s2/00000000000000aa.txt",
        "offloaded/s1/../../secret.txt",
        "offloaded/s1/00000000000000bb.txt",
        "offloaded/s1/",
        "offloaded/s1//etc/passwd",
        "file:///etc/passwd",
        "~/.ssh/id_rsa",
    ],
)
def test_a_path_in_a_tools_text_is_never_a_file_that_is_read(outside: Path, path: str) -> None:
    model = ScriptedModel(GOOD)
    config = CompressionConfig.preset("offload").replace(compact_preserve_count=2)
    manager = ContextCompressionManager(config, outside, llm=model)
    sent = working(6)
    sent[2]["content"] = f"Tool result is at: {path}"
    manager.append("s1", sent)
    manager.compress("s1")
    prompt = model.requests[0].prompt
    assert "TOP SECRET WORDS" not in prompt
    assert "root:" not in prompt
    own = path.startswith("offloaded/s1/")
    told = f"[Content unavailable: {path}]" if own else f"Tool result is at: {path}"
    assert told in prompt, "it is text, and stays text"
    manager.close()


def test_a_linked_folder_is_not_followed_either(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.mkdir()
    (real / "00000000000000cc.txt").write_text("TOP SECRET WORDS")
    (tmp_path / "offloaded").mkdir()
    (tmp_path / "offloaded" / "s1").symlink_to(real)
    text = "Tool result is at: offloaded/s1/00000000000000cc.txt"
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = parse(
        [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
    )
    assert OffloadFolder(tmp_path, "s1").restore(messages) == {
        text: "[Content unavailable: offloaded/s1/00000000000000cc.txt]"
    }
