"""What is known about a model is found by its name, whoever writes it and however."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.tokens import ModelInfo, model_info
from refold.tokens.encoding import EXACT_ENCODINGS, OPEN_VOCABULARIES
from refold.tokens.models import AS_OF, FAMILIES, MODELS, normalize_name


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4-0613", "gpt-4"),
        ("openai/gpt-5.4-mini", "gpt-5-4-mini"),
        ("GPT-6.1-Sol", "gpt-6-1-sol"),
        ("azure/openai/gpt-4.1", "gpt-4-1"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("anthropic/claude-opus-5.5:thinking", "claude-opus-5-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("bedrock/eu.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("claude-fable-5-1", "claude-fable-5-1"),
        ("claude-opus-4@20250514", "claude-opus-4"),
        ("models/gemini-3.1-pro-preview", "gemini-3-1-pro"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3-3"),
        ("Qwen/Qwen3-32B", "qwen3"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3-2"),
        ("openai:gpt-5", "gpt-5"),
        ("openai-responses:gpt-5-mini", "gpt-5-mini"),
        ("anthropic:claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("bedrock:us.anthropic.claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("grok-4", "grok-4"),
        ("xai/grok-4", "grok-4"),
        ("mistral-large-latest", "mistral-large-latest"),
        ("ollama/llama3.1", "llama-3-1"),
        ("ollama:llama3.1:8b", "llama-3-1"),
    ],
)
def test_a_model_is_known_under_every_name_it_goes_by(name: str, row: str) -> None:
    found = model_info(name)
    assert found.is_known
    assert found.name == name
    assert dataclasses.replace(found, name="") == MODELS[row]


def test_a_version_that_is_not_listed_never_passes_for_an_older_one() -> None:
    for name in ("gpt-5.9", "gpt-7", "claude-opus-6", "claude-opus-4-9", "gemini-5-pro", "deepseek-v9"):
        assert not model_info(name).is_known, name
    assert model_info("claude-opus-6").family == "claude"
    assert model_info("claude-opus-6").cache.breakpoints == 4
    assert model_info("gpt-7").encoding == "o200k_base"


@pytest.mark.parametrize("name", [None, "", "never-heard-of", "模型", "gpt4all", "x" * 10_000, "\ud800"])
def test_an_unknown_model_has_a_window_of_128k_and_says_so(name: str | None) -> None:
    found = model_info(name)
    assert not found.is_known
    assert found.window == 128_000
    assert 0 < found.output_reserve < found.window


@given(name=st.text(max_size=60))
def test_no_name_makes_the_lookup_fail(name: str) -> None:
    assert isinstance(model_info(name), ModelInfo)


def test_every_row_is_consistent() -> None:
    assert AS_OF == "2026-11"
    for name, row in {**MODELS, **FAMILIES}.items():
        assert normalize_name(name) == name
        assert 0 < row.output_reserve <= row.window // 8
        assert row.encoding is None or row.encoding in (*EXACT_ENCODINGS, *OPEN_VOCABULARIES)
        assert row.cache.read <= 1.0 <= row.cache.write
        assert row.cache.is_active == (row.cache.read < 1.0)
        assert row.prices is None or row.prices.input < row.prices.output
        assert all(cliff.above_tokens < row.window or name == "claude-sonnet-4-5" for cliff in row.cliffs)


@pytest.mark.parametrize(
    ("name", "read", "write", "lifetime_s"),
    [
        ("claude-sonnet-4-5", 0.1, 1.25, 300),
        ("claude-opus-5-5", 0.05, 1.25, 300),
        ("claude-sonnet-5-5", 0.05, 1.25, 300),
        ("claude-fable-5-1", 0.025, 1.25, 300),
        ("gpt-4o", 0.5, 1.0, 300),
        ("gpt-4.1", 0.25, 1.0, 300),
        ("gpt-5.2", 0.1, 1.0, 300),
        ("gpt-5.6-terra", 0.1, 1.25, 1_800),
        ("gpt-6.1-sol", 0.05, 1.25, 1_800),
    ],
)
def test_cache_rules_are_those_of_november_2026(name: str, read: float, write: float, lifetime_s: int) -> None:
    cache = model_info(name).cache
    assert (cache.read, cache.write, cache.lifetime_s) == (read, write, lifetime_s)


def test_an_anthropic_client_sets_up_to_four_breakpoints() -> None:
    cache = model_info("claude-opus-5-5").cache
    assert cache.breakpoints == 4
    assert 512 <= cache.tokens_min <= 4_096


def test_price_cliffs_are_known() -> None:
    (gpt,) = model_info("gpt-6.1-sol").cliffs
    (haiku,) = model_info("claude-haiku-5-5").cliffs
    (gemini,) = model_info("gemini-3.1-pro").cliffs
    assert (gpt.above_tokens, gpt.input_factor, gpt.output_factor) == (272_000, 2.0, 1.5)
    assert (haiku.above_tokens, haiku.input_factor) == (100_000, 5.0)
    assert (gemini.above_tokens, gemini.input_factor) == (200_000, 2.0)


def test_a_million_tokens_may_be_asked_for_by_suffix() -> None:
    assert model_info("claude-sonnet-4-5").window == 200_000
    assert model_info("claude-sonnet-4-5[1m]").window == 1_000_000
