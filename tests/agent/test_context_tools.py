"""The context tools (S1.5): short, exact, readable answers, in the language of the conversation."""

import json
import re
from pathlib import Path

import pytest

from refold import ContextCompressionManager
from refold.agent.context_tools import ContextTools
from refold.testing import ScriptedProvider, call_tool, say
from tests.agent.test_overflow import write_history
from tests.rigs.agent import both, check_stored, make_agent, make_manager, pick, run_all


def open_tools(
    folder: Path, *, chinese: bool = False, steps: int = 30
) -> tuple[ContextCompressionManager, ContextTools]:
    manager = make_manager(folder, window=16_000, economic=False)
    history = write_history("openai-chat", steps)
    if chinese:
        history += [{"role": "user", "content": "请总结一下目前的进展，谢谢。" * 4}] * 12
    manager.append("s", history, format="openai-chat")
    return manager, ContextTools(manager, "s")


def test_status_has_the_exact_figures(tmp_path: Path) -> None:
    manager, tools = open_tools(tmp_path)
    with manager:
        now = manager.status("s")
        text = tools.context_status()
    assert f"Context: {now.tokens:,} of {now.hard:,} tokens" in text
    assert "In view: 60 of 60 messages, 30 turns" in text
    assert f"Compresses at {now.soft:,} tokens; {now.soft - now.tokens:,} tokens to go." in text
    assert "\nConfiguration: autoCompress true.\n" in text
    assert "Statistics: 60 messages, 0 compressed, 0 tokens folded away." in text


def test_answers_are_in_chinese_where_people_speak_chinese(tmp_path: Path) -> None:
    manager, tools = open_tools(tmp_path, chinese=True)
    with manager:
        assert tools.context_status().startswith("上下文：")
        assert tools.context_summary() == "还没有压缩过，没有摘要。"
        assert "没有提到" in tools.context_recall("量子引力")
        assert tools.context_config().startswith("压缩设置：")
        assert tools.context_expand("m:00000000").startswith("找不到")


LOG = "\n".join(f"2026-11-17 ERROR worker {n} lost its connection to the database server" for n in range(60))
LOG_ZH = "\n".join(f"2026-11-17 错误 工作进程 {n} 与数据库服务器的连接已断开" for n in range(60))


@pytest.mark.parametrize(
    ("said", "language"),
    [
        (["这个端口为什么打不开？", "再试一次，谢谢。", LOG], "zh"),
        (["看这个：\n" + LOG, "还有这个：\n" + LOG], "zh"),
        (["这个端口为什么打不开？", "再试一次，谢谢。", "continue"], "zh"),
        (["Why is this port closed?", "Try it again, thanks.", LOG_ZH], "en"),
        (["Why is this port closed?", "Try it again, thanks.", "继续"], "en"),
    ],
)
def test_one_message_does_not_change_the_language_of_the_answers(
    tmp_path: Path, said: list[str], language: str
) -> None:
    with make_manager(tmp_path) as manager:
        for text in said:
            manager.append("s", [{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}])
        assert ContextTools(manager, "s").find_language() == language


async def test_compress_says_before_after_and_what_did_it(tmp_path: Path) -> None:
    manager, tools = open_tools(tmp_path)
    with manager:
        before = manager.status("s").tokens
        text = await tools.context_compress("keep the ports")
        after = manager.status("s").tokens
        again = await tools.context_compress()
    assert f" messages, {before:,} → {after:,} tokens, {before - after:,} freed (fold −" in text
    assert re.match(r"Compressed: 60 → \d+ messages", text)
    assert re.match(r"(Nothing was compressed|Compressed)", again)


async def test_summaries_recall_expand_and_pin_lead_to_the_originals(tmp_path: Path) -> None:
    manager, tools = open_tools(tmp_path)
    with manager:
        await tools.context_compress()
        assert tools.context_summary(1).startswith("[turns 1–")
        found = tools.context_recall("The port of service 4 is 4028")
        handle = re.search(r"⟨(m:[0-9a-f]{8})", found)
        assert handle
        assert "The port of service 4 is 4028." in found
        page = tools.context_expand(handle[1], limit=40)
        head, text = page.split("\n", 1)
        assert head == f"⟨{handle[1]}⟩ characters 0–40; continue with offset=40"
        whole = text + tools.context_expand(handle[1], 40, 10_000).split("\n", 1)[1]
        assert whole == manager.expand("s", handle[1])
        assert tools.context_expand(handle[1], 10**6).endswith("ends before character 1000000.")
        assert "is pinned and will not be compressed; 1 message pinned now." in tools.context_pin(handle[1])


@pytest.mark.parametrize(
    "handle", ["m:00000000", "nonsense", "", "../../etc/passwd", "f:ffffffff", "⟨m:1⟩", "x" * 5_000]
)
def test_an_unknown_handle_gets_an_answer_that_ends_the_search(handle: str, tmp_path: Path) -> None:
    manager, tools = open_tools(tmp_path, steps=2)
    with manager:
        for answer in (tools.context_expand(handle), tools.context_pin(handle)):
            assert answer.startswith("Not found: ")
            assert len(answer) < 300


def test_config_sets_what_is_safe_and_keeps_it_in_the_workspace(tmp_path: Path) -> None:
    manager, tools = open_tools(tmp_path, steps=2)
    with manager:
        assert "keepRecent: " in tools.context_config()
        assert "Set keep_recent = 7" in tools.context_config({"keepRecent": 7})
        assert manager.config.keep_recent == 7
        stored = json.loads((tmp_path / ".compression" / "config.json").read_text())
        assert stored["keepRecent"] == 7
        for changes in ({"window": 10}, {"ladder": []}, {"write_files": True}, {"model": "x"}):
            assert tools.context_config(changes).startswith("There is no setting ")  # type: ignore[arg-type]
        for changes in ({"keepRecent": 0}, {"keepRecent": "many"}, {"maxToolOutput": -1}, {"autoCompress": 3}):
            assert "was not changed; it takes " in tools.context_config(changes)  # type: ignore[arg-type]
        assert manager.config.keep_recent == 7
    with make_manager(tmp_path) as again:
        assert again.config.keep_recent == 7


async def test_before_the_first_message_every_tool_answers_in_words(tmp_path: Path) -> None:
    with make_manager(tmp_path) as manager:
        tools = ContextTools(manager, "new")
        assert tools.context_status() == "This session has no messages yet."
        assert tools.context_recall("x") == "This session has no messages yet."
        assert tools.context_recall("  ") == "The query is empty; give a few words to look for."
        assert "there are no summaries" in tools.context_summary()
        assert await tools.context_compress() == "Nothing to compress."
        assert tools.context_expand("m:00000000").startswith("Not found: ")


@both
async def test_an_agent_compresses_its_own_context_in_the_middle_of_a_step(wire: str, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
    pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")
    script = [call_tool("context_compress", {"instructions": "keep ports"}), call_tool("context_status"), say("done")]
    with ScriptedProvider(script) as provider, make_manager(tmp_path, window=60_000, economic=False) as manager:
        manager.append("s", write_history(wire), format=wire)
        events = await run_all(make_agent(provider, manager, wire), "Make room.")
        sizes = [len(request.body) for request in provider.requests]
        check_stored(manager, wire)
    assert sizes[1] < sizes[0] * 0.8
    compressed, status = [one.text for one in events if one.kind == "tool_finished"]  # type: ignore[attr-defined]
    assert compressed.startswith("Compressed: ")
    assert "1 compression," in status
    assert len(pick(events, object)) > 4
