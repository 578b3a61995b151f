"""Results of searching for something that was said."""

from pathlib import Path

import pytest

from refold.errors import SessionNotFound
from refold.ledger.records import Splice
from tests.rigs.recall import Workspace

FILLER = [f"Let us talk about topic {number} and the weather of day {number}." for number in range(60)]


def test_a_question_finds_the_message_that_answers_it(workspace: Workspace) -> None:
    workspace.say("s", *FILLER[:30], "The service listens on port 9090.", *FILLER[30:])
    assert workspace.find("s", "which port did we choose?")[0] == "The service listens on port 9090."


def test_words_of_two_chinese_characters_are_found(workspace: Workspace) -> None:
    workspace.say("s", *["今天天气很好，我们去公园散步。"] * 3, "服务的端口定为九千零九十。", "好的，明白了。")
    assert "端口" in workspace.find("s", "端口")[0]
    assert "端口" in workspace.find("s", "我们选了哪个端口？")[0]


def test_a_value_named_a_turn_after_its_subject_is_found_by_the_subject(workspace: Workspace) -> None:
    workspace.say("s", *FILLER[:20], "推荐您去南锣鼓巷。", "那里的电话是多少？", "010-64051234。", *FILLER[20:])
    assert "010-64051234。" in workspace.find("s", "南锣鼓巷的电话是什么？", 3)


def test_a_value_in_the_middle_of_a_megabyte_comes_back_as_its_passage(workspace: Workspace) -> None:
    lines = [f"2026-01-01 worker {number % 7} processed batch {number}" for number in range(25_000)]
    lines[12_345] = "2026-01-01 worker 3 failed with E7731_TIMEOUT at shard-44"
    text = "\n".join(lines)
    assert len(text) > 1_000_000
    workspace.add("s", [{"role": "user", "content": "run it"}, {"role": "tool", "tool_call_id": "c", "content": text}])
    found = workspace.recall.recall("s", "E7731_TIMEOUT")[0]
    assert "E7731_TIMEOUT at shard-44" in found.text
    assert not found.is_whole
    assert text[found.start : found.stop] == found.text
    assert workspace.recall.expand("s", found.handle, found.start, len(found.text)).text == found.text


def test_results_are_exact_originals_with_handle_role_and_score(workspace: Workspace) -> None:
    said = "  Deploy with `make ship`;\n\tnever on Fridays.  "
    (message_id,) = workspace.say("s", said)
    (found,) = workspace.recall.recall("s", "deploy fridays")
    assert (found.text, found.role, found.is_whole) == (said, "user", True)
    assert found.handle == workspace.handle("s", message_id)
    assert found.score > 0


def test_ten_results_have_at_most_1500_tokens_unless_more_is_asked_for(workspace: Workspace) -> None:
    workspace.say("s", *[f"needle {number} " + "hay and more hay " * 60 for number in range(30)])
    count = workspace.recall.count_text
    found = workspace.recall.recall("s", "needle")
    assert len(found) == 10
    assert sum(count(one.text) for one in found) <= 1_500
    assert all("needle" in one.text for one in found)
    more = workspace.recall.recall("s", "needle", 20, tokens_max=6_000)
    assert len(more) == 20
    assert 1_500 < sum(count(one.text) for one in more) <= 6_000


def test_the_same_question_gives_the_same_answer_in_the_same_order(workspace: Workspace) -> None:
    workspace.say("s", *[f"equal words number{number}" for number in range(40)])
    first = workspace.recall.recall("s", "equal words")
    assert first == workspace.recall.recall("s", "equal words")
    assert len({one.handle for one in first}) == 10


def test_a_value_leads_to_where_it_was_said_first_among_many_uses(workspace: Workspace) -> None:
    origin = "The ticket system says " + "many other things " * 30 + "and the code is QX-48213 " + "and so on " * 20
    workspace.say("s", origin, *[f"using QX-48213 again {number}" for number in range(50)])
    assert any("code is QX-48213" in one for one in workspace.find("s", "QX-48213"))


def test_recall_stays_in_its_session_unless_all_are_asked_for(workspace: Workspace) -> None:
    workspace.say("mine", "my secret word is albatross")
    workspace.say("yours", "your secret word is pelican")
    assert workspace.find("mine", "pelican") == []
    assert workspace.find("mine", "secret word") == ["my secret word is albatross"]
    everywhere = workspace.recall.recall(None, "secret word")
    assert {one.session_id for one in everywhere} == {"mine", "yours"}


def test_sessions_whose_names_differ_by_a_digit_share_no_words(workspace: Workspace) -> None:
    for number in range(40):
        workspace.say(f"s{number}", f"only here stands marker{number}")
        workspace.find(f"s{number}", "marker")
    for number in (1, 11, 16, 17, 31):
        assert workspace.find(f"s{number}", f"marker{number}") == [f"only here stands marker{number}"]
        assert workspace.find(f"s{number}", f"stray{number + 1}") == []


def test_an_unknown_session_is_an_error_that_says_so(workspace: Workspace) -> None:
    with pytest.raises(SessionNotFound, match="no session 'nobody'"):
        workspace.recall.recall("nobody", "anything")


def test_a_date_in_words_of_distance_finds_the_day(workspace: Workspace) -> None:
    friday = 1_715_904_000.0
    workspace.say("s", "We talked about the roof.", now=friday - 7 * 86_400)
    workspace.say("s", "We talked about the cellar.", now=friday - 3 * 86_400)
    workspace.say("s", *FILLER[:10], now=friday - 86_400)
    found = workspace.recall.recall("s", "what did we talk about last Friday", now=friday)
    assert found[0].text == "We talked about the roof."


def test_every_result_is_still_found_in_a_fork_that_left_the_path(tmp_path: Path, workspace: Workspace) -> None:
    workspace.say("s", "first the anchor question", "an answer that the client later trims away: kestrel")
    path = workspace.ledger.read_path("s")
    workspace.ledger.append("s", [], [Splice(1, 2, ())], version=path.version, now=2.0)
    assert workspace.find("s", "kestrel", 1) == ["an answer that the client later trims away: kestrel"]


def test_a_value_that_is_everywhere_is_shown_where_people_and_tools_brought_it_first(workspace: Workspace) -> None:
    said = [{"role": "assistant", "content": "I will look at src/app/config.py now."}]
    for number in range(30):
        said += [
            {"role": "user", "content": f"round {number}: open src/app/config.py again"},
            {"role": "assistant", "content": f"src/app/config.py in round {number}"},
        ]
    workspace.add("s", said)
    found = workspace.find("s", "src/app/config.py")
    assert found[0] == said[0]["content"]
    assert found[1:5] == [f"round {number}: open src/app/config.py again" for number in range(4)]
    assert "src/app/config.py in round 29" in found


def test_a_value_with_many_passages_in_one_message_does_not_crowd_out_the_other_messages(workspace: Workspace) -> None:
    log = "\n".join(f"order-88231 step {number} " + "x" * 60 for number in range(400))
    workspace.say("s", log, "noted", "please cancel order-88231", "order-88231 is cancelled")
    found = workspace.find("s", "order-88231")
    assert "please cancel order-88231" in found
    assert "order-88231 is cancelled" in found


def test_a_passage_of_a_message_that_was_sent_again_and_again_with_more_is_shown_once(workspace: Workspace) -> None:
    notes = [f"sensor {number} of hall seven\n" + f"{number * 7919 % 1000} units, quiet\n" * 60 for number in range(12)]
    workspace.say("s", *("\n".join(notes[:count]) for count in range(1, 13)))
    found = workspace.find("s", "sensor 3 of hall seven")
    assert "sensor 3 of hall seven" in found[0]
    assert len(set(found)) == len(found) > 1


def test_a_search_for_one_exact_value_returns_no_neighbours_of_it(workspace: Workspace) -> None:
    workspace.say("s", "hello there", "the ticket is REF-4711", "fine weather", "indeed")
    assert workspace.find("s", "REF-4711") == ["the ticket is REF-4711"]
    assert len(workspace.find("s", "which ticket was it?")) > 1
    # A value that nobody wrote like this still finds what comes near.
    assert "the ticket is REF-4711" in workspace.find("s", "REF_4711/x")
