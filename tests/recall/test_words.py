"""Words of texts and queries: the same on both sides, safe to hand to a search engine, whatever the text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.recall.words import QUERY_WORDS_MAX, find_relative_days, find_words, name_day, piece_words, query_words

SAFE = re.compile(r"[^\s\"'*()\x00-\x1f\ud800-\udfff|^]{1,64}")
FRIDAY_2024_05_17 = 1_715_940_000.0


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("see src/refold/cli/main.py:12 for it", "main.py"),
        ("see src/refold/cli/main.py:12 for it", "src/refold/cli/main.py"),
        ("call getUserName first", "user name"),
        ("MAX_RETRY_COUNT is 5", "retry count"),
        ("failed with ERR_CONN_REFUSED", "err_conn_refused"),
        ("upgrade to v2.14.3-rc1", "v2.14.3-rc1"),
        ("we met on 4 February, 2023", "2023-02-04"),
        ("会议定在2023年2月4日", "February 4"),
        ("it costs 1,234.56 euros", "1234.56"),
        ("she visited two cities", "visiting a city"),
        ("mail anna@example.org", "example.org"),
        (r"open C:\Users\me\notes.txt", "notes.txt"),
        ("Deborah's garden", "Deborah garden"),
        ("端口定为九千零九十", "端口"),
        ("数据库用PostgreSQL吧", "postgresql 数据"),
        ("東京タワーに行った", "タワー"),
        ("회의는 금요일입니다", "금요일"),
        ("great 🎉", "🎉"),
    ],
)
def test_a_query_shares_words_with_the_text_it_means(text: str, query: str) -> None:
    wanted = set(query_words(query))
    assert wanted
    assert wanted & set(find_words(text)), (wanted, find_words(text))


@given(st.text())
def test_a_word_never_holds_what_a_search_engine_could_read_as_syntax(text: str) -> None:
    for word in (*find_words(text), *query_words(text)):
        assert SAFE.fullmatch(word), word


@given(st.text(alphabet="aB3_./:-@ \\#'’,端口", max_size=60))
def test_a_text_holds_every_word_of_itself_as_a_query(text: str) -> None:
    assert set(query_words(text)) <= set(find_words(text))
    assert set(piece_words(text)) <= set(find_words(text))


def test_a_megabyte_of_one_letter_is_one_short_word() -> None:
    (word,) = find_words("x" * 1_000_000)
    assert len(word) <= 64
    assert len(query_words("word " * 250_000)) <= QUERY_WORDS_MAX


def test_common_words_count_only_when_there_are_no_others() -> None:
    assert "what" not in query_words("what was the port")
    assert query_words("to be or not to be")


def test_days_by_their_distance_are_the_same_words_as_dates() -> None:
    assert "@2024-05-10" in find_relative_days("what did she say last Friday?", FRIDAY_2024_05_17)
    assert "@2024-05-16" in find_relative_days("昨天说了什么", FRIDAY_2024_05_17)
    assert "@2024-05-10" in find_relative_days("上周五的会议", FRIDAY_2024_05_17)
    assert "@2024-05-14" in find_relative_days("three days ago", FRIDAY_2024_05_17)
    assert find_relative_days("last Friday", 0.0) == []
    assert "@2024-05-17" in name_day(FRIDAY_2024_05_17)
    assert "@2024-05-17" in find_words("on 2024-05-17")


def test_a_common_word_says_little_whatever_its_stem() -> None:
    words = query_words("Where do they live while Sam is out there?")
    assert {word for word, weight in words.items() if weight >= 1} == {"live", "sam"}
