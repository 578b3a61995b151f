"""The offload document in a conversation that grows step by step, with the document's own numbers."""

import threading
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.agent.context_tools import ContextTools
from refold.cli.repl.commands import run_command
from refold.testing import ScriptedProvider
from tests.rigs.agent import make_manager
from tests.rigs.growing import grow
from tests.seeds.test_agent_rows import make_chat, make_screen

WINDOW, THRESHOLD = 40_000, 30_000


def take_step(at: int, lines: int) -> list[dict[str, Any]]:
    """Return a step of an agent: a call and an output of about 12 tokens a line."""
    call = {"id": f"c{at}", "type": "function", "function": {"name": "read", "arguments": f'{{"at": {at}}}'}}
    output = "\n".join(f"{at}:{line} a line of the file that was read" for line in range(lines))
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{at}", "content": output},
    ]


def folds(prepared: Any) -> int:
    return sum("[Compressed History]" in str(message.get("content")) for message in prepared.messages)


class Waiting:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked = 0

    async def complete(self, prompt: str) -> str:
        self.asked += 1
        self.may_answer.wait(60)
        return "The file was read, line by line."


@pytest.mark.parametrize("enough", [15_000, 1_000_000])
def test_s2_2_nothing_is_folded_while_offloading_alone_is_enough(tmp_path: Path, enough: int) -> None:
    """In the second case offloading never frees enough, but it brings the history under the threshold again."""
    config = CompressionConfig(preset="offload", window=WINDOW, compact_trigger_threshold=enough)
    history: list[dict[str, Any]] = [{"role": "user", "content": "Read all the files."}]
    offloaded = 0
    with ContextCompressionManager(config, tmp_path) as manager:
        for at in range(60):
            history += take_step(at, 100)
            prepared = manager.prepare_context_sync("s1", history)
            assert prepared.report is not None
            acted = [one.stage for one in prepared.report.stages if one.edits]
            if acted:
                assert acted == ["offload"]
                assert prepared.total_tokens < THRESHOLD
                offloaded += 1
            assert folds(prepared) == 0
            if offloaded == 3:
                break
    assert offloaded == 3


def test_s2_13_the_request_that_crosses_the_threshold_is_offloaded_while_a_summary_is_prepared(tmp_path: Path) -> None:
    model = Waiting()
    config = CompressionConfig(preset="offload", window=WINDOW, summariser="llm")
    history: list[dict[str, Any]] = list(grow("long", "en", 141))[-1]
    with ContextCompressionManager(config, tmp_path, llm=model) as manager:
        for at in range(60):
            history += take_step(at, 150)
            prepared = manager.prepare_context_sync("s1", history)
            if any("Tool result is at" in str(message.get("content")) for message in prepared.messages):
                break
            assert prepared.total_tokens < THRESHOLD, "the request that crossed the threshold was not offloaded"
        else:
            pytest.fail("nothing was offloaded")
        model.may_answer.set()
        manager._background.join()
    assert model.asked <= 2


async def test_s2_10_and_s2_12_compact_says_what_happened_in_the_language_of_the_user(tmp_path: Path) -> None:
    class Broken:
        async def complete(self, prompt: str) -> str:
            raise RuntimeError("out of order")

    settings = {"preset": "offload", "summariser": "llm", "compact_retry_count": 1}
    with ScriptedProvider("fine") as provider, make_manager(tmp_path, Broken(), **settings) as manager:
        screen, console = make_screen()
        chat = make_chat(provider, manager)
        await run_command(chat, screen, "/compact")
        assert "Nothing to compress." in console.export_text()
        *_, history = grow("mixed", "zh", 41)
        manager.append(chat.session_id, history)
        before = [item.raw for item in manager.read_view(chat.session_id)]
        await run_command(chat, screen, "/compact")
        assert "压缩失败，保持原历史不变" in console.export_text()
        assert [item.raw for item in manager.read_view(chat.session_id)] == before
        assert (await ContextTools(manager, chat.session_id).context_compress()).startswith("压缩失败，保持原历史不变")
        assert await ContextTools(manager, "new").context_compress() == "Nothing to compress."
    with make_manager(tmp_path / "zh", language="zh") as manager:
        assert await ContextTools(manager, "new").context_compress() == "无需压缩。"


@pytest.mark.parametrize("language", ["en", pytest.param("zh", marks=pytest.mark.slow)])
def test_s2_6_a_model_that_writes_no_headings_still_compacts_a_growing_chat(tmp_path: Path, language: str) -> None:
    words = {"en": "The garden needs water and some shade.", "zh": "花园需要浇水，也需要一些阴凉。"}[language]

    class Plain:
        asked = 0

        async def complete(self, prompt: str) -> str:
            self.asked += 1
            return words

    model = Plain()
    config = CompressionConfig(preset="offload", window=8_000, reserve=500, summariser="llm", background=False)
    compacted = 0
    with ContextCompressionManager(config, tmp_path, llm=model) as manager:
        for history in grow("long", language, 140):
            prepared = manager.prepare_context_sync("s1", history)
            assert prepared.report is not None
            if any(stage.edits for stage in prepared.report.stages):
                compacted += 1
                assert prepared.messages[0]["content"].startswith(f"[Compressed History]\n\n{words}")  # type: ignore[index]
                assert prepared.messages[1:] == history[-5:]
    assert compacted >= 2
    assert model.asked == 2 * compacted, "each time the headings are asked for once more"
