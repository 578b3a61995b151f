"""Which model writes summaries: settings and variables in, a model and a note out."""

import pytest

from refold.conversation import because
from refold.conversation.reason import NO_REASON
from refold.errors import ConfigError
from refold.llm.anthropic import AnthropicModel
from refold.llm.choose import DEFAULT_MODELS, Choice, Endpoint, choose_model, read_endpoint, read_own
from refold.llm.openai import OpenAIModel
from refold.testing import ScriptedModel
from refold.tokens import model_info

OPENAI = {"OPENAI_API_KEY": "key-of-openai"}
ANTHROPIC = {"ANTHROPIC_API_KEY": "key-of-anthropic"}
LOCAL = {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}


def test_without_settings_there_is_no_model() -> None:
    assert read_endpoint({}) is None
    assert read_endpoint({"OPENAI_API_KEY": "  "}, "gpt-4o") is None
    assert choose_model(None, None) == Choice(None, "", because.NO_MODEL())


@pytest.mark.parametrize(
    ("values", "model", "provider", "named", "url", "key"),
    [
        (OPENAI, None, "openai", DEFAULT_MODELS["openai"], "", "key-of-openai"),
        (OPENAI, "gpt-4o", "openai", "gpt-4o", "", "key-of-openai"),
        (ANTHROPIC, None, "anthropic", DEFAULT_MODELS["anthropic"], "", "key-of-anthropic"),
        (ANTHROPIC, "claude-sonnet-5", "anthropic", "claude-sonnet-5", "", "key-of-anthropic"),
        (OPENAI | ANTHROPIC, "claude-sonnet-5", "anthropic", "claude-sonnet-5", "", "key-of-anthropic"),
        (OPENAI | ANTHROPIC, "gpt-4o", "openai", "gpt-4o", "", "key-of-openai"),
        (LOCAL, "qwen3", "openai", "qwen3", LOCAL["OPENAI_BASE_URL"], ""),
        (LOCAL | OPENAI, "deepseek-chat", "openai", "deepseek-chat", LOCAL["OPENAI_BASE_URL"], "key-of-openai"),
        (
            LOCAL | OPENAI,
            "anthropic/claude-x",
            "openai",
            "anthropic/claude-x",
            LOCAL["OPENAI_BASE_URL"],
            "key-of-openai",
        ),
    ],
)
def test_keys_and_addresses_of_the_environment_lead_to_an_endpoint(
    values: dict[str, str], model: str | None, provider: str, named: str, url: str, key: str
) -> None:
    found = read_endpoint(values, model)
    assert found is not None
    assert (found.provider, found.model, found.url, found.key) == (provider, named, url, key)


def test_a_key_of_one_provider_never_goes_to_another() -> None:
    assert read_endpoint(OPENAI, "claude-sonnet-5") is None
    assert read_endpoint(ANTHROPIC, "gpt-4o") is None
    own = read_endpoint(OPENAI | ANTHROPIC, "qwen3", url="http://elsewhere.example/v1")
    assert own is not None
    assert own.key == ""


def test_an_invalid_address_is_refused_without_quoting_its_secrets() -> None:
    with pytest.raises(ConfigError) as caught:
        read_endpoint({}, "m", url="ftp://user:hunter22@host/v1")
    assert "hunter22" not in str(caught.value)
    with pytest.raises(ConfigError, match="name the model"):
        read_endpoint({}, None, url="http://host/v1")


def test_an_endpoint_makes_the_model_of_its_provider_and_hides_its_key() -> None:
    one = Endpoint("gpt-4o", "openai", key="very-secret-1").make_model(timeout_s=5)
    two = Endpoint("claude-x", "anthropic", key="very-secret-2").make_model()
    assert isinstance(one, OpenAIModel)
    assert isinstance(two, AnthropicModel)
    assert (one.timeout_s, one.url) == (5, "https://api.openai.com/v1")
    shown = repr((one, two, Endpoint("m", "openai", "http://u:very-secret-3@h", "very-secret-1")))
    assert "very-secret" not in shown


def test_the_own_model_is_taken_and_without_one_the_conversations() -> None:
    conversation = Endpoint("gpt-4o", "openai", key="k")
    assert choose_model(Endpoint("gpt-4o-mini", "openai"), conversation).name == "gpt-4o-mini"
    assert choose_model(None, conversation).name == "gpt-4o"
    handed_in = ScriptedModel("x")
    assert choose_model(None, handed_in).model is handed_in


def test_an_own_model_with_too_small_a_window_falls_back_with_a_note() -> None:
    own, conversation = Endpoint("gpt-4", "openai"), Endpoint("gpt-4o", "openai")
    choice = choose_model(own, conversation, tokens_needed=50_000)
    assert choice.name == "gpt-4o"
    assert str(choice.note) == "gpt-4 has a window of 8,192 tokens, the summary needs 50,000"
    assert choose_model(own, conversation, tokens_needed=8_000).note == NO_REASON
    none = choose_model(own, conversation, tokens_needed=1_000_000)
    assert none.model is None
    assert "gpt-4o has a window" in str(none.note)
    handed_in = ScriptedModel("x")
    assert choose_model(own, handed_in, tokens_needed=50_000).model is handed_in


def test_an_unknown_models_window_is_not_guessed() -> None:
    assert choose_model(Endpoint("mine-7b", "openai"), None, tokens_needed=10_000_000).name == "mine-7b"
    assert choose_model(Endpoint("gpt-4", "openai"), None, tokens_needed=10_000).model is None


def test_what_the_own_model_leaves_open_is_the_conversations() -> None:
    conversation = Endpoint("deepseek-chat", "openai", "https://api.example/v1", "key-of-deepseek")
    assert read_own({}, conversation) is None
    own = read_own({}, conversation, model="deepseek-small")
    assert own == Endpoint("deepseek-small", "openai", "https://api.example/v1", "key-of-deepseek")
    other = read_own({}, conversation, model="qwen3", url=LOCAL["OPENAI_BASE_URL"])
    assert other is not None
    assert (other.url, other.key) == (LOCAL["OPENAI_BASE_URL"], "")
    claude = read_own(ANTHROPIC, conversation, model="claude-haiku-4-5")
    assert claude is not None
    assert (claude.provider, claude.key) == ("anthropic", "key-of-anthropic")
    from_claude = Endpoint("claude-sonnet-5", "anthropic", key="key-of-anthropic")
    assert read_own({}, from_claude, model="gpt-4o-mini") is None
    small = read_own(OPENAI, from_claude, model="gpt-4o-mini")
    assert small is not None
    assert (small.provider, small.key) == ("openai", "key-of-openai")


def test_the_default_models_are_models_we_know() -> None:
    assert all(model_info(name).is_known for name in DEFAULT_MODELS.values())


def test_an_endpoint_gives_the_same_model_each_time_so_that_what_it_learned_is_kept() -> None:
    assert Endpoint("m", "openai", key="k").make_model() is Endpoint("m", "openai", key="k").make_model()
    assert Endpoint("m", "openai", key="k").make_model() is not Endpoint("m", "openai", key="other").make_model()
