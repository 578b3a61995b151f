"""Small conversations for the tests of the stages, and the check that every line a stage writes is honest."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from refold.conversation import Edit, View
from refold.conversation.message import find_marks
from refold.ladder.run import take_edits
from refold.stages.stage import Goal, Stage
from refold.testing import find_violations
from tests.rigs.engine import make_view
from tests.rigs.strategies import Talk

NOTHING_MET = Goal(target=0, hard=0)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(tool: str, arguments: object, output: Any, *, call_id: str = "call_1") -> list[dict[str, Any]]:
    """An assistant message with one call, and its result; the id repeats from step to step as real traces do."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    call = {"id": call_id, "type": "function", "function": {"name": tool, "arguments": written}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


def lines(count: int, word: str = "line") -> str:
    return "\n".join(f"{word} {number} of the output" for number in range(count))


def view_of(messages: Sequence[Any], wire: str = "openai-chat") -> View:
    return make_view(wire, messages)


def propose(stage: Stage, view: View, goal: Goal = NOTHING_MET) -> list[Edit]:
    edits = stage.propose(view, goal)
    assert isinstance(edits, list)
    return edits


def run(stage: Stage, view: View, goal: Goal = NOTHING_MET) -> View:
    """Apply what a stage proposes, the laws raising."""
    after, _ = take_edits(view, propose(stage, view, goal), stage.name, is_last=stage.name == "clamp", strict=True)
    return after


def run_on(talk: Talk, stage: Stage, goal: Goal = NOTHING_MET) -> tuple[View, list[Edit]]:
    """Hold a stage to what holds of any conversation; return the view before it, and what it proposed."""
    view = view_of(talk.messages, talk.wire)
    edits = propose(stage, view, goal)
    assert edits == propose(stage, view_of(talk.messages, talk.wire), goal), "same input, same bytes"
    assert all(edit.tokens_after < edit.tokens_before for edit in edits)
    after = run(stage, view, goal)
    assert all(after.items[at].raw is view.items[at].raw for at in view.protected)
    faults = find_violations(talk.wire, talk.messages)
    assert len(find_violations(talk.wire, [item.raw for item in after.items])) <= len(faults)
    return view, edits


def shown(view: View) -> list[str]:
    """The text of every item as the model sees it."""
    return ["\n".join(part.text for part in item.parts) for item in view.items]


def read_records(folder: Path, name: str, most: int) -> list[dict[str, Any]]:
    """The first records of a recorded data set."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as opened:
        return [json.loads(line) for line in islice(opened, most)]


def find_dishonest(edits: Sequence[Edit], view: View) -> list[str]:
    """Lines that are neither verbatim, nor marked, nor within a block whose first and last line are marked."""
    originals = {message.id: message for message in view.messages}
    wrong = []
    for edit in edits:
        assert edit.part is not None
        source = originals[edit.covers[0]].parts[edit.part].text if originals[edit.covers[0]].parts else ""
        in_block = False
        for line in edit.text.split("\n"):
            is_marked = bool(find_marks(line))
            if is_marked and line.startswith("[") and line.endswith(":"):
                in_block = True
            elif is_marked and line.endswith("]"):
                in_block = False
            elif not (is_marked or in_block or line in source):
                wrong.append(line)
        if in_block:
            wrong.append(f"a block that does not end: {edit.text[:80]}")
    return wrong
