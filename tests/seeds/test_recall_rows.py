"""S0.7 and S0.10: typed facts, retrieval over memory by words and vectors, budgeted injection."""

from pathlib import Path
from typing import get_args

from refold.conversation.view import FactKind
from refold.recall.recall import Recall
from tests.recall.test_vectors import Hashed
from tests.rigs.recall import Workspace


def test_s0_7_facts_have_the_four_kinds_and_a_line_each(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.say(
        "s",
        "I prefer short answers.",
        "Understood.",
        "We decided to use Postgres.",
        "Agreed.",
        "We still need to write the migration.",
        "Yes.",
        "My account number is 4711-0815.",
        "Noted.",
    )
    facts = workspace.recall.facts("s")
    assert {fact.kind for fact in facts} == set(get_args(FactKind)) == {"preference", "decision", "todo", "key"}
    assert all("\n" not in fact.text and fact.handles for fact in facts)


def test_s0_10_memory_is_retrieved_by_words_and_by_vectors(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    recall = Recall(workspace.ledger, tmp_path / "ledger.recall.db", embedder=Hashed())
    workspace.say("s", "The parrot of the captain is called Polly.", "Nice.", "Lunch is at noon.", "Good.")
    for by in ("words", "meaning", "both"):
        assert recall.recall("s", "the captain's parrot", by=by)[0].text == "The parrot of the captain is called Polly."


def test_s0_10_memory_is_injected_within_its_budget_and_only_what_is_hidden(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    ids = workspace.say("s", "The parrot is called Polly.", "Nice.", "Lunch is at noon.", "Good.")
    injection = workspace.recall.inject("s", "What did I say earlier about the parrot?", ids[:2])
    assert injection.acts
    assert "Polly" in injection.text
    assert injection.tokens == workspace.recall.count_text(injection.text) <= 600
    hidden_elsewhere = workspace.recall.inject("s", "What did I say earlier about lunch at noon?", ids[:2])
    assert "noon" not in hidden_elsewhere.text
