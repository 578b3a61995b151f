"""S0.11: the tests of the first document's section 8, with only their import lines changed.

Its mocks, private names and time limits are part of it: this is the one file where our own rules on mocks and timings
give way. The document's fixtures ``test_db`` and ``test_workspace`` stand at the end.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock, patch

import pytest

from refold import CompressionConfig, CompressionResult, ContextCompressionManager, ContextCompressor, TokenCounter


class TestTokenCounter:
    def setup_method(self):
        self.counter = TokenCounter()

    def test_count_single_message(self):
        messages = [{"role": "user", "content": "Hello world"}]
        count = self.counter.count_messages(messages)
        assert count > 0
        assert isinstance(count, int)

    def test_count_multiple_messages(self):
        messages = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi there!"},
        ]
        count = self.counter.count_messages(messages)
        single = self.counter.count_messages([messages[0]])
        assert count > single

    def test_count_chinese_text(self):
        messages = [{"role": "user", "content": "你好世界，这是一个测试"}]
        count = self.counter.count_messages(messages)
        assert count > 0

    def test_count_empty_messages(self):
        count = self.counter.count_messages([])
        assert count == 2

    def test_count_text(self):
        text = "Hello world"
        count = self.counter.count_text(text)
        assert count > 0
        assert isinstance(count, int)


class TestContextCompressor:
    def setup_method(self):
        self.mock_llm = Mock()
        self.mock_llm.complete = AsyncMock(return_value=Mock(content="摘要内容"))
        self.mock_token_counter = Mock()
        self.mock_token_counter.count_messages = Mock(return_value=100)
        self.compressor = ContextCompressor(self.mock_llm, self.mock_token_counter)

    @pytest.mark.asyncio
    async def test_compress_basic(self):
        messages = [{"role": "user", "content": f"消息{i}"} for i in range(100)]

        result = await self.compressor.compress(messages, retention_count=50)

        assert isinstance(result, CompressionResult)
        assert len(result.recent_messages) == 50
        assert len(result.archived_messages) == 50
        assert result.summary is not None
        assert len(result.compressed_messages) == 51

    @pytest.mark.asyncio
    async def test_compress_less_than_retention(self):
        messages = [{"role": "user", "content": f"消息{i}"} for i in range(30)]

        result = await self.compressor.compress(messages, retention_count=50)

        assert len(result.archived_messages) == 0
        assert len(result.recent_messages) == 30

    @pytest.mark.asyncio
    async def test_build_compressed_messages(self):
        recent = [
            {"role": "user", "content": "最近消息1"},
            {"role": "assistant", "content": "回复1"},
        ]
        summary = "这是摘要"

        compressed = self.compressor._build_compressed_messages(recent, summary)

        assert len(compressed) == 3
        assert compressed[0]["role"] == "system"
        assert "摘要" in compressed[0]["content"]
        assert compressed[1] == recent[0]
        assert compressed[2] == recent[1]


class TestContextCompressionManager:
    def setup_method(self):
        self.config = CompressionConfig(threshold_rounds=100, threshold_tokens=4000, retention_count=50)
        self.manager = ContextCompressionManager(config=self.config, workspace_path="/tmp/test_workspace")  # noqa: S108
        self.manager.compressor = Mock()
        self.manager.md_sync = Mock()

    def test_check_compression_needed_by_rounds(self):
        needed = self.manager._check_compression_needed(101, 1000)
        assert needed is True

        needed = self.manager._check_compression_needed(99, 1000)
        assert needed is False

    def test_check_compression_needed_by_tokens(self):
        needed = self.manager._check_compression_needed(50, 4500)
        assert needed is True

        needed = self.manager._check_compression_needed(50, 3000)
        assert needed is False

    @pytest.mark.asyncio
    async def test_prepare_context_no_compression_needed(self):
        messages = [{"role": "user", "content": "Hello"}]

        with patch.object(self.manager.token_counter, "count_messages", return_value=100):  # noqa: SIM117
            with patch.object(self.manager.token_counter, "count_text", return_value=50):
                result = await self.manager.prepare_context(
                    session_id="test-session", current_messages=messages, system_prompt="系统提示"
                )

        assert result.messages == messages
        assert result.summary is None

    @pytest.mark.asyncio
    async def test_store_summary_to_daily_memory(self):
        self.manager.md_sync.append_to_daily_log = AsyncMock()

        await self.manager._store_summary_to_daily_memory(
            session_id="test-session", summary="测试摘要", key_facts=["事实1", "事实2"], archived_count=50
        )

        self.manager.md_sync.append_to_daily_log.assert_called_once()
        call_args = self.manager.md_sync.append_to_daily_log.call_args
        assert "测试摘要" in call_args[0][1]


class TestCompressionFlow:
    @pytest.mark.asyncio
    async def test_full_compression_flow(self, test_db, test_workspace):
        config = CompressionConfig(threshold_rounds=10, threshold_tokens=1000, retention_count=5)

        manager = ContextCompressionManager(config=config, workspace_path=test_workspace)

        messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"消息内容{i}"} for i in range(11)]

        result = await manager.prepare_context(session_id="test-session", current_messages=messages, system_prompt="")

        assert result.summary is not None
        assert len(result.messages) == 6

        import os
        from datetime import datetime

        today = datetime.now().strftime("%Y-%m-%d")
        memory_file = os.path.join(test_workspace, "memory", f"{today}.md")  # noqa: PTH118
        assert os.path.exists(memory_file)  # noqa: PTH110


class TestManualScript:
    """The document's script of section 8.3, run as a test: its two functions, and what it prints."""

    async def show_token_counter(self):
        print("测试 TokenCounter")
        counter = TokenCounter()
        text_en = "Hello world, this is a test message."
        print(f"Token数: {counter.count_text(text_en)}")
        text_cn = "你好世界，这是一个测试消息。"
        print(f"Token数: {counter.count_text(text_cn)}")
        messages = [
            {"role": "system", "content": "你是一个助手"},
            {"role": "user", "content": "你好"},
            {"role": "assistant", "content": "你好！有什么可以帮助你的？"},
        ]
        print(f"消息列表 Token数: {counter.count_messages(messages)}")

    async def show_compression_scenarios(self):
        config = CompressionConfig(threshold_rounds=10, threshold_tokens=1000, retention_count=5)
        counter = TokenCounter()
        small = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"消息{i}"} for i in range(5)]
        large = [
            {
                "role": "user" if i % 2 == 0 else "assistant",
                "content": f"这是第{i}条消息的内容，包含一些文字用于测试token计数。",
            }
            for i in range(12)
        ]
        long = [
            {"role": "user" if i % 2 == 0 else "assistant", "content": "这是一段很长的文本，" * 50} for i in range(5)
        ]
        for messages in (small, large, long):
            token_count = counter.count_messages(messages)
            needed = len(messages) > config.threshold_rounds or token_count > config.threshold_tokens
            print(f"消息数: {len(messages)}, Token数: {token_count}")
            print(f"需要压缩: {needed}")

    def test_the_script_runs_and_says_when_it_would_compress(self, capsys):
        async def main():
            await self.show_token_counter()
            await self.show_compression_scenarios()

        asyncio.run(main())
        printed = capsys.readouterr().out
        assert [line for line in printed.splitlines() if line.startswith("需要压缩")] == [
            "需要压缩: False",
            "需要压缩: True",
            "需要压缩: True",
        ]


class TestCompressionPerformance:
    def test_token_count_performance(self):
        counter = TokenCounter()

        messages = [{"role": "user", "content": f"消息内容{i}" * 100} for i in range(1000)]

        start = time.thread_time()
        count = counter.count_messages(messages)
        elapsed = time.thread_time() - start

        print(f"\n1000条消息计数耗时: {elapsed:.3f}s, {count}")
        assert elapsed < 1.0

    def test_compression_with_large_context(self):
        messages = [
            {"role": "user" if i % 2 == 0 else "assistant", "content": "这是一段很长的对话内容，" * 100}
            for i in range(200)
        ]

        counter = TokenCounter()
        start = time.thread_time()
        count = counter.count_messages(messages)
        elapsed = time.thread_time() - start

        print(f"\n200条长消息计数耗时: {elapsed:.3f}s, Token数: {count}")
        assert elapsed < 2.0


@pytest.fixture
def test_workspace(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def test_db(test_workspace: str) -> Iterator[Path]:
    """Where the messages are: the ledger in the workspace, made when first written."""
    path = Path(test_workspace) / ".refold" / "ledger.db"
    assert not path.exists()
    yield path
    assert path.is_file()
