"""A wrapped client is used exactly as before: every method of the SDKs that asks a model, and those that do not."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

import refold
from refold.testing import ScriptedProvider

HI: Any = [{"role": "user", "content": "Hi."}]
GPT: dict[str, Any] = {"model": "gpt-4o"}
CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": HI}


class Greeting(BaseModel):
    word: str


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider('{"word": "Hello"}') as running:
        yield running


def test_every_method_of_openai_stores_what_the_model_says(provider: ScriptedProvider, tmp_path: Path) -> None:
    current = ""
    with openai.OpenAI(base_url=provider.openai_url, api_key="any") as plain:
        client = refold.wrap(plain, session=lambda: current, workspace=tmp_path)

        def stream_chat() -> None:
            with client.chat.completions.stream(**GPT, messages=HI) as stream:
                assert stream.get_final_completion().choices[0].message.content == '{"word": "Hello"}'

        def stream_responses() -> None:
            with client.responses.stream(**GPT, input=HI) as stream:
                assert stream.get_final_response().output_text == '{"word": "Hello"}'

        def stream_raw() -> None:
            raw = client.chat.completions.with_raw_response.create(**GPT, messages=HI, stream=True)
            assert sum(bool(chunk.choices) for chunk in raw.parse()) > 1

        ways = {
            "create": lambda: client.chat.completions.create(**GPT, messages=HI),
            "parse": lambda: client.chat.completions.parse(**GPT, messages=HI, response_format=Greeting),
            "stream": stream_chat,
            "raw": lambda: client.chat.completions.with_raw_response.create(**GPT, messages=HI),
            "stream-raw": stream_raw,
            "options": lambda: client.with_options(timeout=9).chat.completions.create(**GPT, messages=HI),
            "responses": lambda: client.responses.create(**GPT, input="Hi."),
            "responses-parse": lambda: client.responses.parse(**GPT, input=HI, text_format=Greeting),
            "responses-stream": stream_responses,
        }
        for current, way in ways.items():
            way()
            assert [m["role"] for m in client.refold.messages()] == ["user", "assistant"], current
        current = "elsewhere"
        client.responses.create(**GPT, input="And?", previous_response_id="resp_1")
        assert client.embeddings.create(model="e", input="text").data
        assert client.models.list().data[0].id == "scripted-1"
        assert client.refold.messages() == []
        client.refold.manager.close()


def test_every_method_of_anthropic_stores_what_the_model_says(provider: ScriptedProvider, tmp_path: Path) -> None:
    current = ""
    with anthropic.Anthropic(base_url=provider.url, api_key="any") as plain:
        client = refold.wrap(plain, session=lambda: current, workspace=tmp_path)

        def stream() -> None:
            with client.messages.stream(**CLAUDE) as events:
                assert events.get_final_text() == '{"word": "Hello"}'

        ways = {
            "create": lambda: client.messages.create(**CLAUDE),
            "stream": stream,
            "raw": lambda: client.messages.with_raw_response.create(**CLAUDE),
            "beta": lambda: client.beta.messages.create(**CLAUDE),
            "options": lambda: client.with_options(timeout=9).messages.create(**CLAUDE),
        }
        for current, way in ways.items():
            way()
            assert [m["role"] for m in client.refold.messages()] == ["user", "assistant"], current
        current = "elsewhere"
        counted = client.messages.count_tokens(model="claude-sonnet-5-5", messages=HI)
        assert counted.input_tokens > 0
        assert client.refold.messages() == []
        client.refold.manager.close()


def test_async_helpers_store_what_the_model_says(provider: ScriptedProvider, tmp_path: Path) -> None:
    async def work() -> None:
        async with anthropic.AsyncAnthropic(base_url=provider.url, api_key="any") as plain:
            client = refold.wrap(plain, session="claude", workspace=tmp_path)
            async with client.messages.stream(**CLAUDE) as events:
                assert await events.get_final_text() == '{"word": "Hello"}'
            assert len(client.refold.messages()) == 2
            client.refold.manager.close()
        async with openai.AsyncOpenAI(base_url=provider.openai_url, api_key="any") as plain_openai:
            other = refold.wrap(plain_openai, session="gpt", workspace=tmp_path)
            raw = await other.chat.completions.with_raw_response.create(**GPT, messages=HI)
            assert raw.parse().choices[0].message.content == '{"word": "Hello"}'
            assert len(other.refold.messages()) == 2
            other.refold.manager.close()

    asyncio.run(work())


def test_an_object_that_is_not_a_client_and_settings_beside_a_manager_are_refused(tmp_path: Path) -> None:
    with pytest.raises(refold.ConfigError, match="openai or anthropic SDK, not object"):
        refold.wrap(object(), session="s1")
    with openai.OpenAI(api_key="any") as plain, pytest.raises(refold.ConfigError, match="reserve"):
        refold.wrap(plain, session="s1", manager=refold.ContextCompressionManager(workspace_path=tmp_path), reserve=9)
