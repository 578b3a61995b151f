"""The state of the work: later events change it instead of adding to it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.reading.advance import advance
from refold.reading.draft import BOUNDS
from refold.reading.events import Action, CallOutcome, FileChange, PlanItem, Statement, Value, WorkPlan
from refold.reading.state import State
from refold.reading.state_page import write_state
from tests.reading.story import Story

TASK = "Fix the crash in parse() when the header is empty, then make sure that the tests pass."


def begin() -> Story:
    return Story().person(("request", TASK))


def test_the_task_is_the_persons_message_whole() -> None:
    story = begin()
    assert story.state.task is not None
    assert story.state.task.quote.text == TASK
    assert story.state.task.quote.position == 0


def test_a_complaint_of_the_harness_does_not_push_the_task_out() -> None:
    story = begin().assistant(("remark", "Let me see.")).harness("Provide EXACTLY ONE action in triple backticks.")
    assert story.state.task is not None
    assert story.state.task.quote.text == TASK
    assert not story.state.open


def test_the_sentence_that_says_how_to_finish_is_kept_with_the_task() -> None:
    story = Story().person(("request", TASK), ("request", "Submit your work by running `echo DONE_AND_SUBMIT`."))
    assert story.state.task is not None
    assert story.state.task.finish is not None
    assert "echo DONE_AND_SUBMIT" in story.state.task.finish.text


def test_a_new_task_replaces_the_old_one() -> None:
    story = begin().assistant(("done", "The crash is fixed and all tests pass."))
    story.person(("request", "New task: add a command that prints the version of the program."))
    assert story.state.task is not None
    assert story.state.task.quote.text.startswith("New task:")


def test_a_short_follow_up_stays_beside_the_task() -> None:
    story = begin().assistant(("done", "The crash is fixed."))
    story.person(("request", "Commit and push it."))
    assert story.state.task is not None
    assert story.state.task.quote.text == TASK
    assert [quote.text for quote in story.state.task.later] == ["Commit and push it."]
    assert [item.quote.text for item in story.state.open] == ["Commit and push it."]


def test_an_answer_to_the_assistants_question_is_not_a_new_task() -> None:
    story = begin().assistant(("question", "Should an empty header raise an error or give no fields at all?"))
    assert [item.kind for item in story.state.open] == ["question"]
    story.person(("request", "Please let it give no fields, as the old parser did."))
    assert story.state.task is not None
    assert story.state.task.quote.text == TASK
    assert [item.kind for item in story.state.open] == ["ask"]


def test_an_answer_closes_its_ask() -> None:
    story = begin().assistant(("done", "Fixed.")).person(("question", "Why did it crash?"))
    assert [item.quote.text for item in story.state.open] == ["Why did it crash?"]
    story.assistant(("cause", "The header was read before its length was checked."))
    assert story.state.open == ()


def test_a_newer_rule_strikes_the_older_one_on_the_same_matter() -> None:
    story = begin().person(("rule", "Always indent with tabs.")).person(("rule", "Never touch the vendor folder."))
    story.person(("rule", "Indent with spaces, not tabs."))
    assert [rule.quote.text for rule in story.state.rules] == [
        "Never touch the vendor folder.",
        "Indent with spaces, not tabs.",
    ]
    assert [struck.quote.text for struck in story.state.struck] == ["Always indent with tabs."]


def test_an_approval_is_kept_with_what_it_approves() -> None:
    story = begin().assistant(("question", "Shall I drop the legacy parser and its 40 tests?"))
    story.person(("approval", "OK, do that."))
    said = story.state.said[-1]
    assert said.kind == "agreement"
    assert said.about is not None
    assert said.about.text == "Shall I drop the legacy parser and its 40 tests?"
    assert story.state.open == ()


def test_a_correction_strikes_what_it_corrects() -> None:
    story = begin().assistant(("finding", "The refund goes to the gift card 7773485."), ("done", "I noted it."))
    story.person(("correction", "No, the refund must go to the credit card, not the gift card."))
    assert "The refund goes to the gift card 7773485." not in [belief.quote.text for belief in story.state.beliefs]
    assert story.state.struck[-1].by.text.startswith("No, the refund")


def test_wait_no_takes_back_the_finding_before_it() -> None:
    story = begin().assistant(
        ("finding", "The bug is in lexer.py."), ("finding", "Wait, no: parser.py drops the header."), retracts=1
    )
    assert [belief.quote.text for belief in story.state.beliefs] == ["Wait, no: parser.py drops the header."]
    assert story.state.struck[0].quote.text == "The bug is in lexer.py."


def test_a_finding_that_denies_an_earlier_one_replaces_it() -> None:
    story = begin().assistant(("finding", "The import of xarray fails on Python 3.12."))
    story.assistant(("finding", "The import of xarray works on Python 3.12."))
    assert [belief.quote.text for belief in story.state.beliefs] == ["The import of xarray works on Python 3.12."]


def test_a_guess_is_never_a_finding() -> None:
    story = begin().assistant(("guess", "Perhaps the cache is stale."))
    assert story.state.beliefs == ()


def test_a_passing_run_replaces_the_failing_one_of_the_same_command() -> None:
    story = begin().run("cd /app && pytest tests -q | tail -5", "1 failed", "failed", "test", failing=("test_empty",))
    assert [check.failing for check in story.state.failing] == [("test_empty",)]
    story.edit("parse.py", "if header:", "if header is not None:")
    assert story.state.checks[0].changes_after == 1
    story.run("pytest tests -q", "12 passed", "ok", "test")
    assert story.state.failing == ()
    assert [(check.status, check.runs, check.changes_after) for check in story.state.checks] == [("ok", 2, 0)]


def test_an_edit_whose_call_failed_did_not_happen() -> None:
    story = begin().edit("parse.py", "a", "b", status="failed")
    assert story.state.files == ()
    assert [failed.why for failed in story.state.failed] == ["no match"]
    story.edit("parse.py", "aa", "b")
    assert [file.path for file in story.state.files] == ["parse.py"]
    assert story.state.failed == ()


def test_a_file_has_its_last_change_verbatim() -> None:
    story = begin().edit("/app/core/nanops.py", "if x:", "elif True:").edit("core/nanops.py", "elif True:", "elif y:")
    assert [(file.times, file.removed, file.added) for file in story.state.files] == [(2, "elif True:", "elif y:")]


def test_git_checkout_of_a_file_reverts_it() -> None:
    story = begin().edit("parse.py", "a", "b").edit("lex.py", "a", "b")
    story.run("git checkout -- parse.py", "", verb="revert", change="reverted", path="parse.py")
    assert {file.path: file.kind for file in story.state.files} == {"parse.py": "reverted", "lex.py": "edited"}


def test_a_stash_takes_edits_away_and_a_pop_brings_them_back() -> None:
    story = begin().edit("parse.py", "a", "b").run("git stash", "Saved", verb="revert", change="reverted")
    assert [file.kind for file in story.state.files] == ["reverted"]
    story.run("git stash pop", "Dropped", verb="revert", change="restored")
    assert [file.kind for file in story.state.files] == ["edited"]


def test_an_edit_that_puts_the_old_lines_back_reverts_the_file() -> None:
    story = begin().edit("parse.py", "old line", "new line").edit("parse.py", "new line", "old line")
    assert [file.kind for file in story.state.files] == ["reverted"]


def test_a_scratch_file_is_listed_until_it_is_deleted() -> None:
    story = begin().edit("reproduce_issue.py", "", "import app", kind="created")
    assert [(file.kind, file.is_scratch) for file in story.state.files] == [("created", True)]
    story.edit("reproduce_issue.py", "", "", kind="deleted")
    assert story.state.files == ()


def test_an_act_that_cannot_be_undone_carries_its_receipt() -> None:
    act = Action(
        call_id="c", tool="cancel_reservation", verb="cancel", text="EHGLP3", targets=("EHGLP3",), is_final=True
    )
    story = begin().call(act)
    assert story.state.acts == ()
    story.result("status: cancelled", fields=(("status", "cancelled"), ("amount", "-1628")))
    assert [(done.verb, done.targets, done.receipt) for done in story.state.acts] == [
        ("cancel", ("EHGLP3",), (("status", "cancelled"), ("amount", "-1628")))
    ]


def test_a_final_act_that_failed_is_a_failed_try_until_it_succeeds() -> None:
    act = Action(call_id="c", tool="book", verb="book", text="HAT069", targets=("HAT069",), is_final=True)
    story = begin().call(act).result("Error: not enough seats", "failed", error="Error: not enough seats")
    assert story.state.acts == ()
    assert story.state.failed[0].why == "Error: not enough seats"
    story.call(act).result("booked")
    assert len(story.state.acts) == 1
    assert story.state.failed == ()


def test_results_are_paired_by_position_where_ids_repeat() -> None:
    first = Action(call_id="same", tool="send", verb="send", text="one", targets=("ann",), is_final=True)
    second = Action(call_id="same", tool="send", verb="send", text="two", targets=("bob",), is_final=True, part=1)
    story = begin().call(first, second)
    story.result("sent 1", call_id="same", fields=(("id", "1"),)).result(
        "sent 2", call_id="same", fields=(("id", "2"),)
    )
    assert [(act.targets, act.receipt) for act in story.state.acts] == [
        (("ann",), (("id", "1"),)),
        (("bob",), (("id", "2"),)),
    ]
    assert story.state.pending == ()


def test_a_new_plan_replaces_the_old_one_and_done_items_are_not_open() -> None:
    story = begin()
    story.add(
        {"role": "assistant", "content": "plan"},
        WorkPlan(items=(PlanItem("find the bug", "completed"), PlanItem("fix it", "in_progress"), PlanItem("test"))),
    )
    assert [item.quote.text for item in story.state.open] == ["fix it", "test"]
    story.add({"role": "assistant", "content": "plan 2"}, WorkPlan(items=(PlanItem("fix it", "completed"),)))
    assert story.state.open == ()


def test_the_announced_step_is_open_until_the_assistant_speaks_again() -> None:
    story = begin().assistant(("intent", "Next I will rewrite the lexer."))
    assert [item.kind for item in story.state.open] == ["next"]
    story.assistant(("done", "The lexer is rewritten."))
    assert story.state.open == ()


def test_a_value_keeps_its_owner_and_counts_its_uses() -> None:
    story = begin()
    story.add(
        {"role": "tool", "tool_call_id": "c", "content": "x"}, Value(text="gift_card_7359776", owner="payment_id")
    )
    story.add({"role": "tool", "tool_call_id": "c", "content": "y"}, Value(text="gift_card_7359776"))
    assert [(value.owner, value.times, value.used) for value in story.state.values] == [("payment_id", 2, 2)]


def test_what_a_bound_drops_is_counted() -> None:
    story = begin()
    for number in range(BOUNDS["rules"] + 3):
        story.person(("rule", f"Never open door{number} of house{number}."))
    assert len(story.state.rules) == BOUNDS["rules"]
    assert dict(story.state.omitted) == {"rules": 3}


def test_every_entry_names_the_message_it_comes_from() -> None:
    story = begin().person(("rule", "Never touch the vendor folder."))
    quote = story.state.rules[0].quote
    assert quote.handle == f"m:{story.messages[1].digest[:8]}"
    assert (quote.position, quote.speaker) == (1, "user")


KINDS = ["request", "rule", "correction", "approval", "question", "remark"]
THOUGHTS = ["finding", "cause", "decision", "done", "intent", "guess", "question", "remark"]
WORDS = [
    "Use tabs.",
    "The parser fails.",
    "The parser works.",
    "Book flight HAT069 now, please.",
    "不要用制表符。",
    "行，就这样。",
]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("person"), st.sampled_from(KINDS), st.sampled_from(WORDS)),
        st.tuples(st.just("assistant"), st.sampled_from(THOUGHTS), st.sampled_from(WORDS)),
        st.tuples(st.just("edit"), st.sampled_from(["ok", "failed"]), st.sampled_from(["a.py", "b/a.py", "tmp/x.py"])),
        st.tuples(st.just("run"), st.sampled_from(["ok", "failed"]), st.sampled_from(["pytest", "git stash", "make"])),
        st.tuples(st.just("harness"), st.just(""), st.sampled_from(WORDS)),
    ),
    max_size=14,
)


def tell(steps: list[tuple[str, str, str]]) -> Story:
    story = Story()
    for kind, how, text in steps:
        if kind == "person":
            story.person((how, text))
        elif kind == "assistant":
            story.assistant((how, text))
        elif kind == "edit":
            story.edit(text, "one", "two", status=how)
        elif kind == "run":
            story.run(text, "result", how, "revert" if text.startswith("git") else "test")
        else:
            story.harness(text)
    return story


@given(STEPS, st.lists(st.integers(0, 30), max_size=4))
def test_any_division_into_chunks_gives_the_same_state(steps: list[tuple[str, str, str]], cuts: list[int]) -> None:
    story = tell(steps)
    messages = story.messages
    state = State()
    edges = [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    for start, stop in itertools.pairwise(edges):
        state = advance(state, messages[start:stop], story.read)
    assert state == story.state == advance(State(), messages, story.read)


@given(STEPS)
def test_only_a_persons_words_become_a_task_a_rule_or_a_wish(steps: list[tuple[str, str, str]]) -> None:
    state = tell([step for step in steps if step[0] != "person"]).state
    assert state.task is None
    assert state.rules == state.said == ()
    assert not [item for item in state.open if item.kind == "ask"]


@settings(max_examples=20)
@given(STEPS, st.sampled_from(["en", "zh"]))
def test_every_state_prints_as_a_page(steps: list[tuple[str, str, str]], language: str) -> None:
    assert write_state(tell(steps).state, language).strip()  # type: ignore[arg-type]


def test_the_page_says_what_is_wanted_what_is_and_what_is_open() -> None:
    story = begin().person(("rule", "Never touch the vendor folder."))
    story.edit("parse.py", "if header:", "if header is not None:")
    story.run("pytest -q", "1 failed, 11 passed", "failed", "test", failing=("test_empty",))
    story.assistant(
        ("cause", "parse() reads the header before its length."), ("intent", "Next I will check the length.")
    )
    page = write_state(story.state, "en")
    for text in (
        TASK,
        "Never touch the vendor",
        "+ if header is not None:",
        "test_empty",
        "reads the header",
        "next: ",
    ):
        assert text in page
    assert "任务" in write_state(story.state, "zh")


def test_changes_that_a_failed_test_run_made_before_it_failed_count() -> None:
    act = Action(call_id="c", tool="bash", verb="test", text="sed -i s/a/b/ parse.py && pytest")
    change = FileChange(call_id="c", path="parse.py", removed="a", added="b")
    story = begin().call(act, changes=[change]).result("1 failed", "failed")
    assert [file.path for file in story.state.files] == ["parse.py"]
    assert [check.status for check in story.state.checks] == ["failed"]


def test_a_result_without_its_call_changes_nothing() -> None:
    story = begin()
    before = story.state
    story.add({"role": "tool", "tool_call_id": "x", "content": "ok"}, CallOutcome(call_id="x", status="ok", text="ok"))
    assert story.state.acts == before.acts
    assert story.state.checks == ()


def test_a_statement_long_as_a_book_is_cut_and_counted() -> None:
    story = begin()
    text = "The cause is " + "very " * 2_000 + "simple."
    story.add({"role": "assistant", "content": text}, Statement(kind="cause", text=text))
    quote = story.state.beliefs[0].quote
    assert quote.cut > 9_000
    assert quote.text.endswith("simple.")
    assert f"{quote.cut:,}" in quote.text


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q",
        "cd /app && pytest -q 2>&1 | tail -3",
        "PYTHONPATH=. timeout 60 pytest -q | grep -E '(passed|failed)' | head -5",
        "# once more\ncd app\nsource env\npytest -q || true",
        "pytest   -q > out.txt",
    ],
)
def test_runs_of_one_command_are_one_check_whatever_surrounds_it(command: str) -> None:
    story = begin().run("pytest -q", "1 failed", "failed", "test").run(command, "12 passed", "ok", "test")
    assert [(check.status, check.runs) for check in story.state.checks] == [("ok", 2)]


def test_runs_of_other_tests_are_other_checks() -> None:
    story = begin().run("pytest tests/a.py", "1 failed", "failed", "test").run("pytest tests/b.py", "ok", "ok", "test")
    assert len(story.state.checks) == 2


def test_a_value_that_was_used_again_outlives_those_of_one_large_result() -> None:
    story = begin()
    for content in ("x", "y"):
        raw = {"role": "tool", "tool_call_id": "c", "content": content}
        story.add(raw, Value(text="EHGLP3", owner="reservation"))
    many = [Value(text=f"id-{number}", owner="row") for number in range(2 * BOUNDS["values"])]
    story.add({"role": "tool", "tool_call_id": "c", "content": "z"}, *many)
    assert "EHGLP3" in [value.text for value in story.state.values]
    assert len(story.state.values) == BOUNDS["values"]


def test_the_message_that_opened_the_work_is_the_task_once_tools_are_used() -> None:
    story = Story().person(("remark", "Hi, I was hoping to change my flight from JFK.")).assistant(("question", "Id?"))
    assert story.state.task is None
    story.person(("remark", "It is DF89BM.")).run("lookup DF89BM", "found")
    assert story.state.task is not None
    assert story.state.task.quote.text == "Hi, I was hoping to change my flight from JFK."


def test_an_answer_that_ends_with_a_question_closes_the_ask() -> None:
    story = begin().assistant(("done", "Fixed.")).person(("question", "Which flights leave after noon?"))
    story.assistant(("question", "From which airport?")).person(("remark", "From JFK."))
    assert [item.quote.text for item in story.state.open] == ["Which flights leave after noon?"]
    story.assistant(("finding", "HAT136 leaves at 14:00."), ("question", "Shall I book it?"))
    assert [item.kind for item in story.state.open] == ["question"]


def test_a_request_after_silent_work_closes_the_one_before_it() -> None:
    story = begin().run("make", "done").person(("request", "Post the summary.")).run("post", "posted")
    story.person(("request", "Also mail it to Ann."))
    assert [item.quote.text for item in story.state.open] == ["Also mail it to Ann."]


def test_thanks_are_not_worth_keeping() -> None:
    story = begin().person(("remark", "Thank you so much for your help!")).person(("remark", "好的收到，谢谢你啊！"))
    assert story.state.said == ()


@pytest.mark.parametrize(
    ("older", "newer", "is_struck"),
    [
        ("Always answer in French.", "From now on answer in German.", True),
        ("Use tabs.", "Use spaces, not tabs.", True),
        ("Use pytest.", "Use type hints.", False),
        ("Never touch the vendor folder.", "Never touch the migrations.", False),
        ("Always run pytest before you commit.", "Never commit on Fridays.", False),
        ("以后用英文回答。", "以后用中文回答。", True),
        ("不要修改 vendor 目录。", "不要删除测试。", False),
    ],
)
def test_a_rule_strikes_only_a_rule_on_the_same_matter(older: str, newer: str, is_struck: bool) -> None:
    story = begin().person(("rule", older)).person(("rule", newer))
    assert [rule.quote.text for rule in story.state.rules] == ([newer] if is_struck else [older, newer])
