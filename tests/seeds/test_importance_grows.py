"""The importance document in a conversation that grows turn by turn, with the document's own numbers."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.agent import AgentLimits
from refold.agent.context_tools import ContextTools
from refold.agent.events import ToolFinished
from refold.conversation.turn import find_rounds
from refold.testing import ScriptedProvider, call_tool
from refold.testing import say as answer
from tests.rigs.agent import make_agent, make_manager, pick, run_all
from tests.rigs.growing import SENTENCES, grow, say, work
from tests.rigs.server import make_body, start_rig

KEPT_TURNS, MESSAGES, SUMMARY_CHARS = 10, 20, 500
SPACING = 10  # keepRecent messages come between two compressions, or every turn would fold one turn.
IMPORTANCE = CompressionConfig(preset="importance")
SLOW = pytest.mark.slow


def check_view(messages: list[Any], history: list[Any]) -> None:
    """Check a compressed view: one summary within its limit, then what is important, then the last ten turns."""
    head, *rest = messages
    assert len(head["content"]) <= SUMMARY_CHARS
    recent = history[-(2 * KEPT_TURNS - 1) :]
    assert rest[-len(recent) :] == recent
    important = rest[: -len(recent)]
    assert [one for one in history if one in important] == important, "what is important keeps its order"


@pytest.mark.parametrize(
    ("size", "language", "count"),
    [
        ("mixed", "zh", 60),
        pytest.param("short", "en", 320, marks=SLOW),
        pytest.param("short", "zh", 320, marks=SLOW),
        pytest.param("long", "en", 320, marks=SLOW),
        pytest.param("mixed", "zh", 320, marks=SLOW),
    ],
)
def test_s1_3_a_growing_chat_is_compressed_above_twice_the_recent_turns(
    tmp_path: Path, size: str, language: str, count: int
) -> None:
    acted: list[int] = []
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        for history in grow(size, language, count):
            if acted:
                due = acted[-1] + SPACING - len(history) + 2
                told = manager.status("s1").ahead.tell()
                assert told.endswith(f"; {due} messages to go"), told
            prepared = manager.prepare_context_sync("s1", history)
            assert prepared.report is not None
            if len(history) <= MESSAGES:
                assert prepared.messages == history
                assert prepared.report.stages == ()
                continue
            check_view(prepared.messages, history)
            is_due = not acted or len(history) - acted[-1] >= SPACING
            assert bool(prepared.report.stages) is is_due
            if is_due:
                acted.append(len(history))
                assert "more than 20, twice keep_recent" in str(prepared.report.reason)
        assert not manager.status("s1").stopped
        assert manager.verify() == []
    assert len(acted) >= (count - MESSAGES) // SPACING - 1, "it stopped"


def test_s1_3_what_is_important_stays_in_a_growing_chat(tmp_path: Path) -> None:
    marked = {4: "Remember: the port must always be 8123.", 40: "We decided that the deadline is 2031-05-04."}
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        for history in grow("short", "en", 80):
            for at, words in marked.items():
                if at < len(history):
                    history[at]["content"] = words
            prepared = manager.prepare_context_sync("s1", history)
    said = [message["content"] for message in prepared.messages]  # type: ignore[index]
    assert said[1:3] == list(marked.values())
    assert 1 + 2 + 19 <= len(said) < 1 + 2 + 19 + SPACING


def test_s1_8_a_summary_of_500_characters_quotes_whole_sentences(tmp_path: Path) -> None:
    topics = ("teaching yoga to the neighbours", "a garden of roses", "the old library", "a long trip to the coast")
    history = [
        {
            "role": ("user", "assistant")[at % 2],
            "content": f"(4:{at:02} pm) Deborah: Hello again. It turns out that my favourite is {topics[at % 4]}, "
            f"number {at}, because it helped me to find peace during a rough time.",
        }
        for at in range(41)
    ]
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        head = manager.prepare_context_sync("s1", history).messages[0]["content"]  # type: ignore[index]
    quoted = [line for line in head.splitlines() if line.startswith(("U> ", "A> "))]
    assert quoted
    assert all(line.endswith("a rough time.") for line in quoted), head


def test_s1_3_a_request_that_is_sent_again_changes_nothing(tmp_path: Path) -> None:
    manager = ContextCompressionManager(IMPORTANCE, tmp_path)
    *_, history = grow("mixed", "en", 41)
    first = manager.prepare_context_sync("s1", history)
    for _ in range(4):
        again = manager.prepare_context_sync("s1", history)
        assert again.messages == first.messages
        assert again.report is not None
        assert again.report.stages == ()
    assert not manager.status("s1").stopped


def test_s1_1_max_turns_is_the_most_rounds_in_view_however_many_are_important(tmp_path: Path) -> None:
    """Half of the messages are important; one says twice why, and outlives the others."""
    first = "Remember: the pump must always stay at `pump-7`. We decided that. "
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        for history in grow("long", "en", 335):
            for at, message in enumerate(history):
                message["content"] = f"{first if at == 2 else ''}{message['content']}"
            prepared = manager.prepare_context_sync("s1", history)
            assert len(find_rounds([item for item in manager.read_view("s1") if not item.is_fold])) <= 50
            assert len(prepared.messages) <= 60
            kept = [message for message in prepared.messages if str(message["content"]).startswith(first)]  # type: ignore[index]
            assert kept or len(history) < 3
    *_, history = grow("long", "en", 335)
    assert history[0] not in prepared.messages, "the oldest of the others go first"
    assert manager.config.max_turns == 50


def test_s1_1_max_turns_alone_triggers_with_rounds_of_an_agent_too(tmp_path: Path) -> None:
    config = CompressionConfig(max_turns=12, keep_recent=3)
    with ContextCompressionManager(config, tmp_path) as manager:
        for history in grow("short", "en", 41):
            prepared = manager.prepare_context_sync("s1", history)
            assert (prepared.summary is not None) is (len(history) > 24)
        for history in work(turns=1, steps=20):
            prepared = manager.prepare_context_sync("s2", history)
            assert (prepared.summary is not None) is (len(history) > 25)


def check_work(messages: list[Any], history: list[Any]) -> None:
    """Check the view of an agent's session: records, what is important, and the last ten rounds whole."""
    assert len(messages) < 60
    if len(history) > MESSAGES + 2:
        assert "⟨f:" in str(messages[:2])
    recent = history[2 - 2 * KEPT_TURNS :]  # One round is a question alone, another an answer without a call.
    assert messages[-len(recent) :] == recent


@pytest.mark.parametrize("language", ["en", "zh"])
def test_s1_3_an_agent_that_takes_many_steps_for_each_turn_is_compressed(tmp_path: Path, language: str) -> None:
    acted: list[int] = []
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        for history in work(turns=4, steps=25, language=language):
            prepared = manager.prepare_context_sync("s1", history)
            check_work(prepared.messages, history)
            assert prepared.report is not None
            acted += [len(history)] if any(stage.edits for stage in prepared.report.stages) else []
        assert not manager.status("s1").stopped
        assert manager.verify() == []
    assert len(history) == 207
    assert acted[0] == 23, "at 21 messages the last ten rounds and the task are all there is"
    assert all(later - earlier <= SPACING + 4 for earlier, later in pairwise(acted))
    assert prepared.total_tokens < prepared.original_tokens / 5


def test_s1_3_an_agent_through_the_gateway_is_compressed(tmp_path: Path, empty_home: Path) -> None:
    with start_rig(tmp_path, config={"preset": "importance"}) as rig:
        for history in work(turns=2, steps=20):
            assert rig.post("openai-chat", make_body("openai-chat", history)).status_code == 200
            check_work(json.loads(rig.provider.requests[-1].body)["messages"], history)


async def test_s1_7_an_agent_at_work_in_the_chat_is_compressed(tmp_path: Path) -> None:
    def read_row(row: int) -> str:
        return "\n".join(f"plot {row}.{line}: {SENTENCES['en']}" for line in range(20))

    script = [call_tool("read_row", {"row": row}) for row in range(40)] + [answer("all rows were read")]
    with ScriptedProvider(script) as provider, make_manager(tmp_path, preset="importance") as manager:
        await run_all(
            make_agent(provider, manager, tools=[read_row], limits=AgentLimits(steps_max=60)), "Read the beds."
        )
        sizes = [len(request.messages) for request in provider.requests]
    assert len(sizes) == 41
    assert max(sizes) <= 2 * MESSAGES


def test_s1_3_a_growing_chat_through_the_gateway_is_compressed(tmp_path: Path, empty_home: Path) -> None:
    with start_rig(tmp_path, config={"preset": "importance"}) as rig:
        for history in grow("mixed", "en", 40):
            assert rig.post("openai-chat", make_body("openai-chat", history)).status_code == 200
            sent = json.loads(rig.provider.requests[-1].body)["messages"]
            if len(history) > MESSAGES:
                check_view(sent, history)
            else:
                assert sent == history


async def test_s1_7_a_growing_chat_with_the_agent_is_compressed(tmp_path: Path) -> None:
    with ScriptedProvider("fine, the soil is warm") as provider, make_manager(tmp_path, preset="importance") as manager:
        agent = make_agent(provider, manager)
        for at in range(0, 40, 2):
            await run_all(agent, say(at, "mixed", "en")["content"])
            sent = provider.requests[-1].messages
            # At 21 messages two go behind a summary; ten more come before the next compression.
            assert len(sent) == (at + 1 if at < MESSAGES else MESSAGES + (at - MESSAGES) % SPACING)
            assert ("earlier messages" in sent[0]["content"]) is (at >= MESSAGES)


@pytest.mark.parametrize("words", ["The pump is at pump-7/intake.cfg.\n" * 200, "水泵在花园的东边，需要修理。\n" * 200])
async def test_s1_8_a_summary_by_a_model_keeps_to_its_characters_as_a_whole(tmp_path: Path, words: str) -> None:
    config = CompressionConfig(preset="importance", summariser="llm")

    class Writer:
        async def complete(self, prompt: str) -> str:
            return words

    history = [{**one, "content": f"{one['content']} {words[:60]}"} for one in list(grow("mixed", "en", 61))[-1]]
    with ContextCompressionManager(config, tmp_path, llm=Writer()) as manager:
        prepared = await manager.prepare_context("s1", history)
        (summary,) = manager.summaries("s1", 1)
    assert len(prepared.messages[0]["content"]) <= SUMMARY_CHARS  # type: ignore[index]
    assert len(summary.content) <= SUMMARY_CHARS
    assert words[:10] in summary.content


@pytest.mark.parametrize(("language", "head"), [("en", "[turn 1]"), ("zh", "[第 1 轮]")])
def test_s1_5_a_summary_of_a_single_turn_names_one_turn(tmp_path: Path, language: str, head: str) -> None:
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        for history in work(turns=1, steps=12, language=language):
            manager.prepare_context_sync("s1", history)
        assert manager.summaries("s1")[0].turn_range == (1, 1)
        assert ContextTools(manager, "s1").context_summary().startswith(f"{head}\n")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_s1_5_and_s1_6_summaries_are_a_history_that_says_which_is_in_force(tmp_path: Path, language: str) -> None:
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        for history in work(turns=4, steps=12, language=language):
            prepared = manager.prepare_context_sync("s1", history)
            kept = manager.summaries("s1")
            written = json.loads((tmp_path / ".compression" / "summaries.json").read_text("utf-8")) if kept else []
            assert [row["content"] for row in written] == [one.content for one in kept]
            assert [row["inForce"] for row in written] == [one.is_in_force for one in kept]
            folds = sum(one.kind == "fold" for one in prepared.sources)
            assert sum(one.is_in_force for one in kept) == folds, "what is in view is in force, and nothing else"
        assert len(kept) > 3
        assert [one.timestamp for one in kept] == sorted((one.timestamp for one in kept), reverse=True)
        assert [one.turn_range[1] for one in kept] == sorted((one.turn_range[1] for one in kept), reverse=True)
        shown = ContextTools(manager, "s1").context_summary(limit=3)
        places = [shown.index(one.content) for one in kept[:3]]
        assert places == sorted(places)
        replaced = sum(not one.is_in_force for one in kept[:3])
        assert shown.count("已不在视图中" if language == "zh" else "no longer in view") == replaced > 0
        newest = kept[0]
        manager.undo("s1")
        undone = manager.summaries("s1")[0]
        assert undone.content == newest.content
        assert not undone.is_in_force
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:  # Another process sees the same history.
        assert [one.id for one in manager.summaries("s1")] == [one.id for one in kept]


@pytest.mark.parametrize(
    ("asked", "output", "marker"),
    [
        ("读一下日志。", "a line of English words in a log\n" * 900, "... [截断 "),
        ("Read the log.", "一行中文的日志输出内容\n" * 900, "... [truncated "),
    ],
)
async def test_s1_4_markers_are_in_the_language_of_the_conversation(
    tmp_path: Path, asked: str, output: str, marker: str
) -> None:
    def read_log() -> str:
        return output

    with (
        ScriptedProvider([call_tool("read_log"), answer("ok")]) as provider,
        make_manager(tmp_path, preset="importance") as manager,
    ):
        agent = make_agent(provider, manager, tools=[read_log], limits=AgentLimits(tool_chars_max=4_000))
        events = await run_all(agent, asked)
        sent = provider.requests[-1].messages[-1]["content"]
    (done,) = pick(events, ToolFinished)
    assert marker in done.text, "what the agent cuts"
    assert marker in sent, "what the preset cuts"
    call = {"id": "c1", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    history = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": output},
    ]
    with ContextCompressionManager(IMPORTANCE, tmp_path / "library") as library:
        shown = library.prepare_context_sync("s1", history).messages[-1]
    assert marker in shown["content"]  # type: ignore[index]
    assert len(shown["content"]) <= 3_000  # type: ignore[index]


def test_s1_5_the_language_of_an_answer_follows_the_conversation_not_one_message(tmp_path: Path) -> None:
    with ContextCompressionManager(IMPORTANCE, tmp_path) as manager:
        *_, history = grow("mixed", "zh", 15)
        manager.append(
            "s", [*history, {"role": "assistant", "content": "好的"}, {"role": "user", "content": "ok, thanks"}]
        )
        assert ContextTools(manager, "s").context_summary() == "还没有压缩过，没有摘要。"


async def test_s1_5_the_tools_answer_as_the_document_shows(tmp_path: Path) -> None:
    config = {"preset": "importance", "autoCompress": False}
    script = [
        call_tool("context_status"),
        call_tool("context_compress"),
        call_tool("context_config", {"keepRecent": 15, "maxToolOutput": 5000}),
        answer("done"),
    ]
    with ScriptedProvider(script) as provider, make_manager(tmp_path, **config) as manager:
        manager.append("s", list(grow("long", "zh", 45))[-1])
        events = await run_all(make_agent(provider, manager), "看看上下文，然后压缩它。")
        assert (manager.config.keep_recent, manager.config.max_tool_output) == (15, 5000)
    status, compressed, configured = [one.text for one in pick(events, ToolFinished)]
    assert "配置：最大轮数 50，保留最近轮数 10，工具输出字符上限 3000，摘要字符上限 500，自动压缩 关闭" in status
    assert "总消息数 47，已压缩 0 条" in status
    before, after = re.findall(r"压缩完成：(\d+) → (\d+) 条消息", compressed)[0]
    assert int(after) < int(before)
    assert "keep_recent = 15" in configured
