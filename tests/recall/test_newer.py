"""The last statement about a thing is the answer: a replaced statement never ranks before the newer one."""

import pytest

from refold.recall.facts import LOOKED_AT, put_newer_first
from refold.recall.search import Recalled
from tests.rigs.recall import Workspace

FILLER = ["How is the weather?", "Look at the parser module.", "The tests passed in 12 seconds.", "Explain decorators."]
CHANGES = [
    ("The API listens on port 8080.", "Actually, the API listens on port 9090.", "Which port does the API listen on?"),
    ("My favourite colour is blue.", "I thought again: my favourite colour is green.", "What is my favourite colour?"),
    ("We use MySQL as the user database.", "We switched the user database to Postgres.", "Which user database is it?"),
    ("The meeting with Anna is on Tuesday.", "Anna's meeting moved to Thursday.", "When is the meeting with Anna?"),
    ("I live in Berlin.", "I moved last month, so I live in Hamburg now.", "Where do I live?"),
    ("The retry limit is 3.", "Set the retry limit to 5 instead of 3.", "What is the retry limit?"),
    ("项目的截止日期是5月3日。", "项目的截止日期改为6月10日了。", "项目的截止日期是什么时候？"),
    ("张伟负责后端。", "现在李娜负责后端，张伟去做测试了。", "谁负责后端？"),
]


@pytest.mark.parametrize(("old", "new", "query"), CHANGES, ids=[change[2] for change in CHANGES])
def test_a_statement_that_was_replaced_ranks_after_the_newer_one(
    workspace: Workspace, old: str, new: str, query: str
) -> None:
    chatter = [f"{FILLER[at % 4]} ({at})" for at in range(12)]
    workspace.say("s", *chatter[:4], old, *chatter[4:8], new, *chatter[8:])
    texts = [one.text for one in workspace.recall.recall("s", query)]
    assert texts[0] == new
    assert old in texts


def test_a_question_about_the_past_and_a_value_itself_are_answered_as_they_match(workspace: Workspace) -> None:
    old, new = "The API listens on port 8080.", "Actually, the API listens on port 9090 and not on 8080."
    workspace.say("s", old, *FILLER, new)
    assert workspace.recall.recall("s", "Which port did the API listen on before?")[0].text == old
    assert workspace.recall.recall("s", "8080")[0].text == old


def test_a_question_that_names_a_value_is_answered_by_what_holds_it(workspace: Workspace) -> None:
    old, new = "模块三的截止日期是4月4日。", "模块九的截止日期是4月24日。"
    workspace.say("s", old, *FILLER, new)
    assert workspace.find("s", "截止日期4月4日")[0] == old


def make_results(*texts: str, role: str = "user") -> list[tuple[int, Recalled]]:
    """Results in the order they were said, the first the best."""
    return [(at, Recalled(text, f"m:{at:08}", role, 1.0 - at / 100)) for at, text in enumerate(texts)]


def test_the_newest_of_several_comes_first_and_scores_stay_in_order() -> None:
    found = make_results("The limit is 3.", "The limit is now 4.", "The limit is now 5.", "Something about a limit.")
    ranked = put_newer_first(found, "What is the limit?")
    assert [one.text for one in ranked][:2] == ["The limit is now 5.", "The limit is now 4."]
    assert sorted((one.score for one in ranked), reverse=True) == [one.score for one in ranked]
    assert len(ranked) == 4


@pytest.mark.parametrize(
    "found",
    [
        make_results("The limit is 3.", "Is the limit now 5?"),
        make_results("The limit is 3.", "The tests are green now."),
        make_results("The limit is 3.", "The limit is now 5.", role="tool"),
        make_results("The cache limit is 3.", "The upload limit is high."),
        make_results(*["The limit is 3."] * LOOKED_AT, "The limit is now 5."),
        make_results(),
    ],
    ids=["question", "other", "tool", "another", "far", "none"],
)
def test_what_does_not_replace_stays_where_it_is(found: list[tuple[int, Recalled]]) -> None:
    assert put_newer_first(found, "What is the limit of the cache?") == [one for _, one in found]
