"""One call reads a message, once: the result depends on its content alone."""

import json

from refold.conversation.message import read_as_result
from refold.formats import OpenAIChat
from refold.reading.advance import read_ahead
from refold.reading.events import Action, CallOutcome, HarnessNote, Statement, Utterance
from refold.reading.read import read, read_all

CHAT = OpenAIChat()


def test_a_message_is_read_once_for_equal_content() -> None:
    first = CHAT.parse({"role": "user", "content": "Fix the login test."})
    again = CHAT.parse({"role": "user", "content": "Fix the login test."}, parent="elsewhere")
    assert read(first) is read(again)
    assert read(first) is not read(CHAT.parse({"role": "assistant", "content": "Fix the login test."}))


def test_words_of_both_sides_become_events_in_order() -> None:
    messages = [
        CHAT.parse({"role": "system", "content": "Never say no."}),
        CHAT.parse({"role": "user", "content": "Fix the login test. Never touch the API."}),
        CHAT.parse({"role": "assistant", "content": "It fails because the mock has no port."}),
    ]
    system, user, assistant = read_all(messages)
    assert system == ()
    assert [(type(event), event.kind) for event in user] == [(Utterance, "request"), (Utterance, "rule")]
    assert [(type(event), event.kind) for event in assistant] == [(Statement, "cause")]


def test_only_the_last_part_with_words_closes_a_message() -> None:
    parts = [{"type": "text", "text": "It works now."}, {"type": "text", "text": "The tests pass."}]
    events = read(CHAT.parse({"role": "assistant", "content": parts}))
    assert [event.is_last for event in events] == [False, True]


def test_reading_ahead_fills_the_memo() -> None:
    message = CHAT.parse({"role": "assistant", "content": "The cache was cold, so 7134 rows were read twice."})
    read_ahead([message])
    assert read(message) is read(message)


def call(call_id: str, command: str) -> dict[str, object]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {
        "role": "assistant",
        "content": "I'll run it.",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def test_a_result_is_read_with_its_call_even_if_ids_repeat() -> None:
    messages = [
        CHAT.parse(call("a", "pytest -q")),
        CHAT.parse({"role": "tool", "tool_call_id": "a", "content": "2 failed, 3 passed in 1s"}),
        CHAT.parse(call("a", "git commit -m x")),
        CHAT.parse({"role": "tool", "tool_call_id": "a", "content": "[main 1234abc] x\n 1 file changed"}),
    ]
    read_events = [event for events in read_all(messages) for event in events]
    assert [event.verb for event in read_events if isinstance(event, Action)] == ["test", "commit"]
    assert [event.status for event in read_events if isinstance(event, CallOutcome)] == ["failed", "ok"]


def read_outcome(command: str, output: str) -> CallOutcome:
    messages = [
        CHAT.parse(call("a", command)),
        CHAT.parse({"role": "tool", "tool_call_id": "a", "content": output}),
    ]
    return next(event for events in read_all(messages) for event in events if isinstance(event, CallOutcome))


def test_totals_are_read_however_wide_the_terminal_is() -> None:
    rule = "=" * 500
    came = read_outcome(
        "pytest -q", f"{rule} test session starts {rule}\ncollected 5 items\n{rule} 2 failed, 3 passed {rule}"
    )
    assert (came.status, came.text) == ("failed", "2 failed, 3 passed")
    assert dict(came.fields) == {"failed": "2", "passed": "3"}


def test_a_count_of_tests_comes_with_whether_they_passed() -> None:
    came = read_outcome("python runtests.py", "....\n-----\nRan 75 tests in 0.117s\n\nOK (skipped=2)\n")
    assert came.status == "ok"
    assert came.text.split() == ["Ran", "75", "tests", "in", "0.117s", "OK", "(skipped=2)"]


def test_a_script_that_says_it_failed_did_not_pass_although_it_ended_well() -> None:
    output = "<returncode>0</returncode>\n<output>\nFAILURE: attributes not kept\nSUCCESS: second example\n</output>"
    came = read_outcome("python verify_fix.py", output)
    assert (came.status, came.text) == ("failed", "FAILURE: attributes not kept")
    fine = read_outcome("python verify_fix.py", "<returncode>0</returncode>\n<output>\nFAILED: 0\nSUCCESS\n</output>")
    assert fine.status == "ok"
    shown = read_outcome("cat run.log", "<returncode>0</returncode>\n<output>\nFAILURE: old\nend\n</output>")
    assert shown.status == "ok"


def test_words_make_calls_only_where_results_come_as_text() -> None:
    said = {"role": "assistant", "content": "THOUGHT: It is red.\n\n```bash\npytest -q\n```"}
    talk = [CHAT.parse(said), CHAT.parse({"role": "user", "content": "Thanks, I ran it."})]
    work = [CHAT.parse(said), CHAT.parse({"role": "user", "content": "Observation:\n=== 1 failed, 2 passed in 2s ==="})]
    assert not [event for events in read_all(talk) for event in events if isinstance(event, Action)]
    action, outcome = [
        event for events in read_all(work) for event in events if isinstance(event, Action | CallOutcome)
    ]
    assert (action.verb, outcome.status) == ("test", "failed")


def test_what_a_harness_writes_into_a_persons_message_is_a_note() -> None:
    text = "<system-reminder>\nNever mind.\n</system-reminder>\nFix it.\n<system-reminder>Todo list</system-reminder>"
    first, said, last = read(CHAT.parse({"role": "user", "content": text}))
    assert isinstance(first, HarnessNote)
    assert isinstance(last, HarnessNote)
    assert (said.text, said.kind) == ("Fix it.", "request")
    assert all(text[event.start : event.stop] == event.text for event in (first, said, last))


def test_a_complaint_about_the_format_is_no_wish() -> None:
    text = "Please always provide EXACTLY ONE action in triple backticks, found 2 actions."
    (event,) = read(CHAT.parse({"role": "user", "content": text}))
    assert isinstance(event, HarnessNote)


def test_a_result_that_is_read_ahead_is_read_once() -> None:
    said = CHAT.parse({"role": "assistant", "content": "THOUGHT: It is red.\n\n```bash\npytest -q\n```"})
    observed = CHAT.parse({"role": "user", "content": "Observation:\n=== 1 failed, 2 passed in 2s ==="})
    ahead = list(read_all([said, read_as_result(observed)]))
    later = list(read_all([said, observed]))
    assert [own is again for own, again in zip(ahead, later, strict=True)] == [True, True]
