"""Facts: typed, with where and when they were said, and replaced when a later one says otherwise."""

import pytest

from refold.conversation.reason import text_reason
from refold.conversation.view import Fact
from refold.ledger.records import Batch
from refold.recall.facts import contradicts, resolve_facts
from tests.rigs.recall import Workspace


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The port is 8080.", "We will use port 9090."),
        ("We decided to use port 8080 for the API.", "The API port is now 9090."),
        ("Let's go with Python 3.11.", "We'll use Python 3.12 instead of 3.11."),
        ("My name is Bob.", "My name is Robert."),
        ("I prefer dark mode.", "I prefer light mode."),
        ("The config is at src/old/config.yaml.", "The config is at src/new/config.yaml."),
        ("端口是8080。", "端口改为9090。"),
        ("我的名字是小明", "我的名字是小红"),
    ],
)
def test_a_later_value_of_the_same_thing_replaces_the_earlier(earlier: str, later: str) -> None:
    assert contradicts(earlier, later, "preference" if "prefer" in earlier else "decision")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The port of the API is 8080.", "The port of the database is 5432."),
        ("I like apples.", "I like pears."),
        ("The issue is a race.", "The issue is a typo."),
        ("We decided to use Postgres.", "We decided to deploy on Friday."),
        ("The port is 8080.", "The port is 8080."),
        ("Created 3 files.", "Created 5 tables."),
        ("我喜欢苹果", "我喜欢散步"),
    ],
)
def test_statements_about_different_things_are_all_kept(earlier: str, later: str) -> None:
    assert not contradicts(earlier, later, "key")


def test_the_newer_wins_and_the_older_stays_in_history() -> None:
    facts = resolve_facts(
        [
            (Fact("decision", "The port is 8080.", "m:aaaaaaaa"), 1.0),
            (Fact("key", "The owner is Ann.", "m:bbbbbbbb"), 2.0),
            (Fact("decision", "The port is 9090.", "m:cccccccc"), 3.0),
        ]
    )
    assert [(fact.text, fact.superseded_by) for fact in facts] == [
        ("The port is 8080.", "The port is 9090."),
        ("The owner is Ann.", ""),
        ("The port is 9090.", ""),
    ]


def test_what_is_said_again_is_one_fact_with_both_places_and_times() -> None:
    (fact,) = resolve_facts(
        [(Fact("key", "The owner is Ann.", "m:aaaaaaaa"), 1.0), (Fact("key", "the owner is  Ann.", "m:bbbbbbbb"), 5.0)]
    )
    assert (fact.first_seen, fact.last_seen) == (1.0, 5.0)
    assert fact.handles == ("m:aaaaaaaa", "m:bbbbbbbb")


def test_going_back_to_the_first_value_makes_it_hold_again() -> None:
    facts = resolve_facts(
        [
            (Fact("decision", "The port is 8080.", "m:a"), 1.0),
            (Fact("decision", "The port is 9090.", "m:b"), 2.0),
            (Fact("decision", "The port is 8080.", "m:c"), 3.0),
        ]
    )
    assert [fact.text for fact in facts if fact.holds] == ["The port is 8080."]


def test_facts_come_from_the_ledger_and_by_rule_from_what_was_said(workspace: Workspace) -> None:
    ids = workspace.say("s", "I prefer tabs over spaces.", "Noted.", "We decided to use port 8080.", "Good.", now=5.0)
    batch = Batch(
        "b", (), text_reason("test"), facts=(Fact("todo", "Rotate the signing key.", "m:12345678"),), created_at=6.0
    )
    if workspace.ledger.commit("s", batch, now=6.0):
        assert "todo" in {fact.kind for fact in workspace.recall.facts("s")}
    found = {fact.text: fact for fact in workspace.recall.facts("s")}
    assert found["I prefer tabs over spaces."].kind == "preference"
    assert found["We decided to use port 8080."].kind == "decision"
    assert found["I prefer tabs over spaces."].handles == (workspace.handle("s", ids[0]),)
    workspace.say("s", "We decided to use port 9090.", now=9.0)
    texts = [fact.text for fact in workspace.recall.facts("s")]
    assert "We decided to use port 8080." not in texts
    history = {fact.text: fact for fact in workspace.recall.facts("s", with_history=True)}
    assert history["We decided to use port 8080."].superseded_by == "We decided to use port 9090."


def test_a_forgotten_message_leaves_no_fact(workspace: Workspace) -> None:
    ids = workspace.say("s", "My password is hunter2222.", "ok")
    assert workspace.recall.facts("s")
    workspace.ledger.forget("s", ids[:1], 2.0)
    assert workspace.recall.facts("s") == []
