"""A result of recall is a unit of meaning: it can be understood, and used, without looking around it."""

import json
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from tests.rigs.recall import Workspace

FILLER = [f"Looking at part {at} of the harbour plan, nothing of note." for at in range(30)]
TASK = """Please mend the tide table of the harbour.

## Important
- Work only in the folder `tides`.
- Keep every public name.

## Submission
When your work is finished, submit it with this one command:

```
echo HARBOUR_DONE && git add -A && git diff --cached
```

This cannot be undone, so check everything before."""


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    made = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


def test_an_agent_that_asks_how_to_finish_finds_the_command_with_its_sentence(workspace: Workspace) -> None:
    padding = "The harbour has many piers and each of them has its own gauge. " * 16
    workspace.say("s", f"{padding}\n\n{TASK}", *FILLER)
    best = workspace.recall.recall("s", "how do I submit my work when finished")[0]
    assert "submit it with this one command" in best.text
    assert "git diff --cached" in best.text, "no border separates a sentence from its code"


def test_a_call_is_found_with_its_result_and_a_result_with_its_call(workspace: Workspace) -> None:
    workspace.add(
        "s",
        [
            {"role": "user", "content": "Check the gauges."},
            call(1, "bash", command="cat gauges/north.txt"),
            result(1, "level 4.71 metres, sensor frozen"),
            call(2, "bash", command="pytest tests/tides"),
            result(2, "3 failed, 12 passed"),
            {"role": "assistant", "content": "The gauge in the north is frozen."},
        ],
    )
    (of_call,) = workspace.recall.recall("s", "gauges/north.txt", 1)
    assert [said.role for said in of_call.said] == ["assistant", "tool"]
    assert "sensor frozen" in of_call.said[1].text
    (of_result,) = workspace.recall.recall("s", "12 passed", 1)
    assert "pytest tests/tides" in of_result.said[0].text
    assert "north" not in of_result.said[0].text, "the call of another result is not its own"


def test_code_comes_back_as_it_was_written(workspace: Workspace) -> None:
    code = 'def tide(hour):\n    if hour > 6:\n        return "ebb"\n    return "flood"\n'
    workspace.add("s", [call(1, "write", path="tides/table.py", content=code), result(1, "written")])
    workspace.add("s", [call(2, "read", path="x"), result(2, json.dumps({"output": 'say("moin")\nsay("tschüss")'}))])
    (found,) = workspace.recall.recall("s", "flood", 1)
    assert code.strip() in found.text
    assert "\\n" not in found.text
    assert workspace.find("s", "return flood")[0] == found.text, "a word after a line break is a word"
    assert 'say("moin")\n' in workspace.find("s", "moin", 1)[0]


def test_a_long_call_is_cut_at_the_lines_of_its_code(workspace: Workspace) -> None:
    lines = [f"if tide(hour={at}) == 'flood':  # pier {at} of the north quay" for at in range(80)]
    workspace.add("s", [call(1, "write", path="tides/table.py", content="\n".join(lines)), result(1, "written")])
    (found,) = workspace.recall.recall("s", "pier 55", 1)
    assert not found.is_whole
    assert found.text.splitlines()[0] in lines
    assert lines[55] in found.text


def test_a_question_comes_with_its_answer_and_counts_once(workspace: Workspace) -> None:
    workspace.say("s", "Which berth did the harbour master give us?", "Berth 14, on the south quay.", *FILLER[:10])
    found = workspace.recall.recall("s", "berth of the harbour master", 3)
    assert [said.text for said in found[0].said] == [
        "Which berth did the harbour master give us?",
        "Berth 14, on the south quay.",
    ]
    handles = [said.handle for one in found for said in one.said]
    assert len(handles) == len(set(handles)), "nothing is shown twice"


def test_records_are_no_results(tmp_path: Path) -> None:
    config = CompressionConfig(window=3_000, recall={"embeddings": "off"})
    with ContextCompressionManager(config, tmp_path) as manager:
        history: list[dict[str, Any]] = [{"role": "user", "content": "The keel number is KX-4417. Watch the tide."}]
        for at in range(60):
            history.append({"role": "assistant", "content": f"Step {at}: " + FILLER[at % 30] * 4})
            history.append({"role": "user", "content": f"Go on with step {at + 1}, and watch the tide."})
            manager.prepare_context_sync("s", history)
        assert manager.status("s").compression_count
        found = manager.recall("s", "KX-4417 keel number")
        originals = {json.dumps(one["content"]) for one in history}
        assert found
        assert all(json.dumps(said.text) in originals for one in found for said in one.said if one.is_whole)
        assert {said.role for one in found for said in one.said} <= {"user", "assistant"}


def test_what_belongs_to_a_forgotten_message_is_gone_with_it(workspace: Workspace) -> None:
    ids = workspace.say("s", "What is the code of the lock?", "The code is 7319, keep it.", *FILLER[:6])
    workspace.recall.recall("s", "code of the lock")
    workspace.recall.forget("s", ids[1:2])
    workspace.ledger.forget("s", ids[1:2], 2.0)
    found = workspace.recall.recall("s", "code of the lock")
    assert all("7319" not in said.text for one in found for said in one.said)
