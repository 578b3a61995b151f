"""Trials: the harness is proved by players that know everything, only what they see, or hardly anything."""

import asyncio
import gc
import json
import re

import pytest

from refold.evaluation.arms import read_arm
from refold.testing import ScriptedProvider, say
from refold.testing.provider_rules import find_violations
from refold.trial.player import ModelPlayer, Purse, ScriptedPlayer
from refold.trial.report import TrialReport, list_families, list_figures
from refold.trial.run import list_tasks, run_task
from refold.trial.task import TrialTask

WINDOW = 8_000
TASKS = {task.name: task for task in list_tasks(WINDOW)}


def test_there_are_at_least_24_tasks_of_five_kinds_in_two_languages() -> None:
    assert len(TASKS) >= 24
    assert {task.family for task in TASKS.values()} == {"repair", "refactor", "detective", "booking", "chat"}
    assert any(re.search("[\u4e00-\u9fff]", task.turns[0].asked) for task in TASKS.values())


@pytest.mark.parametrize("name", TASKS)
def test_a_player_that_remembers_everything_solves_every_task_without_repeating_anything(name: str) -> None:
    run = run_task(TASKS[name], read_arm("raw"), window=WINDOW, player="perfect")
    assert (run.wrong, run.problem, run.repeated_calls, run.repeated_acts) == ((), "", 0, 0)
    assert run.unfit > 0, "a task that never overflows its window proves nothing"


@pytest.mark.parametrize("name", ["repair-1", "refactor-2", "detective-3", "booking-4", "chat-1", "booking-zh-5"])
def test_a_player_that_sees_the_newest_messages_alone_fails(name: str) -> None:
    assert not run_task(TASKS[name], read_arm("raw"), window=WINDOW, player="forgetful").is_solved


def test_who_loses_receipts_pays_twice_and_the_check_sees_it() -> None:
    run = run_task(TASKS["booking-1"], read_arm("last-n"), window=WINDOW)
    assert run.repeated_acts > 0
    assert not run.is_solved


def test_who_loses_the_rule_breaks_it() -> None:
    run = run_task(TASKS["booking-1"], read_arm("tests.trial.test_trial:without_the_policy"), window=WINDOW * 100)
    assert any("before 9:00" in wrong for wrong in run.wrong)


def without_the_policy(messages: list[dict[str, object]], _tokens: int) -> list[dict[str, object]]:
    """Leave the person's first message out, which states the policy."""
    return [messages[0], *messages[2:]]


def test_the_same_run_twice_gives_the_same_figures() -> None:
    runs = [run_task(TASKS["detective-2"], read_arm("default"), window=WINDOW) for _ in range(2)]
    assert runs[0] == runs[1]


LARGER = {task.name: task for task in list_tasks(16_000)}
QUICK = ("repair-2", "refactor-1", "detective-1", "booking-3", "chat-4", "detective-zh-5", "booking-zh-6", "chat-zh-5")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LARGER]
)
def test_behind_refold_an_agent_finishes_its_work(name: str) -> None:
    run = run_task(LARGER[name], read_arm("default"), window=16_000)
    assert run.is_solved, (run.problem, run.wrong, run.steps)
    assert (run.unfit, run.invalid, run.repeated_acts) == (0, 0, 0)


def test_a_tool_that_is_called_wrongly_says_so_and_nothing_happens() -> None:
    world, check = TASKS["booking-1"].build()
    assert "there is no tool" in world.call("fly", {})
    assert "needs passenger, flight" in world.call("book_flight", {"passenger": 3})
    assert "unknown passenger" in world.call("book_flight", {"passenger": "Nobody", "flight": "XX1"})
    assert world.acts == []
    assert check() != []


def test_an_answer_alone_never_fools_the_check() -> None:
    for task in TASKS.values():
        world, check = task.build()
        world.answers.append("Everything is done, all tests pass, paid and booked. 全部完成。")
        assert check() != [], task.name


def test_requests_of_a_trial_are_valid() -> None:
    sent: list[list[object]] = []

    class Watching(ScriptedPlayer):
        def act(self, seen: object, turn: int) -> dict[str, object]:  # type: ignore[override]
            sent.append(list(seen.raws))  # type: ignore[attr-defined]
            return super().act(seen, turn)  # type: ignore[arg-type]

    def make(task: TrialTask, _tools: object) -> Watching:
        return Watching(task, "view")

    run_task(TASKS["refactor-3"], read_arm("default"), window=WINDOW, make=make)
    assert sent
    assert all(find_violations("openai-chat", raws) == [] for raws in sent)


def list_open_loops() -> list[asyncio.AbstractEventLoop]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, asyncio.AbstractEventLoop) and not one.is_closed()]


def test_a_model_plays_over_http_and_its_purse_ends_the_trial() -> None:
    from refold.agent.models import make_chat_model

    before = list_open_loops()
    with ScriptedProvider([say("I have no idea.")] * 40) as provider:
        model = make_chat_model("gpt-5", key="sk-test", url=f"{provider.url}/v1")
        purse = Purse(1.0)
        run = run_task(
            TASKS["chat-1"],
            read_arm("default"),
            window=WINDOW,
            player="model",
            make=lambda _, tools: ModelPlayer(model, tools, purse, 1e-6),
        )
        assert run.problem == ""
        assert run.wrong
        assert purse.left < 1.0
        broke = run_task(
            TASKS["chat-1"],
            read_arm("default"),
            window=WINDOW,
            player="model",
            make=lambda _, tools: ModelPlayer(model, tools, Purse(0.0), 1e-6),
        )
        assert "the budget of this trial is spent" in broke.problem
    assert list_open_loops() == before


def test_a_report_counts_and_compares() -> None:
    arms = ("raw", "last-n")
    runs = tuple(
        run_task(TASKS[name], read_arm(arm), window=WINDOW) for name in ("booking-1", "chat-2") for arm in arms
    )
    report = TrialReport(arms, runs, WINDOW, "view")
    assert [row[:2] for row in list_figures(report)[1:]] == [["raw", "2/2"], ["last-n", "0/2"]]
    assert list_families(report)[0] == ["solved", "booking", "chat"]
    assert report.compare()["last-n"].losses == 2
    json.dumps([run.wrong for run in runs])
