"""The state of real sessions: on every wire, in any chunks, with every act that cannot be undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refold.conversation.message import Message
from refold.formats.detect import make_format, parse_messages
from refold.reading.advance import advance, make_reader
from refold.reading.state import State
from refold.reading.state_page import write_state
from tests.rigs.convert import to_anthropic, to_responses
from tests.rigs.recorded import CHATS, read_records

EVERY = {
    "tau_airline": 5,
    "swe_mini": 8,
    "bfcl_long_replay": 12,
    "zh_dialogues": 40,
    "zh_long_concat": 7,
    "agent_long": 4,
}
# Tools of the airline that change something for good.
FINAL = ("book_", "cancel_", "update_reservation_", "send_certificate", "transfer_to_human")


def read(messages: list[Message], chunk: int = 10_000) -> State:
    state = State()
    for start in range(0, len(messages), chunk):
        state = advance(state, messages[start : start + chunk], make_reader())
    return state


def parse(raws: list[Any], form: str = "openai") -> list[Message]:
    return parse_messages(make_format(form), raws)


@pytest.mark.parametrize("name", CHATS)
def test_any_chunks_give_the_same_state_and_it_prints(name: str, shared_data: Path) -> None:
    for session in read_records(shared_data, name, EVERY.get(name, 1)):
        messages = parse(session["messages"])
        state = read(messages)
        assert state == read(messages, 7), session["id"]
        assert state.messages == len(messages)
        assert write_state(state, "zh" if name.startswith("zh") else "en")


def test_every_act_of_the_airline_that_took_place_is_in_the_state(shared_data: Path) -> None:
    for session in read_records(shared_data, "tau_airline", EVERY["tau_airline"]):
        calls: list[str] = []
        done = []
        for message in session["messages"]:
            calls += [call["function"]["name"] for call in message.get("tool_calls") or ()]
            if message["role"] == "tool" and (name := calls.pop(0)).startswith(FINAL):
                done += [] if message["content"].startswith("Error") else [name]
        assert [act.tool for act in read(parse(session["messages"])).acts] == done, session["id"]


def test_the_state_says_how_to_finish_where_the_task_does(shared_data: Path) -> None:
    for session in read_records(shared_data, "swe_mini", EVERY["swe_mini"]):
        task = read(parse(session["messages"])).task
        assert task is not None
        assert task.finish is not None
        assert "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in task.finish.text


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_every_wire_gives_the_same_files_and_acts(wire: str, shared_data: Path) -> None:
    for session in [*read_records(shared_data, "tau_airline", 20), *read_records(shared_data, "swe_mini", 30)]:
        convert = to_anthropic if wire == "anthropic" else to_responses
        body = convert(session["messages"], session.get("tools"))
        state, other = read(parse(session["messages"])), read(parse(body.get("messages") or body["input"], wire))
        assert [(file.path, file.kind, file.added) for file in state.files] == [
            (file.path, file.kind, file.added) for file in other.files
        ], session["id"]
        assert [(act.tool, act.receipt) for act in state.acts] == [(act.tool, act.receipt) for act in other.acts]
        assert (state.task and state.task.quote.text) == (other.task and other.task.quote.text)
