"""Providers that send what no provider should: each ends in an answer or a typed error, bounded in time and memory."""

from __future__ import annotations

import itertools
import json
import resource
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from refold.errors import ProviderError, RateLimited, Unavailable
from refold.llm.anthropic import AnthropicModel
from refold.llm.errors import RetryLimits, attempt
from refold.llm.openai import OpenAIModel
from refold.llm.port import ChatReply, ChatRequest, ToolCall
from tests.llm.raw_server import serve_bytes, write_anthropic, write_openai

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

Ask = Callable[[str], Awaitable[tuple[str, str]]]
EVENTS = ("content-type: text/event-stream",)
ODD = "é 中文 🙂 \u202e\u200b end"


async def ask_openai(url: str) -> tuple[str, str]:
    answer = await OpenAIModel("m", "key", f"{url}/v1", timeout_s=120).complete("hi", tokens_max=50)
    return answer.content, answer.finish_reason


async def ask_anthropic(url: str) -> tuple[str, str]:
    answer = await AnthropicModel("m", "key", url, timeout_s=120).complete("hi", tokens_max=50)
    return answer.content, answer.finish_reason


async def _talk(model: OpenAIModel | AnthropicModel) -> tuple[str, str]:
    request = ChatRequest([{"role": "user", "content": "hi"}], stall_s=20, chars_max=100_000)
    try:
        async for item in model.stream(request):
            if isinstance(item, ChatReply):
                return item.text, item.finish_reason
    finally:
        await model.aclose()
    raise AssertionError("no reply and no error")


async def talk_openai(url: str) -> tuple[str, str]:
    return await _talk(OpenAIModel("m", "key", f"{url}/v1"))


async def talk_anthropic(url: str) -> tuple[str, str]:
    return await _talk(AnthropicModel("m", "key", url))


ASKS = [(ask_openai, write_openai), (ask_anthropic, write_anthropic)]
TALKS = [(talk_openai, write_openai), (talk_anthropic, write_anthropic)]
each = pytest.mark.parametrize(
    ("ask", "write"), [*ASKS, *TALKS], ids=["openai", "anthropic", "openai-chat", "anthropic-chat"]
)
Write = Callable[[str], bytes]


@pytest.fixture(autouse=True)
def within_limits() -> Iterator[None]:
    """Fail a test that used much CPU time or memory. The peak of a process never falls, so a rise is this test's."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "kilobytes"


@each
async def test_a_character_cut_in_half_between_two_packets_is_whole_again(ask: Ask, write: Write) -> None:
    body = write(ODD)
    with serve_bytes(lambda: (bytes([one]) for one in body), headers=EVENTS) as url:
        assert await ask(url) == (ODD, "stop")


@each
async def test_a_web_page_is_not_an_answer_whatever_it_calls_itself(ask: Ask, write: Write) -> None:
    page = b"<!doctype html><html><body>Sign in to the hotel's network</body></html>"
    with (
        serve_bytes(lambda: iter([page]), headers=("content-type: text/html; charset=utf-8",)) as url,
        pytest.raises(ProviderError, match="web page"),
    ):
        await ask(url)
    for kind in ("text/event-stream", "application/json", "text/plain"):
        with serve_bytes(lambda: iter([page]), headers=(f"content-type: {kind}",)) as url, pytest.raises(Unavailable):
            await ask(url)


_CALL = {"id": "c-1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
_CHAT = {"choices": [{"message": {"content": "so", "tool_calls": [_CALL]}, "finish_reason": "tool_calls"}]}
_BLOCKS = [{"type": "text", "text": "so"}, {"type": "tool_use", "id": "c-1", "name": "add", "input": {"a": 1}}]
_WHOLE = {
    OpenAIModel: {**_CHAT, "usage": {"prompt_tokens": 9}},
    AnthropicModel: {"content": _BLOCKS, "stop_reason": "tool_use", "usage": {"input_tokens": 9}},
}


@pytest.mark.parametrize("kind", _WHOLE)
async def test_a_whole_answer_is_read_where_nothing_streams(kind: type[OpenAIModel | AnthropicModel]) -> None:
    body = json.dumps(_WHOLE[kind]).encode()
    with serve_bytes(lambda: iter([body]), headers=("content-type: application/json",)) as url:
        model = kind("m", "key", f"{url}/v1")
        (reply,) = [item async for item in model.stream(ChatRequest([{"role": "user", "content": "1 + 1?"}]))]
        await model.aclose()
    assert isinstance(reply, ChatReply)
    assert (reply.text, reply.finish_reason) == ("so", "tool_calls")
    assert reply.calls == (ToolCall("c-1", "add", '{"a": 1}'),)
    assert 9 in reply.usage.values()


@each
async def test_a_stream_without_its_last_line_break_is_an_answer_or_says_that_it_broke_off(
    ask: Ask, write: Write
) -> None:
    whole = write("All is well.")
    with serve_bytes(lambda: iter([whole.rstrip(b"\n")]), headers=EVENTS) as url:
        assert await ask(url) == ("All is well.", "stop")
    begun = whole[: whole.index(b"All is well.") + 30]
    with serve_bytes(lambda: iter([begun]), headers=EVENTS) as url, pytest.raises(Unavailable):
        await ask(url)


@each
async def test_a_line_of_ten_megabytes_is_cut_and_says_so(ask: Ask, write: Write) -> None:
    body = write("w" * 10_000_000)
    with serve_bytes(lambda: iter([body]), headers=EVENTS) as url:
        content, reason = await ask(url)
    assert reason == "length"
    assert 0 < len(content) <= 10_000_000


@each
@pytest.mark.parametrize(
    "unit", [b"w", b"\n", b": still there\n\n", b"data: \xff\n"], ids=["line", "blanks", "pings", "lines"]
)
async def test_a_stream_that_never_comes_to_anything_is_left(ask: Ask, write: Write, unit: bytes) -> None:
    block = unit * (65_536 // len(unit))
    with (
        serve_bytes(lambda: itertools.repeat(block), headers=EVENTS) as url,
        pytest.raises(Unavailable, match=r"without end|cannot be read"),
    ):
        await ask(url)


@each
async def test_an_error_without_end_is_left(ask: Ask, write: Write) -> None:
    with (
        serve_bytes(
            lambda: itertools.repeat(b"sorry " * 10_000), status="500 Oh", headers=("content-type: text/plain",)
        ) as url,
        pytest.raises(Unavailable, match="without end"),
    ):
        await ask(url)


@each
@pytest.mark.parametrize("pause", ["31536000", "1e300", "Wed, 16 Nov 2044 08:00:00 GMT"])
async def test_a_pause_of_a_year_is_reported_and_never_waited_for(ask: Ask, write: Write, pause: str) -> None:
    body = b'{"error": {"message": "slow down"}}'
    headers = ("content-type: application/json", f"retry-after: {pause}")
    with (
        serve_bytes(lambda: iter([body]), status="429 Slow", headers=headers) as url,
        pytest.raises(RateLimited) as told,
    ):
        await attempt(lambda: ask(url), RetryLimits(attempts_max=3, timeout_s=600))
    assert (told.value.retry_after_s or 0) > 86_400


async def test_a_block_is_sent_back_without_its_null_fields() -> None:
    body = write_anthropic("hi").replace(b'"text": ""}', b'"text": "", "citations": null}')
    with serve_bytes(lambda: iter([body]), headers=EVENTS) as url:
        model = AnthropicModel("m", "key", url)
        items = [item async for item in model.stream(ChatRequest([{"role": "user", "content": "hi"}]))]
        await model.aclose()
    assert isinstance(items[-1], ChatReply)
    assert items[-1].message["content"] == [{"type": "text", "text": "hi"}]
