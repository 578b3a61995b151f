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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refold.errors import ConfigError
from refold.tokens import TokenCounter
from refold.tokens.encoding import EXACT_ENCODINGS, OPEN_VOCABULARIES, Encoding, _find_cuts, clean_text
from tests.effort import up_to
from tests.tokens.oracle import count_reference, load_oracle
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


def count_whole(encoding: str, text: str) -> int:
    """Count a giant text in one go. The reference takes minutes on such a text; our encoder only takes long."""
    return len(load_direct(encoding).encode_ordinary(text))


NEIGHBOURS = st.sampled_from(
    ("", "a", "b ", " ", "\n", "x\n", "\n\n", ".", "'s", "'", "é", "中", "1", "Ab", "  \n", "-")
)
WORDS = st.integers(0, 400).map(lambda count: "some words, " * count)


@ENCODINGS
@settings(max_examples=up_to(30))
@given(
    unit=st.sampled_from("aAzQ -=_*#.\n\t\r中的é😀\u00a0\u0301/"),
    length=st.integers(140_000, 300_000),
    before=st.tuples(WORDS, NEIGHBOURS, NEIGHBOURS).map("".join),
    after=st.tuples(NEIGHBOURS, NEIGHBOURS, WORDS).map("".join),
)
def test_a_long_run_of_one_character_is_counted_exactly(
    encoding: str, unit: str, length: int, before: str, after: str
) -> None:
    text = before + unit * length + after
    assert Encoding(encoding).count(text) == count_whole(encoding, text)


@ENCODINGS
@settings(max_examples=up_to(12, quick=2))
@given(units=st.lists(st.sampled_from("a -\n中="), min_size=2, max_size=3), gap=NEIGHBOURS)
def test_several_long_runs_in_one_text_are_counted_exactly(encoding: str, units: list[str], gap: str) -> None:
    text = gap.join(unit * (90_000 + 7 * at) for at, unit in enumerate(units)) + gap
    assert Encoding(encoding).count(text) == count_whole(encoding, text)


ALPHABETS = ("的一是，",)
MORE_ALPHABETS = (
    "acgt",
    "A1b2 c3\n",
    "ACGT",
    "abcdefghijklmnopqrstuvwxyz",
    "=-",
    "ab",
    "!#$%&()*+,-./:;<=>?@[]^_`{|}~",
)


@ENCODINGS
@pytest.mark.parametrize(
    "alphabet", [*ALPHABETS, *(pytest.param(more, marks=pytest.mark.slow) for more in MORE_ALPHABETS)]
)
def test_a_text_too_large_for_one_piece_is_taken_apart_without_a_difference(encoding: str, alphabet: str) -> None:
    dice = random.Random(alphabet)
    for before, after, times in (
        ("", "", 0),
        ("X", "'s and more", 0),
        ("hello 12 ", "\u0301b", 0),
        ("'", "B\n", 140_000),
    ):
        body = "".join(dice.choices(alphabet, k=600_000)) if not times else alphabet * times
        text = before + body + after
        assert Encoding(encoding).count(text) == count_whole(encoding, text)


def test_a_text_that_nothing_splits_is_cut_at_seams_and_an_ordinary_one_is_not() -> None:
    genome = "".join(random.Random(5).choices("acgt", k=3_000_000))
    *seams, last = (is_seam for _, is_seam in _find_cuts(genome))
    assert len(seams) > 10
    assert all(seams)
    assert not last
    assert not any(is_seam for _, is_seam in _find_cuts("plain words and 12 numbers\n" * 100_000))


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
        encoding._encode(words)  # One call of the library.
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
