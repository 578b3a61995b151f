"""S0: the compressor of the first document, as it describes it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.designs.compressor import OPENING, CompressionResult, ContextCompressor
from refold.errors import ConfigError, FormatError
from refold.testing import find_violations


class Model:
    """Answers every prompt with the next text, or fails."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []

    async def complete(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(content=answer)


def chat(count: int) -> list[Any]:
    return [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"消息内容{n}，端口 {8000 + n}"}
        for n in range(count)
    ]


async def test_s0_4_a_hundred_messages_become_a_summary_and_the_newest_fifty() -> None:
    messages = chat(100)
    result = await ContextCompressor(Model("谈了端口。", "- 端口 8000\n- 端口 8001")).compress(messages, 50)
    assert isinstance(result, CompressionResult)
    assert result.recent_messages == messages[50:]
    assert result.archived_messages == messages[:50]
    assert result.compressed_messages[1:] == messages[50:]
    first: Any = result.compressed_messages[0]
    assert first["role"] == "system"
    assert first["content"].startswith(f"{OPENING}\n谈了端口。")
    assert result.key_facts == ["端口 8000", "端口 8001"]
    assert 0 < result.compressed_token_count < result.original_token_count


async def test_s0_4_fewer_messages_than_are_retained_archive_nothing() -> None:
    messages = chat(30)
    result = await ContextCompressor().compress(messages, 50)
    assert result.archived_messages == []
    assert result.recent_messages == result.compressed_messages == messages


async def test_s0_4_the_cut_moves_back_so_that_no_call_loses_its_result() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    messages = [
        *chat(6),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "user", "content": "thanks"},
    ]
    result = await ContextCompressor().compress(messages, 2)
    assert result.recent_messages == messages[6:]


async def test_s0_4_where_a_format_has_no_system_messages_the_summary_takes_a_legal_role() -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "run", "input": {}}]}
    back = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]}
    messages = [*chat(6), use, back]
    result = await ContextCompressor().compress(messages, 2)
    first: Any = result.compressed_messages[0]
    assert first["role"] == "user"
    assert result.compressed_messages[1:] == [use, back]


async def test_s0_4_system_messages_are_kept_in_front_and_never_archived() -> None:
    messages = [{"role": "system", "content": "你是助手"}, *chat(10)]
    result = await ContextCompressor().compress(messages, 4)
    assert result.compressed_messages[0] is messages[0]
    assert len(result.compressed_messages) == 6
    assert messages[0] not in result.archived_messages


@pytest.mark.parametrize("model", [None, Model(RuntimeError("down"), RuntimeError("down")), Model("", "")])
async def test_without_an_answer_the_extract_is_used(model: Model | None) -> None:
    result = await ContextCompressor(model).compress(chat(40), 10)
    assert result.summary
    assert len(result.compressed_messages) == 11


async def test_s0_6_and_s0_7_the_prompts_ask_for_what_the_document_asks() -> None:
    model = Model("s", "f")
    await ContextCompressor(model).compress(chat(20), 5)
    summary, facts = model.prompts
    assert all(word in summary for word in ("三到五句", "第三人称", "决定", "约定", "偏好"))
    assert all(word in facts for word in ("每行一条", "喜好", "决定", "未完成", "背景"))
    assert "消息内容14" in summary
    assert "消息内容15" not in summary


@pytest.mark.parametrize("heading", ["## 关键事实", "**关键事实：**", "Key facts:"])
def test_s0_7_and_s0_8_the_heading_of_a_models_list_is_no_fact(tmp_path: Path, heading: str) -> None:
    answer = f"双方约定端口 8000。\n\n{heading}\n1. 决定：端口 8000\n- 8000 是双方约定的端口"
    model = Model(*[answer] * 40)
    config = CompressionConfig(threshold_rounds=10, threshold_tokens=4000, retention_count=5)
    with ContextCompressionManager(config, tmp_path, llm=model) as manager:
        said = [{**message, "content": f"{message['content']}，双方约定端口 8000。"} for message in chat(30)]
        for count in range(1, 31, 2):
            manager.prepare_context_sync("s1", said[:count])
    (page,) = (tmp_path / "memory").glob("*.md")
    facts = [line for line in page.read_text("utf-8").splitlines() if line.startswith("- ")]
    assert any(fact.endswith("端口 8000") for fact in facts)
    assert "- 8000 是双方约定的端口" in facts
    assert not any("关键事实" in fact or "FACTS" in fact.upper() or fact.startswith("- 1.") for fact in facts)


@pytest.mark.parametrize("count", [-1, True, 2.5, "5"])
async def test_a_retention_that_is_not_a_count_is_refused(count: Any) -> None:
    with pytest.raises(ConfigError, match="retention_count"):
        await ContextCompressor().compress(chat(3), count)


async def test_where_only_the_archived_part_tells_the_format_the_summary_still_follows_it() -> None:
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]}
    given = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "42"}]}
    recent = [{"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Now it is 42."}]
    messages = [{"role": "user", "content": "Look."}, called, given, *recent]
    result = await ContextCompressor().compress(messages, 2)
    assert result.recent_messages == recent
    assert find_violations("anthropic", result.compressed_messages) == []


async def test_an_answer_longer_than_what_it_sums_up_is_not_a_summary() -> None:
    compressor = ContextCompressor(Model("x" * 100_000, "y" * 100_000))
    result = await compressor.compress(chat(40), 5)
    assert result.compressed_token_count < result.original_token_count
    assert "xxx" not in result.summary
    assert "100,000 characters" in str(compressor.last_error)


@pytest.mark.parametrize("messages", [None, "text", 5])
async def test_input_that_is_not_a_list_of_messages_is_refused(messages: Any) -> None:
    with pytest.raises(FormatError, match="list of messages"):
        await ContextCompressor().compress(messages, 5)
