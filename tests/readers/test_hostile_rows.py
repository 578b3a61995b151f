"""Rows with anything in any place: a reader reads them or refuses them, and never fails in another way."""

import copy
import json
import random
from typing import Any

import pytest

from refold.errors import RefoldError
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.readers.file import find_conversations, read_value
from refold.readers.session import find_title
from tests.readers.test_client_histories import PI, QWEN
from tests.readers.test_other_kinds import ASKED, FOUND, MEND, langfuse_call
from tests.rigs.histories import agent_messages, claude_rows, codex_rows

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, "", " ", "\ud800", "退款", [], {}, [[]], [None], {"type": {}}, {"role": []}, "[{]"),
    *(
        "assistant",
        "tool_result",
        "GENERATION",
        10**30,
        10**400,
        -(10**400),
        float("nan"),
        float("inf"),
        ["a", 1],
        {"function": None},
        {"content": {"text": 3}},
    ),
)
CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
KINDS: dict[str, list[Any]] = {
    "claude": [row for row in claude_rows() if isinstance(row, dict)],
    "codex": [row for row in codex_rows() if isinstance(row, dict)],
    "pi": PI,
    "qwen": QWEN,
    "sharegpt": [
        {
            "id": "s",
            "system": "Be brief.",
            "tools": "[]",
            "conversations": [
                {"from": "human", "value": "Hi"},
                {"from": "function_call", "value": json.dumps({"name": "f", "arguments": {}})},
                {"from": "observation", "value": "3"},
                {"from": "gpt", "value": "Three"},
            ],
        }
    ],
    "langfuse": [
        langfuse_call(1, [ASKED], FOUND),
        langfuse_call(2, [ASKED, FOUND, MEND], {"choices": [{"message": FOUND}]}),
    ],
    "langsmith": [
        {
            "id": "r",
            "trace_id": "t",
            "run_type": "llm",
            "inputs": {
                "messages": [[{"id": ["x", "HumanMessage"], "kwargs": {"content": "Hi", "tool_calls": [CALL]}}]]
            },
            "outputs": {"generations": [[{"message": {"id": ["AIMessage"], "kwargs": {"content": "Yes"}}}]]},
            "extra": {"metadata": {"ls_model_name": "gpt-5.5"}},
        }
    ],
    "log": [{"request": {"messages": agent_messages(2), "model": "gpt-5.5"}, "timestamp": "2026-11-01T10:00:00Z"}],
}


def list_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in list_places(one, (*path, key)))]


def spoil(rows: list[Any], dice: random.Random) -> list[Any]:
    """Put something odd in one to three places, or take them away."""
    spoilt: list[Any] = copy.deepcopy(rows)
    for _ in range(dice.randint(1, 3)):
        place = dice.choice([one for one in list_places(spoilt) if one] or [()])
        if not place:
            return spoilt
        holder: Any = spoilt
        for key in place[:-1]:
            holder = holder[key]
        if dice.random() < 0.3:
            del holder[place[-1]]
        else:
            holder[place[-1]] = copy.deepcopy(dice.choice(ODD))
    return spoilt


@pytest.mark.parametrize("kind", list(KINDS))
def test_spoilt_rows_are_read_or_refused(kind: str) -> None:
    read = 0
    for seed in range(400):
        rows = spoil(KINDS[kind], random.Random(f"{kind}{seed}"))
        try:
            sessions = read_value(rows, "file.jsonl").sessions
            find_conversations(rows, "file.jsonl")
        except RefoldError:
            continue
        for session in sessions:
            find_title(session)
            try:
                parse_messages(make_format(session.format), session.messages)
                read += 1
            except RefoldError:
                continue
    assert read > 40, "many flaws do no harm"


@pytest.mark.parametrize("value", ODD)
def test_any_json_value_is_refused_with_a_reason(value: Any) -> None:
    with pytest.raises(RefoldError):
        read_value(value, "file.json")
    with pytest.raises(RefoldError):
        read_value([value, value], "file.json")


@pytest.mark.parametrize("time", [10**400, -(10**400), 1e300, float("nan"), "0001-01-01T00:00:00+23:59", "9999-99-99"])
@pytest.mark.parametrize("kind", ["claude", "codex", "log"])
def test_an_impossible_time_counts_as_missing(kind: str, time: Any) -> None:
    rows = [{**row, "timestamp": time} for row in KINDS[kind]]
    without = [{key: value for key, value in row.items() if key != "timestamp"} for row in KINDS[kind]]
    read, wanted = read_value(rows, "file.jsonl").sessions, read_value(without, "file.jsonl").sessions
    assert [session.messages for session in read] == [session.messages for session in wanted] != []
