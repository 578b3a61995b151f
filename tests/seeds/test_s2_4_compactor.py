"""S2.4, S2.10: the compactor of the offload document, and the names of all five documents."""

import re
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import CompactOptions, CompactResult, ContextCompactor
from tests.rigs.growing import grow, say
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
    assert name in refold.__all__ or name in refold.DOCUMENT_NAMES


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


class NamedClient:
    """A client as the document has it: the model is named with each call."""

    def __init__(self, answer: str = "The user plans a garden; rows 1 to 9 are planted.") -> None:
        self.answer = answer
        self.models: list[str] = []

    async def complete(self, prompt: str, *, model: str = "the client's own", tokens_max: int = 0) -> str:
        self.models.append(model)
        return self.answer


async def test_s2_3_the_model_of_the_options_and_of_the_variables_reaches_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, history = grow("long", "en", 30)
    named = {}
    for kind, options in {"options": CompactOptions(model="small-1"), "variable": None}.items():
        if kind == "variable":
            monkeypatch.setenv("SYNAPSE_COMPACT_MODEL", "small-2")
            monkeypatch.setenv("SYNAPSE_COMPACT_PRESERVE_COUNT", "3")
        client = NamedClient()
        compactor = ContextCompactor(tmp_path / kind, client, options)
        result = await compactor.compact(history)
        compactor.close()
        assert result.success
        named[kind] = (set(client.models), result.preserved_count)
    assert named == {"options": ({"small-1"}, 5), "variable": ({"small-2"}, 3)}


async def test_s2_3_a_client_that_takes_more_options_gets_the_model_too(tmp_path: Path) -> None:
    class Open(NamedClient):
        async def complete(self, prompt: str, model: str = "the client's own", **options: Any) -> str:
            return await super().complete(prompt, model=model)

    class Forwards(NamedClient):
        async def complete(self, prompt: str, **options: Any) -> str:
            return await super().complete(prompt, model=options.get("model", "none"))

    *_, history = grow("long", "en", 30)
    for client in (Open(), Forwards()):
        compactor = ContextCompactor(tmp_path / type(client).__name__, client, CompactOptions(model="small-9"))
        assert (await compactor.compact(history)).success
        compactor.close()
        assert set(client.models) == {"small-9"}


async def test_s2_3_the_model_reaches_the_client_of_a_manager_and_without_a_name_its_own_is_asked(
    tmp_path: Path,
) -> None:
    for name, model in (("small-3", "small-3"), (None, "the client's own")):
        client = NamedClient()
        config = refold.CompressionConfig(preset="offload", window=8_000, reserve=500, compact_model=name)
        with refold.ContextCompressionManager(config, tmp_path / str(name), llm=client) as manager:
            for history in grow("long", "en", 90):
                await manager.prepare_context("s", history)
            await manager.compress_async("s")
        assert set(client.models) == {model}


async def test_s2_7_an_answer_that_is_longer_than_its_source_is_nothing_to_gain_not_a_failure(tmp_path: Path) -> None:
    *_, history = grow("short", "en", 20)
    client = NamedClient("The garden needs water and some shade, and the seeds go into warm soil. " * 40)
    compactor = ContextCompactor(tmp_path, client)
    result = await compactor.compact(history)
    compactor.close()
    assert result.success
    assert result.freed_tokens == 0
    assert result.messages == history
    assert "nothing to gain" in str(result.reason)


def test_s0_2_and_s0_4_and_s1_4_the_documents_own_names_work_as_they_are_typed() -> None:
    counter = refold.TokenCounter()
    assert len(counter.encoding.encode("Hello world")) == counter.count_text("Hello world")
    compressor = refold.ContextCompressor(llm_service=NamedClient(), token_counter=counter)
    assert isinstance(compressor.llm, NamedClient)
    messages = [say(at, "short", "zh") for at in range(4)]
    for prompt in (compressor._build_summary_prompt(messages), compressor._build_fact_extraction_prompt(messages)):
        assert messages[3]["content"] in prompt
    output = "".join(f"line {number} of the output\n" for number in range(400))
    cut = compressor.truncate_tool_output(output)
    left_out = int(re.search(r"\n\.\.\. \[truncated (\d+) characters\] \.\.\.\n", cut)[1])  # type: ignore[index]
    assert len(cut) <= 3_000
    assert cut.startswith("line 0 ")
    assert cut.rstrip().endswith("line 399 of the output")
    assert len(output) - left_out < 3_000
    assert compressor.truncate_tool_output("short") == "short"


ROW = re.compile(r"^\| `.*? \| (?P<ours>[^|]*)\|$", re.M)
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]{3,}")


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_every_name_of_ours_on_the_map_is_in_the_code(page: Path) -> None:
    source = Path(refold.__file__).parent
    files = [one for one in source.rglob("*") if one.suffix in (".py", ".json", ".yaml", ".toml")]
    known = set(WORD.findall("\n".join(one.read_text("utf-8") for one in files)))
    known |= {one.stem for one in files}
    text = page.read_text("utf-8")
    rows = ROW.findall(text)
    assert len(rows) > 40
    named = {word for row in rows for code in re.findall(r"`([^`]+)`", row) for word in WORD.findall(code)}
    assert len(named) > 60
    assert named - known == {"_compress_context"}, "the row says that it is not there"
