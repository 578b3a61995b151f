"""Whose model writes the summaries behind the gateway, and whose key is spent."""

import pytest

from refold.config import CompressionConfig
from refold.errors import ConfigError
from refold.server.settings import GatewaySettings, choose_summariser, find_held
from refold.testing import ScriptedProvider
from tests.rigs.server import make_body, make_dialog, wait_for

SMALL = {"window": 8_000, "reserve": 1_000}
KEYS = {"openai-chat": {"authorization": "Bearer sk-client-1"}, "anthropic": {"x_api_key": "sk-client-1"}}


def find_summaries(provider, wire, messages):
    """The requests that are no client's: they do not end as its own do."""
    last = messages[-1]["content"].encode()
    return [
        one for one in provider.requests if not one.body.rstrip(b"}] ").endswith(last + b'"') and b"stream" in one.body
    ]


def spent_keys(requests):
    return {one.headers.get("authorization", one.headers.get("x-api-key", "")) for one in requests}


def read_file(path):
    """Return what a file holds; None for a folder, and for a journal that is gone by now."""
    try:
        return path.read_bytes()
    except (IsADirectoryError, FileNotFoundError):
        return None


@pytest.mark.parametrize("wire", list(KEYS))
@pytest.mark.parametrize("background", [False, True])
def test_only_where_the_operator_says_so_is_the_clients_key_spent_on_summaries(start, wire, background, tmp_path):
    rig = start(config={**SMALL, "background": background}, settings={"summaries": "client"})
    messages = make_dialog(30)
    answer = rig.post(wire, make_body(wire, messages, model="scripted-1"), **KEYS[wire])
    assert answer.status_code == 200
    wait_for(lambda: len(rig.provider.requests) > 1)
    asked = find_summaries(rig.provider, wire, messages)
    assert asked
    assert {key.removeprefix("Bearer ") for key in spent_keys(asked)} == {"sk-client-1"}
    files = [content for file in (tmp_path / "work").rglob("*") if (content := read_file(file)) is not None]
    assert files
    assert not any(b"sk-client-1" in content for content in files)


def test_by_default_no_request_is_made_with_the_clients_key_but_its_own(start):
    rig = start(config=SMALL)
    answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), authorization="Bearer sk-client-1")
    assert int(answer.headers["x-refold-edits"]) > 0
    assert len(rig.provider.requests) == 1


def test_a_model_that_the_operator_set_is_asked_without_the_clients_key(start):
    with ScriptedProvider("A summary.") as own:
        rig = start(config={**SMALL, "compact_model": "small-1", "compact_url": own.openai_url})
        answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)), authorization="Bearer sk-client-1")
        assert answer.status_code == 200
        assert len(rig.provider.requests) == 1
        assert own.requests
        assert not any(b"sk-client-1" in one.body or "sk-client-1" in str(one.headers) for one in own.requests)


def test_a_summariser_that_hangs_holds_a_request_no_longer_than_it_may(start):
    from refold.testing import hang

    with ScriptedProvider(hang(600)) as own:  # Longer than the client waits for its answer.
        settings = {**SMALL, "compact_model": "small-1", "compact_url": own.openai_url, "compact_timeout_s": 1}
        rig = start(config=settings, settings={"prepare_s_max": 50})
        answer = rig.post("openai-chat", make_body("openai-chat", make_dialog(30)))
        assert answer.status_code == 200
        before, after = map(int, answer.headers["x-refold-tokens"].split("->"))
        assert after < 7_000 < before


def test_the_gateway_never_asks_itself_for_summaries():
    settings = GatewaySettings(port=7788, openai_upstream="http://127.0.0.1:9/v1")
    variables = {
        "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": "http://localhost:7788/v1",
        "ANTHROPIC_BASE_URL": "http://x:1",
    }
    config = choose_summariser(CompressionConfig().with_variables(variables), settings)
    assert config.variables["OPENAI_BASE_URL"] == "http://127.0.0.1:9/v1"
    assert config.variables["ANTHROPIC_BASE_URL"] == "http://x:1"


@pytest.mark.parametrize(("given", "url"), [("http://h:1", "http://h:1/v1"), ("http://h:1/v2/", "http://h:1/v2")])
def test_summaries_go_to_the_same_address_as_requests(given, url):
    settings = GatewaySettings(openai_upstream=given, openai_key="k")
    endpoint = find_held(settings, "openai", "gpt-4o")
    assert endpoint is not None
    assert endpoint.url == url


def test_summaries_can_be_switched_off_and_nothing_else_is_taken():
    config = choose_summariser(CompressionConfig(), GatewaySettings(summaries="off"))
    assert config.summariser == "extract"
    with pytest.raises(ConfigError, match="summaries is 'mine'; give 'own', 'client' or 'off'"):
        GatewaySettings(summaries="mine")
