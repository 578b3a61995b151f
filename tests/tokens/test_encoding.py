"""Exactness: our counts are those of the reference encoder, on anything."""

import gzip
import json
import random
import threading
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.errors import ConfigError
from refold.tokens import TokenCounter
from refold.tokens.encoding import EXACT_ENCODINGS, OPEN_VOCABULARIES, Encoding, clean_text, cut_safely
from tests.rigs.oracle import count_reference, load_oracle
from tests.tokens.samples import KINDS

ENCODINGS = pytest.mark.parametrize("encoding", EXACT_ENCODINGS)

SPECIAL = ("<|endoftext|>", "<|fim_prefix|>", "<|im_start|>", "<|endofprompt|>", "<|think|>", "<|", "|>")
PIECES = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="的一是在不了有和人这，。！？、", max_size=20),
    st.text(alphabet="😀🎉👩\u200d💻🇩🇪é\u0301ßñАбв\u0627\u0644\u200f", max_size=10),
    st.text(alphabet=" \t\n\r\u00a0\u3000", max_size=40),
    st.text(alphabet="{}[]\":,'.-_=/\\<>()#*", max_size=20),
    st.text(alphabet="0123456789abcdefABCDEF", max_size=40),
    st.sampled_from(SPECIAL),
    st.sampled_from(("'s", "'LL", "don't", "HTTPServer", "fooBar_baz", "\x00", "\ufeff", "\ufffd")),
    st.characters(categories=["Cs"]),
    st.builds(lambda unit, times: unit * times, st.text(min_size=1, max_size=2), st.integers(0, 300)),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@ENCODINGS
@given(text=TEXTS)
@example(text="<|endoftext|> is text to us")
@example(text="\ud83d\ude00 is a pair, \ud800 is alone")
@example(text="a\x00b")
def test_any_text_has_as_many_tokens_as_the_reference_says(encoding: str, text: str) -> None:
    assert Encoding(encoding).count(text) == count_reference(encoding, text)


@ENCODINGS
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_text_is_counted_exactly(encoding: str, kind: str) -> None:
    assert Encoding(encoding).count(KINDS[kind]) == count_reference(encoding, KINDS[kind])


@ENCODINGS
def test_recorded_sessions_are_counted_exactly(encoding: str, shared_data: Path) -> None:
    checked = 0
    for file in sorted(shared_data.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in islice(lines, 3):
                for text in list(_find_strings(json.loads(line)))[:40]:
                    assert Encoding(encoding).count(text) == count_reference(encoding, text), file.name
                    checked += 1
    assert checked > 50


def _find_strings(value: object) -> Iterator[str]:
    """Yield the longer strings of a JSON value, cut to a size that the reference takes quickly."""
    if isinstance(value, str) and len(value) > 50:
        yield value[:20_000]
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _find_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_strings(inner)


@cache
def load_direct(encoding: str) -> Any:
    from splintr import Tokenizer

    return Tokenizer.from_pretrained(encoding)


@ENCODINGS
@pytest.mark.parametrize("alphabet", ["的一是，", "A1b2 c3\n", "ab"])
def test_a_long_text_that_looks_like_special_tokens_is_taken_apart_without_a_difference(
    encoding: str, alphabet: str
) -> None:
    text = f"<|endoftext|>{''.join(random.Random(alphabet).choices(alphabet, k=300_000))}'s <|im_start|>"
    assert "".join(cut_safely(text)) == text
    assert Encoding(encoding).count(text) == len(load_direct(encoding).encode_ordinary(text))


@ENCODINGS
def test_ten_million_of_one_letter_count_as_the_period_says(encoding: str) -> None:
    eight = Encoding(encoding).count("a" * 8_000)
    assert Encoding(encoding).count("a" * 10_000_000) == eight * 1_250


def test_the_shortest_reference_run_agrees_with_the_reference() -> None:
    for encoding in EXACT_ENCODINGS:
        load_oracle(encoding)
        for unit in ("a", " ", "\n", "=", "中"):
            assert Encoding(encoding).count(unit * 3_000) == count_reference(encoding, unit * 3_000)


def test_other_threads_run_while_a_long_text_is_counted() -> None:
    encoding = Encoding("o200k_base")
    encoding.count("loaded")
    words = "".join(random.Random(7).choices("abcdefghij klmnop", k=500_000))
    ticks, begun, done = [], threading.Event(), threading.Event()

    def tick() -> None:
        begun.set()
        while not done.wait(0.0005):
            ticks.append(1)

    other = threading.Thread(target=tick)
    other.start()
    begun.wait()
    most = 0
    for _ in range(20):  # On a busy machine the other thread may not get its turn the first time.
        before = len(ticks)
        encoding.count(words)  # One call of the library.
        most = max(most, len(ticks) - before)
        if most >= 5:
            break
    done.set()
    other.join()
    assert most >= 5


def test_every_special_token_begins_with_the_marker_that_we_look_for() -> None:
    for encoding in EXACT_ENCODINGS:
        assert all(token.startswith("<|") for token in load_direct(encoding).special_tokens())


@pytest.mark.parametrize("name", OPEN_VOCABULARIES)
def test_an_open_vocabulary_counts_every_kind_of_text(name: str) -> None:
    for text in KINDS.values():
        assert len(text) / 8 < Encoding(name).count(text) < len(text) * 1.2
    assert Encoding(name).count("") == 0
    assert Encoding(name).count("\ud800") > 0


def test_lone_surrogates_are_replaced_and_pairs_are_joined() -> None:
    assert clean_text("a\ud800b") == "a\ufffdb"
    assert clean_text("\ud83d\ude00") == "😀"
    assert clean_text("中 plain") == "中 plain"


def test_an_unknown_encoding_is_refused_with_the_names_that_are_known() -> None:
    with pytest.raises(ConfigError, match="o200k_base"):
        TokenCounter("p99k_base")
