"""A cue answers as its plain expression does, on the sentences people write and on those they do not."""

import json
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from refold.stages.extract import facts, words
from refold.stages.extract.cue import Cue, any_word, list_starts

ROWS = (Path(__file__).parents[1] / "data" / "facts_labelled.jsonl").read_text(encoding="utf-8").splitlines()
SENTENCES = [json.loads(row)["text"] for row in ROWS]


def list_cues() -> Iterator[tuple[str, Cue]]:
    for module in (words, facts):
        for name, value in vars(module).items():
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Cue):
                    yield name, one


CUES = dict(list_cues())
PIECES = sorted({piece for cue in CUES.values() for piece in cue.pattern.pattern.replace("\\b", "").split("|")})


def test_every_cue_answers_as_its_expression_does() -> None:
    assert len(CUES) >= 15
    for name, cue in CUES.items():
        for sentence in SENTENCES:
            assert cue.search(sentence) == bool(cue.pattern.search(sentence)), (name, sentence)


WORDS = st.one_of(
    st.sampled_from(PIECES),
    st.sampled_from([word for sentence in SENTENCES for word in sentence.split()]),
    st.sampled_from(("ſtill", "İf", "ılater", "TODO", "i'm", "I’ve", "3because", "_the", "决定", "\n", "")),
)


@given(st.lists(WORDS, max_size=12), st.sampled_from((" ", "  ", "-", "", ", ")))
def test_it_does_so_on_words_in_any_order(pieces: list[str], joint: str) -> None:
    sentence = joint.join(pieces)
    for name, cue in CUES.items():
        assert cue.search(sentence) == bool(cue.pattern.search(sentence)), (name, sentence)


def test_most_words_of_a_cue_are_looked_for_at_their_beginnings_only() -> None:
    assert list_starts(r"decid(?:e|ed)\b") == {"deci"}
    assert list_starts(r"opt(?:ed)?\b") == {"opt$", "opte"}
    assert list_starts(r"(?<!\bif )we (?:drop|go with)\b") == {"we$"}
    assert list_starts(r"\w+ing\b") == {None}
    cue = any_word(r"turns out\b|the (?:root )?cause\b", r"^so\b")
    assert cue.starts == {"turn", "the$"}
    assert cue.opening is not None
    assert cue.rest is None
