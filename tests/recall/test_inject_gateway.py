"""Injection through the gateway: over real HTTP, in every wire format, for each tenant its own."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from refold.server.auth import KeyRing
from tests.rigs.server import PATHS, Rig, make_body, make_dialog, start_rig

CONFIG = {"window": 8_000, "reserve": 1_000, "recall": {"inject": "auto"}}
PARROT = "The captain's parrot sleeps in the galley, below the brass lantern."
QUESTION = "What did you say earlier about the captain's parrot?"


@pytest.fixture
def start(tmp_path: Path, empty_home: Path) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(
            start_rig(tmp_path / "work", *args, config=CONFIG, window=8_000, **kwargs)
        )


def talk(fact: str = PARROT) -> list[dict[str, Any]]:
    messages = make_dialog(30, end=False)
    messages[5] = {"role": "assistant", "content": f"{'We spoke of the sea. ' * 20}{fact}{' And of the wind.' * 20}"}
    return messages


def sent(rig: Rig, wire: str) -> list[Any]:
    body = json.loads(rig.provider.requests[-1].body)
    return list(body["input" if wire == "openai-responses" else "messages"])


@pytest.mark.parametrize("wire", list(PATHS))
def test_the_gateway_adds_it_at_the_tail_and_keeps_the_bytes_before_it(start: Callable[..., Rig], wire: str) -> None:
    rig = start()
    history = [*talk(), {"role": "user", "content": "Please go on with the next file."}]
    assert rig.post(wire, make_body(wire, history)).status_code == 200
    before = sent(rig, wire)
    history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": QUESTION}]
    answer = rig.post(wire, make_body(wire, history))
    assert answer.status_code == 200, answer.text
    asked = sent(rig, wire)
    assert asked[: len(before)] == before
    assert PARROT in json.dumps(asked[-1])
    assert QUESTION in json.dumps(asked[-1])
    history += [{"role": "assistant", "content": "In the galley."}, {"role": "user", "content": "Thank you."}]
    assert rig.post(wire, make_body(wire, history)).status_code == 200
    assert sent(rig, wire)[: len(asked)] == asked
    assert sent(rig, wire)[-1] == history[-1]
    assert rig.manager.verify() == []


def test_marks_of_the_prompt_cache_do_not_pile_up_on_recalled_messages(start: Callable[..., Rig]) -> None:
    rig = start()
    names = ("parrot", "lantern", "compass", "anchor", "hammock", "telescope")
    history: list[dict[str, Any]] = talk(
        " ".join(
            f"{'We spoke of the sea. ' * 30}The captain's {name} is in locker {at}." for at, name in enumerate(names)
        )
    )
    for turn, name in enumerate(names):
        plain = [{**one, "content": text_of(one)} for one in history]
        marked = {
            "type": "text",
            "text": f"Which locker did you say earlier has the {name}, {turn}?",
            "cache_control": {"type": "ephemeral"},
        }
        history = [*plain, {"role": "user", "content": [marked]}]
        answer = rig.post("anthropic", make_body("anthropic", history))
        assert answer.status_code == 200, answer.text
        assert json.dumps(sent(rig, "anthropic")).count("cache_control") <= 4
        history = [*history, {"role": "assistant", "content": "In the galley."}]
    assert json.dumps(sent(rig, "anthropic")).count("recalled from earlier") > 4


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def test_one_tenants_words_are_never_recalled_for_another(start: Callable[..., Rig], tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "work")
    ann, bob = ring.add("ann")[1], ring.add("bob")[1]
    rig = start(settings={"openai_key": "sk-held"})
    for key, fact in ((ann, PARROT), (bob, "The captain's parrot is quite dead and buried at sea.")):
        history = [*talk(fact), {"role": "user", "content": "Please go on."}]
        headers = {"authorization": f"Bearer {key}", "x_refold_session": "voyage"}
        assert rig.post("openai-chat", make_body("openai-chat", history), **headers).status_code == 200
    history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": QUESTION}]
    assert rig.post("openai-chat", make_body("openai-chat", history), **headers).status_code == 200
    tail = sent(rig, "openai-chat")[-1]["content"]
    assert "buried at sea" in tail
    assert "lantern" not in json.dumps(sent(rig, "openai-chat"))
