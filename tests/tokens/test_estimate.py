"""Estimates: close enough to tokenizers they were not made from, and honest about the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.tokens import counter_for
from refold.tokens.encoding import OPEN_VOCABULARIES, PROFILES, Encoding, Estimate
from tests.tokens.samples import KINDS

# Vocabularies of seven makers stand in for the ones that are not public.
STRANGERS = ("o200k_base", *OPEN_VOCABULARIES)


# Characters of each text and its tokens with the vocabulary of Gemma 3, measured with splintr-rs 0.22. The version that
# we install does not carry this vocabulary; measure again if a text changes.
GEMMA = {
    "English": (2_488, 536),
    "Chinese": (848, 544),
    "JSON": (3_680, 1_841),
    "code": (2_368, 800),
    "log": (3_517, 2_404),
    "base64": (2_000, 1_379),
}


@pytest.mark.parametrize("family", ["claude", "generic"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_is_within_its_margin_of_every_vocabulary_we_can_look_into(family: str, kind: str) -> None:
    estimate = Estimate(family)
    counted = estimate.count(KINDS[kind])
    for name in STRANGERS:
        assert Encoding(name).count(KINDS[kind]) <= counted * (1 + estimate.profile.margin), name


@pytest.mark.parametrize("family", PROFILES)
def test_an_estimate_is_never_more_than_twice_the_exact_count_of_o200k(family: str) -> None:
    for kind, text in KINDS.items():
        assert Estimate(family).count(text) <= 2 * Encoding("o200k_base").count(text), kind


def test_the_estimate_for_gemini_is_within_its_margin_of_gemma() -> None:
    estimate = Estimate("gemini")
    assert {kind: len(text) for kind, text in KINDS.items()} == {kind: chars for kind, (chars, _) in GEMMA.items()}
    for kind, text in KINDS.items():
        assert GEMMA[kind][1] <= estimate.count(text) * (1 + estimate.profile.margin), kind


def test_chinese_is_not_estimated_like_english() -> None:
    chinese, english = "预算是三千五百元，下周五之前完成。" * 50, "The budget is fixed. " * 50
    for family in PROFILES:
        assert Estimate(family).count(chinese) / len(chinese) > 3 * Estimate(family).count(english) / len(english)


@given(text=st.text(max_size=200), family=st.sampled_from(list(PROFILES)))
def test_any_text_can_be_estimated_and_none_but_the_empty_one_is_free(text: str, family: str) -> None:
    count = Estimate(family).count(text)
    assert count >= Encoding("o200k_base").count(text)
    assert (count == 0) == (text == "")


def test_lone_surrogates_can_be_estimated() -> None:
    assert Estimate("claude").count("a\ud800b") > 0


def test_an_unknown_family_gets_the_generic_estimate() -> None:
    assert Estimate("martian").name == "estimate:generic"


def test_a_quarter_of_the_characters_stays_within_its_stated_margin() -> None:
    quarter = counter_for(None, "chars/4")
    for kind, text in KINDS.items():
        assert Encoding("o200k_base").count(text) <= quarter.count_text(text) * (1 + quarter.margin), kind


def test_a_million_characters_of_one_letter_or_of_blanks_are_no_trouble() -> None:
    claude = counter_for("claude-opus-5-5")
    assert claude.count_text("a" * 1_000_000) == 150_000
    assert claude.count_text(" " * 1_000_000) < 20_000
