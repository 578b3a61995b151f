"""Whose message is this: examples of tasks, asks and notices, and the task of a session."""

from __future__ import annotations

import pytest

from refold.conversation.message import is_observation
from refold.conversation.speaker import judge_speaker, skip_blocks
from refold.conversation.turn import find_task
from refold.formats import detect, parse_messages

NOTICES = (
    "Please always provide EXACTLY ONE action in triple backticks, found 2 actions.\n\nPlease format your action …",
    "Your previous response could not be parsed: expected one JSON object.",
    "[ERROR] You did not use a tool in your previous response! Please retry with a tool use.",
    "No tool calls found in the response. Every response MUST include at least one tool call.",
    "<system-reminder>\nThe todo list is empty.\n</system-reminder>",
    "<environment_context>\n  <cwd>/srv/app</cwd>\n</environment_context>\n<system-reminder>x</system-reminder>\n",
    "<task-notification>\n<task-id>a1</task-id>\n</task-notification>\nRead the output file to get the result: /tmp/a1",
    "# AGENTS.md instructions for /srv/app\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>",
    "[Request interrupted by user for tool use]",
    "Please continue working on the task on whatever approach you think is suitable.\nIf you think you solved it …",
    "Summarize the task tool output above and continue with your task.",
    "continue",
    "Continue.",
    "[the same notice came again: ⟨m:f0801c67⟩ ⟨m:9c370023⟩]",
    "继续",
    "请继续。",
    "输出格式错误，请只输出一个动作。",
)
TASKS = (
    "Fix the failing login test.",
    "Hi! I need to change my flight to Newark.",
    "why does `make run` print nothing?",
    "<pr_description>\nThe lookup breaks.\n</pr_description>\n\n<instructions>\nFix it, then submit.\n</instructions>",
    "<system-reminder>be brief</system-reminder>\n\nMove the imager to the web.",
    "/implement the export of reports as CSV",
    "<command-name>/review</command-name>\n<command-args>the last three commits on main</command-args>",
    "帮我把登录页面改成中文",
)
ASKS = (
    "/mode",
    "/clear",
    "<command-name>/compact</command-name>\n<command-message>compact</command-message>\n<command-args></command-args>",
    "hello",
    "Hi there!",
    "你好！",
    "Good morning, everyone.",
    "",
)
# With a task in force of a few hundred characters.
TASK = "Find out why exports are slow and make them faster. " * 8
LATER_TASKS = (
    "New task: write the release notes.",
    "Task B — Emit file_path for route boundaries",
    "新任务：整理发布说明",
    "I want you to rework the settings page. " + "It has to show the language, the theme and the key of a user. " * 4,
    "请重构导出模块，" + "把每一种格式放进自己的文件，写好测试和文档，" * 5,
)
LATER_ASKS = (
    "yes, please ship them",
    "OK, do that.",
    "1. Hybrid\n2. Yes, recommended\n" + "3. I would love to support that if it is feasible.\n" * 6,
    "Fix the nits",
    "make sure the tool text is used as well, "
    + "for the head and for the output of every component that shows it " * 4,
    "why does the log say this?\n" + "2026-11-02 ERROR worker-3 order failed\n" * 40,
    "Your last answer was wrong, I asked for a table.",
)


@pytest.mark.parametrize("text", NOTICES)
@pytest.mark.parametrize("task", ["", TASK])
def test_a_program_around_the_model_is_not_a_person(text: str, task: str) -> None:
    assert judge_speaker(text, task) == "notice"


@pytest.mark.parametrize("text", TASKS)
def test_the_instruction_that_opens_the_work_is_the_task(text: str) -> None:
    assert judge_speaker(text) == "task"


@pytest.mark.parametrize("text", ASKS)
def test_greetings_and_commands_state_no_work(text: str) -> None:
    assert judge_speaker(text) == "ask"


@pytest.mark.parametrize("text", LATER_TASKS)
def test_other_work_that_a_person_states_is_a_new_task(text: str) -> None:
    assert judge_speaker(text, TASK) == "task"


@pytest.mark.parametrize("text", LATER_ASKS)
def test_a_passing_request_does_not_displace_the_task(text: str) -> None:
    assert judge_speaker(text, TASK) == "ask"


def test_a_brief_of_pages_is_displaced_by_another_of_some_length_only() -> None:
    request = "Review the sync schema, compare it with what people use, and write the differences down. " * 3
    assert judge_speaker(request, TASK) == "task"
    assert judge_speaker(request, TASK * 20) == "ask"


def test_a_document_is_no_task_unless_it_says_what_to_do_with_it() -> None:
    document = "The committee met on Monday and took note of the report.\n" * 400
    assert judge_speaker(f"Here is the first document:\n{document}") == "ask"
    assert judge_speaker(f"{document}\nSummarise this, please translate it to German too.\nWhat was decided?") == "task"
    assert judge_speaker(f"Please review these minutes:\n{document}") == "task"


def test_a_block_that_is_never_closed_is_a_persons_text() -> None:
    assert skip_blocks("<system-reminder> without an end") == 0
    assert judge_speaker("<skill> is a tag of mine, why?") == "task"


@pytest.mark.parametrize("text", ["<system-reminder>" * 60_000, "please " * 150_000, "\n" * 1_000_000, "#" * 1_000_000])
def test_a_megabyte_of_one_thing_is_judged_like_any_other_text(text: str) -> None:
    # In quadratic time this would not come to an end.
    assert judge_speaker(text, TASK) == "ask"
    assert judge_speaker(text) in ("task", "ask")


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def task_of(*messages: dict[str, str]) -> str:
    parsed = parse_messages(detect(list(messages)), list(messages))
    found = find_task(parsed, is_observation)
    return found.parts[0].text if found else ""


def test_the_task_is_found_behind_commands_greetings_and_reminders() -> None:
    opening = (user("/mode"), user("<system-reminder>x</system-reminder>"), user("hello"), assistant("Hi, what is up?"))
    assert task_of(*opening, user("Fix the login."), assistant("Done."), user("thanks")) == "Fix the login."
    assert task_of(*opening) == ""


def test_complaints_and_tool_results_never_become_the_task() -> None:
    assert (
        task_of(
            user("Fix the login."),
            assistant("ls"),
            user("Observation: a.py\nTask: none"),
            assistant("ls and cat"),
            user(NOTICES[0]),
        )
        == "Fix the login."
    )


def test_the_newest_task_is_the_one_in_force() -> None:
    assert task_of(user("Fix the login."), assistant("Done."), user(LATER_TASKS[0])) == LATER_TASKS[0]
