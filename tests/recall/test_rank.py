"""Ranking, apart from any store."""

from refold.recall.hits import (
    BLOCK,
    WANTS_NUMBER,
    QueryWord,
    choose_blocks,
    fuse,
    join_ranges,
    score_places,
    spread_word,
)
from refold.recall.index import NUMBER, QUESTION
from refold.recall.index_file import PassageRow


def passage(place: int, flags: int = 0) -> PassageRow:
    return PassageRow(place, place, 0, 10, 10, flags)


PLACES = {place: passage(place) for place in range(40)}


def test_a_place_that_says_both_words_beats_places_that_say_one() -> None:
    scores = score_places([QueryWord(1.0, [3, 20]), QueryWord(1.0, [20, 30])], PLACES, 10.0)
    assert max(scores, key=lambda place: scores[place]) == 20
    assert scores[20] <= 1.0 + 1e-9


def test_words_said_before_fade_with_distance_and_reach_less_far_back() -> None:
    spread = spread_word(range(40), [1.0 if place == 10 else 0.0 for place in range(40)])
    assert spread[10] == 1.0
    assert spread[11] > spread[12] > spread[20] > 0
    assert spread[9] > spread[8] > 0
    assert spread[7] == 0
    assert spread[11] > spread[9]
    assert spread[30] == 0


def test_a_gap_in_what_was_read_fades_as_the_places_in_it_would() -> None:
    whole = spread_word(range(12), [1.0, *[0.0] * 11])
    holed = spread_word([0, 1, 8], [1.0, 0.0, 0.0])
    assert abs(whole[8] - holed[2]) < 1e-9


def test_a_question_counts_less_than_the_answer_after_it() -> None:
    rows = {1: passage(1, QUESTION), 2: passage(2, NUMBER)}
    scores = score_places([QueryWord(1.0, [1, 2])], rows, 10.0, asks_number=True)
    assert scores[2] > scores[1]


def test_blocks_are_chosen_by_how_much_they_say_and_bounded() -> None:
    sought = [QueryWord(1.0, list(range(0, 8_000, BLOCK))), QueryWord(5.0, [4_000])]
    chosen = choose_blocks(sought, 10)
    assert 4_000 // BLOCK in chosen
    assert len(chosen) == 10
    assert sum(high - low for low, high in join_ranges(chosen)) <= 10 * (BLOCK + 20)


def test_questions_for_numbers_are_recognised() -> None:
    assert WANTS_NUMBER.search("which port did we choose")
    assert WANTS_NUMBER.search("电话是多少")
    assert not WANTS_NUMBER.search("who said hello")


def test_meaning_adds_what_shares_no_word_and_words_lead() -> None:
    fused = fuse({1: 0.9, 2: 0.1}, {2: 0.2, 3: 0.8})
    assert set(fused) == {1, 2, 3}
    assert fused[1] > fused[3] > fused[2]
    assert fuse({1: 0.5}, {}) == {1: 0.5}
