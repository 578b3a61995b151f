"""``refold eval`` as people run it: an exit code for continuous integration, reports, own questions, a judge."""

import json
from xml.etree import ElementTree

import pytest

from refold.testing import ScriptedProvider, say
from tests.rigs.cli import Shell
from tests.rigs.trip import SESSION


@pytest.fixture
def logs(shell: Shell) -> Shell:
    shell.write("trip.jsonl", json.dumps({"id": "trip", "messages": list(SESSION.messages)}) + "\n")
    return shell


def test_the_command_fails_for_a_planted_fault_and_passes_for_the_identity(logs: Shell) -> None:
    base = ("eval", "trip.jsonl", "--window", "3000", "--ci", "--compressors")
    fault = logs.refold(*base, "tests.rigs.compressors:forgets_the_task")
    assert fault.code == 1
    assert "✗ tests.rigs.compressors:forgets_the_task: retained" in fault.text
    # The whole session does not fit the window, so the identity is given a large one.
    ran = logs.refold("eval", "trip.jsonl", "--ci", "--compressors", "tests.rigs.compressors:identity")
    assert ran.code == 0, ran.text + ran.err
    assert "meets every threshold" in ran.text


def test_thresholds_come_from_the_folders_settings(logs: Shell) -> None:
    logs.write("refold.yaml", "eval: {retained: 0.01, known: 0.01}\n")
    ran = logs.refold("eval", "trip.jsonl", "--window", "6000", "--ci", "--compressors", "trim")
    assert ran.code == 0, ran.text
    logs.write("refold.yaml", "eval: {retained: 2}\n")
    ran = logs.refold("eval", "trip.jsonl")
    assert ran.code == 3
    assert "share from 0 to 1" in ran.err


def test_two_compressors_are_compared_in_every_kind_of_report(logs: Shell) -> None:
    base = ("eval", "trip.jsonl", "--window", "3000", "--compressors", "default,last-n,default+depth=generous")
    for ending in ("json", "md", "html", "xml"):
        ran = logs.refold(*base, "--out", f"report.{ending}")
        assert ran.code == 0, ran.err
    told = json.loads((logs.folder / "report.json").read_text())
    assert told["differences"]["known"]["last-n"]["mean"] < 0
    assert set(told["arms"]) == {"default", "last-n", "default+depth=generous"}
    tree = ElementTree.fromstring((logs.folder / "report.xml").read_text())
    assert [suite.get("name") for suite in tree] == list(told["arms"])
    assert "<script" not in (logs.folder / "report.html").read_text()
    assert "| last-n | known |" in (logs.folder / "report.md").read_text()


def test_own_questions_are_answered_from_the_view(logs: Shell) -> None:
    logs.write(
        "questions.yaml",
        "- {session: trip, question: 'What is the reservation?', answer: QX7K2M}\n"
        "- {question: 'Do the tests pass?', pattern: '3 passed', after: 20}\n"
        "- {question: 'Is the old price gone?', answer: 999.99, absent: true}\n"
        "- {session: another, question: Never asked, answer: x}\n",
    )
    base = ("eval", "trip.jsonl", "--window", "3000", "--questions", "questions.yaml", "--json", "--compressors")
    told = json.loads(logs.refold(*base, "default").text)
    asked = told["arms"]["default"]["sessions"][0]["questions"]
    assert [one["answered"] for one in asked] == [True, True, True]
    assert {check["name"]: check["is_met"] for check in told["checks"]}["questions"]
    told = json.loads(logs.refold(*base, "last-n").text)
    assert not {check["name"]: check["is_met"] for check in told["checks"]}["questions"]


def test_a_judge_answers_from_the_view_and_grades(logs: Shell) -> None:
    logs.write("questions.yaml", "- {question: 'What is the reservation?', answer: QX7K2M}\n")
    with ScriptedProvider([say("The reservation is QX7K2M."), say("yes")]) as provider:
        ran = logs.refold(
            *("eval", "trip.jsonl", "--window", "3000", "--questions", "questions.yaml", "--judge", "--json"),
            OPENAI_API_KEY="sk-test",
            OPENAI_BASE_URL=f"{provider.url}/v1",
            REFOLD_COMPACT_MODEL="gpt-5",
        )
        assert ran.code == 0, ran.err
        told = json.loads(ran.text)
        assert told["arms"]["default"]["figures"]["graded"] == 1.0
        asked, graded = (request.body.decode() for request in provider.requests)
        assert "QX7K2M" in asked
        assert "Expected answer: QX7K2M" in graded
