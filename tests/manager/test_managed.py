"""A session as an object: an agent's loop on it, with the real SDKs against a provider that checks every request."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import ConfigError, ContextOverflow
from refold.testing import RecordedRequest, ScriptedProvider, ScriptedReply, call_tool, fail, say

WINDOW = 4_000
CONFIG = CompressionConfig(window=WINDOW, reserve=600)
TEXT = "Sensor {n} reported {n}17 units and a temperature of {n}4 degrees; nothing else changed in the hall. " * 10


def answer(request: RecordedRequest) -> ScriptedReply:
    n = sum("reported" in json.dumps(message) for message in request.messages)
    return call_tool("read", {"n": n})


def test_a_loop_on_openai_keeps_every_request_in_the_window(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CONFIG, tmp_path)
    session = manager.session("s1", model="gpt-4o")
    with (
        ScriptedProvider(answer, window=WINDOW) as provider,
        openai.OpenAI(base_url=provider.openai_url, api_key="any") as client,
    ):
        session.append([{"role": "user", "content": "Read every sensor."}])
        for n in range(30):
            prepared = session.prepare(system="", tools=session.tools("openai"))
            reply = client.chat.completions.create(
                model="gpt-4o", messages=prepared.messages, tools=session.tools("openai"), max_tokens=500
            )
            session.commit(reply)
            call = reply.choices[0].message.tool_calls[0]
            session.append([{"role": "tool", "tool_call_id": call.id, "content": TEXT.format(n=n)}])
    assert len(provider.requests) == 30
    stored = session.messages()
    assert len(stored) == 61
    assert sum(message["role"] == "tool" for message in stored) == 30
    assert session.status().compression_count > 0
    assert manager.figures("s1").bill.requests == 30
    assert "2417 units" in session.recall("2417 units")[0].text
    before = session.prepare().total_tokens
    session.undo()
    assert session.status().tokens > before


def test_a_whole_response_of_anthropic_is_a_reply(tmp_path: Path) -> None:
    session = ContextCompressionManager(CONFIG, tmp_path).session("s1", model="claude-sonnet-5-5")
    script = [ScriptedReply("Hello.", thinking="They greet me."), "Bye."]
    history: list[Any] = [{"role": "user", "content": "Hi."}]
    with (
        ScriptedProvider(script) as provider,
        anthropic.Anthropic(base_url=provider.url, api_key="any") as client,
    ):
        for said in ("Hi.", "Go on."):
            if len(history) > 1:
                history.append({"role": "user", "content": said})
            prepared = session.prepare(history)
            reply = client.messages.create(model="claude-sonnet-5-5", max_tokens=100, messages=prepared.messages)
            session.commit(reply)
            history.append({"role": "assistant", "content": reply.content})
    session.prepare(history)
    stored = session.messages()
    assert [message["role"] for message in stored] == ["user", "assistant", "user", "assistant"]
    assert stored[1]["content"][0]["type"] == "thinking"
    assert stored[3]["content"][0]["text"] == "Bye."


def test_an_answer_that_was_committed_and_is_resent_is_stored_once(tmp_path: Path) -> None:
    session = ContextCompressionManager(CONFIG, tmp_path).session("s1")
    history = [{"role": "user", "content": "Hi."}]
    session.prepare(history)
    session.commit({"role": "assistant", "content": "Hello."}, {"prompt_tokens": 9, "completion_tokens": 2})
    history += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Go on."}]
    assert session.prepare(history).messages == history
    assert session.messages() == history


def test_an_iterator_that_has_no_more_answers_ends_a_call_with_its_own_error(tmp_path: Path) -> None:
    answers: Iterator[str] = iter(())
    with ContextCompressionManager(CONFIG, tmp_path) as manager, pytest.raises(StopIteration):
        manager.session("s1").call(lambda _: next(answers), [{"role": "user", "content": "Hello."}])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_refusal_as_too_long_is_answered_once_with_less(is_async: bool, tmp_path: Path) -> None:
    session = ContextCompressionManager(CompressionConfig(window=50_000), tmp_path).session("s1", model="gpt-4o")
    history: list[Any] = [{"role": "user", "content": "Read every sensor."}]
    for n in range(30):
        history += [{"role": "assistant", "content": f"Sensor {n}?"}, {"role": "user", "content": TEXT.format(n=n)}]
    with ScriptedProvider("Done.", window=WINDOW) as provider:
        options = {"base_url": provider.openai_url, "api_key": "any", "max_retries": 0}

        async def run() -> Any:
            async with openai.AsyncOpenAI(**options) as remote:
                create = remote.chat.completions.create
                return await session.call_async(lambda p: create(model="gpt-4o", messages=p.messages), history)

        def run_now() -> Any:
            with openai.OpenAI(**options) as client:
                create = client.chat.completions.create
                return session.call(lambda p: create(model="gpt-4o", messages=p.messages), history)

        reply = asyncio.run(run()) if is_async else run_now()
        assert reply.choices[0].message.content == "Done."
        assert len(provider.requests) == 2
        history.append({"role": "user", "content": "And now?"})
        run_now()
        assert len(provider.requests) == 3, "what a refusal stated holds from then on"


def test_other_errors_are_the_callers(tmp_path: Path) -> None:
    session = ContextCompressionManager(CONFIG, tmp_path).session("s1")
    with (
        ScriptedProvider([fail(401, "bad key"), say("x")]) as provider,
        openai.OpenAI(base_url=provider.openai_url, api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(openai.AuthenticationError):
            session.call(
                lambda p: client.chat.completions.create(model="gpt-4o", messages=p.messages),
                [{"role": "user", "content": "Hi."}],
            )
        assert len(provider.requests) == 1


def test_pop_truncate_and_fork(tmp_path: Path) -> None:
    session = ContextCompressionManager(CONFIG, tmp_path).session("s1")
    assert session.pop() is None
    said = [{"role": role, "content": f"{role} {n}"} for n in range(20) for role in ("user", "assistant")]
    session.append(said)
    assert session.pop() == said[-1]
    assert session.messages() == said[:-1]
    session.compress()
    twin = session.fork("s2")
    assert twin.prepare().messages == session.prepare().messages
    assert session.truncate(4) == 35
    assert session.messages() == said[:4]
    assert session.prepare().messages == said[:4]
    assert twin.messages() == said[:-1]
    twin.append([{"role": "user", "content": "Only here."}])
    assert len(session.messages()) == 4


async def test_every_method_of_a_session_has_a_twin_that_never_blocks(tmp_path: Path) -> None:
    session = ContextCompressionManager(CONFIG, tmp_path).session("s1")
    assert await session.pop_async() is None
    said: list[dict[str, Any]] = []
    for n in range(12):
        said.append({"role": "user", "content": f"What does sensor {n} say?"})
        assert (await session.prepare_async(said)).messages[-1] is said[-1]
        said.append({"role": "assistant", "content": f"Sensor {n}: " + "quiet. " * 20})
        await session.commit_async(said[-1], {"prompt_tokens": 100, "completion_tokens": 40})
    assert await session.messages_async() == said
    assert await session.append_async([{"role": "user", "content": "Wait."}]) == len(said) + 1
    assert (await session.pop_async())["content"] == "Wait."
    assert (await session.compress_async()).success
    folded = (await session.prepare_async(said)).messages
    assert len(folded) < len(said)
    assert (await session.recall_async("sensor 0"))[0].text
    assert "Sensor 0" in await session.expand_async((await session.recall_async("Sensor 0 quiet"))[0].handle)
    twin = await session.fork_async("s2")
    await session.undo_async()
    assert (await session.prepare_async(said)).messages == said
    assert (await twin.prepare_async(said)).messages == folded
    await session.redo_async()
    assert (await session.prepare_async(said)).messages == folded
    assert await session.truncate_async(4) == len(said) - 4
    assert (await session.status_async()).messages == 4
    blocking = {name for name, one in vars(type(session)).items() if inspect.isfunction(one) and name[0] != "_"}
    lone = {name for name in blocking if not name.endswith("_async") and f"{name}_async" not in blocking}
    assert lone == {"named", "tools", "using"}, "these do not read or write"


def test_tools_are_bound_when_they_run(tmp_path: Path) -> None:
    manager = ContextCompressionManager(CONFIG, tmp_path)
    for name in ("red", "blue"):
        manager.append(name, [{"role": "user", "content": f"The door is {name}."}])
    current = "red"
    session = manager.session(lambda: current)
    recall, expand, status, squeeze = session.tools()
    assert [one.__name__ for one in (recall, expand, status, squeeze)] == [
        "context_recall",
        "context_expand",
        "context_status",
        "context_compress",
    ]
    assert "door is red" in recall("door")
    current = "blue"
    assert "door is blue" in recall("door")
    assert "door is blue" in session.run_tool("context_recall", '{"query": "door"}')
    assert "door is blue" in asyncio.run(session.run_tool_async("context_recall", {"query": "door"}))
    assert "query" in session.run_tool("context_recall", "{}")
    assert "no context tool" in session.run_tool("erase_all", "{}")
    assert session.tools("litellm") == session.tools("openai")
    for kind in ("nobodys", "parts", "../x"):
        with pytest.raises(ConfigError, match="there are no tools of kind"):
            session.tools(kind)
    assert {tool["name"] for tool in session.tools("anthropic")} == {
        tool["name"] for tool in session.tools("responses")
    }


def test_a_format_that_is_named_holds_for_every_message(tmp_path: Path) -> None:
    """A codec may write chat messages whose content has blocks of another provider: thinking of Claude's, for one."""
    thought = {"type": "thinking", "thinking": "Which sensor?", "signature": "c2ln"}
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    history: list[Any] = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Reading."}], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "17 units"},
    ]
    manager = ContextCompressionManager(CONFIG, tmp_path)
    named = manager.session("s1", format="openai-chat")
    assert named.prepare(history[:1]).messages == history[:1]
    assert named.prepare(history).messages == history
    again = {"role": "assistant", "content": [thought, {"type": "text", "text": "Done."}]}
    manager.append("s1", [again])
    assert manager.prepare_context_sync("s1", [*history, again]).messages == [*history, again]
    assert manager.status("s1").wire == "openai-chat"


@pytest.mark.slow
def test_a_manager_that_opens_the_session_later_decides_as_the_one_that_stayed(tmp_path: Path) -> None:
    """Carry and unsent messages are in the ledger: the next step is announced and done in the same way."""
    config = CompressionConfig(window=30_000)
    stayed = ContextCompressionManager(config, tmp_path / "stayed")
    history: list[Any] = [{"role": "user", "content": "Read every sensor."}]
    for n in range(40):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {n}}}'}}
        reply = {"role": "assistant", "content": None, "tool_calls": [call]}
        fresh = ContextCompressionManager(config, tmp_path / "fresh")
        views = []
        for manager in (stayed, fresh):
            session = manager.session("s1", model="claude-sonnet-5-5")
            prepared = session.prepare(history)
            views.append(prepared.messages)
            session.commit(reply, {"input_tokens": prepared.total_tokens, "output_tokens": 30})
        assert views[0] == views[1]
        assert fresh.status("s1").ahead == stayed.status("s1").ahead
        fresh.close()
        result = {"role": "tool", "tool_call_id": f"c{n}", "content": TEXT.format(n=n) * 3}
        history += [reply, result]
        # What is appended by one process and prepared by another was not sent yet.
        for manager in (stayed, ContextCompressionManager(config, tmp_path / "fresh")):
            manager.append("s1", [result])
    assert stayed.status("s1").compression_count == fresh.status("s1").compression_count > 0
    stayed.close()
    fresh.close()


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_stream_is_sent_again_only_if_nothing_of_it_has_arrived(is_begun: bool, tmp_path: Path) -> None:
    sent: list[int] = []

    async def send(prepared: Any) -> AsyncIterator[str]:
        sent.append(prepared.total_tokens)
        if is_begun:
            yield "begin"
        if len(sent) == 1:
            raise ContextOverflow("maximum context length is 2000 tokens", tokens_max=2_000)
        yield "end"

    history = [{"role": "user", "content": f"{n}: " + "word " * 500} for n in range(12)]
    with ContextCompressionManager(CONFIG, tmp_path) as manager:
        stream = manager.session("s1").stream_async(send, history)
        if is_begun:
            with pytest.raises(ContextOverflow):
                _ = [piece async for piece in stream]
        else:
            assert [piece async for piece in stream] == ["end"]
    assert len(sent) == (1 if is_begun else 2)
    assert sent == sorted(set(sent), reverse=True)


def test_a_refusal_that_states_no_limit_lowers_the_window_for_good(tmp_path: Path) -> None:
    history: list[Any] = [{"role": "user", "content": "Read every sensor."}]
    for n in range(30):
        history += [{"role": "assistant", "content": f"Sensor {n}?"}, {"role": "user", "content": TEXT.format(n=n)}]
    with ContextCompressionManager(CompressionConfig(window=50_000), tmp_path) as manager:
        session = manager.session("s1", model="gpt-4o")
        refused = session.prepare(history).total_tokens
        assert not session.refuse(ValueError("something else"))
        assert session.refuse(ContextOverflow("this is too long"))
        assert session.prepare(history).total_tokens <= 0.7 * refused
    with ContextCompressionManager(CompressionConfig(window=50_000), tmp_path) as reopened:
        assert reopened.session("s1", model="gpt-4o").prepare(history).total_tokens <= 0.7 * refused


def test_a_refusal_never_makes_a_window_larger(tmp_path: Path) -> None:
    with ContextCompressionManager(CompressionConfig(window=400, reserve=200), tmp_path) as manager:
        session = manager.session("s1", model="gpt-4o")
        session.prepare([{"role": "user", "content": "Hello."}])
        for _ in range(3):
            assert session.refuse(ContextOverflow("this is too long"))
            assert manager.status("s1").window <= 400


def test_after_a_refusal_the_reserve_fits_the_smaller_window(tmp_path: Path) -> None:
    history: list[Any] = [{"role": "user", "content": "Read every sensor."}]
    for n in range(30):
        history += [{"role": "assistant", "content": f"Sensor {n}?"}, {"role": "user", "content": TEXT.format(n=n)}]
    sent: list[int] = []

    def send(prepared: Any) -> str:
        sent.append(prepared.total_tokens)
        if prepared.total_tokens > 6_144:
            raise ValueError("This model's maximum context length is 8192 tokens.")
        return "fine"

    with ContextCompressionManager(workspace_path=tmp_path) as manager:
        session = manager.session("s1", model="gpt-4o", window=32_000, reserve=9_000)
        assert session.call(send, history) == "fine"
        assert len(sent) == 2
        assert session.prepare(history).total_tokens <= 6_144
