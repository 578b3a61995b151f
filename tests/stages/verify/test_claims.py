"""Claims of a sentence, and when their source supports them."""

import pytest

from refold.stages.ground import Ground, Wording, find_claims
from tests.rigs.model import parse


@pytest.mark.parametrize(
    "word",
    [
        "src/auth/token.py",
        "/etc/passwd",
        "C:\\temp\\x.txt",
        "parse_config",
        "fetchUser",
        "UserFactory",
        "app.models.Order",
        "std::vector",
        "--dry-run",
        "ABC-1234",
        "#4711",
        "4f2a91c3",
        "gpt-4o",
        "user@example.com",
        "https://example.com/a?b=1",
        "2024-05-17",
        "10.0.0.1",
        "12345",
        "sha256",
        "v1.25.3",
    ],
)
@pytest.mark.parametrize("sentence", ["They used {} there.", "他们用了{}，然后继续。", "(see {})", "**{}**: done"])
def test_what_must_be_spelt_exactly_is_a_claim(word: str, sentence: str) -> None:
    claims = find_claims(sentence.format(word))
    assert any(word in claim or claim in word for claim in claims)
    assert not all(map(Wording([sentence.format("nothing")]).has, claims))
    assert all(map(Wording([f"before {word} after"]).has, claims))


@pytest.mark.parametrize(
    "text",
    [
        "The user and/or the assistant agreed, e.g. on the 2nd day at 3pm, to use 16GB.",
        "Read/write access, 24 tests, 10k rows, 5x faster, a 3-day trip, third-party code.",
        "APIs return JSON; the CPU was at 90%.",
        "用户决定第3天出发，共12人，预算不变。",
        "",
        "…",
    ],
)
def test_ordinary_words_and_small_numbers_claim_nothing(text: str) -> None:
    assert find_claims(text) == []


def test_a_number_is_the_same_with_and_without_commas_and_in_full_width() -> None:
    ground = Wording(["The total is 12,345 and 678 of 90,000."])
    for claim in find_claims("12345 12,345 １２３４５ 678 90,000"):
        assert ground.has(claim)
    for wrong in find_claims("1234 23,456 6789 900 0000"):
        assert not ground.has(wrong)


def test_a_part_of_a_longer_number_or_name_is_not_it() -> None:
    ground = Wording(["build 51234 took 12.345 s in test_auth_token of utils_v2.py"])
    for claim in ("512", "1234", "345", "test_auth", "auth_token", "s_v2.py", "12.34"):
        assert not ground.has(claim), claim
    for claim in ("51234", "12.345", "test_auth_token", "utils_v2.py"):
        assert ground.has(claim), claim


def test_names_inside_call_arguments_and_results_are_ground() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "write_file", "arguments": '{"p":"a\\\\nb\\nrun_all"}'},
    }
    messages = parse([{"role": "assistant", "content": None, "tool_calls": [call]}])
    ground = Ground(messages).whole
    assert ground.has("write_file")
    assert ground.has("run_all")


def test_a_product_may_be_spelt_properly_but_code_may_not_be_respelt() -> None:
    ground = Wording(["push it to github and call fetchuser"])
    assert ground.has("GitHub")
    assert not ground.has("fetchUser")


def test_invisible_characters_and_accents_hide_nothing() -> None:
    assert not Wording(["nothing"]).has(find_claims("pay\u200bments_v9.py")[0])
    assert find_claims("größe_max")
    assert find_claims("раth/tо.py")


def test_a_megabyte_of_one_letter_is_read_in_no_time() -> None:
    text = "a" * 1_000_000 + "_" + "1" * 100_000
    assert find_claims(text)
    Wording([text]).has("a_1")
