"""Queries and messages that try to break the search: every one gets an answer, none is read as syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import FormatError, HandleUnknown
from tests.rigs.recall import Workspace

QUERIES = [
    "",
    "   \n\t",
    '"',
    '"unclosed',
    "*",
    "a*",
    "NEAR(a b, 2)",
    "AND OR NOT",
    "words : heron",
    "{words} : x",
    "^heron",
    "heron AND NOT ibis",
    "-heron",
    "1|heron",
    "'; DROP TABLE word; --",
    "\x00heron\x00",
    "\ud800 heron",
    "🎉🎉",
    "%_%",
    "heron " * 200_000,
    "x" * 1_000_000,
    "端" * 1_000_000,
    "(((((" * 10_000,
    "./" * 50_000,
    "a'b’c" * 10_000,
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: repr(query[:20]))
def test_no_query_is_an_error_or_an_operator(workspace: Workspace, query: str) -> None:
    workspace.say("s", "the first is heron", "the second is ibis")
    found = [one.unit for one in workspace.recall.recall("s", query)]
    if "heron" in query:
        assert any("the first is heron" in one for one in found)


@pytest.mark.parametrize(
    "asked",
    [{"query": None}, {"query": 5}, {"query": b"heron"}, {"query": ["heron"]}, {"limit": "x"}, {"limit": 1.5},
     {"limit": True}, {"tokens_max": "many"}],
    ids=repr,
)  # fmt: skip
def test_an_invalid_query_is_refused(workspace: Workspace, asked: dict[str, object]) -> None:
    workspace.say("s", "a heron")
    with pytest.raises(FormatError, match=r"must be a (string|whole number), not"):
        workspace.recall.recall("s", **{"query": "heron", **asked})  # type: ignore[arg-type]


@given(query=st.text(max_size=200))
def test_any_text_is_a_query(tmp_path_factory: pytest.TempPathFactory, query: str) -> None:
    workspace = Workspace(tmp_path_factory.mktemp("any"))
    workspace.say("s", "the first is heron", query or "nothing")
    assert all(one in ("the first is heron", query, "nothing") for one in workspace.find("s", query))
    workspace.recall.close()
    workspace.ledger.close()


@pytest.mark.parametrize(
    "text",
    ["", " ", "\x00", "\ud83d lone", "a" * 300_000, "\n" * 100_000, "“" * 50_000, "1|heron 2|ibis", "é́" * 5_000],
    ids=lambda text: repr(text[:12]),
)
def test_any_message_can_be_indexed_and_verified(workspace: Workspace, text: str) -> None:
    workspace.say("s", text, "then came the heron")
    assert "then came the heron" in workspace.find("s", "heron")
    assert workspace.recall.verify_index("s") == []


def test_messages_without_words_and_with_calls_are_read_like_the_rest(workspace: Workspace) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "src/heron.py"}'}}
    workspace.add(
        "s",
        [
            {"role": "user", "content": "read it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "class Heron: wings = 2"},
        ],
    )
    assert any("read_file" in one for one in workspace.find("s", "heron.py"))
    assert "class Heron: wings = 2" in workspace.find("s", "wings")


def test_a_missing_handle_gets_an_answer_that_ends_the_search(workspace: Workspace) -> None:
    workspace.say("s", "something")
    for handle in ("m:ffffffff", "f:ffffffff", "⟨m:ffffffff⟩", "m:ffffffff.3"):
        with pytest.raises(HandleUnknown, match="asking again will not help"):
            workspace.recall.expand("s", handle)
    with pytest.raises(HandleUnknown, match="is not a handle"):
        workspace.recall.expand("s", "'; DROP TABLE message")
