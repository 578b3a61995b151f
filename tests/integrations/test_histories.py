"""Sessions are found by content, whatever clients do with their histories, through every face that needs no name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import refold
from refold.testing import ScriptedProvider
from tests.integrations.histories import ANSWERS, CASES, RESERVE, WINDOW, Face, Raw


@contextmanager
def open_wrap(workspace: Path, answer: Any) -> Iterator[Face]:
    openai = pytest.importorskip("openai")
    with ScriptedProvider(answer, window=WINDOW) as provider:
        plain = openai.OpenAI(base_url=provider.openai_url, api_key="any", max_retries=0)
        client = refold.wrap(plain, workspace=workspace, window=WINDOW, reserve=RESERVE)

        def send(history: list[Raw]) -> str:
            said = client.chat.completions.create(model="gpt-4o", messages=history, max_tokens=200)  # type: ignore[arg-type]
            return str(said.choices[0].message.content)

        with client.refold.manager as manager:
            yield Face(send, provider, manager)


@contextmanager
def open_gateway(workspace: Path, answer: Any) -> Iterator[Face]:
    from tests.rigs.server import make_body, start_rig

    with start_rig(workspace, answer, config={"window": WINDOW, "reserve": RESERVE}, window=WINDOW) as rig:

        def send(history: list[Raw]) -> str:
            said = rig.post("openai-chat", make_body("openai-chat", history, max_tokens=200))
            return str(said.json()["choices"][0]["message"]["content"])

        yield Face(send, rig.provider, rig.manager)


@contextmanager
def open_litellm(workspace: Path, answer: Any) -> Iterator[Face]:
    litellm = pytest.importorskip("litellm", reason="needs litellm: make integrations")
    from refold.integrations.litellm import RefoldCallback

    callback = RefoldCallback(workspace=workspace, window=WINDOW, reserve=RESERVE)
    litellm.callbacks = [callback]
    with ScriptedProvider(answer, window=WINDOW) as provider, asyncio.Runner() as runner, callback.manager as manager:
        asked = {"model": "openai/gpt-4o", "api_base": provider.openai_url, "api_key": "any", "max_tokens": 200}

        def send(history: list[Raw]) -> str:
            return str(runner.run(litellm.acompletion(messages=history, **asked)).choices[0].message.content)

        yield Face(send, provider, manager)
    litellm.callbacks = []


@contextmanager
def open_langchain(workspace: Path, answer: Any) -> Iterator[Face]:
    agents = pytest.importorskip("langchain.agents", reason="needs langchain: make integrations")
    from langchain_openai import ChatOpenAI

    from refold.integrations.langchain import RefoldMiddleware

    middleware = RefoldMiddleware(workspace=workspace, window=WINDOW, reserve=RESERVE)
    with ScriptedProvider(answer, window=WINDOW) as provider, middleware.manager as manager:
        model = ChatOpenAI(model="gpt-4o", base_url=provider.openai_url, api_key="any", max_tokens=200, max_retries=0)
        agent = agents.create_agent(model, [], middleware=[middleware])

        def send(history: list[Raw]) -> str:
            return str(agent.invoke({"messages": history})["messages"][-1].text)

        yield Face(send, provider, manager)


FACES = {"wrap": open_wrap, "gateway": open_gateway, "litellm": open_litellm, "langchain": open_langchain}


@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
def test_a_history_without_a_name_is_nobody_elses(
    face: Callable[[Path, Any], AbstractContextManager[Face]],
    case: Callable[[Face], None],
    answers: str,
    tmp_path: Path,
    empty_home: Path,
) -> None:
    with face(tmp_path, ANSWERS[answers]) as opened:
        case(opened)
