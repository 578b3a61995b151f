"""What is read of recorded sessions: right places, tasks that keep how to finish, notices that wish nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold.formats import detect, parse_messages
from refold.reading.events import HarnessNote, Statement, Utterance
from refold.reading.read import read_all
from tests.rigs.recorded import CHATS, read_records

EVERY = {
    "tau_airline": 14,
    "swe_mini": 12,
    "bfcl_long_replay": 14,
    "zh_dialogues": 20,
    "locomo": 4,
    "zh_long_concat": 7,
}


@pytest.mark.parametrize("name", CHATS)
def test_sentences_of_recorded_sessions_are_verbatim_and_one_closes_a_message(shared_data: Path, name: str) -> None:
    for session in read_records(shared_data, name, EVERY.get(name, 6)):
        messages = parse_messages(detect(session["messages"]), session["messages"])
        for message, events in zip(messages, read_all(messages), strict=True):
            said = [event for event in events if isinstance(event, Utterance | Statement | HarnessNote)]
            for event in said:
                text = message.parts[event.part].text
                assert text[event.start : event.stop] == event.text
                assert getattr(event, "block", "") in text
            assert sum(getattr(event, "is_last", False) for event in said) <= 1
            assert not (message.role == "assistant" and any(isinstance(event, Utterance) for event in said))


def test_a_recorded_task_keeps_the_command_that_finishes_it(shared_data: Path) -> None:
    found = 0
    for session in read_records(shared_data, "swe_mini", 8):
        messages = parse_messages(detect(session["messages"]), session["messages"])
        said = [event for events in read_all(messages[:2]) for event in events if isinstance(event, Utterance)]
        finish = [event for event in said if "COMPLETE_TASK_AND_SUBMIT" in event.block]
        assert len(finish) == 1
        assert "exactly the following command" in finish[0].text
        found += 1
    assert found > 10


def test_a_complaint_of_a_recorded_harness_is_nobodys_wish(shared_data: Path) -> None:
    complaints = 0
    for session in read_records(shared_data, "swe_mini", 6):
        messages = parse_messages(detect(session["messages"]), session["messages"])
        for message, events in zip(messages, read_all(messages), strict=True):
            if message.parts and message.parts[0].text.startswith("Please always provide EXACTLY ONE action"):
                complaints += 1
                kinds = [event.kind for event in events if isinstance(event, HarnessNote | Utterance)]
                assert kinds == ["complaint"]
    assert complaints
