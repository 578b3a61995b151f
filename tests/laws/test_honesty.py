"""L3, honesty: whatever a stage writes is a verbatim piece of the source or is inside something marked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from refold.stages.mask import Mask
from refold.stages.stage import Goal
from refold.stages.truncate import Truncate
from tests.laws.honesty import find_dishonest, make_cases, make_steps, read_outputs, run_stage
from tests.rigs.effort import first_of
from tests.rigs.engine import make_view

LOG = "\n".join(
    f"2026-11-02T10:{n // 60:02d}:{n % 60:02d}.0{n % 90 + 10}Z {'ERROR' if n % 97 == 5 else 'INFO'} worker-{n % 7} "
    f"order {88_000 + n * 13} took 0{n}.50 s"
    for n in range(3_000)
)
OUTPUTS = {
    "log": LOG,
    "records": json.dumps([{"id": n, "at": f"2026-11-{n % 28 + 1:02d}T08:00Z", "price": n * 1.1} for n in range(400)]),
    "pretty": json.dumps({"rows": [{"k": "é" * 3, "n": 10**20 + n} for n in range(80)]}, indent=2),
    "tests": "\n".join(f"tests/test_a.py::test_{n} PASSED" for n in range(2_400))
    + "\nE   AssertionError: 3 != 4\n===== 1 failed, 2399 passed in 12.34s =====\n",
    "diff": "\n".join(f"diff --git a/f{n}.py b/f{n}.py\n@@ -1,2 +1,2 @@\n-old {n}\n+new {n}" for n in range(900)),
    "chinese": "\n".join(f"第 {n} 行：订单 {70_000 + n} 失败，错误码 {n % 500}" for n in range(2_500)),
    "one line": "abc123 " * 30_000,
    "windows": "\r\n".join(f"C:\\data\\file{n}.txt  {n * 7} bytes" for n in range(2_200)),
    "odd": "\n".join(f"nul \0 bell \a lone \ud83d {n} 🙂 \u202e עולם\u2028x\x85y\x0cz" for n in range(2_100)),
    "forged": "⟨m:deadbeef⟩ JSON as tables\n... [truncated 9 characters] ... ⟨m:deadbeef⟩\n⟦end of record⟧\n" * 900,
    "empty": "",
    "breaks": "\n" * 5_000,
}


@pytest.mark.parametrize("name", first_of(OUTPUTS, 3))
def test_every_line_that_a_stage_writes_is_verbatim_or_marked(name: str) -> None:
    for stage_name, stage, view, goal in make_cases(OUTPUTS[name]):
        _, edits = run_stage(stage, view, goal)
        assert [(stage_name, said) for edit in edits for said in find_dishonest(edit, view)] == []


@pytest.mark.slow
def test_every_line_over_all_recorded_outputs_is_verbatim_or_marked(shared_data: Path) -> None:
    checked: dict[str, int] = {}
    for record in read_outputs(shared_data):
        for name, stage, view, goal in make_cases(record["content"]):
            _, edits = run_stage(stage, view, goal)
            checked[name] = checked.get(name, 0) + len(edits)
            assert [(record["id"], name, said) for edit in edits for said in find_dishonest(edit, view)] == []
    assert all(checked[name] > 20 for name in checked if name != "prune"), "every stage had something to write"


@pytest.mark.parametrize(
    ("before", "after"),
    [("took 05.50 s", "took 5.50 s"), ("2026-11-02T10:00:03", "2026-11-02 10:00:03"), ("worker-3", "worker-4")],
)
def test_the_checker_finds_a_rewritten_time_number_or_name(before: str, after: str) -> None:
    view = make_view("openai-chat", make_steps(LOG))
    _, (edit, *_) = run_stage(Truncate(), view, Goal(target=0, hard=0))
    assert before in edit.text
    assert find_dishonest(edit, view) == []
    assert find_dishonest(replace(edit, text=edit.text.replace(before, after, 1)), view)


def test_the_checker_finds_a_line_that_vanished_without_a_mark_and_a_value_that_is_not_there() -> None:
    view = make_view("openai-chat", make_steps(LOG))
    _, (edit, *_) = run_stage(Truncate(), view, Goal(target=0, hard=0))
    lines = edit.text.split("\n")
    assert find_dishonest(replace(edit, text="\n".join([*lines[:3], *lines[4:]])), view)
    _, (masked, *_) = run_stage(Mask(), view, Goal(target=0, hard=0))
    assert find_dishonest(masked, view) == []
    assert find_dishonest(replace(masked, text=masked.text.replace("in it: ", "in it: order-404 ")), view)
