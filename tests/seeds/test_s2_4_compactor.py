"""S2.4, S2.10: the compactor of the offload document, and the names of all five documents."""

import re
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import CompactOptions, CompactResult, ContextCompactor
from tests.seeds.growing import grow, say
from tests.seeds.test_offload_grows import take_step

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "documents.md", DOCS / "zh" / "documents.md")
# The names of classes, functions, settings and files in each document. Private names of the first have their own test.
NAMES = {
    1: "ContextCompressionManager TokenCounter ContextCompressor CompressionConfig CompressionResult PreparedContext "
    "MarkdownSync MdSync SessionStore x-agent.yaml threshold_rounds threshold_tokens retention_count "
    "token_counter.py compressor.py manager.py models.py md_sync.py memory/YYYY-MM-DD.md vector_store",
    2: "CompressionConfig MessageImportance ContextSummary context_status context_compress context_config "
    "context_summary truncateToolOutput maxTurns keepRecent maxToolOutput summaryMaxChars autoCompress "
    "importanceThreshold turnRange keyPoints config.json summaries.json",
    3: "CompactResult CompactOptions ContextCompactor forceCompact offloadIfNeeded offloadedCount "
    "stillExceedsThreshold OffloadStorage splitMessages restoreOffloadedContent generateSummary loadSummaryPrompt "
    "buildCompressedHistory cleanupOffloadedFiles rewriteHistory maxIterations emitOffloadNotification "
    "emitCompactNotification SYNAPSE_COMPACT_TRIGGER_THRESHOLD SYNAPSE_COMPACT_TARGET_TOKENS "
    "SYNAPSE_COMPACT_PRESERVE_COUNT SYNAPSE_COMPACT_MODEL SYNAPSE_COMPACT_RETRY_COUNT compact-summary.md "
    "context-manager.ts context-compactor.ts offload-storage.ts agent-runner.ts settings.ts repl.ts",
    4: "markCompressed createSummary compressConversationContext uncompressMessages markUncompressed compressionCount "
    "formatMessagesForCompression COMPRESSION_SYSTEM_PROMPT CompressRequest CompressResponse MessageService summaryOf "
    "runSchemaMigrations contextCompressionEnabled contextCompressionThreshold lastInputTokens contextLength "
    "KEEP_RECENT MAX_COMPRESSION_CHARS MAX_TOOL_OUTPUT ContextIndicator CompressedSummary MemoryExtractor "
    "loadConversation schema.ts messageService.ts conversation.ts chat.ts chatStore.ts conversationStore.ts "
    "settingsStore.ts preload/index.ts Settings.tsx",
    5: "maybeCompactContext didCompact splitByTurns takeLastTurns pruneMessages estimateTokens onCompacted "
    "CONTEXT_WINDOW_TOKENS COMPACT_TRIGGER COMPACT_TARGET KEEP_LAST_TURNS MAX_COMPACTION_ATTEMPTS finishReason "
    "context/index.ts config/index.ts",
}
SECTIONS = (
    "Technical Context",
    "Project Overview",
    "Code Changes",
    "Debugging & Issues",
    "Current Status",
    "Pending Tasks",
    "User Preferences",
    "Key Decisions",
)
CLASSES = (
    "CompactOptions",
    "CompactResult",
    "CompressionConfig",
    "CompressionResult",
    "ContextCompactor",
    "ContextCompressionManager",
    "ContextCompressor",
    "ContextSummary",
    "MarkdownSync",
    "MessageImportance",
    "PreparedContext",
    "TokenCounter",
)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_the_documents_can_be_imported(name: str) -> None:
    assert getattr(refold, name).__name__ == name
    assert name in refold.__all__


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
@pytest.mark.parametrize("document", sorted(NAMES))
def test_every_name_of_a_document_is_on_the_page_that_maps_them(document: int, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [name for name in NAMES[document].split() if not re.search(rf"\b{re.escape(name)}\b", text)] == []


class Writer:
    """A model that sums up, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.asked = fails, 0

    async def complete(self, prompt: str) -> str:
        self.asked += 1
        if self.fails:
            raise RuntimeError("out of order")
        # Words that only repeat the summary before are refused.
        words = "The garden needs water and some shade." if self.asked == 1 else "The seeds go into warm soil."
        return "\n".join(f"## {title}\n{words}" for title in SECTIONS)


async def test_a_history_in_and_a_compacted_one_out(tmp_path: Path) -> None:
    *_, history = grow("long", "en", 41)
    compactor = ContextCompactor(tmp_path, Writer(), CompactOptions(target_tokens=500, preserve_count=5))
    result = await compactor.compact(history)
    assert isinstance(result, CompactResult)
    assert result.success
    head, *kept = result.messages
    assert head["role"] == "user"  # type: ignore[index]
    assert head["content"].startswith("[Compressed History]\n\n")  # type: ignore[index]
    assert kept == history[-5:]
    assert result.preserved_count == 5
    assert result.freed_tokens == result.previous_tokens - result.current_tokens > 0
    # The loop continues with the result, and compacts again.
    more: list[Any] = [*result.messages, *(say(at, "long", "en") for at in range(41, 61))]
    again = await compactor.compact(more)
    assert again.messages[1:] == more[-5:]
    assert len(again.messages) == 6
    compactor.close()


async def test_few_messages_or_none_are_a_success_that_frees_nothing(tmp_path: Path) -> None:
    model = Writer()
    compactor = ContextCompactor(tmp_path, model)
    *_, history = grow("long", "en", 5)
    for messages in ([], history):
        result = await compactor.compact(messages)
        assert (result.success, result.freed_tokens, result.messages) == (True, 0, messages)
    assert model.asked == 0
    compactor.close()


async def test_s2_7_a_model_that_fails_leaves_the_history_as_it_is(tmp_path: Path) -> None:
    *_, history = grow("long", "en", 41)
    model = Writer(fails=True)
    compactor = ContextCompactor(tmp_path, model, CompactOptions(retry_count=1))
    result = await compactor.compact(history)
    assert (result.success, result.freed_tokens, result.messages) == (False, 0, history)
    assert model.asked >= 1
    compactor.close()


async def test_calls_keep_their_results(tmp_path: Path) -> None:
    history: list[Any] = [{"role": "user", "content": "Read all the files."}]
    for at in range(10):
        history += take_step(at, 50)
    compactor = ContextCompactor(tmp_path, Writer())
    result = await compactor.compact(history)
    roles = [message["role"] for message in result.messages]  # type: ignore[index]
    assert roles[1] != "tool", "a result is never without its call"
    assert result.messages[-1] == history[-1]
    compactor.close()
