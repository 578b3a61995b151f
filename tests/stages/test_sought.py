"""The line of a result that answers what was looked for, and texts in which none stands out."""

import pytest

from refold.stages.record.sought import choose_sought, find_sought

TASK = "Count the errors E17 of each shard, then follow the incident to its host. 统计每个分片的错误数量。"
SOUGHT = choose_sought([TASK])
NOISE = "\n".join(f"the queue was drained in batch {number} and nobody was called" for number in range(40))


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("shard-07 errors E17 in all: 45", "shard-07"),
        ("incident host: node-613", "incident"),
        ("分片 7 错误 E17 共 45", "shard-07"),
        ("node-613 is kept by host 12", "node-613"),
    ],
)
def test_the_line_with_the_words_of_task_and_call_is_found(line: str, call: str) -> None:
    assert find_sought(f"{NOISE}\n{line}\n{NOISE}", SOUGHT, call) == line


@pytest.mark.parametrize(
    "text",
    [
        "",
        "errors E17: 3",  # The outcome of a short result is quoted anyway.
        NOISE,
        "\n".join(["errors E17 of a shard: 3"] * 9),  # Every line has the words.
        f"{NOISE}\nthe errors of E seventeen, in words\n",  # No number.
        f"{NOISE}\nerrors E17 {'x' * 500} 3\n",
    ],
)
def test_nothing_is_quoted_where_no_line_stands_out(text: str) -> None:
    assert find_sought(text, SOUGHT, "shard-07") == ""


def test_a_task_that_names_everything_is_no_question() -> None:
    assert choose_sought([" ".join(f"word{number}x" for number in range(200))]) == ()
