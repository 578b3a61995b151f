"""A conversation is summarised at its own provider: another one that has a key in the environment receives nothing."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import ContextCompressionManager
from refold.agent import Agent
from refold.agent.models import Chosen, make_chat_model
from refold.config import CompressionConfig, load_config
from refold.llm.choose import PLACE, Endpoint, Place, converse_with, find_conversation
from refold.manager.status import export_session, import_session
from refold.stages.prompts import RECORD
from refold.testing import ScriptedProvider, say
from tests.rigs.cli import Shell
from tests.rigs.effort import each_once, first_of
from tests.rigs.model import GOOD, working
from tests.rigs.server import make_body, make_dialog, start_rig

pytest.importorskip("openai", reason="needs refold[llm]: the official clients")
pytest.importorskip("anthropic", reason="needs refold[llm]: the official clients")

SMALL = {"window": 4_000, "reserve": 500, "background": False}
WORDS = " ".join(f"word{number}" for number in range(300))


def is_summary(request: Any) -> bool:
    return RECORD["en"] in str(request.body)


def answer(request: Any) -> Any:
    return say(GOOD if is_summary(request) else f"Noted: {WORDS}")


@pytest.fixture
def local() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(answer) as made:
        yield made


@pytest.fixture
def other() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(GOOD) as made:
        yield made
        assert made.requests == [], "a provider that the conversation does not run at received it"


@pytest.fixture
def keys(other: ScriptedProvider) -> dict[str, str]:
    """The environment of somebody who has keys for another provider, by both of its interfaces."""
    return {
        "OPENAI_API_KEY": "sk-of-the-other",
        "OPENAI_BASE_URL": other.openai_url,
        "ANTHROPIC_API_KEY": "sk-ant-of-the-other",
        "ANTHROPIC_BASE_URL": other.anthropic_url,
    }


def load(folder: Path, keys: dict[str, str], **changes: Any) -> CompressionConfig:
    return load_config(folder, environ=keys).replace(**{**SMALL, **changes})


def summaries_of(provider: ScriptedProvider) -> list[Any]:
    return [one for one in provider.requests if is_summary(one)]


@pytest.mark.parametrize("model", first_of(("gpt-4o", "claude-sonnet-5", "qwen3"), 1))
def test_a_chat_at_an_address_of_its_own_is_summarised_there(tmp_path: Path, local, keys, model) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "refold.yaml").write_text("window: 4000\nreserve: 500\nbackground: false\n")
    shell = Shell(tmp_path)
    typed = "\n".join([f"Question {turn}: {WORDS}" for turn in range(4)] + ["/compact", "/quit"])
    options = ["chat", "-m", model, "--base-url", local.openai_url, "--session", "mine"]
    ran = shell.refold(*options, stdin=typed.encode(), **keys)
    assert ran.code == 0, ran.err
    asked = summaries_of(local)
    assert asked, "the model of the conversation writes the summaries"
    assert {one.model for one in asked} == {model}
    assert not any("sk-of-the-other" in str(one.headers) for one in local.requests)
    ran = shell.refold("compact", "--session", "mine", "--json", **keys)
    assert ran.code == 0, ran.err
    assert json.loads(ran.text)["session"] == "mine"


@pytest.mark.usefixtures("empty_home")
@pytest.mark.parametrize("model", [None, "qwen3", "anthropic/claude-sonnet-5", "claude-sonnet-5"])
def test_the_library_asks_nobody_where_it_does_not_know_the_provider(tmp_path: Path, keys, model) -> None:
    config = load(tmp_path, keys)
    prepared = refold.compress(working(40), 3_000, model=model, config=config)
    assert [edit.fold.by for edit in prepared.edits if edit.fold is not None] == ["extract"]
    with ContextCompressionManager(config, tmp_path) as manager:
        manager.prepare_context_sync("s1", working(40), model=model)
        manager.compress("s1")


@pytest.mark.usefixtures("empty_home")
def test_an_agent_is_summarised_by_its_own_model_and_the_session_remembers_where(tmp_path: Path, local, keys) -> None:
    with ContextCompressionManager(load(tmp_path, keys), tmp_path) as manager:
        agent = Agent("gpt-4o", manager=manager, base_url=local.openai_url, key="sk-local", session_id="s1")
        for turn in range(5):
            asyncio.run(agent.ask(f"Question {turn}: {WORDS}"))
        assert {one.headers["authorization"] for one in summaries_of(local)} == {"Bearer sk-local"}
        row = manager.ledger.read_session("s1")
        assert row is not None
        assert row.settings[PLACE] == {"provider": "openai", "url": local.openai_url}
        assert "sk-local" not in str(row)
        before = len(summaries_of(local))
        manager.compress("s1")
        assert len(summaries_of(local)) > before


@pytest.mark.usefixtures("empty_home")
def test_the_pages_chat_is_summarised_by_the_model_it_talks_to(tmp_path: Path, local, keys) -> None:
    pytest.importorskip("nicegui", reason="needs refold[web]: the page")
    from refold.web.room import ChatRoom

    async def talk(manager: ContextCompressionManager) -> None:
        room = ChatRoom("s1")
        for turn in range(5):
            room.start(manager, Chosen(make_chat_model("qwen3", url=local.openai_url), ""), f"Q{turn}: {WORDS}")
            while room.is_running:
                await asyncio.sleep(0.01)
            assert room.problem is None

    with ContextCompressionManager(load(tmp_path, keys), tmp_path) as manager:
        asyncio.run(talk(manager))
    assert {one.model for one in summaries_of(local)} == {"qwen3"}


@pytest.mark.parametrize(
    ("wire", "model"), each_once(("openai-chat", "anthropic"), ("gpt-4o", "claude-sonnet-5", "qwen3"), quick_max=1)
)
def test_behind_the_gateway_no_key_of_the_environment_is_spent(tmp_path: Path, keys, wire, model) -> None:
    with start_rig(tmp_path, "ok", config={"window": 8_000, "reserve": 1_000}) as rig:
        rig.manager.adopt(rig.manager.config.with_variables(keys).replace(background=False))
        done = rig.post(wire, make_body(wire, make_dialog(30), model=model), x_refold_session="mine")
        assert int(done.headers["x-refold-edits"]) > 0
        assert rig.http.post("/api/sessions/mine/compress", json={}).status_code == 200
        assert len(rig.provider.requests) == 1


def test_a_key_that_the_gateway_holds_writes_summaries_at_the_same_upstream(tmp_path: Path, keys) -> None:
    settings = {"openai_key": "sk-held"}
    with start_rig(tmp_path, answer, config={"window": 8_000, "reserve": 1_000}, settings=settings) as rig:
        rig.manager.adopt(rig.manager.config.with_variables(keys).replace(background=False))
        body = make_body("openai-chat", make_dialog(30), model="qwen3")
        assert rig.post("openai-chat", body, x_refold_session="mine").status_code == 200
        assert {one.model for one in summaries_of(rig.provider)} == {"qwen3"}
        assert {one.headers["authorization"] for one in rig.provider.requests} == {"Bearer sk-held"}


@pytest.mark.parametrize("session", [None, "mine"])
def test_the_sidecar_asks_nobody_for_a_conversation_that_runs_elsewhere(tmp_path: Path, keys, session) -> None:
    with start_rig(tmp_path, "ok", config={"window": 8_000, "reserve": 1_000}) as rig:
        rig.manager.adopt(rig.manager.config.with_variables(keys).replace(background=False))
        wish = {"model": "gpt-4o", "messages": make_dialog(30), "config": {"budget": 3_000}, "session_id": session}
        done = rig.http.post("/v1/compress", json=wish)
        assert done.json()["tokens_after"] < done.json()["tokens_before"]
        if session:
            assert rig.http.post(f"/api/sessions/{session}/compress", json={}).status_code == 200
        assert rig.provider.requests == []


def test_an_imported_session_does_not_say_where_it_is_sent(tmp_path: Path, other) -> None:
    with ContextCompressionManager(CompressionConfig(), tmp_path) as manager:
        manager.append("s1", working(20))
        place = Place("openai", other.openai_url).to_settings()
        manager.ledger.update_session("s1", {"settings": {PLACE: place}, "model": "gpt-4o"}, 1.0)
        whole = export_session(manager.ledger, "s1")
        import_session(manager.ledger, whole, now=2.0, session_id="s2")
        assert manager.compress("s2").success, "the fixture proves that nothing was sent"


NAMED = {"OPENAI_API_KEY": "k1", "ANTHROPIC_API_KEY": "k2"}


def test_a_model_that_the_caller_names_is_looked_for_at_its_own_provider() -> None:
    assert find_conversation(NAMED, called="gpt-4o") == Endpoint("gpt-4o", "openai", "", "k1")
    claude = find_conversation(NAMED, called="claude-sonnet-5", wire="anthropic")
    assert claude == Endpoint("claude-sonnet-5", "anthropic", "", "k2")
    assert find_conversation(NAMED, called="gpt-4o", wire="anthropic") is None
    assert find_conversation({"ANTHROPIC_API_KEY": "k2"}, called="gpt-4o") is None
    assert find_conversation({"OPENAI_API_KEY": "k1"}, called="claude-sonnet-5", wire="anthropic") is None


def test_a_model_of_the_settings_is_the_conversations_unless_that_has_another() -> None:
    behind = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    assert find_conversation(behind, setting="qwen3") == Endpoint("qwen3", "openai", "http://127.0.0.1:9/v1", "")
    assert find_conversation(behind, setting="qwen3", called="llama3") is None
    assert find_conversation(behind, setting="qwen3", stored="llama3") is None


def test_whoever_runs_the_conversation_has_the_last_word() -> None:
    mine = Endpoint("qwen3", "openai", "http://127.0.0.1:9/v1")
    with converse_with(mine):
        assert find_conversation(NAMED, called="gpt-4o") == mine
    with converse_with(None):
        assert find_conversation(NAMED, called="gpt-4o") is None


def test_a_place_takes_the_key_of_its_own_address_only() -> None:
    place = Place("openai", "http://127.0.0.1:9/v1")
    keyed = {"OPENAI_API_KEY": "k1", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"}
    assert place.find_model(keyed, "m") == Endpoint("m", "openai", "http://127.0.0.1:9/v1", "k1")
    assert place.find_model(NAMED, "m") == Endpoint("m", "openai", "http://127.0.0.1:9/v1", "")
    assert Place("openai", "https://api.openai.com/v1").find_model({}, "m") is None


@pytest.mark.parametrize("stored", [None, 7, {}, {"provider": "x", "url": "http://h"}, {"provider": "openai"}])
def test_a_place_that_cannot_be_read_is_unknown(stored: object) -> None:
    assert Place.read({PLACE: stored}) is None
    assert find_conversation(NAMED, called="gpt-4o", settings={PLACE: stored}) is None


def test_an_address_with_a_secret_in_it_is_not_stored() -> None:
    made = Place.of(Endpoint("m", "openai", "http://user:hunter22@host/v1")).to_settings()
    assert "hunter22" not in str(made)
    assert Place.read({PLACE: made}) is None
