"""Reasons: every code has words in both languages, sentences of old records stay, and nothing stored makes one fail."""

from __future__ import annotations

import re
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.conversation import because
from refold.conversation.reason import CATALOGUE, NO_REASON, Reason, ReasonKind, read_reason, say, text_reason
from refold.conversation.view import Edit
from refold.sentences import read_texts

CHINESE = re.compile("[\u4e00-\u9fff]")
KINDS = sorted(CATALOGUE.values(), key=lambda kind: kind.code)
HARD = because.OVER_HARD(tokens=131_072, limit=128_000)


def fill(kind: ReasonKind) -> Reason:
    """Make a reason of a kind with a likely value in each field: a reason, a text or a number."""
    texts = {"ids", "error", "detail", "changes", "handles", "value", "cue", "law"}
    inner = {"because": HARD, "first": HARD, "second": HARD}
    return kind(**{name: inner.get(name, "qx" if name in texts else 7) for name in kind.fields})


class Nothing(dict[str, "Nothing"]):
    """Fills every field of a template with nothing, whatever its format."""

    def __missing__(self, name: str) -> Nothing:
        return self

    def __format__(self, spec: str) -> str:
        return ""

    def __repr__(self) -> str:
        return ""


def list_names(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_code_has_words_in_both_languages_for_the_values_it_carries(kind: ReasonKind) -> None:
    for template in (kind.english, read_texts("zh")[f"reason.{kind.code}"]):
        assert list_names(template) <= set(kind.fields), "the template names a value that the constructor does not give"
    english, chinese = say(fill(kind), "en"), say(fill(kind), "zh")
    assert english
    assert "{" not in english + chinese
    assert not CHINESE.search(english)
    if Formatter().vformat(kind.english, (), Nothing()).strip(" :;"):  # Else it only quotes.
        assert CHINESE.search(chinese)
        plain = re.sub(r"\b[a-z]+_[a-z_]+\b|\binject\b|\balways\b|JSON|\btoken\b", "", chinese)
        left = re.findall(r"[A-Za-z]{3,}", plain)
        assert left == [], f"half of it is still English: {chinese!r}"
    assert read_reason(fill(kind).to_json()) == fill(kind)


def test_every_constant_is_in_the_catalogue_once() -> None:
    named = [one for one in vars(because).values() if isinstance(one, ReasonKind)]
    assert sorted(one.code for one in named) == sorted(CATALOGUE)
    translated = [key.removeprefix("reason.") for key in read_texts("zh") if key.startswith("reason.")]
    assert sorted(translated) == sorted(CATALOGUE)


def test_a_value_too_few_or_too_many_is_an_error_where_the_reason_is_made() -> None:
    with pytest.raises(TypeError, match=r"fold\.hard"):
        because.OVER_HARD(tokens=1)
    with pytest.raises(TypeError, match="limits"):
        because.OVER_HARD(tokens=1, limit=2, limits=3)


def test_a_reason_reads_as_a_sentence_and_travels_as_code_and_values() -> None:
    assert str(HARD) == "131,072 tokens are over the limit of 128,000"
    assert say(HARD, "zh") == "131,072 token 超过上限 128,000"
    assert HARD.to_header() == "fold.hard; tokens=131072; limit=128000"
    assert HARD.to_dict() == {
        "code": "fold.hard",
        "values": {"tokens": 131_072, "limit": 128_000},
        "text": "131,072 tokens are over the limit of 128,000",
    }
    assert because.VETOED(because=HARD).to_header() == (
        "veto; because=fold.hard; because.tokens=131072; because.limit=128000"
    )


def test_a_reason_within_a_reason_is_said_in_the_same_language() -> None:
    vetoed = because.VETOED(because=HARD)
    assert str(vetoed) == "vetoed: 131,072 tokens are over the limit of 128,000"
    assert say(vetoed, "zh") == "已被否决：131,072 token 超过上限 128,000"
    assert read_reason(vetoed.to_json()) == vetoed


@pytest.mark.parametrize("sentence", ["vetoed: 9 tokens are over the limit of 8", "{tokens}", "旧记录", "\ud800", "{"])
def test_the_sentence_of_an_old_record_is_shown_as_it_is(sentence: str) -> None:
    reason = read_reason(sentence)
    assert say(reason, "en") == say(reason, "zh") == sentence
    assert reason.code == "text"
    assert Edit("drop", "prune", ("00",), part=0, reason=sentence).reason == reason  # type: ignore[arg-type]


def test_no_reason_is_false_and_says_nothing() -> None:
    assert not NO_REASON
    assert str(NO_REASON) == ""
    for odd in ("", None, 7, [], {}, {"code": 3}, {"values": {}}):
        assert read_reason(odd) == NO_REASON


def test_the_code_of_another_version_is_shown_with_its_values() -> None:
    assert str(Reason("moon.full", {"day": 14, "name": "harvest moon; x=1"})) == (
        'moon.full; day=14; name="harvest moon; x=1"'
    )
    assert str(Reason("fold.hard", {"tokens": "many"})) == "fold.hard; tokens=many"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
STORED = st.builds(
    lambda code, values: {"code": code, "values": values},
    st.sampled_from([*CATALOGUE, "other"]),
    st.dictionaries(st.sampled_from(["tokens", "limit", "because", "detail", "count", "ids", "share"]), JSON),
)


@given(STORED | JSON)
def test_nothing_that_is_stored_keeps_a_page_from_being_shown(stored: object) -> None:
    reason = read_reason(stored)
    assert isinstance(say(reason, "zh"), str)
    assert isinstance(str(reason), str)
    header = reason.to_header()
    assert header.isascii()
    assert not re.search(r"[\r\n\x00]", header)


def test_a_reason_that_contains_itself_many_times_ends() -> None:
    reason = HARD
    for _ in range(50):
        reason = because.VETOED(because=reason)
    assert len(str(reason)) < 500
    assert len(reason.to_header()) < 500


def test_words_without_a_code_are_a_reason_too() -> None:
    assert str(text_reason("a plugin's own words")) == "a plugin's own words"
    assert text_reason("") is NO_REASON


def test_the_reason_is_not_part_of_an_edits_id_so_views_and_ledgers_do_not_change() -> None:
    ids = {
        Edit("drop", "prune", ("00",), part=0, reason=reason).id
        for reason in (NO_REASON, HARD, because.MANUAL(), text_reason("old observation"))
    }
    assert len(ids) == 1
