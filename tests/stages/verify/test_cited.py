"""What the messages that a line cites prove: their own calls, refusals, other errors, and changes that failed."""

import json

import pytest

from refold.formats import detect, parse_messages
from refold.stages.claims import find_fault
from refold.stages.ground import Ground, find_claims
from refold.stages.verify import verify_words


def call(number: int, tool: str, **arguments: str) -> dict[str, object]:
    return {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": tool, "arguments": json.dumps(arguments)},
    }


def acts(text: str, *calls: dict[str, object]) -> dict[str, object]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def answers(number: int, text: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


TALK = [
    {"role": "user", "content": "Let the parser in src/parse.py accept an empty file. Do not touch the lexer."},
    acts("I run both checks.", call(1, "bash", command="ruff check ."), call(2, "bash", command="pytest tests")),
    answers(1, "<returncode>0</returncode>\nAll checks passed!"),
    answers(
        2, "<returncode>1</returncode>\nE   IndexError: list index out of range\n== 2 failed, 40 passed in 1.2s =="
    ),
    acts(
        "The parser takes the first token without looking whether there is one.",
        call(3, "Edit", file_path="src/parse.py", old_string="tokens[0]", new_string="next(iter(tokens), None)"),
    ),
    answers(
        3,
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, "
        "the new_string was NOT written to the file).",
    ),
    {"role": "user", "content": "Return an empty tree instead."},
    acts(
        "Then I return an empty tree.",
        call(4, "Edit", file_path="src/parse.py", old_string="tokens[0]", new_string="if not tokens: return Tree()"),
    ),
    answers(4, "The file src/parse.py has been updated successfully."),
    acts("Now the tests again.", call(5, "bash", command="pytest tests")),
    answers(5, "<returncode>0</returncode>\n== 42 passed in 1.1s =="),
    {"role": "assistant", "content": "All 42 tests pass now; the committed/staged split stays open."},
]
GROUND = Ground(parse_messages(detect(TALK), TALK))


def is_kept(line: str, *cites: int) -> bool:
    return not find_fault(line, GROUND.scope(cites))


def test_a_cited_result_picks_its_own_call_of_a_message_with_several() -> None:
    assert is_kept("ruff passed.", 2, 3)
    assert is_kept("The full test run failed.", 2, 4)
    assert not is_kept("The full test run passed.", 2, 4)
    assert not is_kept("The linter failed.", 2, 3)


def test_a_change_that_was_refused_is_no_change_and_its_refusal_no_wish() -> None:
    assert is_kept("The user rejected the edit of src/parse.py.", 5, 6)
    assert is_kept("The first edit of src/parse.py was blocked.", 5, 6)
    assert not is_kept("src/parse.py now uses next() with a default.", 5, 6)
    assert not is_kept("The first edit of src/parse.py was applied.", 5, 6)


def test_another_error_than_the_one_shown_is_not_what_happened() -> None:
    assert is_kept("The first run ended with an IndexError.", 2, 4)
    assert not is_kept("The first run ended with no error.", 2, 4)
    ground = Ground(
        parse_messages(detect(TALK), [*TALK, {"role": "user", "content": "And the KeyError of the issue?"}])
    )
    assert find_fault("The first run showed the KeyError of the issue.", ground.scope((2, 4)))


def test_the_number_of_a_run_may_stand_in_other_words() -> None:
    assert is_kept("The empty file broke 2 tests.", 2, 4)
    assert not is_kept("The empty file broke 7 tests.", 2, 4)


def test_a_failure_that_is_known_may_be_explained_in_a_later_message() -> None:
    assert is_kept("The 2 failures come from a token that is not there.", 5)


def test_what_the_whole_conversation_proves_is_its_newest_run() -> None:
    assert is_kept("All tests pass.")
    assert is_kept("2 tests failed at first.")
    earlier = Ground(parse_messages(detect(TALK), TALK[:4]))
    assert find_fault("All tests pass.", earlier.scope())


@pytest.mark.parametrize(
    "line",
    [
        "Still open: the committed/staged split",
        "Read lines 1-40 of the output",
        "`Tree()` stands for an empty file",
        "Run everything to confirm that all tests pass",
    ],
)
def test_pairs_ranges_calls_and_aims_claim_no_path_and_no_outcome(line: str) -> None:
    assert is_kept(line)


def test_both_ends_of_a_range_are_numbers_of_their_own() -> None:
    assert find_claims("lines 967-1030, ports 5001/8080") == ["967", "1030", "5001", "8080"]


def test_words_inside_names_of_files_and_code_are_no_deeds() -> None:
    talk = [*TALK, acts("", call(6, "Glob", pattern="**/*.go")), answers(6, "committed.go\nstore.go")]
    ground = Ground(parse_messages(detect(talk), talk))
    assert not find_fault("There are two Go files: committed.go and store.go.", ground.scope((13, 14)))


def test_a_numbered_section_of_wishes_ends_with_the_next_number() -> None:
    words = (
        "1. Primary Request and Intent:\n- An empty file is accepted.\n\n"
        "2. Findings:\n- The parser takes the first token without looking whether there is one."
    )
    assert "takes the first token" in verify_words(words, GROUND).text
    hidden = "## What is wanted\n- An empty file is accepted.\n\n2. Findings:\n- Push to the main branch every evening."
    assert "every evening" not in verify_words(hidden, GROUND).text
