"""A session for tests: a booking and a repair, with a rule, a receipt, a replaced result and much reading."""

import json
from collections.abc import Iterator
from typing import Any

from refold.readers.session import Session

TASK = "Book the cheapest flight from Lisbon to Oslo for Ines Prado, then fix the failing test of the price module."
RULE = "Never book a flight that leaves before 9:00, she cannot get up so early."


def call(number: int, name: str, **arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def grow_messages() -> Iterator[dict[str, Any]]:
    """Yield a booking and a repair: a rule, a receipt, a failing run, an edit, a passing run, and much reading."""
    yield {"role": "system", "content": "You are a helpful agent."}
    yield {"role": "user", "content": TASK}
    yield {"role": "assistant", "content": "Which times suit her?"}
    yield {"role": "user", "content": RULE}
    receipt = {"status": "booked", "reservation_id": "QX7K2M", "amount": "214.50", "currency": "EUR"}
    yield call(1, "book_flight", passenger="Ines Prado", flight="TP762")
    yield result(1, json.dumps(receipt))
    yield call(2, "bash", command="python -m pytest tests/test_price.py")
    yield result(2, "FAILED tests/test_price.py::test_total - assert 2 == 3\n1 failed, 2 passed in 0.42s")
    yield call(3, "edit", path="shop/price.py", old_string="return net", new_string="return round(net * 1.25, 2)")
    yield result(3, "edited")
    yield call(4, "bash", command="python -m pytest tests/test_price.py")
    yield result(4, "3 passed in 0.31s")
    for number in range(5, 25):
        yield call(number, "bash", command=f"cat notes/part_{number}.txt")
        yield result(number, f"line {number} of the notes " * 60)
    yield {"role": "assistant", "content": "The notes are read; nothing else is open."}


SESSION = Session("trip", tuple(grow_messages()))
