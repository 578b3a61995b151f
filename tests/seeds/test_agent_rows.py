"""The rows of the design documents about the loop, its tools and the chat.

S1.4, S1.5, S1.7, S2.12, S2.13, S3.11, S4.6, S4.7.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from refold.agent import AgentLimits
from refold.agent.events import Compressed, Compressing, Finished, Offloaded, Retrying, StepStarted, ToolFinished
from refold.agent.models import Chosen
from refold.agent.tools import cut_output
from refold.cli.repl.commands import COMMANDS, run_command
from refold.cli.repl.screen import OPTIMISING, Screen
from refold.cli.repl.session import ChatSession, show_event
from refold.conversation import because
from refold.testing import RecordedRequest, ScriptedProvider, ScriptedUsage, call_tool, fail, say
from tests.agent.test_overflow import write_history
from tests.rigs.agent import check_stored, make_agent, make_manager, make_model, pick, run_all

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")


@pytest.mark.parametrize(
    ("line", "marker"),
    [
        ("a line of English words\n", "... [truncated {} characters] ..."),
        ("一行中文的输出内容\n", "... [截断 {} 字符] ..."),
    ],
)
def test_s1_4_a_tool_output_has_its_head_a_marker_with_the_exact_number_and_its_tail(line: str, marker: str) -> None:
    whole = line * 1_000
    shown = cut_output(whole, 2_000)
    start, end = marker.split("{}")
    head, rest = shown.split(start)
    number, tail = rest.split(end)
    assert len(shown) <= 2_000
    assert whole == head + whole[len(head) : len(head) + int(number)] + tail.removeprefix("\n")
    assert head.endswith("\n")  # Cut on the border of a line.
    assert tail.removeprefix("\n").startswith(line)


async def test_s1_4_the_agent_sends_tool_outputs_in_that_shape(tmp_path: Path) -> None:
    def long_output() -> str:
        return "".join(f"row {at} of the output\n" for at in range(5_000))

    with ScriptedProvider([call_tool("long_output"), say("ok")]) as provider, make_manager(tmp_path) as manager:
        agent = make_agent(provider, manager, tools=[long_output], limits=AgentLimits(tool_chars_max=3_000))
        events = await run_all(agent, "go")
        sent = provider.requests[-1].messages[-1]["content"]
    (done,) = pick(events, ToolFinished)
    assert done.chars_total == len(long_output())
    assert sent == done.text
    assert "... [truncated " in sent


async def test_s1_5_the_agent_is_offered_the_four_tools_and_their_answers_are_readable(tmp_path: Path) -> None:
    script = [
        call_tool("context_status"),
        call_tool("context_config", {"changes": {"keepRecent": 6}}),
        call_tool("context_compress"),
        call_tool("context_summary", {"limit": 1}),
        say("done"),
    ]
    with ScriptedProvider(script) as provider, make_manager(tmp_path, window=60_000, economic=False) as manager:
        manager.append("s", write_history("openai-chat"), format="openai-chat")
        events = await run_all(make_agent(provider, manager), "look after your context")
        offered = {one["function"]["name"] for one in provider.requests[0].json["tools"]}
    assert {"context_status", "context_compress", "context_config", "context_summary"} <= offered
    status, config, compressed, summary = [one.text for one in pick(events, ToolFinished)]
    assert status.startswith("Context: ")
    assert config.startswith("Set keep_recent = 6")
    assert compressed.startswith("Compressed: ")
    assert summary.startswith("[turns ")
    assert json.loads((tmp_path / ".compression" / "config.json").read_text())["keepRecent"] == 6


async def test_s1_7_the_context_is_compressed_before_a_model_call_and_not_after_it(tmp_path: Path) -> None:
    def more() -> str:
        return "\n".join(f"a line {at} with something new in it" for at in range(400))

    def step(request: RecordedRequest) -> Any:
        return call_tool("more") if len(provider.requests) < 6 else say("done")

    with ScriptedProvider(step, window=12_000) as provider, make_manager(tmp_path, window=12_000) as manager:
        events = await run_all(make_agent(provider, manager, tools=[more]), "go")
        check_stored(manager, "openai-chat")
    kinds = [one.kind for one in events if isinstance(one, Compressed | StepStarted | Finished)]
    assert "compacted" in kinds
    for at, kind in enumerate(kinds):
        if kind == "compacted":
            assert kinds[at + 1] in ("step_started", "compacted")


def make_chat(provider: ScriptedProvider, manager: Any) -> ChatSession:
    chosen = Chosen(make_model(provider), "asked for")
    return ChatSession(manager, chosen, lambda name, origin="": chosen, "s")


def make_screen() -> tuple[Screen, Console]:
    console = Console(record=True, width=80, no_color=True, force_terminal=False)
    return Screen(console, console, is_live=False), console


async def test_s2_12_compact_says_before_after_freed_and_deleted_files_and_is_in_the_help(tmp_path: Path) -> None:
    with (
        ScriptedProvider("ok") as provider,
        make_manager(tmp_path, window=60_000, economic=False) as manager,
    ):
        manager.append("s", write_history("openai-chat"), format="openai-chat")
        screen, console = make_screen()
        chat = make_chat(provider, manager)
        status = chat.status()
        assert status is not None
        before = status.tokens
        await run_command(chat, screen, "/compact keep the API names")
        after = manager.status("s").tokens
        await run_command(make_chat(provider, manager), screen, "/help")
        text = " ".join(console.export_text().split())
    assert f"{before:,} → {after:,} tokens" in text
    assert f"{before - after:,} freed" in text
    assert "unchanged:" in text
    assert "undo with /undo" in text
    assert "/compact [instructions]" in text
    named = "help context compress compact undo redo pin recall expand summary facts memory config model"
    assert set(COMMANDS) == {*named.split(), "sessions", "resume", "export", "cost", "quit"}


async def test_s3_1_compact_says_that_a_truncation_took_the_place_of_the_models_summary(tmp_path: Path) -> None:
    with (
        ScriptedProvider(fail(400, "no summaries today")) as provider,
        make_manager(tmp_path, preset="hybrid", window=60_000, summariser="llm") as manager,
    ):
        manager.append("s", write_history("openai-chat"), format="openai-chat")
        screen, console = make_screen()
        await run_command(make_chat(provider, manager), screen, "/compact")
        text = " ".join(console.export_text().split())
        assert "[Truncated Summary]" in str(manager.read_view("s"))
    assert "extractive summary: " in text
    assert "no summaries today" in text
    assert "freed" in text


async def test_s2_13_every_step_offloads_compacts_if_needed_reports_and_continues(tmp_path: Path) -> None:
    def read(number: int) -> str:
        return "\n".join(f"{number}:{at} a line of the file that was read" for at in range(150))

    def step(request: RecordedRequest) -> Any:
        at = len(provider.requests)
        return call_tool("read", {"number": at}) if at < 12 else say("done")

    with (
        ScriptedProvider(step, window=16_000) as provider,
        make_manager(tmp_path, preset="offload", window=16_000, compact_trigger_threshold=3_000) as manager,
    ):
        events = await run_all(make_agent(provider, manager, tools=[read]), "read all")
        check_stored(manager, "openai-chat")
    assert pick(events, Offloaded)
    assert all(one.files and one.tokens_freed > 0 for one in pick(events, Offloaded))
    assert pick(events, Finished)[0].text == "done"
    order = [one.kind for one in events if one.kind in ("offloaded", "step_started")]
    assert order[order.index("offloaded") + 1] in ("step_started", "offloaded")


def test_s3_11_optimising_is_shown_while_it_runs_and_the_result_after_it() -> None:
    screen, console = make_screen()
    show_event(screen, Compressing(because.OVER_SOFT(tokens=12_000, limit=11_000), 12_000))
    assert OPTIMISING == "Optimising context…"
    assert OPTIMISING in console.export_text(clear=False)
    show_event(screen, Compressed("soft limit", 12_000, 4_000, 1.2, "ab12cd34"))
    assert "context 12,000 → 4,000 tokens (−67%) · soft limit · undo with /undo ab12cd34" in " ".join(
        console.export_text().split()
    )


async def test_s4_6_finish_reason_length_forces_a_compression_always_in_this_preset(tmp_path: Path) -> None:
    cut = say("half an", finish_reason="length", usage=ScriptedUsage(9_000, 100))
    with ScriptedProvider([cut, say("whole")]) as provider, make_manager(tmp_path, preset="turns") as manager:
        manager.append("s", write_history("openai-chat", 30), format="openai-chat")
        events = await run_all(make_agent(provider, manager), "And now?")
    assert pick(events, Finished)[0].text == "whole"
    assert pick(events, Compressed)[0].reason == because.CUT_OFF()


async def test_s4_6_the_loop_says_nothing_of_a_full_window_that_is_nearly_empty(tmp_path: Path) -> None:
    """A chat grows by a few words each turn; then an answer reaches its own limit."""
    turns = [say("fine")] * 8
    cut = say("half an", finish_reason="length", usage=ScriptedUsage(1_706, 100))
    with ScriptedProvider([*turns, cut, say("whole")]) as provider, make_manager(tmp_path, preset="turns") as manager:
        agent = make_agent(provider, manager)
        for turn in range(9):
            events = await run_all(agent, f"Question {turn} about the garden, its soil and its seeds?")
        assert manager.status("s").tokens < 2_000
    (retried,) = pick(events, Retrying)
    assert str(retried.reason) == "the answer was cut off at its length limit"
    assert "full" not in str(events)


async def test_s4_6_attempts_are_limited(tmp_path: Path) -> None:
    cut = say("half an", finish_reason="length", usage=ScriptedUsage(9_000, 100))
    with ScriptedProvider(cut) as provider, make_manager(tmp_path, preset="turns") as manager:
        manager.append("s", write_history("openai-chat", 30), format="openai-chat")
        await run_all(make_agent(provider, manager), "And now?")
        assert len(provider.requests) <= 1 + manager.config.max_compaction_attempts


async def test_s4_7_on_compacted_is_called_and_the_messages_are_really_updated(tmp_path: Path) -> None:
    heard: list[Any] = []
    with ScriptedProvider("fine", window=8_000) as provider, make_manager(tmp_path, window=8_000) as manager:
        manager.append("s", write_history("openai-chat"), format="openai-chat")
        agent = make_agent(provider, manager, on_compacted=heard.append)
        await run_all(agent, "And now?")
        sent = provider.requests[-1].messages
    assert [one.kind for one in heard] == ["compacted"] * len(heard)
    assert heard[0].tokens_after < heard[0].tokens_before
    assert agent.messages == sent
    assert len(agent.messages) < 121
