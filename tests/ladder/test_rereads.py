"""The contents of items are found once for each, and are the same as if all were examined again."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from refold.conversation.view import Item
from refold.formats import detect, parse_messages
from refold.ladder.rereads import ItemKinds, expect_rereads

LONG = "cat > a.py << EOF\n" + "x = 1\n" * 90 + "EOF"
COMMANDS = ("cat src/app.py", "grep -rn port src", "pytest -q", LONG)
RESULTS = ("42 passed", "Traceback (most recent call last):\nValueError: no", "x = 1\n" * 40)


def make_items(steps: list[tuple[int, int]]) -> list[Item]:
    raws: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    for at, (command, result) in enumerate(steps):
        call = {"name": "bash", "arguments": json.dumps({"command": COMMANDS[command]})}
        calls = [{"id": f"c{at % 3}", "type": "function", "function": call}]
        raws.append({"role": "assistant", "content": "Next.", "tool_calls": calls})
        raws.append({"role": "tool", "tool_call_id": f"c{at % 3}", "content": RESULTS[result]})
    messages = parse_messages(detect(raws), raws)
    return [Item(one.raw, one.role, one.parts, 100, (one,)) for one in messages]


steps = st.lists(
    st.tuples(st.integers(0, len(COMMANDS) - 1), st.integers(0, len(RESULTS) - 1)), min_size=1, max_size=12
)


@given(steps, steps, st.integers(0, 3_000), st.data())
def test_a_list_that_grows_is_classified_as_if_it_were_new(one, other, removed, data) -> None:
    known, whole = ItemKinds(), make_items(one)
    growing: list[Item] = []
    while len(growing) < len(whole):
        growing += whole[len(growing) : len(growing) + data.draw(st.integers(1, 4))]
        if data.draw(st.booleans()):
            growing[-1] = replace(growing[-1], parts=growing[0].parts)
        ask = partial(expect_rereads, growing, removed)
        assert ask(known=known) == ask()
        assert list(known.update(growing)) == list(ItemKinds().update(growing))
    # A compression makes another list.
    compressed = [*make_items(other)[: len(growing) - 1], growing[-1]]
    assert list(known.update(compressed)) == list(ItemKinds().update(compressed))
